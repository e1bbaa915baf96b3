import { createPrivateKey } from "node:crypto";
import * as z from "zod";
import { addressProblem } from "../../platform/outgoing/outgoing.ts";

/** Schemas and checks that the configurations of several providers share. */

/** Address of a server, optionally with a path prefix of its API. */
export const serverAddress = z
  .string()
  .max(512)
  .refine(
    (text) => URL.canParse(text) && addressProblem(new URL(text), false) === undefined,
    "must be an https:// address",
  )
  .refine((text) => !/[?#\s]/.test(text), "must not have a query, a fragment or white space")
  .transform((text) => text.replace(/\/+$/, ""));

export const caCertificate = z
  .string()
  .max(32_768)
  .regex(/^\s*(-----BEGIN CERTIFICATE-----[A-Za-z0-9+/=\s]+-----END CERTIFICATE-----\s*)+$/, "must be PEM certificates")
  .optional()
  .describe("CA certificate of the server, in PEM. Without it, the server needs a certificate of a public CA.");

const PRINTABLE = /^[\x21-\x7e]+$/;

/** A credential that is sent in a header. */
export const credential = z.string().min(1).max(1024).regex(PRINTABLE, "must be printable ASCII without spaces");

/** Returns whether an issued token can be sent in a header. A user-configured server may return anything. */
export const isToken = (token: unknown): token is string => typeof token === "string" && PRINTABLE.test(token);

/** Minimum size of RSA keys: https://www.rfc-editor.org/rfc/rfc7518#section-3.3 */
const MIN_RSA_BITS = 2048;

/** Returns whether a text is a private RSA key in PEM, for signing with RS256. */
export function isRsaKey(pem: string): boolean {
  try {
    const { asymmetricKeyType, asymmetricKeyDetails } = createPrivateKey(pem);
    return asymmetricKeyType === "rsa" && (asymmetricKeyDetails?.modulusLength ?? 0) >= MIN_RSA_BITS;
  } catch {
    return false;
  }
}
