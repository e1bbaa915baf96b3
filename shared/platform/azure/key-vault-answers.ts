import * as z from "zod";
import { page, type Route } from "./calls.ts";
import type { CallTarget } from "./failure.ts";

/**
 * The members of Key Vault's answers without which the SDKs, or what reads them here, would stumble.
 * https://learn.microsoft.com/rest/api/keyvault/
 */

/** Seconds since 1970; the largest that a JavaScript date can hold. */
const seconds = z.number().min(0).max(8_640_000_000_000).nullish();
const text = z.string().nullish();
const attributes = z
  .object({ enabled: z.boolean().nullish(), nbf: seconds, exp: seconds, created: seconds, updated: seconds })
  .nullish();
export type Attributes = z.infer<typeof attributes>;
const tags = z.record(z.string(), z.unknown()).nullish();
const managed = z.boolean().nullish();

/** `https://<vault>/<collection>/<name>`, with a version where it is of one. Names: 1 to 127 letters, digits and hyphens. */
const identifier = (collection: string) =>
  z.string().regex(new RegExp(`^https://[^/]+/${collection}/[0-9A-Za-z-]{1,127}(/[0-9A-Za-z]+)?/?$`, "i"));

const secretEntry = z.object({ id: identifier("secrets"), attributes, tags, contentType: text, managed });
const keyEntry = z.object({ kid: identifier("keys"), attributes, tags, managed });
/** A secret, or an entry of the list of its versions: both name the version. */
export const secretAnswer = z.object({ ...secretEntry.shape, id: identifier("secrets"), value: text });
export const deletedSecretAnswer = z.object({ ...secretEntry.shape, recoveryId: text });
const certificateEntry = z.object({ id: identifier("certificates"), attributes, tags, x5t: text });

export type SecretEntry = z.infer<typeof secretEntry>;
export type KeyEntry = z.infer<typeof keyEntry>;
export type CertificateEntry = z.infer<typeof certificateEntry>;

/** Name and version in an identifier; the version is empty where it has none. */
export function identified(identifier: string): { name: string; version: string } {
  const [, , , , name = "", version = ""] = identifier.split("/");
  return { name, version };
}

/** The name in the identifier of a list's entry, where that much of it can be read. */
export function nameOfEntry(entry: unknown): string | undefined {
  const { id, kid } = (typeof entry === "object" && entry !== null ? entry : {}) as { id?: unknown; kid?: unknown };
  const match = /^https:\/\/[^/]+\/[a-z]+\/([0-9A-Za-z-]{1,127})\/?$/i.exec(String(kid ?? id));
  return match?.[1];
}

const key = z.object({
  key: z.object({
    kid: identifier("keys"),
    kty: z.string(),
    key_ops: z.array(z.string()).nullish(),
    n: text,
    crv: text,
  }),
});
export type KeyAnswer = z.infer<typeof key>;

const rotationPolicy = z.object({
  attributes: z.object({ expiryTime: text, created: seconds, updated: seconds }).nullish(),
  lifetimeActions: z
    .array(
      z.object({
        action: z.object({ type: z.string().regex(/^(rotate|notify)$/i) }),
        trigger: z.object({ timeAfterCreate: text, timeBeforeExpiry: text }).nullish(),
      }),
    )
    .nullish(),
});

export type RotationPolicyAnswer = z.infer<typeof rotationPolicy>;

const names = z.array(z.string()).nullish();

const certificate = z.object({
  id: identifier("certificates"),
  cer: text,
  x5t: text,
  attributes,
  tags,
  policy: z
    .object({
      key_props: z.object({ kty: text, key_size: z.int().nullish(), crv: text }).nullish(),
      x509_props: z
        .object({
          subject: text,
          ekus: names,
          key_usage: names,
          sans: z.object({ emails: names, dns_names: names, upns: names, uris: names, ipAddresses: names }).nullish(),
          validity_months: z.int().nullish(),
        })
        .nullish(),
      issuer: z.object({ name: text }).nullish(),
      lifetime_actions: z
        .array(
          z.object({
            action: z.object({ action_type: text }).nullish(),
            trigger: z
              .object({ lifetime_percentage: z.number().nullish(), days_before_expiry: z.number().nullish() })
              .nullish(),
          }),
        )
        .nullish(),
    })
    .nullish(),
});

export type CertificateAnswer = z.infer<typeof certificate>;

/** Those without an entry are of one item: their answers are handed on as text. */
const ROUTES: { path: RegExp; operation: string; answer: z.ZodType; entry?: z.ZodType }[] = [
  { path: /^\/secrets$/, operation: "list secrets", answer: page, entry: secretEntry },
  { path: /^\/keys$/, operation: "list keys", answer: page, entry: keyEntry },
  { path: /^\/certificates$/, operation: "list certificates", answer: page, entry: certificateEntry },
  { path: /^\/keys\/[^/]+\/rotationpolicy$/, operation: "read a key's rotation policy", answer: rotationPolicy },
  { path: /^\/keys\/[^/]+$/, operation: "read a key", answer: key },
  { path: /^\/certificates\/[^/]+$/, operation: "read a certificate", answer: certificate },
  { path: /^\/secrets\/[^/]+\/versions$/, operation: "list versions of a secret", answer: page, entry: secretEntry },
  { path: /^\/keys\/[^/]+\/versions$/, operation: "list versions of a key", answer: page, entry: keyEntry },
  {
    path: /^\/certificates\/[^/]+\/versions$/,
    operation: "list versions of a certificate",
    answer: page,
    entry: certificateEntry,
  },
];

/** Either reads what describes a secret and never its value: https://learn.microsoft.com/azure/key-vault/general/rbac-guide */
const GRANT =
  "the role Key Vault Reader on this vault, or, where it uses access policies, list for secrets, list, get and getrotationpolicy for keys, and list and get for certificates";

/** Undefined when it is no list of a secret's versions. */
export const secretVersionsRoute = (path: string, target: CallTarget): Route | undefined =>
  /^\/secrets\/[^/]+\/versions\/?$/.test(path) ? { target, answer: page, entry: secretEntry, paged: true } : undefined;

export function keyVaultRoute(path: string, resource: string): Route | undefined {
  const route = ROUTES.find(({ path: pattern }) => pattern.test(path.replace(/\/$/, "")));
  if (!route) return undefined;
  const { operation, answer, entry } = route;
  const target = { operation, resource, grant: GRANT };
  return entry ? { target, answer, entry, paged: true } : { target, answer, asText: true };
}
