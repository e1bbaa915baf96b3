import { compactVerify, decodeProtectedHeader, errors } from "jose";
import * as z from "zod";
import type { Tier } from "../platform/http/endpoint.ts";
import type { LicenseKey } from "./vendor-keys.ts";

// Verifies the text of a license: a signed token (JSON Web Signature) from the vendor.

/** The content of a license. */
export interface License {
  tier: Tier;
  customer: string;
  expiresAt: Date;
  /** The later of the times at which the license was issued and becomes valid, in seconds since 1970. 0 if it names neither. */
  validFrom: number;
  /** The Entra tenant that the license is for, in lower case. */
  tenantId: string | undefined;
}

/**
 * Why a license is not valid. A license whose start is in the future is `malformed`. A license is `expired` from its expiry date
 * on, although it stays valid during the grace period.
 */
export const LICENSE_REASONS = [
  "missing",
  "malformed",
  "unknownKey",
  "badSignature",
  "wrongTenant",
  "expired",
] as const;
export type LicenseReason = (typeof LICENSE_REASONS)[number];

/** The claims of a license. `exp`, `nbf` and `iat` are in seconds since 1970 (RFC 7519 §4.1.4 to §4.1.6). */
const Claims = z.object({
  tier: z.enum(["core", "pro"]),
  customer: z.string().min(1),
  exp: z.number().int().positive().max(8.64e12), // The last second that a Date can represent.
  nbf: z.number().optional(),
  iat: z.number().optional(),
  tenantId: z.guid().optional(),
});

/** A JSON Web Signature in compact form. */
const COMPACT_SIGNATURE = /^[\w-]+\.[\w-]+\.[\w-]+$/;

/**
 * The only accepted algorithm. The service chooses it, not the license (https://www.rfc-editor.org/rfc/rfc8725#section-3.1).
 */
const ALGORITHM = "EdDSA";

/**
 * Verifies the signature of a license, offline. Ignores white space at the end, which a file or a shell can leave. Does not check
 * the license's times: callers compare them with the clock.
 */
export async function verifyLicense(
  text: string,
  keys: readonly LicenseKey[],
): Promise<{ license: License } | { reason: LicenseReason }> {
  const signature = text.trimEnd();
  if (!COMPACT_SIGNATURE.test(signature)) return { reason: "malformed" };
  let kid: string | undefined;
  try {
    kid = decodeProtectedHeader(signature).kid;
  } catch {
    return { reason: "malformed" }; // The library throws a TypeError if the text is not a JSON Web Signature.
  }
  const key = keys.find((candidate) => candidate.kid === kid);
  if (!key) return { reason: "unknownKey" };
  try {
    const publicKey = { kty: "OKP", crv: "Ed25519", x: key.x };
    const { payload } = await compactVerify(signature, publicKey, { algorithms: [ALGORITHM] });
    return claimsOf(payload);
  } catch (error) {
    if (error instanceof errors.JWSSignatureVerificationFailed) return { reason: "badSignature" };
    if (error instanceof errors.JOSEError) return { reason: "malformed" };
    throw error;
  }
}

function claimsOf(payload: Uint8Array): { license: License } | { reason: LicenseReason } {
  let json: unknown;
  try {
    json = JSON.parse(new TextDecoder().decode(payload));
  } catch {
    return { reason: "malformed" };
  }
  const claims = Claims.safeParse(json);
  if (!claims.success) return { reason: "malformed" };
  const { tier, customer, exp, nbf = 0, iat = 0, tenantId } = claims.data;
  const expiresAt = new Date(exp * 1000);
  return { license: { tier, customer, expiresAt, validFrom: Math.max(nbf, iat), tenantId: tenantId?.toLowerCase() } };
}
