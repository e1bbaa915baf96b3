// Types for the declaration of applications, and the IDs and values that follow from their names.

import { createHash } from "node:crypto";
import { guidFrom } from "../vaults/identifiers.ts";

/**
 * Declaration of an application registration with its service principal. IDs and values follow from the names, so that a
 * declared vault secret can have the value of an application's client secret.
 */
export interface CompanyApplication {
  /** Display name. Unique here, although Entra does not require it. */
  name: string;
  /** Default `AzureADMyOrg`. Applications for personal accounts can have at most two secrets. */
  audience?: "AzureADMyOrg" | "AzureADMultipleOrgs" | "AzureADandPersonalMicrosoftAccount" | "PersonalMicrosoftAccount";
  /** Age in days. Default 400. */
  createdDaysAgo?: number;
  /** Users who own the application, by mail address. */
  owners?: string[];
  /** Whether the identities with which the service calls Microsoft Graph are also owners. Default true. */
  serviceOwns?: boolean;
  /**
   * Whether the application can sign in. `none`: it has no service principal. `blocked`: Conditional Access blocks it. Default
   * `enabled`.
   */
  signIn?: "enabled" | "disabled" | "none" | "blocked";
  secrets?: CompanyApplicationSecret[];
  certificates?: { name: string; expiresInDays: number; createdDaysAgo?: number }[];
  federated?: { name: string; issuer: string; subject: string; audience?: string }[];
  /** The registration is in another tenant. This tenant has only a service principal, which has the secrets. Default false. */
  otherTenant?: boolean;
  /** The service principal signs SAML responses with a certificate of its own. */
  samlSigning?: { expiresInDays: number };
  /** Restrictions of new secrets in a policy that is assigned to the application. It overrides the tenant's policy. */
  policy?: PasswordPolicy;
  notes?: string;
  tags?: string[];
}

export interface CompanyApplicationSecret {
  /** Display name. Unique within the application. */
  name: string;
  expiresInDays: number;
  /** Days since the secret was created. Default 30. */
  createdDaysAgo?: number;
}

/** Restrictions of new secrets: https://learn.microsoft.com/graph/api/resources/passwordcredentialconfiguration */
export interface PasswordPolicy {
  /** Whether new secrets are not allowed. */
  additionRefused?: boolean;
  /** Maximum lifetime of a new secret. */
  longestDays?: number;
  /** The restriction applies only to applications created in the last N days. */
  forAppsCreatedInLastDays?: number;
}

/** IDs that follow from names: the application (client) ID, the object ID of the registration, and the key ID of a secret. */
export const appIdOf = (application: string): string => guidFrom(`client id ${application}`);
export const objectIdOf = (application: string): string => guidFrom(`application ${application}`);
export const keyIdOf = (application: string, secret: string): string => guidFrom(`key ${application}/${secret}`);

/** Returns the value of a secret in Entra's format: 40 characters with `Q~` from the fifth. */
export function secretValueOf(application: string, secret: string): string {
  return secretText(createHash("sha256").update(`secret ${application}/${secret}`).digest());
}

/**
 * Formats bytes as a secret value.
 * @param bytes At least 32 bytes.
 */
export function secretText(bytes: Uint8Array): string {
  const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.~-";
  const letter = (index: number) => letters[bytes[index % bytes.length]! % letters.length]!;
  const textOf = (from: number, count: number) => Array.from({ length: count }, (_, index) => letter(from + index));
  const prefix = textOf(0, 3)
    .join("")
    .replace(/[_.~-]/g, "x");
  return `${prefix}${bytes[3]! % 10}Q~${textOf(4, 34).join("")}`;
}
