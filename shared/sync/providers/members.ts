import { createPrivateKey } from "node:crypto";
import * as z from "zod";
import { addressProblem } from "../../platform/outgoing/outgoing.ts";

/** Members that the configurations of several providers have. */

/** The address of a server that people name, without a path, or with the one in front of its API. */
export const serverAddress = z
  .string()
  .max(512)
  .refine(
    (text) => URL.canParse(text) && addressProblem(new URL(text), false) === undefined,
    "must be an https:// address",
  )
  .refine((text) => !/[?#\s]/.test(text), "must not have a query, a fragment or white space")
  .transform((text) => text.replace(/\/+$/, ""));

export const certificates = z
  .string()
  .max(32_768)
  .regex(/^\s*(-----BEGIN CERTIFICATE-----[A-Za-z0-9+/=\s]+-----END CERTIFICATE-----\s*)+$/, "must be PEM certificates")
  .describe("The authorities that may vouch for the server, as PEM; without it the public ones may.");

const PRINTABLE = /^[\x21-\x7e]+$/;

/** A credential that goes into a header. */
export const credential = z.string().min(1).max(1024).regex(PRINTABLE, "must be printable ASCII without spaces");

/** Whether an issued token can go into a header. A server that people name may answer anything. */
export const isToken = (token: unknown): token is string => typeof token === "string" && PRINTABLE.test(token);

/** https://www.rfc-editor.org/rfc/rfc7518#section-3.3 */
const LEAST_RSA_BITS = 2048;

/** Whether a text is a private RSA key in PEM, with which RS256 signs. */
export function isRsaKey(pem: string): boolean {
  try {
    const { asymmetricKeyType, asymmetricKeyDetails } = createPrivateKey(pem);
    return asymmetricKeyType === "rsa" && (asymmetricKeyDetails?.modulusLength ?? 0) >= LEAST_RSA_BITS;
  } catch {
    return false;
  }
}
