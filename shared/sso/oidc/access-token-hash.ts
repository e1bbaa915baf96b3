import { createHash } from "node:crypto";
import { decodeProtectedHeader } from "jose";

/**
 * Returns true if an ID token was issued with this access token. Its claim `at_hash`, which is optional in the code flow, must
 * be absent or the first half of the access token's hash (OpenID Connect Core, 3.1.3.6 and 3.1.3.8). The library openid-client
 * does not check it.
 *
 * @param idToken - An ID token whose signature was verified.
 */
export function isIssuedWith(accessToken: string, idToken: string, atHash: unknown): boolean {
  if (atHash === undefined) return true;
  // The last three digits of an algorithm name its hash: RS256 uses SHA-256. Ed25519 uses SHA-512 (RFC 8032, 5.1).
  const algorithm = decodeProtectedHeader(idToken).alg!;
  const bits = /^(?:RS|PS|ES)(?=\d{3}$)/.test(algorithm) ? algorithm.slice(-3) : "512";
  const hash = createHash(`sha${bits}`).update(accessToken).digest();
  return atHash === hash.subarray(0, hash.length / 2).toString("base64url");
}
