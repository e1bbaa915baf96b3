/**
 * Why a SAML message is refused: a code for the audit log, which never holds what the message said. The sections are those of
 * SAML Core, Bindings and Profiles 2.0 (https://docs.oasis-open.org/security/saml/v2.0/).
 */
export type SamlReason =
  /** No XML, beyond the limits of `measureXml`, or not built as a Response or as metadata is. */
  | "malformed"
  /** A document type or entity, which no SAML message needs (Core, 1.3.1 of the errata). */
  | "documentType"
  /** The identity provider says that it did not sign anybody in (Core, 3.2.2.2). */
  | "status"
  /** Not exactly one assertion (more would be read differently by different parsers). */
  | "assertionCount"
  | "notSigned"
  | "signature"
  /** Signed or encrypted in a way that is not on the list: SHA-1, RSA with PKCS#1 v1.5 encryption, other transforms. */
  | "algorithm"
  /** Encrypted although no key of ours was given out, or not for it. */
  | "encrypted"
  | "issuer"
  | "destination"
  | "audience"
  /** No bearer confirmation, or one that lacks what Profiles 4.1.4.2 asks for. */
  | "confirmation"
  | "recipient"
  | "inResponseTo"
  | "expired"
  | "notYetValid"
  /** Nothing that names a person for good: see `Identity`. */
  | "noIdentity";

/** A message that is not believed. */
export class SamlRefused extends Error {
  readonly reason: SamlReason;

  constructor(reason: SamlReason) {
    super(`The SAML message is refused: ${reason}.`);
    this.reason = reason;
  }
}
