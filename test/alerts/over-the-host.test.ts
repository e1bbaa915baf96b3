import { expect, test } from "vitest";
import { runDays } from "../support/alert-days.ts";

// Sixty days over a thousand assets are in infra/bench/sixty-days.ts.
test("mail, digest and webhook notify of each asset once per threshold, over days, scans and a kill -9", async () => {
  const { rules, renewed, kills, mailFiles } = await runDays({
    days: 4,
    assets: 60,
    vaults: 2,
    scans: [1],
    // The provider accepted a mail but the service has not recorded it.
    kills: [{ day: 2, during: "alerts", at: { operation: "mail.getOperation" } }],
    thresholds: { immediate: [30, 7, 1], digest: [14, 3], webhook: [30, 7, 1] },
  });
  for (const { rule, expected, missing, extra, historyDiffers, messages, distinct } of rules) {
    expect({ rule, missing, extra, historyDiffers }).toEqual({ rule, missing: [], extra: [], historyDiffers: [] });
    expect(expected, rule).toBeGreaterThan(5);
    if (rule !== "webhook") expect(messages, rule).toBe(distinct);
  }
  expect(kills).toHaveLength(1);
  expect(renewed).toBeGreaterThan(0);
  expect(mailFiles).toBe(rules[0]!.messages + rules[1]!.messages);
});
