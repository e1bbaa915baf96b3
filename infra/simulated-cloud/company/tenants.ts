import type { CompanyApplication } from "./applications.ts";

/**
 * Declaration of another tenant of the company, with a directory of its own. Application names are unique over all tenants,
 * because IDs follow from names.
 */
export interface CompanyTenant {
  /** Display name. */
  name: string;
  /** Verified domain, such as `acmeshop.onmicrosoft.com`. */
  domain: string;
  /** A GUID. Default: derived from the domain. */
  id?: string;
  /** Tenant type in Microsoft Graph: a workforce tenant, Azure AD B2C, or External ID. */
  type: "AAD" | "AAD B2C" | "CIAM";
  /** Name of the application in `applications` that the service signs in with. */
  registration: string;
  /** Microsoft Graph application permissions of the service. Default: all permissions that the service uses. */
  permissions?: string[];
  applications: CompanyApplication[];
  keySets?: CompanyKeySet[];
  identityProviders?: CompanyIdentityProvider[];
}

/** Keys of custom policies: https://learn.microsoft.com/graph/api/resources/trustframeworkkeyset */
export interface CompanyKeySet {
  /** Name, such as `B2C_1A_TokenSigningKeyContainer`. */
  id: string;
  keys: CompanyPolicyKey[];
}

export interface CompanyPolicyKey {
  /** Name of the key. Its ID is derived from it. */
  name: string;
  /** `rsa` (default), `secret` from an identity provider, or an uploaded `certificate`. */
  what?: "rsa" | "secret" | "certificate";
  use?: "sig" | "enc";
  /** Days until expiry. Default: no expiry date. */
  expiresInDays?: number;
  /** Days until the activation date. Default: none. */
  activeInDays?: number;
}

/** Identity provider of a tenant: https://learn.microsoft.com/graph/api/resources/identityproviderbase */
export interface CompanyIdentityProvider {
  /** ID, such as `Google-OAUTH`. */
  id: string;
  name: string;
  type: "socialIdentityProvider" | "appleManagedIdentityProvider" | "builtInIdentityProvider";
  clientId?: string;
}

/** Microsoft Graph permissions that the service uses in a tenant. */
export const TENANT_PERMISSIONS = [
  "Application.Read.All",
  "User.ReadBasic.All",
  "Organization.Read.All",
  "TrustFrameworkKeySet.Read.All",
  "IdentityProvider.Read.All",
];
