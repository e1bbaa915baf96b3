import type { Config } from "../platform/config/config.ts";
import type { Tier } from "../platform/http/endpoint.ts";
import type { Clock } from "../platform/runtime.ts";
import { DAY_MS, MINUTE_MS } from "../platform/time.ts";
import { builtInKeys } from "./built-in-keys.ts";
import { type License, type LicenseReason, verifyLicense } from "./license.ts";
import type { LicenseKey } from "./vendor-keys.ts";

/** Length of the grace period in days, during which an expired license keeps its tier. */
export const GRACE_DAYS = 14;

/** A license whose start is further in the future than this is not valid yet. */
const MAX_CLOCK_SKEW_MS = MINUTE_MS;

const CORE_FEATURES = ["discovery", "compliance", "alerts", "subscriptions", "audit", "settings"] as const;
const PRO_FEATURES = ["rotation", "sync", "dependencies", "sso", "users", "b2c"] as const;
/** All features. Those of the Core tier need no license. */
export const FEATURES = [...CORE_FEATURES, ...PRO_FEATURES] as const;

/** The licensed tier. */
export interface LicenseStatus {
  /** The tier that is enabled now. */
  tier: Tier;
  /** True if the license is valid now, including the grace period. */
  valid: boolean;
  /** Why there is no valid license, or `expired` during the grace period. */
  reason?: LicenseReason;
  customer?: string;
  expiresAt?: Date;
  /** Days until the expiry date: whole days of 24 hours, rounded down, negative after it. */
  daysLeft?: number;
  inGrace: boolean;
  /** End of the grace period. */
  graceEndsAt?: Date;
  features: readonly (typeof FEATURES)[number][];
}

/**
 * The license in the setting LICENSE_KEY and the tier that it enables. Modules call `tier` before they do work of the PRO tier.
 */
export interface Licensing {
  /** Returns the current status. The signature is verified once per process. */
  status(): Promise<LicenseStatus>;
  /** Returns the enabled tier: `core` without a valid license. */
  tier(): Promise<Tier>;
  /** Returns the license if it is not expired and expires at this time or before, for alerts. Times are ISO 8601. */
  expiring(
    latest: Date,
  ): AsyncGenerator<{ id: string; what: string; name: string; createdAt: string; expiresAt: string }>;
}

/** @param deps.keys - Keys that verify licenses. Default: the keys of this build. Tests replace them. */
export function createLicensing(deps: {
  config: Pick<Config, "LICENSE_KEY" | "AZURE_TENANT_ID">;
  clock: Clock;
  keys?: readonly LicenseKey[];
}): Licensing {
  const { config, clock, keys = builtInKeys() } = deps;
  let verified: Promise<{ license: License } | { reason: LicenseReason }> | undefined;

  async function verify(): Promise<{ license: License } | { reason: LicenseReason }> {
    if (config.LICENSE_KEY === undefined) return { reason: "missing" };
    const result = await verifyLicense(config.LICENSE_KEY, keys);
    if (!("license" in result) || result.license.tenantId === undefined) return result;
    return result.license.tenantId === config.AZURE_TENANT_ID?.toLowerCase() ? result : { reason: "wrongTenant" };
  }

  async function status(): Promise<LicenseStatus> {
    verified ??= verify();
    const result = await verified;
    if (!("license" in result)) return { ...UNLICENSED, reason: result.reason };
    const { tier, customer, expiresAt, validFrom } = result.license;
    const nowMs = clock.now().getTime();
    // `LICENSE_REASONS` has no reason of its own for a license that is not valid yet.
    if (validFrom * 1000 > nowMs + MAX_CLOCK_SKEW_MS) return { ...UNLICENSED, reason: "malformed" };
    const graceEndsAt = new Date(expiresAt.getTime() + GRACE_DAYS * DAY_MS);
    const isExpired = nowMs >= expiresAt.getTime();
    const inGrace = isExpired && nowMs < graceEndsAt.getTime();
    const facts = { customer, expiresAt, daysLeft: Math.floor((expiresAt.getTime() - nowMs) / DAY_MS), graceEndsAt };
    if (isExpired && !inGrace) return { ...UNLICENSED, ...facts, reason: "expired" };
    const features = tier === "pro" ? FEATURES : CORE_FEATURES;
    return { tier, valid: true, ...(inGrace && { reason: "expired" }), ...facts, inGrace, features };
  }

  return {
    status,
    tier: async () => (await status()).tier,

    async *expiring(latest) {
      const { tier, valid, inGrace, expiresAt } = await status();
      if (!valid || inGrace || !expiresAt || expiresAt > latest) return;
      const expiryDate = expiresAt.toISOString();
      // A license has no start date.
      const createdAt = new Date(0).toISOString();
      yield {
        id: `licence.${expiryDate}`,
        what: "License",
        name: tier.toUpperCase(),
        createdAt,
        expiresAt: expiryDate,
      };
    },
  };
}

/** The status without a valid license. */
const UNLICENSED: LicenseStatus = { tier: "core", valid: false, inGrace: false, features: CORE_FEATURES };
