import * as z from "zod";
import { assetId } from "../inventory/asset.ts";
import { parseResourceId, resourceName } from "../platform/azure/resource-id.ts";
import { pageParameters } from "../platform/http/paging.ts";
import { invalidBody } from "../platform/http/problem.ts";
import { singleLine } from "../platform/http/single-line.ts";
import { wholeNumber } from "../platform/http/whole-number.ts";
import { ListFailure, RUN_STATUSES } from "../platform/runs/discovery-runs.ts";
import { acceptUnread, consumersOptions, dryRun, placesOptions } from "./api.ts";
import { ENGINES } from "./database-logins/engines.ts";
import type { DatabaseLogin, RegistrationRequest } from "./database-logins/registrations.ts";
import type { DatabaseServer } from "./database-logins/server-list.ts";
import { namedPlaces } from "./named-places.ts";
import { DEFAULT_OVERLAP_DAYS, MAX_EXPIRY_DAYS, MAX_OVERLAP_DAYS } from "./policy.ts";
import type { DatabaseLoginRequest, ResourceKeyRequest } from "./request.ts";
import { type Credential, credentialOfLogin, type UsedCredential } from "./resource-keys/credential-list.ts";
import { KEY_BLIND_SPOT_TEXTS, KEY_BLIND_SPOTS } from "./resource-keys/credential-usage.ts";
import type { RunRecord } from "./resource-keys/discovery-run.ts";
import { KEY_KINDS } from "./resource-keys/kinds.ts";
import { type Place, placeKey } from "./targets.ts";

/** API schemas of credentials of Azure resources, and of the discovery that finds them. */

/** ID of a credential in examples. */
export const EXAMPLE_ID = "3f786850e387550fdab836ed7e6dc881-1";

/** Maximum number of vault secrets of a login. A rotation reads each several times. */
const MAX_LOGIN_PLACES = 20;

/** Largest value of the filter `due`, in days. */
const MAX_DUE_DAYS = 3650;
/** Largest value of the filter `idle`, in days. Results of logs are kept for 400 days. */
const MAX_IDLE_DAYS = 365;

const kindName = z.enum([...KEY_KINDS, ...ENGINES].map(({ name }) => name)).meta({
  description:
    "Name of the kind of resource, or of database login. GET /api/automation/rotation/issuers describes each.",
  example: "storage",
});

export const CredentialQuery = z.strictObject({
  ...pageParameters,
  kind: kindName.optional(),
  vaultName: z.string().max(127).optional().meta({
    description: "Only credentials that a secret of this key vault stores.",
  }),
  resourceId: z.string().max(2048).optional().meta({ description: "Only credentials of this Azure resource." }),
  assetId: z.string().max(300).optional().meta({
    description: "Only the credential that this vault secret stores (asset ID).",
  }),
  search: z.string().min(1).max(120).optional().meta({
    description: "Part of the name of the resource, or of a vault secret that stores a key. Not case-sensitive.",
  }),
  due: wholeNumber(0, MAX_DUE_DAYS).optional().meta({
    description: "Only credentials of which a vault secret expires within this number of days, or has expired.",
  }),
  idle: wholeNumber(1, MAX_IDLE_DAYS).optional().meta({
    description:
      "Only credentials whose vault secrets were not read for this number of days. Only complete logs of the vaults prove that, so a credential without such logs is never included.",
  }),
});

export const CredentialParams = z.object({
  credential_id: z.string().max(64).meta({ description: "The credentialId of the credential." }),
});

export const CredentialView = z
  .object({
    credentialId: z.string().meta({ description: "ID of the credential.", example: EXAMPLE_ID }),
    issuer: z
      .enum(["resourceKey", "databaseLogin"])
      .meta({ description: "Kind of issuer that creates the new value." }),
    kind: kindName,
    title: z.string().meta({ description: "Name of the kind for people.", example: "storage account" }),
    resourceId: z.string().meta({
      description: "Azure resource ID of the resource that has the keys, or of the database server.",
      example:
        "/subscriptions/9a3b1c52-6a0e-4c7d-9b57-0d3d3a1f2e4b/resourceGroups/rg-payments/providers/Microsoft.Storage/storageAccounts/stpayments",
    }),
    resourceName: z.string().meta({
      description: "Name of the resource, after the names of its parents.",
      example: "stpayments",
    }),
    subscriptionId: z.string(),
    resourceGroup: z.string().meta({ description: "Resource group of the resource.", example: "rg-payments" }),
    keys: z.array(z.string()).meta({
      description:
        "Names of the two keys of the pair, or of the two users. A rotation regenerates the key, or sets the password of the user, that is not in use.",
      example: ["key1", "key2"],
    }),
    keyInUse: z.string().nullable().meta({
      description:
        "Name of the key or user that the vault secrets stored when they were last compared. Null if they stored different ones.",
      example: "key1",
    }),
    expiresOn: z.iso
      .datetime()
      .nullable()
      .meta({ description: "Earliest expiry of the vault secrets. Null if none has an expiry." }),
    places: z
      .array(
        z
          .object({
            assetId: z.string().meta({ description: "Asset ID of the vault secret." }),
            vaultName: z.string(),
            secretName: z.string(),
            keyName: z
              .string()
              .meta({ description: "Name of the key or user that the secret stored.", example: "key1" }),
            version: z.string().meta({ description: "Version of the secret that was compared." }),
            comparedAt: z.iso.datetime().meta({ description: "Time of the last comparison." }),
            comparedBy: z.string().meta({
              description: "User, or `rotation`, that requested the comparison.",
              example: "alice",
            }),
            expiresOn: z.iso
              .datetime()
              .nullable()
              .meta({ description: "Expiry of the secret. Null if it has none, or is not in the inventory." }),
          })
          .meta({ id: "CredentialPlace" }),
      )
      .meta({ description: "Vault secrets that store a key of the pair, found by comparing values." }),
    usage: z
      .object({
        lastReadAt: z.iso
          .datetime()
          .nullable()
          .meta({ description: "Time of the last logged read of one of the vault secrets. Null if no log has one." }),
        idleDays: z.int().min(0).nullable().meta({
          description:
            "Number of whole days in which none of the vault secrets was read, as complete logs prove. Null if no log proves it.",
        }),
        evidence: z.string().meta({
          description: "Result of the logs, or the missing log, as a sentence.",
          example: "No read of its vault secrets is in the logs, which are complete since 2026-08-01.",
        }),
        blindSpots: z.array(z.enum(KEY_BLIND_SPOTS)).meta({
          description: `Uses that the logs never show. ${KEY_BLIND_SPOTS.map((spot) => `\`${spot}\`: ${KEY_BLIND_SPOT_TEXTS[spot]}`).join("; ")}.`,
        }),
      })
      .meta({
        id: "RotationCredentialUsage",
        description: "Reads of the vault secrets that store the key, from logs.",
      }),
  })
  .meta({ id: "RotationCredential" });

/** A credential with the rotation that is in progress. */
export const CredentialDetailView = CredentialView.extend({
  rotationId: z.string().nullable().meta({
    description: "ID of the rotation of the resource that has not ended. Null if there is none.",
  }),
}).meta({ id: "RotationCredentialDetail" });

export const RotateCredentialRequest = z
  .strictObject({
    expiryDays: z.int().min(1).max(MAX_EXPIRY_DAYS).optional().meta({
      description:
        "Days until the new versions of the vault secrets expire. The key itself does not expire. Default: the setting `defaultValidityDays`.",
    }),
    overlapDays: z.int().min(0).max(MAX_OVERLAP_DAYS).default(DEFAULT_OVERLAP_DAYS).meta({
      description: "Days during which the rotation can be rolled back after all consumers hold the new key.",
    }),
    regenerateOld: z.boolean().default(false).meta({
      description:
        "Whether the old key is regenerated after the overlap period, if no known place or consumer has it. By default it stays valid until the next rotation. The old user of a database always gets a random password that is stored nowhere.",
    }),
    acceptUnread,
    targets: placesOptions.targets.meta({
      description:
        "Asset IDs of the only vault secrets that get the new key. Each must store the old key now (409 otherwise). Default: the places that a user confirmed or an earlier rotation wrote. If there are none, the place that has held the key longest.",
    }),
    reason: placesOptions.reason.meta({
      description:
        "`compromised`: someone else may have the old key. `targets` is then required, and the old key is regenerated. Default: a routine rotation.",
    }),
    ...consumersOptions,
    dryRun,
  })
  .meta({ id: "RotateCredentialRequest" });

export const CredentialDiscovery = z
  .object({
    runId: z.string(),
    status: z.enum(RUN_STATUSES).meta({
      description: "`partial`: some keys or secrets could not be read. `failed`: the resources could not be listed.",
    }),
    requestedBy: z.string(),
    createdAt: z.iso.datetime(),
    finishedAt: z.iso.datetime().nullable(),
    resources: z.int().meta({ description: "Number of resources whose keys were listed so far." }),
    resourcesDenied: z.int().meta({
      description: "Number of resources that were not compared, because the identity may not list their keys.",
    }),
    secrets: z.int().meta({ description: "Number of vault secrets that were read so far." }),
    secretsDenied: z
      .int()
      .meta({ description: "Number of vault secrets that were not compared, because the identity may not read them." }),
    links: z.int().meta({ description: "Number of vault secrets found so far that store a key." }),
    removed: z
      .int()
      .meta({ description: "Number of vault secrets that stored a key before and store another value now." }),
    failures: z
      .array(ListFailure)
      .meta({ description: "What could not be read, with the remedy. At most 50, without missing permissions." }),
  })
  .meta({ id: "CredentialDiscovery" });

const toInstant = (seconds: number | undefined): string | null =>
  seconds === undefined ? null : new Date(seconds * 1000).toISOString();

/** Returns all members of a credential's view except its use. */
function viewWithoutUsage({
  issuer,
  credentialId,
  resourceId,
  kind,
  pair,
  places,
}: Credential): Omit<z.input<typeof CredentialView>, "usage"> {
  const id = parseResourceId(resourceId);
  const names = [...new Set(places.map(({ keyName }) => keyName))];
  // A registration that lacks something can have secrets that name neither user.
  const keyInUse = names.length === 1 && pair.includes(names[0]!) ? names[0]! : null;
  const expiries = places.flatMap(({ expiresOn }) => expiresOn ?? []);
  return {
    credentialId,
    issuer,
    kind: kind.name,
    title: kind.title,
    resourceId,
    resourceName: resourceName(resourceId),
    subscriptionId: id?.subscriptionId ?? "",
    resourceGroup: id?.resourceGroup ?? "",
    keys: [...pair],
    keyInUse,
    expiresOn: toInstant(expiries.length === 0 ? undefined : Math.min(...expiries)),
    places: places.map(({ vaultName, secretName, keyName, version, comparedAt, by, expiresOn }) => ({
      assetId: assetId({ vaultName, type: "secret", name: secretName }),
      vaultName,
      secretName,
      keyName,
      version,
      comparedAt,
      comparedBy: by,
      expiresOn: toInstant(expiresOn),
    })),
  };
}

export const credentialView = (credential: UsedCredential): z.input<typeof CredentialView> => ({
  ...viewWithoutUsage(credential),
  usage: {
    lastReadAt: credential.usage.lastReadAt ?? null,
    idleDays: credential.usage.idleDays ?? null,
    evidence: credential.usage.evidence,
    blindSpots: [...KEY_BLIND_SPOTS],
  },
});

/**
 * Returns the request of the rotation of a credential.
 *
 * @throws {Problem} invalidRequest for a login if `targets` are not all of its secrets, because all of them change.
 */
export function rotationRequestOf(
  { issuer, credentialId, resourceId, pair, places }: Credential,
  { dryRun: _, targets, ...options }: z.output<typeof RotateCredentialRequest>,
): ResourceKeyRequest | DatabaseLoginRequest {
  const named = namedPlaces(targets);
  if (issuer === "resourceKey") return { issuer, resourceId, pair: pair[0], targets: named, ...options };
  const keysOf = (all: readonly Place[]) => all.map(placeKey).toSorted().join();
  if (named !== undefined && keysOf(named) !== keysOf(places))
    throw invalidBody("targets", "must be all registered vault secrets of a login, because all of them change");
  const { regenerateOld: _regenerateOld, acceptUnread: _acceptUnread, ...rest } = options;
  return { issuer, loginId: credentialId, ...rest };
}

/** Names that need no quotes in a statement and no escaping in any format of a secret. */
const userName = z
  .string()
  .regex(
    /^[A-Za-z_][A-Za-z0-9_.-]{0,62}$/,
    "must start with a letter or an underscore, and contain only letters, digits, `_`, `.` and `-`, at most 63",
  );

export const DatabaseServerList = z
  .object({
    items: z.array(
      z
        .object({
          serverId: z.string().meta({
            description: "Azure resource ID of the server.",
            example:
              "/subscriptions/9a3b1c52-6a0e-4c7d-9b57-0d3d3a1f2e4b/resourceGroups/rg-payments/providers/Microsoft.DBforPostgreSQL/flexibleServers/psql-payments",
          }),
          name: z.string().meta({ description: "Name of the server.", example: "psql-payments" }),
          kind: z.enum(ENGINES.map(({ name }): string => name)).meta({
            description: "Name of the kind of its logins, as in `kind` of a credential.",
            example: "postgresqlLogin",
          }),
          subscriptionId: z.string(),
          resourceGroup: z.string().meta({ description: "Resource group of the server.", example: "rg-payments" }),
        })
        .meta({ id: "DatabaseServer" }),
    ),
  })
  .meta({ id: "DatabaseServerList" });

export function databaseServerView({ serverId, name, engine }: DatabaseServer) {
  const { subscriptionId, resourceGroup } = parseResourceId(serverId)!;
  return { serverId, name, kind: engine.name, subscriptionId, resourceGroup };
}

export const RegisterCredentialRequest = z
  .strictObject({
    serverId: z.string().min(1).max(900).meta({
      description: "Azure resource ID of the server: a PostgreSQL flexible server in a monitored subscription.",
      example:
        "/subscriptions/9a3b1c52-6a0e-4c7d-9b57-0d3d3a1f2e4b/resourceGroups/rg-payments/providers/Microsoft.DBforPostgreSQL/flexibleServers/psql-payments",
    }),
    // On one line: a NUL would end the name in the message that starts a session, and its rest would be another parameter.
    database: singleLine(63).meta({ description: "Database to which the users connect.", example: "payments" }),
    // Not a tuple: generators of clients don't know its JSON Schema.
    users: z
      .array(userName)
      .length(2)
      .meta({
        description: "Names of the two users. Both need the same rights.",
        example: ["payments_a", "payments_b"],
      }),
    signInAs: singleLine(63).meta({
      description: "Name of the service's identity on the server: the role that is mapped to its Entra principal.",
      example: "credential-lifecycle",
    }),
    places: z
      .array(z.string().min(1).max(300))
      .min(1)
      .max(MAX_LOGIN_PLACES)
      .meta({
        description:
          "Asset IDs of the vault secrets that store the login. All get the new one. Each must name the user: a URI, a connection string, or JSON with a user and a password.",
        example: ["kv-payments.secret.database-url"],
      }),
    dryRun: z.boolean().default(false).meta({
      description: "Returns 200 with what is missing, without any change.",
    }),
  })
  .meta({ id: "RegisterCredentialRequest" });

export const DeletedCredential = z.object({ deleted: z.literal(true) }).meta({ id: "DeletedRotationCredential" });

export const RegisteredCredential = CredentialView.omit({ usage: true })
  .extend({
    credentialId: CredentialView.shape.credentialId.nullable().meta({ description: "Null for a dry run." }),
    missing: z.array(z.string()).meta({
      description: "What prevents the registration, as sentences. Empty after a registration.",
      example: [],
    }),
  })
  .meta({ id: "RegisteredRotationCredential" });

/** Returns the registration that a request asks for. @throws {Problem} invalidRequest */
export const registrationRequestOf = ({
  dryRun: _,
  users: [first, second],
  places,
  ...rest
}: z.output<typeof RegisterCredentialRequest>): RegistrationRequest => ({
  ...rest,
  users: [first!, second!],
  places: namedPlaces(places) ?? [],
});

/** Returns the view of a login that was registered. */
export const registeredView = (login: DatabaseLogin): z.input<typeof RegisteredCredential> => ({
  ...viewWithoutUsage(credentialOfLogin(login)),
  missing: [],
});

/** Returns the view of the login that a dry run would register. */
export const checkedView = (
  login: DatabaseLogin,
  missing: readonly string[],
): z.input<typeof RegisteredCredential> => ({ ...registeredView(login), credentialId: null, missing: [...missing] });

export function discoveryView(run: RunRecord): z.input<typeof CredentialDiscovery> {
  const { runId, status, requestedBy, createdAt, finishedAt, failures } = run;
  const { resources, resourcesDenied, secrets, secretsDenied, links, removed } = run;
  return {
    runId,
    status,
    requestedBy,
    createdAt,
    finishedAt: finishedAt ?? null,
    resources,
    resourcesDenied,
    secrets,
    secretsDenied,
    links,
    removed,
    failures,
  };
}
