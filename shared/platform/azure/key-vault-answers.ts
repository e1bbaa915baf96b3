import * as z from "zod";
import { page, type Route } from "./calls.ts";
import type { CallTarget } from "./failure.ts";

/**
 * Schemas of Key Vault's responses, with the members that the service uses, and the routes of its calls. Scans check values
 * that the SDK clients return. The calls that write secrets check the JSON of the response.
 * https://learn.microsoft.com/rest/api/keyvault/
 */

const text = z.string().nullish();
const texts = z.array(z.string()).nullish();
const bytes = z.instanceof(Uint8Array).nullish();
/** The clients return the number 0 for the first second of 1970. */
const date = z.union([z.date().min(new Date(0)), z.literal(0)]).nullish();

/** Entry of a list, as an SDK client returns it. Checks the collection in `id`, because the client for secrets does not. */
const propertiesSchema = (collection: string) =>
  z.object({
    id: z.string().regex(new RegExp(`^https://[^/]+/${collection}/[0-9A-Za-z-]{1,127}(/[0-9A-Za-z]+)?/?$`, "i")),
    name: z.string(),
    version: text,
    enabled: z.boolean().nullish(),
    notBefore: date,
    expiresOn: date,
    createdOn: date,
    updatedOn: date,
    tags: z.record(z.string(), z.unknown()).nullish(),
    managed: z.boolean().nullish(),
    contentType: text,
    x509Thumbprint: bytes,
  });
/** Schemas of the entries of lists, by kind of asset. */
export const propertiesSchemas = {
  secret: propertiesSchema("secrets"),
  key: propertiesSchema("keys"),
  certificate: propertiesSchema("certificates"),
};

export const keySchema = z.object({
  key: z.object({ n: bytes, crv: text }),
  keyType: z.string(),
  keyOperations: texts,
  properties: z.object({ version: text }),
});

export const rotationPolicySchema = z.object({
  expiresIn: text,
  lifetimeActions: z.array(z.object({ timeAfterCreate: text, timeBeforeExpiry: text })).nullish(),
});

export const certificateSchema = z.object({
  cer: bytes,
  properties: z.object({ version: text, notBefore: date, expiresOn: date, x509Thumbprint: bytes }),
  policy: z
    .object({
      exportable: z.boolean().nullish(),
      keyType: text,
      keySize: z.int().nullish(),
      keyCurveName: text,
      subject: text,
      subjectAlternativeNames: z.object({ dnsNames: texts, emails: texts, userPrincipalNames: texts }).nullish(),
      validityInMonths: z.int().nullish(),
      issuerName: text,
      lifetimeActions: z
        .array(z.object({ action: text, lifetimePercentage: z.int().nullish(), daysBeforeExpiry: z.int().nullish() }))
        .nullish(),
    })
    .nullish(),
});

/** The calls that read a vault, and their paths. */
const PATHS = {
  "list secrets": /^\/secrets\/?$/,
  "list keys": /^\/keys\/?$/,
  "list certificates": /^\/certificates\/?$/,
  "read a key's rotation policy": /^\/keys\/[^/]+\/rotationpolicy\/?$/,
  "read a key": /^\/keys\/[^/]+\/?$/,
  "read a certificate": /^\/certificates\/[^/]+\/?$/,
  "list versions of a secret": /^\/secrets\/[^/]+\/versions\/?$/,
  "list versions of a key": /^\/keys\/[^/]+\/versions\/?$/,
  "list versions of a certificate": /^\/certificates\/[^/]+\/versions\/?$/,
};
export type Operation = keyof typeof PATHS;
const OPERATIONS = Object.entries(PATHS) as [Operation, RegExp][];

/**
 * Both alternatives permit to read properties but no secret values:
 * https://learn.microsoft.com/azure/key-vault/general/rbac-guide
 */
const GRANT =
  "the role Key Vault Reader on this vault, or, where it uses access policies, list for secrets, list, get and getrotationpolicy for keys, and list and get for certificates";

/** Describes a call for its failure message. */
export const targetOf = (operation: Operation, resource: string): CallTarget => ({ operation, resource, grant: GRANT });

/** Returns undefined if no call uses the path. */
export function keyVaultRoute(path: string, resource: string): Route | undefined {
  const [operation] = OPERATIONS.find(([, pattern]) => pattern.test(path)) ?? [];
  if (!operation) return undefined;
  return {
    target: targetOf(operation, resource),
    answer: "parsedByClient",
    paged: operation.startsWith("list "),
  };
}

/** Seconds since 1970. The largest that a JavaScript date can hold is 8,640,000,000,000. */
const seconds = z.number().min(0).max(8_640_000_000_000).nullish();

const secretEntry = z.object({
  /** `https://<vault>/secrets/<name>`, with a version for one version. */
  id: z.string().regex(/^https:\/\/[^/]+\/secrets\/[0-9A-Za-z-]{1,127}(\/[0-9A-Za-z]+)?\/?$/i),
  attributes: z
    .object({ enabled: z.boolean().nullish(), nbf: seconds, exp: seconds, created: seconds, updated: seconds })
    .nullish(),
  tags: z.record(z.string(), z.unknown()).nullish(),
  contentType: text,
  managed: z.boolean().nullish(),
});
/** A secret, or an entry of the list of its versions. Both name the version. */
export const secretAnswer = z.object({ ...secretEntry.shape, value: text });
export const deletedSecretAnswer = z.object({ ...secretEntry.shape, recoveryId: text });

/** Returns undefined if the path is no list of a secret's versions. */
export const secretVersionsRoute = (path: string, target: CallTarget): Route | undefined =>
  PATHS["list versions of a secret"].test(path) ? { target, answer: page, entry: secretEntry, paged: true } : undefined;
