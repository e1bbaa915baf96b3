import * as z from "zod";
import { assetId } from "../inventory/asset.ts";
import { daysUntil, type Moment, STATUSES, statusOf } from "../inventory/asset-status.ts";
import { bucketOf, credentialName, holderName } from "../inventory/holder.ts";
import { pageParameters, queryInstant } from "../platform/http/paging.ts";
import { queryBoolean } from "../platform/http/query-boolean.ts";
import { wholeNumber } from "../platform/http/whole-number.ts";
import { ListFailure, RUN_STATUSES } from "../platform/runs/discovery-runs.ts";
import { type ApplicationRecord, FederatedCredential, type RunRecord } from "./application.ts";
import { BLIND_SPOT_TEXTS, BLIND_SPOTS, type CredentialUsage, isClientSecret } from "./credential-usage.ts";
import type { FoundApplication } from "./query.ts";
import { REASONS } from "./rotatable.ts";

// Schemas of Entra applications and their discovery in the API, and conversions of stored data to them.

/** Largest value of the filter `idle`. Rows about sign-ins are kept for 400 days. */
const MAX_IDLE_DAYS = 365;

const instant = z.iso.datetime().meta({ description: "Time, ISO 8601 in UTC." });
const toInstant = (seconds: number | undefined): string | null =>
  seconds === undefined ? null : new Date(seconds * 1000).toISOString();

export const DiscoveryRun = z
  .object({
    runId: z.string(),
    mode: z.enum(["full", "changes"]).meta({ description: "`changes` reads only changes since the previous run." }),
    status: z.enum(RUN_STATUSES).meta({
      description:
        "`partial`: one of the lists could not be read; its known entries are kept. `failed`: nothing could be read.",
    }),
    requestedBy: z.string(),
    createdAt: instant,
    finishedAt: instant.nullable(),
    apps: z
      .int()
      .nullable()
      .meta({ description: "Number of known applications after the run. Null while it is in progress." }),
    credentials: z.int().nullable().meta({ description: "Number of secrets and certificates." }),
    expiring: z.int().nullable().meta({ description: "Number of credentials with status warning or critical." }),
    unnamedOwners: z.int().nullable().meta({
      description:
        "Number of owners of whom Microsoft Graph returned neither a name nor an address in the last full listing. Grant the service's identity User.ReadBasic.All to read those of users. Null before the first full listing.",
    }),
    failures: z.array(ListFailure).meta({ description: "Lists that could not be read, with the remedy." }),
  })
  .meta({ id: "ApplicationDiscovery" });

/** Converts a discovery run to the form in API responses. */
export function runView(run: RunRecord): z.infer<typeof DiscoveryRun> {
  const { runId, mode, status, requestedBy, createdAt, finishedAt, apps, credentials, expiring, failures } = run;
  const { unnamedOwners } = run;
  return {
    runId,
    mode,
    status,
    requestedBy,
    createdAt,
    finishedAt: finishedAt ?? null,
    apps: apps ?? null,
    credentials: credentials ?? null,
    expiring: expiring ?? null,
    unnamedOwners: unnamedOwners ?? null,
    failures,
  };
}

export const CredentialUsageView = z
  .object({
    lastUsedAt: instant.nullable().meta({ description: "Time of the last logged sign-in. Null if no log has one." }),
    idleDays: z.int().min(0).nullable().meta({
      description:
        "Number of whole days without a sign-in of the application, as complete logs prove. Null if no log proves it.",
    }),
    evidence: z.string().meta({
      description: "Result of the logs, or the missing log, as a sentence.",
      example: "The last sign-in with it in the log was on 2026-11-02. The log is complete since 2026-08-01.",
    }),
    blindSpots: z.array(z.enum(BLIND_SPOTS)).meta({
      description: `Uses that the logs never show. ${BLIND_SPOTS.map((spot) => `\`${spot}\`: ${BLIND_SPOT_TEXTS[spot]}`).join("; ")}.`,
    }),
  })
  .meta({ id: "CredentialUsage" });

/** Converts the use of a client secret to the form in API responses. */
export const usageView = ({
  lastUsedAt,
  idleDays,
  evidence,
}: CredentialUsage): z.infer<typeof CredentialUsageView> => ({
  lastUsedAt: lastUsedAt ?? null,
  idleDays: idleDays ?? null,
  evidence,
  blindSpots: [...BLIND_SPOTS],
});

const Credential = z
  .object({
    keyId: z.string(),
    assetId: z.string().meta({ description: "ID of the credential in the inventory." }),
    kind: z
      .enum(["secret", "certificate"])
      .meta({ description: "Whether the credential is a client secret or a certificate." }),
    of: z
      .enum(["application", "servicePrincipal"])
      .meta({ description: "Whether the credential belongs to the application or to its service principal." }),
    displayName: z.string().nullable(),
    hint: z.string().nullable().meta({ description: "For a secret: its first three characters." }),
    thumbprint: z.string().nullable().meta({ description: "For a certificate: SHA-1 thumbprint, hexadecimal." }),
    startsOn: instant.nullable().meta({ description: "Time from which the credential is valid. Null if not set." }),
    expiresOn: instant.nullable(),
    status: z
      .enum(STATUSES)
      .meta({ description: "Status by the time until expiry and the compliance policy, computed at request time." }),
    daysUntilExpiry: z.int().nullable(),
    usage: CredentialUsageView.nullable().meta({
      description: "Use of a client secret, as sign-in logs show it. Null for a certificate.",
    }),
  })
  .meta({ id: "ApplicationCredential" });

export const Application = z
  .object({
    appId: z.string().meta({ description: "Client ID of the application." }),
    objectId: z.string().meta({ description: "Object ID in the directory. Microsoft Graph uses it for changes." }),
    kind: z.enum(["application", "servicePrincipal"]).meta({
      description:
        "`servicePrincipal`: the application belongs to another tenant and has its own credentials in this tenant.",
    }),
    displayName: z.string(),
    owners: z
      .array(
        z.object({
          id: z.string(),
          displayName: z.string().nullable(),
          userPrincipalName: z.string().nullable().meta({ description: "User principal name of the owner." }),
          mail: z.string().nullable().meta({ description: "E-mail address of the owner." }),
          isService: z.boolean().meta({
            description:
              "True for the service's own identities, the current one and earlier ones. They may be owners in order to rotate secrets.",
          }),
        }),
      )
      .nullable()
      .meta({ description: "Owners, up to 20. Null when unknown." }),
    credentials: z.array(Credential).meta({ description: "Client secrets and certificates of the application." }),
    federated: z.array(FederatedCredential).nullable().meta({
      description: "Federated credentials, cached for a day. Null until the application is requested by its ID.",
    }),
    rotatable: z.boolean().meta({ description: "Whether the application can be rotated, as far as known." }),
    reasons: z
      .array(z.object({ code: z.enum(REASONS), message: z.string() }))
      .meta({ description: "Reasons why the application can't be rotated, and how to fix them." }),
    policy: z
      .record(z.string(), z.unknown())
      .nullable()
      .meta({ description: "Rotation policy of the application. Null when none is set." }),
    firstSeenAt: instant,
    lastSeenAt: instant.nullable().meta({ description: "Time of the last complete listing of all applications." }),
  })
  .meta({ id: "Application" });

/** Converts an application to the form in API responses. */
export function applicationView(application: FoundApplication, moment: Moment): z.infer<typeof Application> {
  const { app, reasons, policy, serviceObjectIds, lastSeenAt } = application;
  return {
    appId: app.appId,
    objectId: app.objectId,
    kind: app.kind,
    displayName: app.displayName,
    owners:
      app.owners?.map(({ id, displayName, userPrincipalName, mail }) => ({
        id,
        displayName: displayName ?? null,
        userPrincipalName: userPrincipalName ?? null,
        mail: mail ?? null,
        isService: serviceObjectIds.has(id.toLowerCase()),
      })) ?? null,
    credentials: app.credentials.map((credential) => credentialView(application, credential, moment)),
    federated: app.details?.federated ?? null,
    rotatable: reasons.length === 0,
    reasons,
    policy,
    firstSeenAt: app.firstSeenAt,
    // The later of both times: an application that was found since the last complete listing was last seen when it was first
    // seen.
    lastSeenAt: lastSeenAt === undefined ? null : [lastSeenAt, app.firstSeenAt].sort()[1]!,
  };
}

function credentialView(
  { app: { appId }, tenantId, usageOf }: FoundApplication,
  credential: ApplicationRecord["credentials"][number],
  moment: Moment,
): z.infer<typeof Credential> {
  const { keyId, kind, of, displayName, hint, thumbprint, startsOn, expiresOn } = credential;
  const assetKey = { vaultName: holderName(tenantId, bucketOf(appId)), type: kind, name: credentialName(appId, keyId) };
  return {
    keyId,
    assetId: assetId(assetKey),
    kind,
    of,
    displayName: displayName ?? null,
    hint: hint ?? null,
    thumbprint: thumbprint ?? null,
    startsOn: toInstant(startsOn),
    expiresOn: toInstant(expiresOn),
    status: statusOf(expiresOn, moment),
    daysUntilExpiry: expiresOn === undefined ? null : daysUntil(expiresOn, moment),
    usage: isClientSecret(credential) ? usageView(usageOf(credential)) : null,
  };
}

export const ApplicationQuery = z.strictObject({
  status: z.enum(STATUSES).optional().meta({ description: "Applications with a credential of this status." }),
  search: z.string().min(1).max(120).optional().meta({ description: "Part of the display name or of the client ID." }),
  owner: z
    .string()
    .min(1)
    .max(256)
    .optional()
    .meta({ description: "ID, sign-in name, e-mail address or display name of an owner. Not case-sensitive." }),
  rotatable: queryBoolean().optional(),
  expiresBefore: queryInstant("start")
    .optional()
    .meta({ description: "Applications with a credential that expires before this date or time.", type: "string" }),
  idle: wholeNumber(1, MAX_IDLE_DAYS).optional().meta({
    description:
      "Applications with a client secret with which they did not sign in for this number of days. Only complete sign-in logs prove that, so a secret without such logs is never included. Sign-ins of users are not in these logs: see `blindSpots` of each credential's `usage`.",
  }),
  ...pageParameters,
});
