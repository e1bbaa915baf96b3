/*
 * Who renews a certificate and when, derived from its facts, and the status that follows. The ends of the windows below:
 * - By a policy: three days after its trigger, but at most a quarter of the time from the trigger to the expiry.
 * - By tags: a quarter of the time from the start of the window to the expiry.
 * - By cadence: a tenth of the lifetime after the latest regular renewal, but at most halfway from there to the expiry.
 */
import fc from "fast-check";
import { expect, test } from "vitest";
import { type Moment, STATUSES } from "../../shared/inventory/asset-status.ts";
import {
  packPlanned,
  plannedExpiries,
  plannedHistograms,
  plannedOfTotals,
  plannedOfVault,
} from "../../shared/inventory/planned-certificates.ts";
import {
  explainStatus,
  type RenewalFacts,
  renewalOf,
  renewalPlanOf,
  statusOfAsset,
  type VersionDates,
} from "../../shared/inventory/renewal.ts";
import { exactWindows } from "../../shared/inventory/totals.ts";
import { expectedStatus, START } from "./write-assets.ts";

const DAY = 86_400;
const NOW = START / 1000;
/** Returns the moment this many days from now, with thresholds of 7 and 30 days. */
const moment = (days: number): Moment => ({ now: START + days * DAY * 1000, criticalDays: 7, warningDays: 30 });

/** Facts of a certificate that is valid from now, for some days. */
const facts = (lifetimeDays: number, changes: Partial<RenewalFacts> = {}): RenewalFacts => ({
  notBefore: NOW,
  createdOn: NOW,
  expiresOn: NOW + lifetimeDays * DAY,
  ...changes,
});
/** Versions of 90 days, each replaced after this many days. The newest was created now. */
function versionsReplacedAfter(...days: number[]): VersionDates[] {
  const versions: VersionDates[] = [[NOW, NOW, NOW + 90 * DAY]];
  for (const gap of days) {
    const createdOn = versions.at(-1)![0] - gap * DAY;
    versions.push([createdOn, createdOn, createdOn + 90 * DAY]);
  }
  return versions;
}
/** Returns who renews, the source of the plan, and the start and the end of its window in days from now. */
const window = (plan: ReturnType<typeof renewalPlanOf>) =>
  plan && [plan.renewedBy, plan.source, ...[plan.windowStart, plan.windowEnd].map((at) => at && (at - NOW) / DAY)];

test("the policy renews certificates of integrated and self-signed issuers at its trigger, but not of unknown ones", () => {
  const policy = { autoRenew: true, renewalTrigger: { lifetimePercentage: 80 } };
  expect(window(renewalPlanOf(facts(100, { ...policy, issuerName: "DigiCert" })))).toEqual([
    "keyVaultPolicy",
    "policy",
    80,
    83,
  ]);
  expect(window(renewalPlanOf(facts(6, { ...policy, issuerName: "Self" })))?.[0]).toBe("keyVaultPolicy");
  const byDays = { autoRenew: true, renewalTrigger: { daysBeforeExpiry: 20 }, issuerName: "DigiCert" };
  expect(window(renewalPlanOf(facts(100, byDays)))).toEqual(["keyVaultPolicy", "policy", 80, 83]);
  expect(renewalPlanOf(facts(100, { ...policy, issuerName: "Unknown" }))).toBeUndefined();
  expect(renewalPlanOf(facts(100, { issuerName: "DigiCert", autoRenew: false }))).toBeUndefined();
  expect(renewalPlanOf({ ...facts(100, { ...policy, issuerName: "DigiCert" }), expiresOn: undefined })).toBeUndefined();
});

test("a certificate whose policy renews shortly before the expiry is healthy until its window ends, then critical at once", () => {
  const policy = { autoRenew: true, renewalTrigger: { lifetimePercentage: 99 }, issuerName: "DigiCert" };
  const certificate = facts(400, policy);
  const asset = { ...certificate, renewal: renewalPlanOf(certificate) };
  expect(window(asset.renewal)).toEqual(["keyVaultPolicy", "policy", 396, 397]);
  const second = 1 / DAY;
  expect([397, 397 + second].map((days) => statusOfAsset(asset, moment(days)))).toEqual(["healthy", "critical"]);
});

test.each([
  ["a trigger of 10^15 percent", { lifetimePercentage: 1e15 }, undefined],
  ["a negative trigger", { lifetimePercentage: -1e15 }, [0, 3]],
  ["a trigger that is 10^15 days before the expiry", { daysBeforeExpiry: 1e15 }, [0, 3]],
  ["a trigger after the expiry", { daysBeforeExpiry: -5 }, undefined],
])("%s gives a window within the lifetime or none", (_, renewalTrigger, days) => {
  const plan = renewalPlanOf(facts(90, { autoRenew: true, renewalTrigger, issuerName: "DigiCert" }))!;
  expect(window(plan)!.slice(2)).toEqual(days ?? [undefined, undefined]);
  expect(plan.attentionAt).toBeLessThanOrEqual(NOW + 90 * DAY);
});

test("tags name Acmebot and cert-manager, which renew a third of the lifetime before expiry, at most 30 days", () => {
  const acmebot = { tags: { Issuer: "Acmebot" } };
  expect(window(renewalPlanOf(facts(90, acmebot)))).toEqual(["acmebot", "tags", 60, 67.5]);
  expect(window(renewalPlanOf(facts(6, acmebot)))).toEqual(["acmebot", "tags", 4, 4.5]);
  expect(window(renewalPlanOf(facts(200, acmebot)))).toEqual(["acmebot", "tags", 170, 177.5]);
  expect(renewalPlanOf(facts(90, { tags: { "managed-by": "cert-manager" } }))?.renewedBy).toBe("certManager");
  expect(renewalPlanOf(facts(90, { tags: { "cert-manager.io/certificate-name": "www" } }))?.renewedBy).toBe(
    "certManager",
  );
  expect(renewalPlanOf(facts(90, { tags: { note: "not by acmebot" } }))).toBeUndefined();
});

test("two regular renewals prove a renewer, but not one renewal, irregular renewals, or renewals days before the expiry", () => {
  /** Returns the window of a certificate whose versions were replaced after these days, the newest replacement first. */
  const observed = (...days: number[]) =>
    window(renewalPlanOf(facts(90, { versionDates: versionsReplacedAfter(...days) })));
  expect(observed(60, 63)).toEqual(["observed", "cadence", 60, 72]);
  expect(observed(60)).toBeUndefined();
  expect(observed(30, 80)).toBeUndefined();
  expect(observed(60, 95)).toBeUndefined();
  // A new version after three days corrected something. It is no renewal.
  expect(observed(3, 60, 63)).toEqual(["observed", "cadence", 60, 72]);
  expect(observed(3, 60)).toBeUndefined();
  // People who renew days before the expiry, after an alert, are no renewer: the next alert must not come later.
  expect(observed(84, 86)).toBeUndefined();
  expect(
    window(renewalPlanOf(facts(90, { tags: { Issuer: "Acmebot" }, versionDates: versionsReplacedAfter(88, 89) }))),
  ).toEqual(["acmebot", "tags", 60, 67.5]);
  // A renewal that was late once does not move the window.
  expect(observed(60, 78, 63)).toEqual(["observed", "cadence", 60, 72]);
});

test("the window of ARI takes precedence, unless it belongs to an earlier version", () => {
  const ari = { windowStart: NOW + 3 * DAY, windowEnd: NOW + 4 * DAY, checkedAt: NOW, retryAfter: NOW + DAY };
  const acmebot = { tags: { Issuer: "Acmebot" } };
  expect(window(renewalPlanOf(facts(6, { ...acmebot, ari })))).toEqual(["acmebot", "ari", 3, 4]);
  const earlier = { ...ari, windowStart: NOW - 3 * DAY, windowEnd: NOW - 2 * DAY };
  expect(window(renewalPlanOf(facts(6, { ...acmebot, ari: earlier })))?.[1]).toBe("tags");
  // An authority whose window ends hours before the expiry does not suppress the alerts.
  const atExpiry = { ...ari, windowEnd: NOW + 6 * DAY - 3600 };
  expect(window(renewalPlanOf(facts(6, { ...acmebot, ari: atExpiry })))).toEqual(["acmebot", "tags", 4, 4.5]);
  // Without a renewer the window is shown, but the status is by days.
  expect(renewalPlanOf(facts(6, { ari }))).toBeUndefined();
  expect(renewalOf(facts(6, { ari }), START)).toMatchObject({ renewedBy: "none", source: "ari", late: false });
});

test("the last five renewals are shown, newest first, without the first version", () => {
  const versionDates = versionsReplacedAfter(60, 60, 60, 60, 60);
  const { lastRenewals, late } = renewalOf({ versionDates }, START);
  expect(lastRenewals).toEqual([0, 60, 120, 180, 240].map((days) => NOW - days * DAY));
  expect(late).toBe(false);
});

test("a certificate is healthy until its window has passed, then warning, and critical after half of the remaining time", () => {
  const certificate = facts(90, { tags: { Issuer: "Acmebot" } });
  const asset = { ...certificate, renewal: renewalPlanOf(certificate) };
  const statusAfterDays = (days: number) => [
    statusOfAsset(asset, moment(days)),
    explainStatus(asset, moment(days)).rule,
  ];
  const second = 1 / DAY;
  expect(statusAfterDays(61)).toEqual(["healthy", "window"]);
  expect(statusAfterDays(67.5)).toEqual(["healthy", "window"]);
  expect(statusAfterDays(67.5 + second)).toEqual(["warning", "window"]);
  expect(statusAfterDays(78)).toEqual(["warning", "window"]);
  expect(statusAfterDays(79)).toEqual(["critical", "window"]);
  expect(statusAfterDays(90 + second)).toEqual(["expired", "window"]);
  expect(renewalOf(asset, moment(67.5).now).late).toBe(false);
  expect(renewalOf(asset, moment(67.6).now).late).toBe(true);
});

test("once the renewal is late, the rule by days holds again if it is stricter", () => {
  const certificate = facts(6, { tags: { Issuer: "Acmebot" } });
  const asset = { ...certificate, renewal: renewalPlanOf(certificate) };
  expect(statusOfAsset(asset, moment(4.4))).toBe("healthy");
  expect(statusOfAsset(asset, moment(4.6))).toBe("critical");
  expect(explainStatus(asset, moment(4.6)).reason).toContain("within 7 days");
});

test("without a known window, the thresholds are at most a third and a sixth of the lifetime", () => {
  const ofLifetime = (days: number) => {
    const certificate = facts(days, { autoRenew: true, issuerName: "DigiCert" });
    return { ...certificate, renewal: renewalPlanOf(certificate) };
  };
  const statusAfterDays = (lifetime: number, days: number) => statusOfAsset(ofLifetime(lifetime), moment(days));
  expect([statusAfterDays(6, 3.9), statusAfterDays(6, 4.1), statusAfterDays(6, 5.1)]).toEqual([
    "healthy",
    "warning",
    "critical",
  ]);
  expect([statusAfterDays(398, 367), statusAfterDays(398, 369), statusAfterDays(398, 392)]).toEqual([
    "healthy",
    "warning",
    "critical",
  ]);
  expect(explainStatus(ofLifetime(6), moment(5)).rule).toBe("lifetime");
});

/** Generates certificates with plans whose times are near the thresholds. */
const anyCertificate = fc
  .record({
    expiry: fc.tuple(fc.constantFrom(-1, 0, 1, 7, 30, 40), fc.integer({ min: -3, max: 3 })),
    lifetimeDays: fc.constantFrom(6, 45, 90, 398),
    /** Share of the lifetime at the end of the window, or undefined. */
    share: fc.option(fc.double({ min: 0.01, max: 0.99, noNaN: true }), { nil: undefined }),
    endsNow: fc.boolean(),
  })
  .map(({ expiry: [days, seconds], lifetimeDays, share, endsNow }) => {
    const expiresOn = NOW + days * DAY + seconds;
    const lifetime = lifetimeDays * DAY;
    const notBefore = expiresOn - lifetime;
    const byShare = share === undefined ? undefined : notBefore + Math.floor(share * lifetime);
    const windowEnd = byShare === undefined ? undefined : endsNow && NOW - 1 < expiresOn - 1 ? NOW - 1 : byShare;
    const attentionAt = windowEnd === undefined ? expiresOn - lifetime / 3 : windowEnd + 1;
    const renewal = { renewedBy: "observed" as const, ...(windowEnd !== undefined && { windowEnd }), attentionAt };
    return { expiresOn, notBefore, renewal };
  });

test("the status, the counts of a vault and the counts of totals agree with the specification at every moment", () => {
  let counted = 0;
  fc.assert(
    fc.property(
      fc.array(anyCertificate, { minLength: 1, maxLength: 20 }),
      fc.integer({ min: -3_000, max: 3_000 }),
      fc.constantFrom([7, 30], [1, 8], [0, 30]),
      (certificates, milliseconds, [criticalDays = 0, warningDays = 0]) => {
        const at: Moment = { now: START + milliseconds, criticalDays, warningDays };
        const packed = packPlanned(certificates);
        const windows = exactWindows({ ...at, now: START });
        const totals = plannedOfTotals(plannedHistograms([{ certificateRenewals: packed }], windows, at), windows, at)!;
        for (const status of STATUSES) {
          const expected = certificates.filter((one) => expectedStatus(one, at) === status).length;
          expect(certificates.filter((one) => statusOfAsset(one, at) === status)).toHaveLength(expected);
          expect(plannedOfVault(packed, 1)!.countByStatus(status, at)).toBe(expected);
          expect(totals.countByStatus(status, at)).toBe(expected);
          counted += expected;
        }
        // Whole days are exact with the histogram by day, other times outside of the windows are not.
        const day = Math.floor(NOW / DAY) * DAY + 15 * DAY;
        const byDay = plannedExpiries([{ certificateRenewals: packed }], windows);
        const totalsByDay = plannedOfTotals(
          plannedHistograms([{ certificateRenewals: packed }], windows, at),
          windows,
          at,
          byDay,
        )!;
        const untilDay = { from: 0, before: day, unset: false };
        expect(totalsByDay.countIn(untilDay)).toBe(certificates.filter(({ expiresOn }) => expiresOn < day).length);
        expect(totals.countIn(untilDay)).toBeUndefined();
        expect(totals.countIn()).toBe(certificates.length);
        // Under other settings the totals are not exact, so that the vaults' rows are read.
        expect(totals.countByStatus("warning", { ...at, warningDays: 31 })).toBeUndefined();
      },
    ),
  );
  expect(counted).toBeGreaterThan(0);
});
