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

/** Every method throws `GraphFailure` or `CloudFailure`; `timedOut` once its signal is aborted. */
export interface Graph {
  /** All applications with their credentials and owners, in pages of up to 999. */
  applications(signal?: AbortSignal): AsyncGenerator<GraphApplication[]>;
  /** Service principals that hold credentials of their own. */
  servicePrincipals(signal?: AbortSignal): AsyncGenerator<GraphApplication[]>;
  /**
   * What changed since `link`. Without one nothing is listed: the only page has a link that starts now.
   *
   * @throws {GraphFailure} resyncRequired when the link is no longer known: list everything again.
   */
  changes(link: string | undefined, signal?: AbortSignal): AsyncGenerator<ApplicationChanges>;
  /** Undefined when there is none. */
  application(
    by: { objectId: string } | { appId: string },
    signal?: AbortSignal,
  ): Promise<GraphApplication | undefined>;
  owners(objectId: string, signal?: AbortSignal): Promise<DirectoryOwner[]>;
  federatedCredentials(objectId: string, signal?: AbortSignal): Promise<FederatedCredential[]>;
  /**
   * What the policies of the tenant and of the application say of new client secrets; `unknown` when they may not be read.
   *
   * `longestDays` is undefined where nothing limits them.
   */
  passwordPolicy(
    objectId: string,
    signal?: AbortSignal,
  ): Promise<{ allowed: boolean; longestDays?: number } | "unknown">;
  /**
   * Adds a client secret. It is not idempotent and is sent once more only after an answer that says it was not applied
   * (`concurrency`, `throttled`): after `unclear` failures the caller looks for the display name.
   */
  addPassword(objectId: string, secret: { displayName: string; expiresOn: number }): Promise<NewPassword>;
  /** Removes one client secret; `absent` when there is none such (any more). */
  removePassword(objectId: string, keyId: string): Promise<"removed" | "absent">;
}
