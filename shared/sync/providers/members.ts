import { createPrivateKey } from "node:crypto";
import * as z from "zod";
import { addressProblem } from "../../outgoing/outgoing.ts";

/** Members that the configurations of several providers have. */

/** The address of a server that people name, without a path, or with the one in front of its API. */
export const serverAddress = z
  .string()
  .max(512)
  .refine(
    (text) => URL.canParse(text) && addressProblem(new URL(text), false) === undefined,
    "must be an https:// address",
  )
  .refine((text) => !URL.canParse(text) || new URL(text).search === "", "must not have a query")
  .transform((text) => text.replace(/\/+$/, ""));

export const certificates = z
  .string()
  .max(32_768)
  .regex(/^(\s*-----BEGIN CERTIFICATE-----[A-Za-z0-9+/=\s]+-----END CERTIFICATE-----\s*)+$/, "must be PEM certificates")
  .describe("The authorities that may vouch for the server, as PEM; without it the public ones may.");

/** A credential that goes into a header. */
export const credential = z
  .string()
  .min(1)
  .max(1024)
  .regex(/^[\x21-\x7e]+$/, "must be printable ASCII without spaces");

/** Whether a text is a private RSA key in PEM, with which RS256 signs. */
export function isRsaKey(pem: string): boolean {
  try {
    return createPrivateKey(pem).asymmetricKeyType === "rsa";
  } catch {
    return false;
  }
}
