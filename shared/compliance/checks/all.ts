import { type AssetCheck, type Check, SEVERITIES } from "../check.ts";
import { applicationChecks } from "./applications.ts";
import { b2cChecks } from "./b2c.ts";
import { cryptographyChecks } from "./cryptography.ts";
import { expiryChecks } from "./expiry.ts";
import { handlingChecks } from "./handling.ts";
import { lifetimeChecks } from "./lifetime.ts";
import { referenceChecks } from "./references.ts";
import { vaultChecks } from "./vault.ts";

export const ASSET_CHECKS: readonly AssetCheck[] = [
  ...expiryChecks,
  ...lifetimeChecks,
  ...cryptographyChecks,
  ...handlingChecks,
  ...applicationChecks,
  ...referenceChecks,
  ...b2cChecks,
];

export const severityRank = (check: Check): number => SEVERITIES.indexOf(check.severity);

/** Every check in the order violations are listed: by severity, then by id. */
export const CHECKS: readonly Check[] = [...vaultChecks, ...ASSET_CHECKS].sort(
  (a, b) => severityRank(a) - severityRank(b) || (a.id < b.id ? -1 : 1),
);

export const checkOfId: ReadonlyMap<string, Check> = new Map(CHECKS.map((check) => [check.id, check]));
export const checkOfCode: ReadonlyMap<number, Check> = new Map(CHECKS.map((check) => [check.code, check]));
