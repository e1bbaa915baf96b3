// Verifies AWS Signature Version 4.

import { createHash, createHmac, timingSafeEqual } from "node:crypto";
import type { Incoming } from "../../http.ts";

/** Maximum clock skew of a request. */
const MAX_SKEW_MS = 5 * 60 * 1000;

const ALGORITHM = "AWS4-HMAC-SHA256";

export interface AccessKey {
  accessKeyId: string;
  secretAccessKey: string;
}

/** AWS error codes of an invalid signature. */
export interface SignatureProblem {
  code: string;
  message: string;
}

/**
 * Verifies the Signature Version 4 of a request:
 * https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html
 *
 * @returns the region, or the error
 */
export function verifySignature(
  request: Incoming,
  key: AccessKey,
  service: string,
): { region: string } | SignatureProblem {
  const { headers } = request;
  const authorization = headers.authorization ?? "";
  if (authorization === "") return problem("MissingAuthenticationTokenException", "Missing Authentication Token");
  const parts = /^(\S+) Credential=([^,\s]+),\s*SignedHeaders=([^,\s]+),\s*Signature=([0-9a-f]{64})$/.exec(
    authorization,
  );
  const [accessKeyId, date, region, scoped, end, ...more] = parts?.[2]?.split("/") ?? [];
  if (parts?.[1] !== ALGORITHM || !region || end !== "aws4_request" || more.length > 0) {
    return problem("IncompleteSignatureException", "Authorization header is not as it must be.");
  }
  if (accessKeyId !== key.accessKeyId) {
    return problem("UnrecognizedClientException", "The security token included in the request is invalid.");
  }
  if (scoped !== service) return invalid(`Credential should be scoped to correct service: '${service}'.`);

  const stamp = String(headers["x-amz-date"] ?? "");
  const at = Date.parse(stamp.replace(/^(\d{4})(\d\d)(\d\d)T(\d\d)(\d\d)(\d\d)Z$/, "$1-$2-$3T$4:$5:$6Z"));
  if (!(Math.abs(at - Date.now()) <= MAX_SKEW_MS)) return invalid(`Signature expired: ${stamp}`);
  if (!stamp.startsWith(date!))
    return invalid("Date in Credential scope does not match YYYYMMDD from ISO-8601 version.");

  const signed = parts[3]!.split(";");
  for (const name of ["host", "x-amz-date", "x-amz-target"]) {
    if (!signed.includes(name)) return invalid(`'${name}' must be a 'SignedHeader' in the AWS Authorization.`);
  }
  if (signed.some((name, index) => index > 0 && signed[index - 1]! >= name))
    return invalid("SignedHeaders are not sorted.");
  const bodyHash = createHash("sha256").update(request.body).digest("hex");
  if (headers["x-amz-content-sha256"] !== undefined && headers["x-amz-content-sha256"] !== bodyHash) {
    return invalid("The hash of the payload is not that of the body.");
  }
  const canonical = [
    request.method,
    request.path.split("/").map(encoded).join("/"),
    canonicalQuery(request.query),
    ...signed.map(
      (name) =>
        `${name}:${String(headers[name] ?? "")
          .trim()
          .replace(/\s+/g, " ")}`,
    ),
    "",
    signed.join(";"),
    bodyHash,
  ].join("\n");
  const scope = `${date}/${region}/${service}/aws4_request`;
  const text = [ALGORITHM, stamp, scope, createHash("sha256").update(canonical).digest("hex")].join("\n");
  const signingKey = [date!, region, service, "aws4_request"].reduce(
    (secret: string | Buffer, part) => hmac(secret, part),
    `AWS4${key.secretAccessKey}`,
  );
  return timingSafeEqual(hmac(signingKey, text), Buffer.from(parts[4]!, "hex"))
    ? { region }
    : invalid("The request signature we calculated does not match the signature you provided.");
}

const hmac = (secret: string | Buffer, text: string): Buffer => createHmac("sha256", secret).update(text).digest();

const problem = (code: string, message: string): SignatureProblem => ({ code, message });
const invalid = (message: string): SignatureProblem => problem("InvalidSignatureException", message);

/** Encodes each path segment once more, as the canonical request requires. */
const encoded = (text: string): string =>
  encodeURIComponent(text).replace(/[!'()*]/g, (char) => `%${char.charCodeAt(0).toString(16).toUpperCase()}`);

const canonicalQuery = (query: URLSearchParams): string =>
  [...query]
    .map(([name, value]) => `${encoded(name)}=${encoded(value)}`)
    .sort()
    .join("&");
