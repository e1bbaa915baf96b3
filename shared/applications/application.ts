import * as z from "zod";
import type { GraphApplication } from "../platform/azure/graph.ts";
import { DiscoveryRunFields } from "../platform/runs/discovery-runs.ts";
import { entity } from "../platform/storage/entity.ts";
import { keyEnd, keyText } from "../platform/storage/keys.ts";
import { fenceEntity } from "../platform/storage/tables.ts";

// Rows of the table Applications: Entra applications with their credentials, as Microsoft Graph lists them, and the state of
// their discovery. Numeric times (`…On`) are in Unix seconds.

export const Owner = z.object({
  id: z.string(),
  displayName: z.string().optional(),
  userPrincipalName: z.string().optional(),
  mail: z.string().optional(),
});
export type Owner = z.infer<typeof Owner>;

export const ApplicationCredential = z.object({
  keyId: z.string(),
  kind: z.enum(["secret", "certificate"]),
  /** Whether the credential belongs to the application or to its service principal in this tenant. */
  of: z.enum(["application", "servicePrincipal"]),
  displayName: z.string().optional(),
  /** For secrets: the first characters of the value. */
  hint: z.string().optional(),
  /** For certificates: SHA-1, upper-case hexadecimal. */
  thumbprint: z.string().optional(),
  /** For certificates: `Verify`, or `Sign` for a token-signing certificate. */
  usage: z.string().optional(),
  /** For a token-signing certificate: key IDs of its other entries in the directory, such as that of its private key. */
  otherKeyIds: z.array(z.string()).optional(),
  startsOn: z.int().optional(),
  expiresOn: z.int().optional(),
});
export type ApplicationCredential = z.infer<typeof ApplicationCredential>;

export const FederatedCredential = z.object({
  id: z.string(),
  name: z.string(),
  issuer: z.string(),
  subject: z.string(),
});

/** Data that is read for a single application on request, and cached for a day. */
export const Details = z.object({
  readAt: z.string(),
  federated: z.array(FederatedCredential),
  /** Policies for new client secrets. Absent if they can't be read. */
  policy: z.object({ allowed: z.boolean(), longestDays: z.number().optional() }).optional(),
});
export type Details = z.infer<typeof Details>;

export const ApplicationRecord = z.object({
  /** The client ID. Lower case, like all IDs here. */
  appId: z.string(),
  /** Object ID of the application, or of the service principal if the application belongs to another tenant. */
  objectId: z.string(),
  kind: z.enum(["application", "servicePrincipal"]),
  displayName: z.string(),
  signInAudience: z.string().optional(),
  createdOn: z.int().optional(),
  /** Owners, at most 20. Undefined if no list contained them. */
  owners: z.array(Owner).optional(),
  /** Credentials, sorted by key ID. */
  credentials: z.array(ApplicationCredential),
  /** Whether the application has federated credentials. Absent if this is not known. */
  federated: z.boolean().optional(),
  details: Details.optional(),
  firstSeenAt: z.string(),
});
export type ApplicationRecord = z.infer<typeof ApplicationRecord>;

/**
 * All applications are in one partition, so that the three rows of an application change in one transaction: by client ID
 * (`a!`), by name (`n!`), and by object ID (`o!`). The partition also has the buckets (`b!`), their fences (`f!`) and the state
 * (`s!`).
 */
export const TABLE = "Applications";
export const APPS = "apps";
export const Applications = entity(TABLE, ApplicationRecord);
export const ObjectIds = entity(TABLE, z.object({ appId: z.string() }));
export const AppFences = fenceEntity(TABLE);

const BY_ID = "a!";
const BY_NAME = "n!";
export const idKey = (appId: string): string => `${BY_ID}${appId}`;
/**
 * Returns the sortable form of a name. Long names are cut: a key has at most 1,024 characters, and an escaped character takes
 * up to six. Spaces become quotation marks, which sort after the `!` that ends a name, so that `api` comes before `api two`.
 */
export const nameKey = ({ displayName, appId }: Pick<ApplicationRecord, "displayName" | "appId">): string =>
  `${BY_NAME}${keyText(displayName.toLowerCase().slice(0, 120)).replaceAll(" ", '"')}!${appId}`;
export const objectKey = (objectId: string): string => `o!${objectId}`;
/** Returns the range of a bucket's applications. A bucket is the first digit of the client ID, so it is a key prefix. */
export const bucketRange = (bucket: string) => ({
  partitionKey: APPS,
  from: idKey(bucket),
  before: keyEnd(idKey(bucket)),
});
export const byNameRange = { partitionKey: APPS, from: BY_NAME, before: keyEnd(BY_NAME) };

/**
 * A bucket: a sixteenth of the applications, by the first digit of the client ID. A discovery compares the hash of a bucket
 * first, and reads its applications only if the hash differs.
 */
export const Buckets = entity(
  TABLE,
  z.object({
    /** Hash of all applications of the bucket, without their details. */
    contents: z.string(),
    apps: z.int(),
    credentials: z.int(),
  }),
);
const BUCKET = "b!";
export const bucketKey = (bucket: string): string => `${BUCKET}${bucket}`;
export const bucketsRange = { partitionKey: APPS, from: BUCKET, before: keyEnd(BUCKET) };
/** A fence is a row whose ETag is part of each write, so that writes of an earlier worker fail. */
export const fenceKey = (bucket: string): string => `f!${bucket}`;

/** State of the discoveries, besides the applications. */
export const StateRecord = z.object({
  tenantId: z.string(),
  /** Delta link: the URL at which Graph returns what changed since the last reading. Opaque, some KiB. */
  deltaLink: z.string().optional(),
  /** Times when all applications, and all service principals, were last listed completely. */
  applicationsAt: z.string().optional(),
  servicePrincipalsAt: z.string().optional(),
  /** Object ID and application permissions of the service's identity, from its last token. */
  rights: z.object({ objectId: z.string().optional(), permissions: z.array(z.string()) }).optional(),
  /**
   * Object IDs of the identities with which the service signed in before, such as an app registration before a managed identity.
   * They can still be owners of applications.
   */
  earlierIdentities: z.array(z.string()).optional(),
  /** Number of owners without a name and an address in the last complete listing. */
  unnamedOwners: z.int().optional(),
});
export type StateRecord = z.infer<typeof StateRecord>;
export const States = entity(TABLE, StateRecord);
export const STATE_KEY = "s!state";

/** Returns the object IDs of the service's own identities in lower case, the current one first. Empty before the first discovery. */
export const serviceIdentities = (
  state: Pick<StateRecord, "rights" | "earlierIdentities"> | undefined,
): ReadonlySet<string> =>
  new Set([state?.rights?.objectId ?? [], state?.earlierIdentities ?? []].flat().map((id) => id.toLowerCase()));

export const RunRecord = DiscoveryRunFields.extend({
  /** `changes` reads what changed since the previous run. */
  mode: z.enum(["full", "changes"]),
  /** Total numbers after the run. Absent while it runs. */
  apps: z.int().optional(),
  credentials: z.int().optional(),
  expiring: z.int().optional(),
  unnamedOwners: z.int().optional(),
  /** Outcome of the run, from the decision until the end of the run is completely written. */
  ending: z
    .object({
      status: z.enum(["completed", "partial", "failed"]),
      finishedAt: z.string(),
      /** ID of the audit entry of the run's end. */
      entryId: z.string(),
      apps: z.int(),
      credentials: z.int(),
      expiring: z.int(),
      added: z.int(),
      updated: z.int(),
      removed: z.int(),
      unnamedOwners: z.int().optional(),
    })
    .optional(),
});
export type RunRecord = z.infer<typeof RunRecord>;
export const Runs = entity(TABLE, RunRecord);
export const RUNS = "runs";

/** Returns the credentials of an application or service principal in stored form, by key ID. */
export function credentialsOf({ kind: of, passwords, keys }: GraphApplication): ApplicationCredential[] {
  const byId = new Map<string, ApplicationCredential>();
  for (const { keyId, ...rest } of passwords) byId.set(keyId, { keyId, kind: "secret", of, ...rest });
  for (const { keyId, type: _, ...rest } of keys) {
    // Entra also lists the password of a certificate's private key, under the certificate's key ID. The certificate replaces it.
    // A password under any other ID counts as a client secret.
    byId.set(keyId, { keyId, kind: "certificate", of, ...rest });
  }
  return [...byId.values()].sort(byKeyId);
}

export const byKeyId = (a: ApplicationCredential, b: ApplicationCredential): number => (a.keyId < b.keyId ? -1 : 1);

/**
 * Joins the entries of each token-signing certificate. Entra keeps such a certificate, for example of SAML, as two key
 * credentials with one thumbprint and one validity: one to sign and one to verify. The entry to verify stays, because it is the public
 * certificate. Joined entries stay unchanged if they are joined again.
 */
export function joinSigningCertificates(credentials: readonly ApplicationCredential[]): ApplicationCredential[] {
  // Owners of an application choose the stored thumbprint, so an entry that expires at another time is not hidden.
  const certificates = Map.groupBy(credentials, ({ keyId, kind, of, thumbprint, startsOn, expiresOn }) =>
    kind === "certificate" && thumbprint !== undefined ? `${of} ${thumbprint} ${startsOn} ${expiresOn}` : keyId,
  );
  return [...certificates.values()].flatMap((entries) => {
    if (entries.length === 1 || !entries.some(({ usage }) => usage === "Sign")) return entries;
    const [first, ...others] = entries.toSorted(
      (a, b) => Number(a.usage === "Sign") - Number(b.usage === "Sign") || byKeyId(a, b),
    );
    const otherKeyIds = others.flatMap(({ keyId, otherKeyIds: more = [] }) => [keyId, ...more]);
    return [{ ...first!, otherKeyIds: [...new Set([...(first!.otherKeyIds ?? []), ...otherKeyIds])].sort() }];
  });
}
