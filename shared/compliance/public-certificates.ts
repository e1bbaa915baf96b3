import type { AssetRecord } from "../inventory/asset.ts";
import { DAY_SECONDS } from "../platform/time.ts";

/** Determines whether a certificate is publicly trusted, and for how long it is valid. */

/**
 * Matches issuers of certificate authorities that Key Vault integrates with, such as `CN=AlphaSSL, O=GlobalSign nv-sa`. An
 * authority's brands name the authority as the organization.
 * https://learn.microsoft.com/azure/key-vault/certificates/how-to-integrate-certificate-authority
 */
export const INTEGRATED_AUTHORITIES = /\b(digicert|globalsign)\b/i;

type TrustFacts = Pick<AssetRecord, "issuer" | "subject" | "certificate">;

/** Returns whether a certificate is signed with its own key, as far as its names tell. */
export const isSelfSigned = ({ issuer, subject }: Pick<AssetRecord, "issuer" | "subject">): boolean =>
  issuer !== undefined && issuer === subject;

/**
 * Returns whether browsers trust a certificate. They require signed timestamps of certificate transparency logs, which public
 * authorities embed (`hasTimestamps`). The public authorities that Key Vault integrates with are known by name. Undefined if the
 * certificate itself was not read, for example by an earlier version.
 */
export function isPubliclyTrusted(asset: TrustFacts): boolean | undefined {
  const { issuer = "", certificate } = asset;
  if (certificate?.hasTimestamps || INTEGRATED_AUTHORITIES.test(issuer)) return true;
  if (isSelfSigned(asset) || certificate?.hasTimestamps === false) return false;
  return undefined;
}

/**
 * Returns the validity of a certificate in Unix seconds. Uses the dates of Key Vault's attributes, which are the same, if the
 * certificate itself was not read.
 */
export function validityOf({
  certificate,
  notBefore,
  expiresOn,
}: Pick<AssetRecord, "certificate" | "notBefore" | "expiresOn">): { from: number; until: number } | undefined {
  const from = certificate?.notBefore ?? notBefore;
  const until = certificate?.notAfter ?? expiresOn;
  return from === undefined || until === undefined ? undefined : { from, until };
}

/** Returns a validity in days. The last second belongs to it (Baseline Requirements, section 1.6.1). */
export const validityDays = ({ from, until }: { from: number; until: number }): number =>
  (until - from + 1) / DAY_SECONDS;
