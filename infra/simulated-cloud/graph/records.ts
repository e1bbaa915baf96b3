// Internal records of applications and their credentials, created from a company's declaration.

import { createHash, randomUUID } from "node:crypto";
import {
  appIdOf,
  type CompanyApplication,
  keyIdOf,
  objectIdOf,
  type PasswordPolicy,
  secretValueOf,
} from "../company/applications.ts";
import { guidFrom } from "../vaults/identifiers.ts";

/** A client secret with its internal state. Validity dates are Unix seconds, event times are Unix milliseconds. */
export interface SecretRecord {
  keyId: string;
  displayName: string | null;
  value: string;
  startsOn: number;
  expiresOn: number;
  /** `company`: declared. `graph`: added through Microsoft Graph. `control`: added by a test through the control API. */
  madeBy: "company" | "graph" | "control";
  madeAt: number;
  /**
   * Unix milliseconds. No sign-in succeeds before `worksFrom`. Between `worksFrom` and `settlesAt` some succeed and some fail.
   */
  worksFrom: number;
  settlesAt: number;
  removedAt?: number;
}

/** A certificate of an application. Dates are Unix seconds. */
export interface KeyRecord {
  keyId: string;
  displayName: string;
  usage: "Verify" | "Sign";
  /** 20 bytes, hexadecimal. */
  thumbprint: string;
  startsOn: number;
  expiresOn: number;
}

/** An owner of an application. */
export interface OwnerRecord {
  id: string;
  kind: "user" | "servicePrincipal";
  displayName: string;
  mail?: string;
}

/** An application with its service principal. Records are immutable, because lagging replicas return earlier states. */
export interface ApplicationRecord {
  objectId: string;
  appId: string;
  servicePrincipalId: string;
  displayName: string;
  audience: NonNullable<CompanyApplication["audience"]>;
  /** Unix seconds. */
  createdAt: number;
  owners: OwnerRecord[];
  serviceOwns: boolean;
  signIn: NonNullable<CompanyApplication["signIn"]>;
  secrets: SecretRecord[];
  /** Removed secrets, which the control API still lists. */
  removed: SecretRecord[];
  keys: KeyRecord[];
  samlKeys: KeyRecord[];
  federated: FederatedRecord[];
  /** The registration is in another tenant, so only the service principal is listed. */
  otherTenant?: boolean;
  policy?: PasswordPolicy;
  notes?: string;
  tags: string[];
}

export interface FederatedRecord {
  id: string;
  name: string;
  issuer: string;
  subject: string;
  /** Default: the audience of the public cloud. */
  audience?: string;
  /** Unix milliseconds from which sign-ins know it. Default: always. */
  worksFrom?: number;
}

export const DEFAULT_AUDIENCE = "api://AzureADTokenExchange";

const DAY_SECONDS = 86_400;

/**
 * Creates an application record.
 * @param at Unix seconds from which the days count.
 */
export function applicationFrom(declared: CompanyApplication, at: number): ApplicationRecord {
  const { name } = declared;
  const timeAfter = (days: number) => Math.round(at + days * DAY_SECONDS);
  const certificate = (
    one: { name: string; expiresInDays: number; createdDaysAgo?: number },
    usage: KeyRecord["usage"],
  ): KeyRecord => ({
    keyId: keyIdOf(name, `${usage} ${one.name}`),
    displayName: `CN=${one.name}`,
    usage,
    thumbprint: createHash("sha1").update(`${name}/${one.name}`).digest("hex"),
    startsOn: timeAfter(-(one.createdDaysAgo ?? 30)),
    expiresOn: timeAfter(one.expiresInDays),
  });
  const saml = declared.samlSigning && { name: `${name} SAML signing`, ...declared.samlSigning };
  return {
    objectId: objectIdOf(name),
    appId: appIdOf(name),
    servicePrincipalId: guidFrom(`service principal ${name}`),
    displayName: name,
    audience: declared.audience ?? "AzureADMyOrg",
    createdAt: timeAfter(-(declared.createdDaysAgo ?? 400)),
    owners: (declared.owners ?? []).map(ownerFrom),
    serviceOwns: declared.serviceOwns ?? true,
    signIn: declared.signIn ?? "enabled",
    secrets: (declared.secrets ?? []).map((secret) => {
      const madeAt = timeAfter(-(secret.createdDaysAgo ?? 30)) * 1000;
      return {
        keyId: keyIdOf(name, secret.name),
        displayName: secret.name,
        value: secretValueOf(name, secret.name),
        startsOn: madeAt / 1000,
        expiresOn: timeAfter(secret.expiresInDays),
        madeBy: "company",
        madeAt,
        worksFrom: madeAt,
        settlesAt: madeAt,
      };
    }),
    removed: [],
    keys: (declared.certificates ?? []).map((one) => certificate(one, "Verify")),
    samlKeys: saml ? [certificate(saml, "Sign"), certificate(saml, "Verify")] : [],
    federated: (declared.federated ?? []).map((one) => ({ id: guidFrom(`federated ${name}/${one.name}`), ...one })),
    ...(declared.otherTenant && { otherTenant: true }),
    ...(declared.policy && { policy: declared.policy }),
    ...(declared.notes !== undefined && { notes: declared.notes }),
    tags: declared.tags ?? [],
  };
}

function ownerFrom(mail: string): OwnerRecord {
  const name = mail.split("@")[0]!;
  return { id: guidFrom(`person ${mail}`), kind: "user", displayName: name.replace(/[._-]/g, " "), mail };
}

export const newKeyId = (): string => randomUUID();
