import { type AssetCheck, type Check, SEVERITIES } from "../check.ts";
import { applicationChecks } from "./applications.ts";
import { b2cChecks } from "./b2c.ts";
import { cryptographyChecks } from "./cryptography.ts";
import { expiryChecks } from "./expiry.ts";
import { handlingChecks } from "./handling.ts";
import { lifetimeChecks } from "./lifetime.ts";
import { referenceChecks } from "./references.ts";
import { usageChecks } from "./usage.ts";
import { vaultChecks } from "./vault.ts";

/**
 * Version of the checks. Increase it when a check is removed or its results change. Then all assets are evaluated again within
 * a day. Edition 2 removed `vault-recoverable` and the warning in addition to a critical result, and stores owners with
 * violations. Edition 3: `vault-purge-protection` also fails without soft delete. Edition 4: `certificate-validity-period`
 * applies the limit of the first day to publicly trusted certificates, and the checks of expiry, issuer and renewal use renewal
 * plans.
 */
export const EDITION = 4;

export const ASSET_CHECKS: readonly AssetCheck[] = [
  ...expiryChecks,
  ...lifetimeChecks,
  ...cryptographyChecks,
  ...handlingChecks,
  ...applicationChecks,
  ...referenceChecks,
  ...usageChecks,
  ...b2cChecks,
];

export const severityRank = (check: Check): number => SEVERITIES.indexOf(check.severity);

/** Every check in the order in which violations are listed: by severity, then by ID. */
export const CHECKS: readonly Check[] = [...vaultChecks, ...ASSET_CHECKS].sort(
  (a, b) => severityRank(a) - severityRank(b) || (a.id < b.id ? -1 : 1),
);

export const checkOfId: ReadonlyMap<string, Check> = new Map(CHECKS.map((check) => [check.id, check]));
export const checkOfCode: ReadonlyMap<number, Check> = new Map(CHECKS.map((check) => [check.code, check]));

/** Removed checks, to which open alerts may still refer, with the checks that replace them. */
const SUCCESSORS_OF_RETIRED: Readonly<Record<string, readonly string[]>> = {
  "vault-recoverable": ["vault-soft-delete", "vault-purge-protection"],
};

/** Returns the IDs of checks that can continue an alert of this check; see `successors` in check.ts. */
export const successorsOf = (checkId: string): readonly string[] =>
  checkOfId.get(checkId)?.successors ?? SUCCESSORS_OF_RETIRED[checkId] ?? [];
