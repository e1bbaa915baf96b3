// Verifies AWS Signature Version 4.

import { createHash, createHmac, timingSafeEqual } from "node:crypto";
import type { IncomingRequest } from "../../http.ts";

/** Maximum clock skew of a request. */
const MAX_SKEW_MS = 5 * 60 * 1000;

const ALGORITHM = "AWS4-HMAC-SHA256";

export interface AccessKey {
  accessKeyId: string;
  secretAccessKey: string;
}

/** The error of an invalid signature, with its AWS error code. */
export interface SignatureProblem {
  code: string;
  message: string;
}

/**
 * Verifies the Signature Version 4 of a request:
 * https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html
 *
 * @returns The region, or the error.
 */
export function verifySignature(
  request: IncomingRequest,
  key: AccessKey,
  service: string,
): { region: string } | SignatureProblem {
  const { headers } = request;
  const authorization = headers.authorization ?? "";
  if (authorization === "") return problem("MissingAuthenticationTokenException", "Missing Authentication Token");
  const fields = /^(\S+) Credential=([^,\s]+),\s*SignedHeaders=([^,\s]+),\s*Signature=([0-9a-f]{64})$/.exec(
    authorization,
  );
  const [accessKeyId, date, region, credentialService, end, ...more] = fields?.[2]?.split("/") ?? [];
  if (fields?.[1] !== ALGORITHM || !region || end !== "aws4_request" || more.length > 0) {
    return problem("IncompleteSignatureException", "The Authorization header is invalid.");
  }
  if (accessKeyId !== key.accessKeyId) {
    return problem("UnrecognizedClientException", "The security token included in the request is invalid.");
  }
  if (credentialService !== service) return invalid(`Credential should be scoped to correct service: '${service}'.`);

  const timestamp = String(headers["x-amz-date"] ?? "");
  const requestTime = Date.parse(timestamp.replace(/^(\d{4})(\d\d)(\d\d)T(\d\d)(\d\d)(\d\d)Z$/, "$1-$2-$3T$4:$5:$6Z"));
  if (!(Math.abs(requestTime - Date.now()) <= MAX_SKEW_MS)) return invalid(`Signature expired: ${timestamp}`);
  if (!timestamp.startsWith(date!))
    return invalid("Date in Credential scope does not match YYYYMMDD from ISO-8601 version.");

  const signedHeaders = fields[3]!.split(";");
  for (const name of ["host", "x-amz-date", "x-amz-target"]) {
    if (!signedHeaders.includes(name)) return invalid(`'${name}' must be a 'SignedHeader' in the AWS Authorization.`);
  }
  if (signedHeaders.some((name, index) => index > 0 && signedHeaders[index - 1]! >= name))
    return invalid("SignedHeaders are not sorted.");
  const bodyHash = createHash("sha256").update(request.body).digest("hex");
  if (headers["x-amz-content-sha256"] !== undefined && headers["x-amz-content-sha256"] !== bodyHash) {
    return invalid("The hash of the payload is not that of the body.");
  }
  const canonicalRequest = [
    request.method,
    request.path.split("/").map(encoded).join("/"),
    canonicalQuery(request.query),
    ...signedHeaders.map(
      (name) =>
        `${name}:${String(headers[name] ?? "")
          .trim()
          .replace(/\s+/g, " ")}`,
    ),
    "",
    signedHeaders.join(";"),
    bodyHash,
  ].join("\n");
  const scope = `${date}/${region}/${service}/aws4_request`;
  const text = [ALGORITHM, timestamp, scope, createHash("sha256").update(canonicalRequest).digest("hex")].join("\n");
  const signingKey = [date!, region, service, "aws4_request"].reduce(
    (secret: string | Buffer, part) => hmac(secret, part),
    `AWS4${key.secretAccessKey}`,
  );
  return timingSafeEqual(hmac(signingKey, text), Buffer.from(fields[4]!, "hex"))
    ? { region }
    : invalid("The request signature we calculated does not match the signature you provided.");
}

const hmac = (secret: string | Buffer, text: string): Buffer => createHmac("sha256", secret).update(text).digest();

const problem = (code: string, message: string): SignatureProblem => ({ code, message });
const invalid = (message: string): SignatureProblem => problem("InvalidSignatureException", message);

/** Encodes a path segment or a query parameter for the canonical request. */
const encoded = (text: string): string =>
  encodeURIComponent(text).replace(/[!'()*]/g, (char) => `%${char.charCodeAt(0).toString(16).toUpperCase()}`);

const canonicalQuery = (query: URLSearchParams): string =>
  [...query]
    .map(([name, value]) => `${encoded(name)}=${encoded(value)}`)
    .sort()
    .join("&");
