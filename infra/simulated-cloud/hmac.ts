import { createHash, createHmac, timingSafeEqual } from "node:crypto";
import type { IncomingRequest } from "./http.ts";

/** Maximum clock skew of the client: 15 minutes in Communication Services and in App Configuration. */
const MAX_SKEW_MS = 15 * 60 * 1000;

const SIGNED_HEADERS = "x-ms-date;host;x-ms-content-sha256";

/**
 * Verifies the HMAC signature that Communication Services and App Configuration use:
 * https://learn.microsoft.com/rest/api/communication/authentication and
 * https://learn.microsoft.com/azure/azure-app-configuration/rest-api-authentication-hmac
 *
 * @returns the error message. Undefined if the signature is valid.
 */
export function signatureProblem(request: IncomingRequest, key: Buffer): string | undefined {
  const [scheme, parameters = ""] = (request.headers.authorization ?? "").split(/\s+/, 2);
  if (scheme !== "HMAC-SHA256") return "The Authorization header with the scheme HMAC-SHA256 is missing.";
  const signatureParameters = new Map(
    parameters.split("&").map((pair) => {
      const separator = pair.indexOf("=");
      return [pair.slice(0, separator), pair.slice(separator + 1)];
    }),
  );
  if (signatureParameters.get("SignedHeaders") !== SIGNED_HEADERS)
    return `The signed headers must be ${SIGNED_HEADERS}.`;
  const date = String(request.headers["x-ms-date"] ?? "");
  if (!(Math.abs(Date.parse(date) - Date.now()) <= MAX_SKEW_MS)) return "The date is missing or too far off.";
  const hash = createHash("sha256").update(request.body).digest("base64");
  if (request.headers["x-ms-content-sha256"] !== hash) return "The hash is not that of the body.";

  const text = `${request.method}\n${request.target}\n${date};${request.authority};${hash}`;
  const signature = createHmac("sha256", key).update(text, "utf8").digest();
  const claimed = Buffer.from(signatureParameters.get("Signature") ?? "", "base64");
  return claimed.length === signature.length && timingSafeEqual(claimed, signature)
    ? undefined
    : "The signature does not match.";
}
