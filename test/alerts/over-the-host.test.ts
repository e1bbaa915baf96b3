import { expect, test } from "vitest";
import { runDays } from "../support/alert-days.ts";

/**
 * Runs the whole service on its host for four simulated days. Kills it once (`kill -9`) while it sends alerts.
 * infra/bench/sixty-days.ts does the same over sixty days with a thousand assets.
 */
test("mail, digest and webhook notify of each asset once per threshold although the service is killed", async () => {
  const { rules, renewed, kills, mailFiles } = await runDays({
    days: 4,
    assets: 60,
    vaults: 2,
    scans: [1],
    // At this point the provider has accepted a mail, but the service has not recorded that.
    kills: [{ day: 2, during: "alerts", at: { operation: "mail.getOperation" } }],
    thresholds: { immediate: [30, 7, 1], digest: [14, 3], webhook: [30, 7, 1] },
  });
  for (const { rule, expected, missing, extra, historyDiffers, messages, distinct } of rules) {
    expect({ rule, missing, extra, historyDiffers }).toEqual({ rule, missing: [], extra: [], historyDiffers: [] });
    expect(expected, rule).toBeGreaterThan(5);
    // A webhook may be posted again with the same id. A mail may not.
    if (rule !== "webhook") expect(messages, rule).toBe(distinct);
  }
  expect(kills).toHaveLength(1);
  expect(renewed).toBeGreaterThan(0);
  expect(mailFiles).toBe(rules[0]!.messages + rules[1]!.messages);
});
