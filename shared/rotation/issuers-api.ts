import * as z from "zod";
import { queryBoolean } from "../platform/http/query-boolean.ts";
import { type DatabaseEngine, ENGINES } from "./database-logins/engines.ts";
import type { Issuer } from "./issuers/issuer.ts";
import { isProvenByRequest, KEY_KINDS, type KeyKind, requestOf } from "./resource-keys/kinds.ts";
import { ISSUER_KINDS } from "./rotation.ts";

/** API schemas of the kinds of credentials that rotations replace. */

const CredentialKindView = z
  .object({
    name: z.string().meta({ description: "Name of the kind, as in `kind` of a credential.", example: "storage" }),
    title: z.string().meta({ description: "Name of the kind for people.", example: "storage account" }),
    resourceType: z
      .string()
      .meta({ description: "Type of the Azure resource.", example: "Microsoft.Storage/storageAccounts" }),
    pairs: z.array(z.array(z.string())).meta({
      description:
        "Names of the keys. The two keys of a pair have the same rights, so one can replace the other. Empty for logins of databases, whose users are registered.",
      example: [["key1", "key2"]],
    }),
    connectionStrings: z
      .boolean()
      .meta({ description: "Whether the service finds and rewrites the key in connection strings." }),
    actions: z.array(z.string()).meta({
      description:
        "Actions that the service's identity needs in Azure: to find the resource, list its keys and regenerate one, or to read the server.",
      example: ["Microsoft.Storage/storageAccounts/listkeys/action"],
    }),
    permissions: z
      .object({
        scopes: z.array(z.string()).meta({
          description:
            "Scopes at which the identity's roles permit all `actions`, in lower case: IDs of subscriptions, resource groups or resources.",
          example: ["/subscriptions/9a3b1c52-6a0e-4c7d-9b57-0d3d3a1f2e4b/resourcegroups/rg-payments"],
        }),
        missing: z.array(z.string()).meta({
          description: "Actions that are missing at the scope with the most actions. Empty if `scopes` has an entry.",
          example: ["Microsoft.Storage/storageAccounts/regeneratekey/action"],
        }),
      })
      .meta({ id: "RotatableResourcePermissions" })
      .nullable()
      .meta({
        description:
          "What the service's identity may do now in the monitored subscriptions. Null without `check`, and if keys are not rotated.",
      }),
    proof: z.enum(["request", "list"]).nullable().meta({
      description:
        "How a rotation proves a new key before it is used. `request`: the resource accepts a request with the key; if it gives no clear answer, such as behind a firewall, its list of keys proves the key. `list`: the resource lists the key. Null if keys are not rotated.",
    }),
    proofRequest: z.string().nullable().meta({
      description: "Read-only request with which the resource must accept a new key. Null if `proof` is not `request`.",
      example: "GET /servicestats",
    }),
    proofReason: z.string().nullable().meta({
      description: "Why no request proves a new key. Null if `proof` is not `list`.",
      example: "A topic has no call except publishing, and subscribers receive a published event.",
    }),
    proofDocumentation: z
      .url()
      .nullable()
      .meta({ description: "Documentation of the request or of the reason. Null if keys are not rotated." }),
    rotatable: z.boolean().meta({ description: "Whether rotations can regenerate a key of the kind." }),
    reason: z.string().nullable().meta({ description: "Why no key of the kind is rotated. Null if keys are rotated." }),
    documentation: z.url().meta({
      description: "Azure's page about the call that regenerates a key, or about the sign-in of Entra identities.",
    }),
  })
  .meta({ id: "RotatableResource" });

const IssuerView = z
  .object({
    kind: z.enum(ISSUER_KINDS).meta({
      description:
        "`clientSecret`: client secrets of Entra applications. `resourceKey`: keys of Azure resources that have two keys. `databaseLogin`: two alternating users of a database server.",
    }),
    title: z.string().meta({ description: "Name of the kind for people.", example: "Client secret of an application" }),
    canHoldTwo: z
      .boolean()
      .meta({ description: "Whether the old and the new credential can be valid at the same time." }),
    regenerates: z.boolean().meta({
      description:
        "True if a rotation replaces the value of an existing credential, which can't be undone. False if it adds a credential.",
    }),
    permissions: z
      .array(
        z
          .object({
            name: z.string().meta({ description: "Name of the permission.", example: "Application.ReadWrite.OwnedBy" }),
            purpose: z.string().meta({
              description: "Purpose of the permission.",
              example: "Add and remove client secrets (Microsoft Graph).",
            }),
            optional: z.boolean().meta({ description: "Whether rotations also work without the permission." }),
          })
          .meta({ id: "RotationIssuerPermission" }),
      )
      .meta({
        description:
          "Permissions that the service's identity needs for this kind, besides those for vaults and consumers. POST /system/permissions/check tests them.",
      }),
    kinds: z.array(CredentialKindView).meta({
      description: "Kinds of Azure resources whose keys or logins are rotated. Empty for issuers without kinds.",
    }),
  })
  .meta({ id: "RotationIssuer" });

export const IssuersQuery = z.strictObject({
  check: queryBoolean().default(false).meta({
    description:
      "Whether to read the role assignments of the service's identity, and to return in `permissions` of each kind what it may do now. Makes one request for each monitored subscription.",
  }),
});

export const IssuerList = z
  .object({
    items: z.array(IssuerView),
    coverage: z.array(z.string()).meta({
      description: "Subscriptions whose role assignments could not be read, as sentences. Empty without `check`.",
      example: [],
    }),
  })
  .meta({ id: "RotationIssuerList" });

/** What the identity may do, by name of the kind. */
type KindPermissions = ReadonlyMap<string, { scopes: string[]; missing: string[] }>;

export const issuerView = (issuer: Issuer, permissions: KindPermissions | undefined): z.input<typeof IssuerView> => ({
  kind: issuer.kind,
  title: issuer.title,
  canHoldTwo: issuer.canHoldTwo,
  regenerates: issuer.regenerates,
  permissions: issuer.permissions.map(({ name, purpose, optional }) => ({ name, purpose, optional })),
  kinds:
    issuer.kind === "resourceKey"
      ? KEY_KINDS.map((kind) => kindView(kind, permissions))
      : issuer.kind === "databaseLogin"
        ? ENGINES.map((engine) => engineView(engine, permissions))
        : [],
});

const engineView = (
  { name, title, type, actions, documentation }: DatabaseEngine,
  permissions: KindPermissions | undefined,
): z.input<typeof CredentialKindView> => ({
  name,
  title,
  resourceType: type,
  pairs: [],
  connectionStrings: true,
  actions: [...actions],
  permissions: permissions?.get(name) ?? null,
  proof: "request",
  proofRequest: "SELECT 1",
  proofReason: null,
  proofDocumentation: documentation,
  rotatable: true,
  reason: null,
  documentation,
});

function kindView(kind: KeyKind, permissions: KindPermissions | undefined): z.input<typeof CredentialKindView> {
  const isRotated = kind.reportOnly === undefined;
  const proof = isProvenByRequest(kind) ? "request" : "list";
  return {
    name: kind.name,
    title: kind.title,
    resourceType: kind.type,
    pairs: kind.pairs.map((pair) => [...pair]),
    connectionStrings: kind.formats.length > 0,
    actions: [...kind.actions],
    permissions: permissions?.get(kind.name) ?? null,
    proof: isRotated ? proof : null,
    proofRequest: requestOf(kind) ?? null,
    proofReason: isRotated && kind.proof.by === "list" ? kind.proof.reason : null,
    proofDocumentation: isRotated ? kind.proof.documentation : null,
    rotatable: isRotated,
    reason: kind.reportOnly ?? null,
    documentation: kind.documentation,
  };
}
