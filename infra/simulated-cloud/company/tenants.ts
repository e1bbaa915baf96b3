import type { CompanyApplication } from "./applications.ts";

/**
 * Another tenant of the company, with a directory of its own. Names of applications are unique over all tenants, since ids
 * follow from them.
 */
export interface CompanyTenant {
  /** Display name. */
  name: string;
  /** Its verified domain, such as `acmeshop.onmicrosoft.com`. */
  domain: string;
  /** A GUID; by default one that follows from the domain. */
  id?: string;
  /** What Graph calls it: a workforce tenant, one of Azure AD B2C, or one of External ID. */
  type: "AAD" | "AAD B2C" | "CIAM";
  /** The application, of those below, that the service signs in with, by its name. */
  registration: string;
  /** The application permissions of Microsoft Graph that it has; by default those that everything takes. */
  permissions?: string[];
  applications: CompanyApplication[];
  keySets?: CompanyKeySet[];
  identityProviders?: CompanyIdentityProvider[];
}

/** Keys of custom policies: https://learn.microsoft.com/graph/api/resources/trustframeworkkeyset */
export interface CompanyKeySet {
  /** Such as `B2C_1A_TokenSigningKeyContainer`. */
  id: string;
  keys: CompanyPolicyKey[];
}

export interface CompanyPolicyKey {
  /** Its id is made from it. */
  name: string;
  /** Default `rsa`; a secret is what an identity provider gave, a certificate one that was uploaded. */
  what?: "rsa" | "secret" | "certificate";
  use?: "sig" | "enc";
  /** Left out, it never ends and says nothing of it. */
  expiresInDays?: number;
  /** Not before; left out, there is none. */
  activeInDays?: number;
}

/** https://learn.microsoft.com/graph/api/resources/identityproviderbase */
export interface CompanyIdentityProvider {
  /** Such as `Google-OAUTH`. */
  id: string;
  name: string;
  type: "socialIdentityProvider" | "appleManagedIdentityProvider" | "builtInIdentityProvider";
  clientId?: string;
}

/** What the least rights for everything are. */
export const TENANT_PERMISSIONS = [
  "Application.Read.All",
  "Organization.Read.All",
  "TrustFrameworkKeySet.Read.All",
  "IdentityProvider.Read.All",
];
