import * as z from "zod";
import { AriWindow } from "./renewal.ts";

/**
 * Facts of a key vault's certificate that its list entry does not contain. Scans store them with the certificate's details.
 * Absent as a whole for certificates whose details were last read by an earlier version.
 */
export const CertificateFacts = z.object({
  /** Content bytes of the serial number's DER, lower-case hexadecimal. Absent until the authority has issued the certificate. */
  serialNumber: z.string().optional(),
  /** Key identifier of the authority, lower-case hexadecimal. */
  authorityKeyId: z.string().optional(),
  /** Whether signed certificate timestamps are embedded, as in certificates that browsers trust. */
  hasTimestamps: z.boolean().optional(),
  /** Object identifier of the algorithm with which the authority signed. Absent if an earlier version read the details. */
  signatureAlgorithm: z.string().optional(),
  /** Validity of the issued certificate, in Unix seconds. */
  notBefore: z.int().optional(),
  notAfter: z.int().optional(),
  /** Validity in months that the vault's policy requests for a new version. */
  orderedMonths: z.int().optional(),
  /** Whether the private key can be read. */
  exportable: z.boolean().optional(),
});
export type CertificateFacts = z.infer<typeof CertificateFacts>;

/** The last answer of a certificate's authority to the question when to renew the certificate (RFC 9773). */
export const RenewalCheck = z.object({
  /** Identifier of the certificate's version, by RFC 9773. */
  id: z.string(),
  /**
   * The last known window. Its `checkedAt` and `retryAfter` are those of the first answer that had this window. Absent if the
   * authority never suggested a window.
   */
  window: AriWindow.optional(),
  /** When the authority was last asked for the window, and when to ask it again. Unix seconds. */
  checkedAt: z.int(),
  retryAfter: z.int(),
  /** Why the last request returned no window. */
  failure: z.string().optional(),
});
export type RenewalCheck = z.infer<typeof RenewalCheck>;

/** The checks of a vault's certificates, packed in the vault's row. */
export const RenewalChecks = z.object({
  /** Hash of the stored certificates to which the checks belong. With another hash, certificates may be new. */
  certificates: z.string(),
  /** Hash of the authorities that were configured at that time. */
  configuration: z.string().optional(),
  /** When the next check is due. Unix seconds. */
  nextAt: z.int(),
  /** The last check of each certificate, by the certificate's lower-case name. */
  checks: z.record(z.string(), RenewalCheck),
});
export type RenewalChecks = z.infer<typeof RenewalChecks>;
