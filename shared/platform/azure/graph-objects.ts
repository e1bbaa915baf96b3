/**
 * Microsoft Graph v1.0, as far as application credentials need it.
 * https://learn.microsoft.com/graph/api/resources/application. Instants are whole unix seconds.
 */

/** A client secret. Its value is only ever in the answer to `addPassword`. */
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

/** A person or service principal that owns an application. */
export interface DirectoryOwner {
  id: string;
  displayName?: string;
  userPrincipalName?: string;
  mail?: string;
}

/** An application registration, or a service principal with credentials of its own. */
export interface GraphApplication {
  /** `servicePrincipal` for one whose credentials are not those of its application. */
  kind: "application" | "servicePrincipal";
  /** The directory object's id: what the calls that change it take. */
  objectId: string;
  /** The client id: what it signs in with. */
  appId: string;
  displayName: string;
  /** Such as `AzureADMyOrg`; undefined for a service principal. */
  signInAudience?: string;
  createdOn?: number;
  passwords: PasswordCredential[];
  keys: KeyCredential[];
  /** Undefined where this list does not say. At most 20 are given. */
  owners?: DirectoryOwner[];
}

export interface FederatedCredential {
  id: string;
  name: string;
  issuer: string;
  subject: string;
}

/** What changed since a delta link. */
export interface ApplicationChanges {
  changed: GraphApplication[];
  /** Object ids of those that are gone. */
  removed: string[];
  /** On the last page: the link to ask with next time. It is opaque and may be some KiB long. */
  deltaLink?: string;
}

/** A client secret as it was made: the only time that anybody sees its value. */
export interface NewPassword extends PasswordCredential {
  secretText: string;
}

/** What may be added as a client secret. */
export interface PasswordPolicy {
  allowed: boolean;
  longestDays?: number;
}

/** The tenant itself. */
export interface Organization {
  id: string;
  displayName: string;
  /** `AAD`, `AAD B2C` or `CIAM`; other values may come. */
  tenantType?: string;
  verifiedDomains: string[];
}

/** What people of a tenant sign in with beside it: the credentials it was set up with are never shown, nor when they end. */
export interface IdentityProvider {
  id: string;
  displayName: string;
  /** Such as `socialIdentityProvider`; `builtInIdentityProvider` for one that has no credential. */
  kind: string;
  clientId?: string;
}

/** A key of a custom policy's key set, without what is secret of it. Instants are unix seconds. */
export interface PolicyKey {
  kid?: string;
  /** `RSA` or `oct`. */
  keyType?: string;
  /** It holds a certificate. */
  certificate: boolean;
  /** SHA-1 of the certificate, upper-case hexadecimal. */
  thumbprint?: string;
  enabled: boolean;
  startsOn?: number;
  /** Absent: never. */
  expiresOn?: number;
}

/** https://learn.microsoft.com/graph/api/resources/trustframeworkkeyset */
export interface KeySet {
  /** Such as `B2C_1A_TokenSigningKeyContainer`. */
  id: string;
  keys: PolicyKey[];
}
