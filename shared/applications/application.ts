import * as z from "zod";
import type { GraphApplication } from "../platform/azure/graph.ts";
import { DiscoveryRunFields } from "../platform/runs/discovery-runs.ts";
import { entity } from "../platform/storage/entity.ts";
import { keyEnd, keyText } from "../platform/storage/keys.ts";
import { fenceEntity } from "../platform/storage/tables.ts";

/** Applications of the tenant with their credentials, as Microsoft Graph lists them. Instants are whole unix seconds. */

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
  /** Whose it is: the application's, or its service principal's in this tenant. */
  of: z.enum(["application", "servicePrincipal"]),
  displayName: z.string().optional(),
  hint: z.string().optional(),
  /** Of a certificate: SHA-1, upper-case hexadecimal. */
  thumbprint: z.string().optional(),
  /** Of a certificate: `Verify`, or `Sign` for one that signs tokens. */
  usage: z.string().optional(),
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

/** What is read of one application alone, when somebody asks for it, and kept for a day. */
export const Details = z.object({
  readAt: z.string(),
  federated: z.array(FederatedCredential),
  /** What policies say of new client secrets; absent where they may not be read. */
  policy: z.object({ allowed: z.boolean(), longestDays: z.number().optional() }).optional(),
});
export type Details = z.infer<typeof Details>;

export const ApplicationRecord = z.object({
  /** The client id. Lower case, as all ids here. */
  appId: z.string(),
  /** Of the application; of the service principal where the application is another tenant's. */
  objectId: z.string(),
  kind: z.enum(["application", "servicePrincipal"]),
  displayName: z.string(),
  signInAudience: z.string().optional(),
  createdOn: z.int().optional(),
  /** Undefined where no list said. At most 20. */
  owners: z.array(Owner).optional(),
  /** By key id. */
  credentials: z.array(ApplicationCredential),
  /** Whether it signs in with tokens of other issuers, too; absent where no list said. */
  federated: z.boolean().optional(),
  details: Details.optional(),
  firstSeenAt: z.string(),
});
export type ApplicationRecord = z.infer<typeof ApplicationRecord>;

/**
 * All applications are in one partition, so that the rows of one change in one transaction: in full by client id and by
 * name, and where its object id leads.
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
 * Long names sort by their beginning: a key holds 1,024 characters, and one that is escaped takes up to six. Blanks stand as
 * quotation marks, which sort behind the `!` that ends a name, so that `api` comes before `api two`.
 */
export const nameKey = ({ displayName, appId }: Pick<ApplicationRecord, "displayName" | "appId">): string =>
  `${BY_NAME}${keyText(displayName.toLowerCase().slice(0, 120)).replaceAll(" ", '"')}!${appId}`;
export const objectKey = (objectId: string): string => `o!${objectId}`;
export const bucketRange = (bucket: string) => ({
  partitionKey: APPS,
  from: idKey(bucket),
  before: keyEnd(idKey(bucket)),
});
export const byNameRange = { partitionKey: APPS, from: BY_NAME, before: keyEnd(BY_NAME) };

/** A sixteenth of the applications, by the first digit of the client id: what a discovery compares first. */
export const Buckets = entity(
  TABLE,
  z.object({
    /** Hash over all its applications, those of details apart. */
    contents: z.string(),
    apps: z.int(),
    credentials: z.int(),
  }),
);
const BUCKET = "b!";
export const bucketKey = (bucket: string): string => `${BUCKET}${bucket}`;
export const bucketsRange = { partitionKey: APPS, from: BUCKET, before: keyEnd(BUCKET) };
export const fenceKey = (bucket: string): string => `f!${bucket}`;

/** What the discoveries know, beside the applications. */
export const StateRecord = z.object({
  tenantId: z.string(),
  /** Where the next reading of changes goes on; opaque, some KiB. */
  deltaLink: z.string().optional(),
  /** When all applications, and all service principals, were last listed to the end. */
  applicationsAt: z.string().optional(),
  servicePrincipalsAt: z.string().optional(),
  /** What the service's identity may do, as its last token said: its object id and its application permissions. */
  rights: z.object({ objectId: z.string().optional(), permissions: z.array(z.string()) }).optional(),
});
export type StateRecord = z.infer<typeof StateRecord>;
export const States = entity(TABLE, StateRecord);
export const STATE_KEY = "s!state";

export const RunRecord = DiscoveryRunFields.extend({
  /** `changes` reads what changed since the run before. */
  mode: z.enum(["full", "changes"]),
  /** What is known after it, in all; absent while it runs. */
  apps: z.int().optional(),
  credentials: z.int().optional(),
  expiring: z.int().optional(),
  /** How it ends, once that is decided and until all of its end is written. */
  ending: z
    .object({
      status: z.enum(["completed", "partial", "failed"]),
      finishedAt: z.string(),
      /** The id of its entry in the audit log. */
      entryId: z.string(),
      apps: z.int(),
      credentials: z.int(),
      expiring: z.int(),
      added: z.int(),
      updated: z.int(),
      removed: z.int(),
    })
    .optional(),
});
export type RunRecord = z.infer<typeof RunRecord>;
export const Runs = entity(TABLE, RunRecord);
export const RUNS = "runs";

/** An application's or service principal's credentials as rows have them, by key id. */
export function credentialsOf({ kind: of, passwords, keys }: GraphApplication): ApplicationCredential[] {
  const found = new Map<string, ApplicationCredential>();
  for (const { keyId, ...rest } of passwords) found.set(keyId, { keyId, kind: "secret", of, ...rest });
  for (const { keyId, type: _, ...rest } of keys) {
    // A certificate with its private key stands in both lists, under one id or two.
    found.set(keyId, { keyId, kind: "certificate", of, ...rest });
  }
  return [...found.values()].sort(byKeyId);
}

export const byKeyId = (a: ApplicationCredential, b: ApplicationCredential): number => (a.keyId < b.keyId ? -1 : 1);
