import * as z from "zod";

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
  /** Validity of the issued certificate, in Unix seconds. */
  notBefore: z.int().optional(),
  notAfter: z.int().optional(),
  /** The policy's issuer: `Self`, `Unknown`, or the name of a certificate authority that is configured in the vault. */
  issuerName: z.string().optional(),
  /** Validity that the policy orders. */
  orderedMonths: z.int().optional(),
  /** Whether the private key can be read. */
  exportable: z.boolean().optional(),
});
export type CertificateFacts = z.infer<typeof CertificateFacts>;
