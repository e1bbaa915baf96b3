/**
 * Objects of Microsoft Graph, with the members that the service uses:
 * https://learn.microsoft.com/graph/api/resources/application. Times are whole Unix seconds.
 */

/** A client secret. Only the answer to `addPassword` contains its value. */
export interface PasswordCredential {
  keyId: string;
  displayName?: string;
  /** The first three characters of the value. */
  hint?: string;
  startsOn?: number;
  expiresOn?: number;
}

/** A certificate or other key. */
export interface KeyCredential {
  keyId: string;
  displayName?: string;
  /** `AsymmetricX509Cert`, `Symmetric` or `X509CertAndPassword`. */
  type: string;
  /** `Verify` or `Sign`. */
  usage: string;
  /** SHA-1 of the certificate, upper-case hexadecimal. */
  thumbprint?: string;
  startsOn?: number;
  expiresOn?: number;
}

/** A user or service principal that owns an application. */
export interface DirectoryOwner {
  id: string;
  displayName?: string;
  userPrincipalName?: string;
  mail?: string;
}

/** An application registration, or a service principal that has its own credentials. */
export interface GraphApplication {
  /** `servicePrincipal` if the credentials belong to the service principal, not to its application. */
  kind: "application" | "servicePrincipal";
  /** The directory object's ID, which changes need. */
  objectId: string;
  /** The client ID, which the application signs in with. */
  appId: string;
  displayName: string;
  /** Audience such as `AzureADMyOrg`. Undefined for a service principal. */
  signInAudience?: string;
  createdOn?: number;
  passwords: PasswordCredential[];
  keys: KeyCredential[];
  /** Up to 20 owners. Undefined if this list does not include owners. */
  owners?: DirectoryOwner[];
}

/** A trust in tokens of another issuer. An application with such a credential can sign in without a secret. */
export interface FederatedCredential {
  id: string;
  name: string;
  issuer: string;
  subject: string;
  audiences: string[];
}

/** Changes since a delta link. */
export interface ApplicationChanges {
  changed: GraphApplication[];
  /** Object IDs of deleted objects. */
  removed: string[];
  /** Link for the next request, on the last page. The link is opaque and can be some KiB long. */
  deltaLink?: string;
}

/** A new client secret. Its value is returned only once. */
export interface NewPassword extends PasswordCredential {
  secretText: string;
}

/** Limits that policies of the tenant and the application set for new client secrets. */
export interface PasswordPolicy {
  /** False if a policy forbids new client secrets. */
  allowed: boolean;
  /** Maximum lifetime in days. Undefined if no policy limits the lifetime. */
  longestDays?: number;
}

/** The tenant itself. */
export interface Organization {
  id: string;
  displayName: string;
  /** `AAD`, `AAD B2C` or `CIAM`. Other values are possible. */
  tenantType?: string;
  verifiedDomains: string[];
}

/** An identity provider that users of a tenant can sign in with. Its credentials and their expiry are never returned. */
export interface IdentityProvider {
  id: string;
  displayName: string;
  /** Type such as `socialIdentityProvider`. `builtInIdentityProvider` has no credential. */
  kind: string;
  clientId?: string;
}

/** A key of a custom policy's key set, without its secret part. Times are Unix seconds. */
export interface PolicyKey {
  kid?: string;
  /** `RSA` or `oct`. */
  keyType?: string;
  /** True if the key contains a certificate. */
  certificate: boolean;
  /** SHA-1 of the certificate, upper-case hexadecimal. */
  thumbprint?: string;
  enabled: boolean;
  startsOn?: number;
  /** Absent if the key does not expire. */
  expiresOn?: number;
}

/** https://learn.microsoft.com/graph/api/resources/trustframeworkkeyset */
export interface KeySet {
  /** Name such as `B2C_1A_TokenSigningKeyContainer`. */
  id: string;
  keys: PolicyKey[];
}
