import * as z from "zod";
import { isHostName } from "../certificates/endpoint.ts";
import { CERTIFICATE_KEY_TYPES, KEY_CURVES, RSA_KEY_SIZES } from "../platform/azure/vault-certificates.ts";
import { entityTag } from "../platform/http/conditional-requests.ts";
import { pageOf, pageParameters } from "../platform/http/paging.ts";
import { singleLine } from "../platform/http/single-line.ts";
import type { Row } from "../platform/storage/entity.ts";
import type { AuthorityChange, AuthorityTest as TestResult } from "./authorities.ts";
import { type AuthorityRecord, DEFAULT_BUDGET } from "./authority.ts";
import type { PolicyChange } from "./policies.ts";
import {
  DEFAULT_LIFETIME_SHARE,
  type KeySpec,
  type RenewalPolicy as PolicyRecord,
  RENEWAL_TRIGGERS,
} from "./policy.ts";
import { METHODS, RENEWAL_STATUSES, type RenewalRecord, STEPS } from "./renewal.ts";
import type { IssueRequest, RenewalPlan } from "./renewals.ts";

/** API schemas of certificate authorities and renewals, and the views of their records. */

const instant = z.iso.datetime();
const MAX_NAMES = 100;
export const EXAMPLE_AUTHORITY = "01JZ8Q4T7X5B9M2K6N3P0R8S1V";
export const EXAMPLE_CERTIFICATE = "kv-payments-prod.certificate.www";

const authorityId = z.string().min(1).max(64).meta({
  description: "ID of the certificate authority.",
  example: EXAMPLE_AUTHORITY,
});
export const AuthorityParams = z.object({ authority_id: authorityId });
export const RenewalParams = z.object({
  run_id: z.string().min(1).max(64).meta({ description: "ID of the renewal." }),
});
export const CertificateParams = z.object({
  asset_id: z.string().min(1).max(300).meta({
    description: "Asset ID of a certificate of a key vault.",
    example: EXAMPLE_CERTIFICATE,
  }),
});

const directoryUrl = z
  .url({ protocol: /^https$/, error: "must be an https:// address" })
  .max(500)
  .meta({ description: "Address of the ACME directory.", example: "https://acme-v02.api.letsencrypt.org/directory" });
const ExternalAccountBinding = z.strictObject({
  keyId: singleLine(200).meta({ description: "Key identifier that the authority gave.", example: "kid-1" }),
  hmacKey: z
    .string()
    .min(1)
    .max(1000)
    .regex(/^[A-Za-z0-9_+/=-]+$/, "must be base64url")
    .meta({ description: "MAC key that the authority gave, base64url.", writeOnly: true, format: "password" }),
});
const externalAccountBinding = ExternalAccountBinding.nullable().optional().meta({
  description:
    "External account binding, which some authorities require for a new account. Omitted: unchanged. Null: none. Write-only.",
});
const profile = singleLine(64).nullable().default(null).meta({
  description: "Profile of the certificates, one of those that the directory offers. Null: that of the authority.",
  example: "shortlived",
});

export const AuthorityTestRequest = z
  .strictObject({ directoryUrl, profile, externalAccountBinding })
  .meta({ id: "CertificateAuthorityTestRequest" });

export const AuthorityChangeBody = z
  .strictObject({
    name: singleLine(100).meta({ description: "Name for people.", example: "Let's Encrypt" }),
    directoryUrl,
    contacts: z
      .array(z.email())
      .min(1)
      .max(10)
      .meta({
        description: "E-mail addresses to which the authority sends notices.",
        example: ["pki@acme.example"],
      }),
    externalAccountBinding,
    preferredChain: singleLine(200).nullable().default(null).meta({
      description: "Common name of the issuer at the end of the chain to install. Null: the default chain.",
      example: "ISRG Root X1",
    }),
    profile,
    certificatesPerDomain: z.int().min(1).max(1000).default(DEFAULT_BUDGET.certificatesPerDomain).meta({
      description: "Budget: certificates for one registered domain within `budgetDays`.",
    }),
    budgetDays: z.int().min(1).max(90).default(DEFAULT_BUDGET.budgetDays).meta({ description: "Days of the budget." }),
  })
  .meta({ id: "CertificateAuthorityChange" });
export const authorityChangeOf = (body: z.output<typeof AuthorityChangeBody>): AuthorityChange => body;

export const CertificateAuthority = z
  .object({
    authorityId,
    name: z.string(),
    directoryUrl: z.string().meta({
      description: "Address of the ACME directory.",
      example: "https://acme-v02.api.letsencrypt.org/directory",
    }),
    contacts: z.array(z.string()).meta({
      description: "E-mail addresses to which the authority sends notices.",
      example: ["pki@acme.example"],
    }),
    externalAccountKeyId: z.string().nullable().meta({
      description: "Key identifier of the external account binding. Null if there is none.",
      example: "kid-1",
    }),
    preferredChain: z.string().nullable().meta({
      description: "Issuer at the end of the chain to install.",
      example: "ISRG Root X1",
    }),
    profile: z.string().nullable().meta({
      description: "Profile of the certificates. Null: that of the authority.",
      example: "shortlived",
    }),
    certificatesPerDomain: z.int().meta({
      description: "Budget: certificates for one registered domain within `budgetDays`.",
    }),
    budgetDays: z.int().meta({ description: "Days of the budget." }),
    accountUrl: z.string().meta({
      description: "Address of the service's account at the authority.",
      example: "https://acme-v02.api.letsencrypt.org/acme/acct/1234567",
    }),
    createdAt: instant,
    updatedAt: instant,
    updatedBy: z.string(),
    etag: z.string(),
  })
  .meta({ id: "CertificateAuthority" });
export const CertificateAuthorities = z
  .object({ items: z.array(CertificateAuthority) })
  .meta({ id: "CertificateAuthorities" });

export const authorityView = (row: Row<AuthorityRecord>): z.output<typeof CertificateAuthority> => {
  const { authorityId: id, name, contacts, preferredChain, bindingKeyId, profile: chosen, accountUrl } = row;
  const { certificatesPerDomain, budgetDays, createdAt, updatedAt, updatedBy } = row;
  return {
    authorityId: id,
    name,
    directoryUrl: row.directoryUrl,
    contacts,
    externalAccountKeyId: bindingKeyId ?? null,
    preferredChain: preferredChain ?? null,
    profile: chosen ?? null,
    certificatesPerDomain,
    budgetDays,
    accountUrl,
    createdAt,
    updatedAt,
    updatedBy,
    etag: entityTag(row),
  };
};

export const AuthorityTest = z
  .object({
    ok: z.boolean().meta({ description: "Whether the authority can be saved." }),
    profiles: z.array(z.string()).meta({
      description: "Profiles that the directory offers.",
      example: ["classic", "shortlived"],
    }),
    externalAccountRequired: z.boolean().meta({ description: "Whether a new account needs a binding." }),
    renewalInformation: z.boolean().meta({ description: "Whether the authority suggests when to renew (RFC 9773)." }),
    problems: z.array(z.string()).meta({
      description: "Problems, as sentences. Empty if there are none.",
      example: ["The authority requires an external account binding. Enter its key ID and HMAC key."],
    }),
  })
  .meta({ id: "CertificateAuthorityTest" });
export const authorityTestView = (result: TestResult): z.output<typeof AuthorityTest> => ({
  ok: result.problems.length === 0,
  ...result,
});

const keyMembers = {
  keyType: z.enum(CERTIFICATE_KEY_TYPES).default("RSA").meta({ description: "Type of the key." }),
  keySize: z
    .literal(RSA_KEY_SIZES)
    .nullable()
    .default(null)
    .meta({ description: "Size of an RSA key in bits. Null: 2048 for RSA." }),
  keyCurve: z
    .enum(KEY_CURVES)
    .nullable()
    .default(null)
    .meta({ description: "Curve of an EC key. Null: P-256 for EC." }),
  reuseKey: z.boolean().default(false).meta({
    description: "Whether a new version keeps the private key. False makes a new key each time.",
  }),
};
const keySpecOf = (body: {
  keyType: KeySpec["keyType"];
  keySize: number | null;
  keyCurve: KeySpec["keyCurve"] | null;
  reuseKey: boolean;
}): KeySpec =>
  body.keyType === "EC"
    ? { keyType: "EC", keyCurve: body.keyCurve ?? "P-256", reuseKey: body.reuseKey }
    : { keyType: "RSA", keySize: body.keySize ?? 2048, reuseKey: body.reuseKey };

const dryRun = z.boolean().default(false).meta({
  description: "Only returns the plan. Writes nothing in the vault, in DNS and at the authority.",
});
/** Returns whether a text is a DNS name in lower case, optionally with a wildcard as its first label. */
const isDnsName = (text: string): boolean => isHostName(text.replace(/^\*\./, "")) && text.includes(".");

export const IssueBody = z
  .strictObject({
    vaultName: z
      .string()
      .min(1)
      .max(127)
      .meta({ description: "Name of a scanned key vault.", example: "kv-payments-prod" }),
    name: z
      .string()
      .regex(/^[0-9A-Za-z-]{1,127}$/, "must have 1 to 127 letters, digits and hyphens")
      .meta({ description: "Name of the new certificate.", example: "www" }),
    dnsNames: z
      .array(
        z
          .string()
          .max(255)
          .refine(isDnsName, "must be a DNS name in lower case, such as www.example.com or *.example.com"),
      )
      .min(1)
      .max(MAX_NAMES)
      .refine((names) => new Set(names).size === names.length, "must not name a DNS name twice")
      .meta({ description: "DNS names. The first is also the subject.", example: ["www.acme.example"] }),
    authorityId,
    ...keyMembers,
    exportable: z.boolean().default(true).meta({
      description: "Whether consumers can read the private key from the vault. App Service and others need that.",
    }),
    dryRun,
  })
  .meta({ id: "CertificateIssueRequest" });
export const issueRequestOf = (body: z.output<typeof IssueBody>): IssueRequest => ({
  vaultName: body.vaultName,
  certificate: body.name,
  dnsNames: body.dnsNames,
  authorityId: body.authorityId,
  key: keySpecOf(body),
  exportable: body.exportable,
});

export const RenewBody = z.strictObject({ dryRun }).meta({ id: "CertificateRenewRequest" });

const REASONS = ["unspecified", "keyCompromise", "affiliationChanged", "superseded", "cessationOfOperation"] as const;
/** Codes of the reasons: RFC 5280, section 5.3.1. */
const REASON_CODES: Record<(typeof REASONS)[number], number> = {
  unspecified: 0,
  keyCompromise: 1,
  affiliationChanged: 3,
  superseded: 4,
  cessationOfOperation: 5,
};
export const RevokeBody = z
  .strictObject({
    version: z
      .string()
      .regex(/^[0-9a-f]{32}$/, "must have 32 hexadecimal digits in lower case")
      .meta({ description: "Version to revoke, current or not.", example: "4d1f0c2b8a9e4f6d9c3b7a5e2f1d0c8b" }),
    authorityId: authorityId.meta({ description: "Authority that issued the version." }),
    reason: z.enum(REASONS).default("unspecified").meta({ description: "Reason that the authority publishes." }),
  })
  .meta({ id: "CertificateRevokeRequest" });
export const revokeRequestOf = ({ version, authorityId: id, reason }: z.output<typeof RevokeBody>) => ({
  version,
  authorityId: id,
  reason: REASON_CODES[reason],
});
export const RevokedCertificate = z
  .object({
    revoked: z.literal(true).meta({ description: "Always true: a failed revocation is a problem." }),
    version: z.string(),
    serialNumber: z.string().meta({
      description: "Serial number, hexadecimal.",
      example: "04a1b2c3d4e5f60718293a4b5c6d7e8f9012",
    }),
  })
  .meta({ id: "RevokedCertificate" });

const trigger = z.enum(RENEWAL_TRIGGERS).meta({
  description:
    "When to renew. `renewalInformation`: at a time in the window that the authority suggests (RFC 9773), or by `lifetimeShare` if it suggests none. `lifetimeShare`: after this share of the lifetime.",
});
const lifetimeShare = z.int().min(10).max(90).meta({
  description: "Percent of the lifetime after which the certificate is renewed, within a tenth of the lifetime.",
});

export const RenewalPolicyChange = z
  .strictObject({
    authorityId: authorityId.nullable().meta({
      description: "Authority that issues new versions over ACME. Null: the policy of the vault creates them.",
    }),
    automatic: z
      .boolean()
      .default(false)
      .meta({ description: "Whether the service renews the certificate when it is due." }),
    trigger: trigger.default("renewalInformation"),
    lifetimeShare: lifetimeShare.default(DEFAULT_LIFETIME_SHARE),
    ...keyMembers,
    keyType: z.enum(CERTIFICATE_KEY_TYPES).nullable().default(null).meta({
      description:
        "Type of the key. Null: new versions have a key as the vault's policy says, and the other key members have no effect.",
    }),
  })
  .meta({ id: "CertificateRenewalPolicyChange" });
export const policyChangeOf = (body: z.output<typeof RenewalPolicyChange>): PolicyChange => ({
  authorityId: body.authorityId,
  automatic: body.automatic,
  trigger: body.trigger,
  lifetimeShare: body.lifetimeShare,
  key: body.keyType === null ? undefined : keySpecOf({ ...body, keyType: body.keyType }),
});

export const RenewalPolicy = z
  .object({
    assetId: z.string(),
    authorityId: z.string().nullable().meta({
      description: "Authority that issues new versions. Null: the vault's policy.",
      example: EXAMPLE_AUTHORITY,
    }),
    automatic: z.boolean().meta({ description: "Whether the service renews the certificate when it is due." }),
    trigger,
    lifetimeShare,
    keyType: z.enum(CERTIFICATE_KEY_TYPES).nullable().meta({
      description: "Type of the key. Null: the vault's policy decides.",
      example: "EC",
    }),
    keySize: z.int().nullable().meta({ description: "Size of an RSA key in bits." }),
    keyCurve: z.enum(KEY_CURVES).nullable().meta({ description: "Curve of an EC key." }),
    reuseKey: z.boolean().nullable().meta({
      description: "Whether a new version keeps the private key. Null: the vault's policy decides.",
      example: false,
    }),
    updatedAt: instant,
    updatedBy: z.string(),
    etag: z.string(),
  })
  .meta({ id: "CertificateRenewalPolicy" });
export const renewalPolicyView = (row: Row<PolicyRecord>): z.output<typeof RenewalPolicy> => ({
  assetId: row.assetId,
  authorityId: row.authorityId ?? null,
  automatic: row.automatic,
  trigger: row.trigger,
  lifetimeShare: row.lifetimeShare,
  keyType: row.key?.keyType ?? null,
  keySize: row.key?.keySize ?? null,
  keyCurve: row.key?.keyCurve ?? null,
  reuseKey: row.key?.reuseKey ?? null,
  updatedAt: row.updatedAt,
  updatedBy: row.updatedBy,
  etag: entityTag(row),
});

const Failure = z.object({
  code: z.string(),
  message: z.string().meta({
    description: "Description of the failure.",
    example: "The name servers of the zone do not serve the record for www.acme.example.",
  }),
  remedy: z.string(),
});

export const CertificateRenewal = z
  .object({
    dryRun: z.boolean().meta({ description: "True for a plan that was not started." }),
    runId: z.string().nullable().meta({ description: "ID of the renewal. Null for a plan." }),
    assetId: z.string(),
    kind: z.enum(["issue", "renew"]).meta({ description: "Whether the certificate is new." }),
    method: z.enum(METHODS).meta({
      description: "`acme`: an authority issues the version. `vaultPolicy`: the vault creates it by its own policy.",
    }),
    automatic: z.boolean().meta({ description: "Whether the service started the renewal by its policy." }),
    authorityId: z.string().nullable().meta({
      description: "Authority that issues the version.",
      example: EXAMPLE_AUTHORITY,
    }),
    dnsNames: z.array(z.string()).meta({ description: "DNS names of the version.", example: ["www.acme.example"] }),
    status: z.enum(RENEWAL_STATUSES).meta({
      description:
        "`rollingBack`: the renewal failed or was cancelled, and its records and its operation are being removed. `failed`: the vault is as before, unless `failure` names what is left.",
    }),
    steps: z
      .array(
        z.object({
          name: z.enum(STEPS).meta({ description: "Name of the step." }),
          status: z
            .enum(["waiting", "running", "done", "failed", "skipped"])
            .meta({ description: "State of the step. `skipped`: an earlier step failed." }),
          startedAt: instant.nullable(),
          finishedAt: instant.nullable(),
          failure: Failure.nullable().meta({ description: "Last failure of the step." }),
        }),
      )
      .meta({ description: "Steps in their order." }),
    failure: Failure.nullable().meta({
      description: "Reason of the failure and its remedy. For a completed renewal: objects that its clean-up left.",
    }),
    records: z
      .array(
        z.object({
          domain: z.string().meta({ description: "Name that the authority validates.", example: "www.acme.example" }),
          zoneId: z.string().meta({
            description: "Resource ID of the DNS zone.",
            example:
              "/subscriptions/9a3b1c52-6a0e-4c7d-9b57-0d3d3a1f2e4b/resourceGroups/rg-dns/providers/Microsoft.Network/dnszones/acme.example",
          }),
          recordName: z.string().meta({ description: "TXT record in the zone.", example: "_acme-challenge.www" }),
        }),
      )
      .meta({ description: "Records that the renewal writes, and removes at its end." }),
    missing: z.array(z.string()).meta({
      description: "For a plan: what keeps the renewal from starting, as sentences. Otherwise empty.",
      example: ["No zone of ACME_DNS_ZONE_IDS contains the record of www.acme.example."],
    }),
    orderUrl: z.string().nullable().meta({
      description: "Address of the order at the authority.",
      example: "https://acme-v02.api.letsencrypt.org/acme/order/1234567/7654321",
    }),
    previousVersion: z.string().nullable().meta({
      description: "Version before the renewal.",
      example: "4d1f0c2b8a9e4f6d9c3b7a5e2f1d0c8b",
    }),
    version: z.string().nullable().meta({
      description: "New version. Null until the vault has it.",
      example: "9b2e7f4a1c3d4e5f8a6b0c9d7e2f1a3b",
    }),
    serialNumber: z.string().nullable().meta({
      description: "Serial number of the new version, hexadecimal.",
      example: "04a1b2c3d4e5f60718293a4b5c6d7e8f9012",
    }),
    expiresOn: instant.nullable(),
    createdAt: instant,
    requestedBy: z.string(),
    endedAt: instant.nullable(),
  })
  .meta({ id: "CertificateRenewalRun" });
export const CertificateRenewals = pageOf(CertificateRenewal, "CertificateRenewalRuns");
export const RenewalQuery = z.strictObject({
  ...pageParameters,
  assetId: z.string().max(300).optional().meta({ description: "Only renewals of this certificate (asset ID)." }),
});

export const renewalView = (record: Omit<RenewalRecord, "writeId">): z.output<typeof CertificateRenewal> => ({
  dryRun: false,
  runId: record.runId,
  assetId: record.assetId,
  kind: record.kind,
  method: record.method,
  automatic: record.automatic,
  authorityId: record.authorityId ?? null,
  dnsNames: record.dnsNames,
  status: record.status,
  steps: record.steps.map(({ name, status, startedAt, finishedAt, failure }) => ({
    name,
    status,
    startedAt: startedAt ?? null,
    finishedAt: finishedAt ?? null,
    failure: failure ?? null,
  })),
  failure: record.failure ?? null,
  records: record.challenges.map(({ domain, zoneId, recordName }) => ({ domain, zoneId, recordName })),
  missing: [],
  orderUrl: record.orderUrl ?? null,
  previousVersion: record.previousVersion ?? null,
  version: record.version ?? null,
  serialNumber: record.serialNumber ?? null,
  expiresOn: record.expiresOn ?? null,
  createdAt: record.createdAt,
  requestedBy: record.requestedBy,
  endedAt: record.endedAt ?? null,
});
export const renewalPlanView = ({ record, missing, records }: RenewalPlan): z.output<typeof CertificateRenewal> => ({
  ...renewalView(record),
  dryRun: true,
  runId: null,
  records,
  missing,
});
