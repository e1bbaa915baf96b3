import { createHash } from "node:crypto";
import { certificateIdOf, NoRenewalInformation, type RenewalInformation } from "../certificates/renewal-information.ts";
import type { AssetRecord } from "../inventory/asset.ts";
import type { Clock } from "../platform/runtime.ts";
import { withoutKeys } from "../platform/storage/entity.ts";
import type { Tables } from "../platform/storage/tables.ts";
import { HOUR_SECONDS, SECOND_MS } from "../platform/time.ts";
import type { Authorities } from "./authorities.ts";
import { policyKey, type RenewalPolicy, SCHEDULES, Schedules } from "./policy.ts";

const fingerprintHex = (text: string): string => createHash("sha256").update(text).digest("hex");

/** Returns the function that decides whether a certificate is due by its policy. */
export function createDueCheck(deps: {
  tables: Tables;
  authorities: Pick<Authorities, "get">;
  renewalInformation: Pick<RenewalInformation, "windowOf">;
  clock: Clock;
}): (policy: RenewalPolicy, asset: AssetRecord) => Promise<boolean> {
  const { tables, authorities, renewalInformation, clock } = deps;
  const nowSeconds = (): number => Math.floor(clock.now().getTime() / SECOND_MS);

  /** Returns the window in which a certificate is renewed, from its authority or from its lifetime. Unix seconds. */
  async function windowOf(
    policy: RenewalPolicy,
    asset: AssetRecord,
  ): Promise<{ windowStart: number; windowEnd: number; checkAgainAt: number } | undefined> {
    const from = asset.certificate?.notBefore ?? asset.notBefore;
    const until = asset.certificate?.notAfter ?? asset.expiresOn;
    if (from === undefined || until === undefined || until <= from) return undefined;
    const atShare = (share: number) => from + Math.floor(((until - from) * share) / 100);
    // A tenth of the lifetime, so that renewals of certificates that were issued together are spread.
    const byLifetime = {
      windowStart: atShare(policy.lifetimeShare),
      windowEnd: atShare(Math.min(95, policy.lifetimeShare + 10)),
      checkAgainAt: nowSeconds() + 6 * HOUR_SECONDS,
    };
    const certificateId = certificateIdOf(asset.certificate);
    if (policy.trigger !== "renewalInformation" || policy.authorityId === undefined || !certificateId)
      return byLifetime;
    try {
      const { directoryUrl } = await authorities.get(policy.authorityId);
      const { windowStart, windowEnd, retryAfter } = await renewalInformation.windowOf(directoryUrl, certificateId);
      return { windowStart, windowEnd: Math.max(windowStart, windowEnd), checkAgainAt: retryAfter };
    } catch (error) {
      if (!(error instanceof NoRenewalInformation)) throw error;
      return { ...byLifetime, checkAgainAt: Math.max(error.retryAfter, nowSeconds() + HOUR_SECONDS) };
    }
  }

  /** Returns whether the certificate of a policy is due. Asks the authority when the stored window is old. */
  async function isDue(policy: RenewalPolicy, asset: AssetRecord): Promise<boolean> {
    const now = nowSeconds();
    const key = policyKey(policy.assetId);
    const stored = await tables.get(Schedules, SCHEDULES, key);
    const version = asset.version ?? asset.thumbprint ?? "";
    const isCurrent = stored?.version === version;
    const window = isCurrent && stored.checkAgainAt > now ? stored : await windowOf(policy, asset);
    if (window === undefined) return false;
    const schedule = {
      assetId: policy.assetId,
      version,
      windowStart: window.windowStart,
      windowEnd: window.windowEnd,
      checkAgainAt: window.checkAgainAt,
      failures: isCurrent ? stored.failures : 0,
      notBefore: isCurrent ? stored.notBefore : 0,
    };
    if (JSON.stringify(schedule) !== JSON.stringify(stored && withoutKeys(stored)))
      await tables.put(Schedules, SCHEDULES, key, schedule);
    if (now < schedule.notBefore) return false;
    // The same time for the same version in each run of the timer: RFC 9773, section 4.2 asks for a random time in the window.
    const share = Number.parseInt(fingerprintHex(`${policy.assetId} ${version}`).slice(0, 8), 16) / 0x1_0000_0000;
    return now >= schedule.windowStart + share * (schedule.windowEnd - schedule.windowStart);
  }

  return isDue;
}
