// Secrets, keys and certificates with their versions, created from a company's declaration.

import { X509Certificate } from "node:crypto";
import type { CompanyCertificate, CompanyKey, CompanySecret, KeySpec } from "../company/company.ts";
import { versionFrom } from "./identifiers.ts";

/** The members of a certificate's policy that operations use: https://learn.microsoft.com/rest/api/keyvault/certificates */
export interface CertificatePolicyJson {
  key_props?: { kty?: string; key_size?: number; crv?: string; exportable?: boolean; reuse_key?: boolean };
  secret_props?: { contentType?: string };
  x509_props?: {
    subject?: string;
    sans?: { dns_names?: string[] };
    validity_months?: number;
    ekus?: string[];
    key_usage?: string[];
  };
  issuer?: { name?: string };
  lifetime_actions?: {
    trigger?: { lifetime_percentage?: number; days_before_expiry?: number };
    action?: { action_type?: string };
  }[];
}

/** One version of a secret, key or certificate. Times are Unix seconds, as in Key Vault's API. */
export interface Version {
  id: string;
  enabled: boolean;
  created: number;
  updated: number;
  notBefore?: number;
  expires?: number;
  tags?: Record<string, string>;
}
export interface SecretVersion extends Version {
  value: string;
  contentType?: string;
}
export interface KeyVersion extends Version {
  /** Type and size of the key. */
  shape: KeySpec;
}
export interface CertificateVersion extends Version {
  subject: string;
  dnsNames: string[];
  issuer: string;
  shape: KeySpec;
  validityMonths: number;
  authority?: CompanyCertificate["authority"];
  /** DER of a certificate that another program issued, in base64. */
  der?: string;
}

/** A secret, key or certificate. Versions are ordered from oldest to newest. The last version is current. */
export interface Item<V extends Version> {
  name: string;
  versions: V[];
}
export type Secret = Item<SecretVersion>;
/** A rotation policy that a client set. Durations are ISO 8601. Times are Unix seconds. */
export interface KeyPolicy {
  expiryTime?: string;
  lifetimeActions: { type: "Rotate" | "Notify"; timeAfterCreate?: string; timeBeforeExpiry?: string }[];
  created: number;
  updated: number;
}
export interface Key extends Item<KeyVersion> {
  rotation?: CompanyKey["rotation"];
  /** Replaces `rotation`. */
  policy?: KeyPolicy;
}
export interface Certificate extends Item<CertificateVersion> {
  renewal: NonNullable<CompanyCertificate["renewal"]>;
  exportable: boolean;
  /** Policy that a request set. Undefined: it follows from the current version. */
  policy?: CertificatePolicyJson;
  /** Number of the shared X.509 certificate that a generated certificate has, instead of one of its own. */
  shared?: number;
}

/** Returns the current version. */
export function current<V extends Version>(item: Item<V>): V {
  return item.versions.at(-1)!;
}

/** The time from which the days of a declaration count, and the default age of an item. */
export interface Moment {
  /** Unix seconds. */
  at: number;
  ageDays: number;
}

const DAY_SECONDS = 86_400;
/** Mean month of the Gregorian calendar. */
const MONTH_SECONDS = 30.436875 * DAY_SECONDS;

/** Creates an item from its declaration. */
export function secretFrom(declared: CompanySecret, vault: string, moment: Moment): Secret {
  return {
    name: declared.name,
    versions: [
      {
        ...createVersion(declared, `${vault}/secrets`, moment),
        value: declared.value ?? `value-of-${declared.name}-in-${vault}`,
        ...(declared.contentType !== undefined && { contentType: declared.contentType }),
      },
    ],
  };
}

export function keyFrom(declared: CompanyKey, vault: string, moment: Moment): Key {
  return {
    name: declared.name,
    versions: [{ ...createVersion(declared, `${vault}/keys`, moment), shape: shapeOf(declared) }],
    ...(declared.rotation && { rotation: declared.rotation }),
  };
}

export function certificateFrom(declared: CompanyCertificate, vault: string, moment: Moment): Certificate {
  const validityMonths = declared.validityMonths ?? 12;
  const version = createVersion(declared, `${vault}/certificates`, moment);
  // `validityDays` is exact: its first and its last second both belong to the validity, hence one second less. Months vary
  // anyway.
  const lifetime =
    declared.validityDays === undefined
      ? Math.round(validityMonths * MONTH_SECONDS)
      : Math.round(declared.validityDays * DAY_SECONDS) - 1;
  if (declared.der !== undefined) {
    const { validFromDate, validToDate } = new X509Certificate(Buffer.from(declared.der, "base64"));
    version.notBefore = validFromDate.getTime() / 1000;
    version.expires = validToDate.getTime() / 1000;
  }
  // A certificate always has both dates. A missing date follows from the other date and the validity.
  if (version.expires === undefined) {
    version.notBefore ??= version.created;
    version.expires = version.notBefore + lifetime;
  }
  version.notBefore ??= version.expires - lifetime;
  if (declared.createdDaysAgo === undefined) {
    version.created = Math.min(version.notBefore, moment.at);
    version.updated = declared.updatedDaysAgo === undefined ? version.created : version.updated;
  }
  const currentVersion: CertificateVersion = {
    ...version,
    subject: declared.subject ?? `CN=${declared.name}.acme.example`,
    dnsNames: declared.dnsNames ?? [`${declared.name}.acme.example`],
    issuer: declared.issuer ?? "Self",
    shape: shapeOf(declared),
    validityMonths,
    ...(declared.authority && { authority: declared.authority }),
    ...(declared.der !== undefined && { der: declared.der }),
  };
  return {
    name: declared.name,
    versions: [...earlierVersions(declared, currentVersion), currentVersion],
    renewal: declared.renewal ?? { action: "AutoRenew", percentage: 80 },
    exportable: declared.exportable ?? true,
  };
}

/** Returns the declared earlier versions, oldest first. */
function earlierVersions({ renewals }: CompanyCertificate, version: CertificateVersion): CertificateVersion[] {
  const { count, everyDays } = renewals ?? { count: 0, everyDays: 0 };
  return Array.from({ length: count }, (_, index) => {
    const secondsBefore = Math.round((count - index) * everyDays * DAY_SECONDS);
    return {
      ...version,
      id: versionFrom(`${version.id}/${count - index}`),
      created: version.created - secondsBefore,
      updated: version.created - secondsBefore,
      notBefore: version.notBefore! - secondsBefore,
      expires: version.expires! - secondsBefore,
    };
  });
}

/** Creates the members that versions of all kinds have. */
function createVersion(
  declared: CompanySecret | CompanyKey | CompanyCertificate,
  idPrefix: string,
  { at, ageDays }: Moment,
): Version {
  const timeAfter = (days: number) => Math.round(at + days * DAY_SECONDS);
  const created = timeAfter(-(declared.createdDaysAgo ?? ageDays));
  return {
    id: versionFrom(`${idPrefix}/${declared.name}/${at}`),
    enabled: declared.enabled ?? true,
    created,
    updated: declared.updatedDaysAgo === undefined ? created : timeAfter(-declared.updatedDaysAgo),
    ...(declared.activeInDays !== undefined && { notBefore: timeAfter(declared.activeInDays) }),
    ...(declared.expiresInDays !== undefined && { expires: timeAfter(declared.expiresInDays) }),
    ...(declared.tags && { tags: declared.tags }),
  };
}

function shapeOf({ type = "RSA", size = 2048, curve = "P-256" }: KeySpec): KeySpec {
  if (type === "oct-HSM") return { type };
  return type.startsWith("EC") ? { type, curve } : { type, size };
}
