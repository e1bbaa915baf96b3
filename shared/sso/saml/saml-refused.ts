/**
 * Reasons to reject a SAML message, for the audit log. They are fixed texts without content of the message. The sections are
 * those of SAML Core, Bindings and Profiles 2.0 (https://docs.oasis-open.org/security/saml/v2.0/).
 */
export type SamlReason =
  /** Not XML, beyond the limits of `checkXmlLimits`, or without the structure of a Response or of metadata. */
  | "malformed"
  /** A document type or entity, which SAML messages never have (Core, 1.3.1 of the errata). */
  | "documentType"
  /** The identity provider reports that the sign-in failed (Core, 3.2.2.2). */
  | "status"
  /** Not exactly one assertion (parsers could choose different ones). */
  | "assertionCount"
  | "notSigned"
  | "signature"
  /** The algorithm of a signature or encryption is not allowed: SHA-1, RSA with PKCS#1 v1.5 encryption, other transforms. */
  | "algorithm"
  /** Encrypted although the service has no key, or not for its key. */
  | "encrypted"
  | "issuer"
  | "destination"
  | "audience"
  /** Without a bearer confirmation, or with one that lacks a part that Profiles 4.1.4.2 requires. */
  | "confirmation"
  | "recipient"
  | "inResponseTo"
  | "expired"
  | "notYetValid"
  /** Without a permanent identifier of the person: see `subjectOf` in assertion.ts. */
  | "noIdentity";

/** Thrown when a SAML message is rejected. */
export class SamlRefused extends Error {
  readonly reason: SamlReason;

  constructor(reason: SamlReason) {
    super(`The SAML message is rejected: ${reason}.`);
    this.reason = reason;
  }
}
