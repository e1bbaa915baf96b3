import { createHash } from "node:crypto";
import { guidFrom } from "../resources/identifiers.ts";

/**
 * An application registration with its service principal, as a person writes it down. Ids and values follow from the names,
 * so that a vault's secret can be declared to hold an application's.
 */
export interface CompanyApplication {
  /** Display name; unique here, though Entra wants no such thing. */
  name: string;
  /** Default `AzureADMyOrg`. Those with personal accounts may have two secrets at most. */
  audience?: "AzureADMyOrg" | "AzureADMultipleOrgs" | "AzureADandPersonalMicrosoftAccount" | "PersonalMicrosoftAccount";
  /** Default 400. */
  createdDaysAgo?: number;
  /** People, by their address. */
  owners?: string[];
  /** Whether the service's identity is an owner, too. Default true. */
  serviceOwns?: boolean;
  /** Whether it can sign in here. Default `enabled`; `none`: no service principal; `blocked`: by Conditional Access. */
  signIn?: "enabled" | "disabled" | "none" | "blocked";
  secrets?: CompanyApplicationSecret[];
  certificates?: { name: string; expiresInDays: number; createdDaysAgo?: number }[];
  federated?: { name: string; issuer: string; subject: string }[];
  /** Its service principal signs SAML responses with a certificate of its own. */
  samlSigning?: { expiresInDays: number };
  /** What a policy assigned to it says of new secrets; it stands before the tenant's. */
  policy?: PasswordPolicy;
  notes?: string;
  tags?: string[];
}

export interface CompanyApplicationSecret {
  /** Display name; unique within the application. */
  name: string;
  expiresInDays: number;
  /** Default 30. */
  createdDaysAgo?: number;
}

/** https://learn.microsoft.com/graph/api/resources/passwordcredentialconfiguration */
export interface PasswordPolicy {
  /** No new secrets at all. */
  additionRefused?: boolean;
  longestDays?: number;
  /** It is for applications made in the last so many days only. */
  forAppsCreatedInLastDays?: number;
}

export const appIdOf = (application: string): string => guidFrom(`client id ${application}`);
export const objectIdOf = (application: string): string => guidFrom(`application ${application}`);
export const keyIdOf = (application: string, secret: string): string => guidFrom(`key ${application}/${secret}`);

/** A secret's value, in the shape of Entra's: 40 characters with `Q~` at the fifth place. */
export function secretValueOf(application: string, secret: string): string {
  return secretText(createHash("sha256").update(`secret ${application}/${secret}`).digest());
}

/** @param bytes at least 32 */
export function secretText(bytes: Uint8Array): string {
  const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.~-";
  const letter = (index: number) => letters[bytes[index % bytes.length]! % letters.length]!;
  const some = (from: number, count: number) => Array.from({ length: count }, (_, index) => letter(from + index));
  const first = some(0, 3)
    .join("")
    .replace(/[_.~-]/g, "x");
  return `${first}${bytes[3]! % 10}Q~${some(4, 34).join("")}`;
}
