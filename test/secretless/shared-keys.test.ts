import type { CompanyResource } from "simulated-cloud/company/resources.ts";
import { afterAll, beforeAll, expect, onTestFinished, test } from "vitest";
import { licence } from "../support/licence.ts";
import { Service } from "../support/service.ts";

// The report on resources that could turn their shared keys off, over HTTP.

const STORAGE = "Microsoft.Storage/storageAccounts";
const DAY_MS = 86_400_000;
const SHARED_KEYS = "/api/automation/rotation/shared-keys";
const account = (name: string, properties: Record<string, unknown> = {}): CompanyResource => ({
  type: STORAGE,
  name,
  properties,
});

let service: Service;
beforeAll(async () => {
  const resources = [
    account("stidle"),
    account("stentra"),
    account("stused"),
    account("stsas"),
    account("stolder"),
    account("stoff", { allowSharedKeyAccess: false }),
    { type: "Microsoft.CognitiveServices/accounts", name: "ai-open" },
    { type: "Microsoft.CognitiveServices/accounts", name: "ai-closed", properties: { disableLocalAuth: true } },
  ];
  const company = { subscriptions: [{ name: "Shop", vaults: [{ name: "kv-shop" }], resources }] };
  service = await Service.start({ company, env: { LICENSE_KEY: await licence() } });
  const { consumers } = service.cloud.control;
  const add = (name: string, daysAgo: number, authentication: "AccountKey" | "SAS" | "OAuth", count: number) =>
    consumers.addTransactions(consumers.idOf(name), { at: Date.now() - daysAgo * DAY_MS, authentication, count });
  for (let day = 1; day < 30; day++) add("stentra", day, "OAuth", 100);
  add("stentra", 3, "AccountKey", 0);
  add("stused", 5, "AccountKey", 12);
  add("stused", 9, "AccountKey", 2);
  add("stsas", 2, "SAS", 1);
  add("stolder", 45, "AccountKey", 7);
  await service.scan({ mode: "full" });
}, 300_000);
afterAll(() => service?.stop());

const reportOf = async (query = "") =>
  new Map((await service.listAll(`${SHARED_KEYS}${query}`)).map((one) => [String(one.name), one]));

test("the metric decides for storage accounts, and a setting shows keys that are off", {
  timeout: 120_000,
}, async () => {
  const { consumers } = service.cloud.control;
  const before = JSON.stringify(consumers.resources());
  const report = await reportOf();
  expect([...report].map(([name, { verdict }]) => [name, verdict])).toEqual(
    expect.arrayContaining([
      ["stidle", "possible"],
      ["stentra", "possible"],
      ["stused", "used"],
      ["stsas", "used"],
      ["stolder", "possible"],
      ["stoff", "off"],
      ["ai-open", "unknown"],
      ["ai-closed", "off"],
    ]),
  );
  expect(report.size).toBe(8);
  const lastDay = new Date(Date.now() - 5 * DAY_MS).toISOString().slice(0, 10);
  expect(report.get("stused")).toMatchObject({ lastUsedAt: `${lastDay}T00:00:00.000Z`, command: null });
  const idle = report.get("stidle");
  expect(idle.command).toContain("properties.allowSharedKeyAccess=false");
  expect(idle.blindSpots.map(({ code }: { code: string }) => code)).toEqual(["sasKinds", "olderUse", "rareClients"]);
  expect(report.get("ai-open").blindSpots[0].code).toBe("noMetric");
  expect((await reportOf("?days=60")).get("stolder").verdict).toBe("used");
  expect((await service.admin("GET", `${SHARED_KEYS}?days=91`)).status).toBe(400);
  expect(JSON.stringify(consumers.resources())).toBe(before);
});

test("without the permission to read metrics, nothing is said to be possible", { timeout: 120_000 }, async () => {
  const { control } = service.cloud;
  control.addFault({ match: { operation: "arm.listMetrics" }, action: { kind: "deny" } });
  onTestFinished(() => control.clearFaults());
  const { verdict, evidence, command } = (await reportOf()).get("stidle");
  expect([verdict, command]).toEqual(["unknown", null]);
  expect(evidence).toContain("role");
});
