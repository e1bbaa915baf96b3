import { appIdOf } from "simulated-cloud/company/applications.ts";
import type { Company } from "simulated-cloud/company/company.ts";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import * as z from "zod";
import { createServices, type Services } from "../../functions/services.ts";
import { type DeliveryStatus, deliveryIdOf } from "../../shared/alerts/delivery.ts";
import { newDelivery } from "../../shared/alerts/rule-notifications.ts";
import { SEVERITIES } from "../../shared/compliance/check.ts";
import { FRAMEWORK_IDS } from "../../shared/compliance/controls.ts";
import { SCAN_MODES } from "../../shared/discovery/scan.ts";
import { ASSET_TYPES } from "../../shared/inventory/asset.ts";
import { STATUSES } from "../../shared/inventory/asset-status.ts";
import { gaugesText } from "../../shared/metrics/prometheus-text.ts";
import { loadConfig } from "../../shared/platform/config/config.ts";
import { DAY_MS } from "../../shared/platform/time.ts";
import { licence } from "../support/licence.ts";
import { tableUnder } from "../support/markdown-table.ts";
import { Service } from "../support/service.ts";
import { startTableProxy, type TableProxy } from "../support/table-proxy.ts";
import { metricsIn, seriesIn } from "./exposition.ts";

// Tests of GET /metrics: its series have the same values as the API's lists, and no label contains a name that users chose.

/** Names and values that users choose. None of them may appear in the metrics. */
const NAMES = {
  vault: "kv-planted-vault",
  denied: "kv-planted-denied",
  group: "planted-group",
  subscription: 'Planted "subscription\\',
  subscriptionId: "5ca1ab1e-0000-4000-8000-000000000000",
  secret: "planted-secret",
  value: "planted-value",
  tag: 'planted"tag\n',
  application: 'Planted "application',
  credential: "planted-credential",
};
const company: Company = {
  subscriptions: [
    {
      name: NAMES.subscription,
      id: NAMES.subscriptionId,
      vaults: [
        {
          name: NAMES.vault,
          resourceGroup: NAMES.group,
          purgeProtection: false,
          secrets: [
            { name: NAMES.secret, value: NAMES.value, tags: { owner: NAMES.tag }, expiresInDays: 5.5 },
            { name: "gone", expiresInDays: -2.5 },
            { name: "gone-too", expiresInDays: -9.5 },
            { name: "soon", expiresInDays: 20.5 },
            { name: "lasting" },
          ],
          keys: [
            { name: "near", expiresInDays: 3.5 },
            { name: "far", expiresInDays: 300.5 },
          ],
          certificates: [{ name: "www", expiresInDays: 12.5 }],
        },
        { name: NAMES.denied, reach: "denied", secrets: [{ name: "hidden" }] },
        { name: "kv-empty" },
      ],
    },
  ],
  applications: [
    {
      name: NAMES.application,
      secrets: [{ name: NAMES.credential, expiresInDays: 400.5 }],
      certificates: [{ name: "old", expiresInDays: -3.5 }],
    },
  ],
};

let service: Service;
let token: string;
/** Records the table requests of `services`. */
let tableProxy: TableProxy;
/** The modules of a process without a license. */
let services: Services;
const createUnlicensedServices = () => {
  const { APP_CONFIGURATION_CONNECTION_STRING: _, ...environment } = service.environment;
  return createServices(loadConfig({ ...environment, AzureWebJobsStorage: tableProxy.connectionString }));
};

beforeAll(async () => {
  const env = { LICENSE_KEY: await licence() };
  service = await Service.start({ company, hosts: 2, env });
  token = (await service.admin("POST", "/auth/tokens", { name: "prometheus", role: "user", expiresInDays: 90 })).body
    .token;
  // The modules read signed rows, whose keys they get from the key vault. The SDK reads the identity from the process.
  for (const name of ["IDENTITY_ENDPOINT", "IDENTITY_HEADER"]) vi.stubEnv(name, service.environment[name]);
  tableProxy = await startTableProxy(service.azurite.connectionString());
  services = createUnlicensedServices();
});
afterAll(async () => {
  vi.unstubAllEnvs();
  await tableProxy?.stop();
  await service?.stop();
});

const scrape = (host = 0) => service.call("GET", `${service.hosts[host]!.url}/metrics`, { token });
const scrapeSeries = async (host = 0) => seriesIn((await scrape(host)).text);
const totalOf = async (path: string): Promise<number> => (await service.admin("GET", path)).body.total;

describe("before the first scan", () => {
  test("all series exist, and reading them requires a token", async () => {
    const { status, headers, text } = await scrape();
    expect([status, headers.get("content-type")]).toEqual([200, "text/plain; version=0.0.4; charset=utf-8"]);
    const { lifecycle_compliance_score_ratio: score, ...rest } = seriesIn(text);
    // A score without results is 1.
    expect(score).toBe(1);
    for (const [series, value] of Object.entries(rest))
      expect([series, value]).toEqual([series, series.includes("framework_score") ? 1 : 0]);
    expect(Object.keys(rest).length).toBeGreaterThan(50);
    expect((await service.call("GET", "/metrics")).status).toBe(401);
  });

  test("the example in the API description contains only existing metrics", async () => {
    const { responses } = (await service.call("GET", "/openapi.json")).body.paths["/metrics"].get;
    const exampleMetrics = metricsIn(responses[200].content["text/plain"].example);
    const metrics = metricsIn((await scrape()).text);
    expect(exampleMetrics.length).toBeGreaterThan(1);
    for (const { name, help, samples } of exampleMetrics) {
      const metric = metrics.find((candidate) => candidate.name === name);
      expect([name, metric?.help]).toEqual([name, help]);
      for (const { labels } of samples) expect(metric?.samples.map((sample) => sample.labels)).toContainEqual(labels);
    }
  });

  test("the page docs/metrics.md lists each metric with its labels", async () => {
    const metrics = metricsIn((await scrape()).text).map(({ name, samples }) => ({
      metric: name,
      // Metrics of audit streams have no series, because there is no stream.
      labels: Object.keys(samples[0]?.labels ?? { stream: "" }).join(", "),
      meaning: expect.stringMatching(/\S/),
    }));
    expect(tableUnder("docs/metrics.md", "## Metrics")).toEqual(metrics);
  });
});

describe("after a scan and a discovery", () => {
  // biome-ignore lint/suspicious/noExplicitAny: the response has no type
  let scan: any;
  beforeAll(async () => {
    // Lets the other host fill its caches before the scan.
    await scrape(1);
    scan = await service.scan({ mode: "full" });
    expect((await service.admin("POST", "/api/automation/rotation/discover")).status).toBe(201);
  });

  test("two hosts return the same metrics, though one of them did the scan", async () => {
    const [first, second] = [await scrape(0), await scrape(1)];
    expect(second.text).toBe(first.text);
    expect(seriesIn(first.text).lifecycle_vaults).toBe(3);
    expect(service.hosts.flatMap(({ lines }) => lines).some((line) => line.includes("A scan is over"))).toBe(true);
  });

  test("the numbers of assets and vaults equal those of the lists", async () => {
    const series = await scrapeSeries();
    for (const type of ASSET_TYPES) {
      for (const status of STATUSES) {
        const total = await totalOf(`/api/assets/discovery/assets?type=${type}&status=${status}&limit=1`);
        expect([type, status, series[`lifecycle_assets{type="${type}",status="${status}"}`]]).toEqual([
          type,
          status,
          total,
        ]);
      }
    }
    expect(series[`lifecycle_assets{type="secret",status="expired"}`]).toBe(2);
    // Includes a credential of the application.
    expect(series[`lifecycle_assets{type="secret",status="healthy"}`]).toBe(2);
    const vaults = await service.listAll("/api/assets/discovery/vaults");
    expect(series.lifecycle_vaults).toBe(vaults.length);
    const unreadable = vaults.filter(({ retryAt }) => retryAt !== null);
    expect(unreadable).toMatchObject([{ name: NAMES.denied }]);
    expect(series.lifecycle_vaults_unreadable).toBe(unreadable.length);
  });

  test("the scores and violations equal those of the API", async () => {
    const series = await scrapeSeries();
    const { body: score } = await service.admin("GET", "/compliance/score");
    expect(score.failed).toBeGreaterThan(3);
    expect(series.lifecycle_compliance_score_ratio).toBeCloseTo(score.score / 100, 10);
    for (const result of ["passed", "failed", "exempted"])
      expect(series[`lifecycle_compliance_results{result="${result}"}`]).toBe(score[result]);
    for (const severity of SEVERITIES) {
      const open = series[`lifecycle_compliance_violations{severity="${severity}"}`];
      expect(open).toBe(await totalOf(`/compliance/violations?severity=${severity}&limit=1`));
    }
    const frameworks = await service.listAll("/compliance/frameworks");
    expect(frameworks.map(({ id }) => id).sort()).toEqual([...FRAMEWORK_IDS].sort());
    for (const { id, score: frameworkScore } of frameworks)
      expect(series[`lifecycle_compliance_framework_score_ratio{framework="${id}"}`]).toBeCloseTo(
        frameworkScore / 100,
        10,
      );
    expect(series.lifecycle_compliance_evaluated_timestamp_seconds).toBe(Date.parse(score.evaluatedAt) / 1000);
  });

  test("the series of the last scan equal the scan's status", async () => {
    const series = await scrapeSeries();
    const [start, end] = [Date.parse(scan.startedAt) / 1000, Date.parse(scan.finishedAt) / 1000];
    expect(series).toMatchObject({
      'lifecycle_last_scan_status{status="partial"}': 1,
      'lifecycle_last_scan_status{status="completed"}': 0,
      'lifecycle_last_scan_mode{mode="full"}': 1,
      lifecycle_last_scan_start_timestamp_seconds: start,
      lifecycle_last_scan_end_timestamp_seconds: end,
      lifecycle_last_scan_duration_seconds: (Date.parse(scan.finishedAt) - Date.parse(scan.startedAt)) / 1000,
      lifecycle_last_scan_vaults: 3,
      lifecycle_last_scan_vaults_failed: scan.progress.vaultsFailed,
    });
    expect(scan.progress.vaultsFailed).toBe(1);
    const sum = (prefix: string) =>
      Object.entries(series).reduce((all, [name, value]) => all + (name.startsWith(prefix) ? value : 0), 0);
    expect([sum("lifecycle_last_scan_status{"), sum("lifecycle_last_scan_mode{")]).toEqual([1, 1]);
  });

  test("deliveries of the last two days and failed messages of the last day are counted, without test deliveries", async () => {
    const rule = await service.admin("POST", "/alerts/rules", {
      name: "planted rule",
      alertType: "expired",
      recipients: ["planted@acme.example"],
      enabled: false,
    });
    const record = await services.alerts.rules.get(rule.body.id);
    let ids = 0;
    const deliver = async (status: DeliveryStatus, daysAgo = 0, isTest = false) => {
      const createdAt = new Date(Date.now() - daysAgo * DAY_MS);
      const delivery = {
        deliveryId: deliveryIdOf(`${++ids}`, createdAt, []),
        createdAt: createdAt.toISOString(),
        items: [],
        test: isTest,
      };
      await services.alerts.history.record({ ...newDelivery(record, delivery), status });
    };
    for (const status of ["failed", "failed", "delivered", "pending"] as const) await deliver(status);
    await deliver("failed", 1.9);
    await deliver("failed", 2.1);
    await deliver("failed", 0, true);
    for (const [messageId, daysAgo] of [
      ["one", 0],
      ["two", 0.9],
      ["old", 1.1],
    ] as const) {
      const insertedAt = new Date(Date.now() - daysAgo * DAY_MS);
      const message = { queue: "scan-finish", messageId, insertedAt, delivery: 1, body: {}, requestId: "1" };
      await services.failedMessages.receive(message, z.object({}), undefined);
    }
    expect(await scrapeSeries(1)).toMatchObject({
      'lifecycle_alert_deliveries{status="failed"}': 3,
      'lifecycle_alert_deliveries{status="delivered"}': 1,
      'lifecycle_alert_deliveries{status="pending"}': 1,
      'lifecycle_alert_deliveries{status="cancelled"}': 0,
      lifecycle_failed_messages: 2,
    });
    // The lists also contain the old ones and the test.
    expect(await totalOf("/alerts/history?status=failed&limit=1")).toBe(5);
    expect(await totalOf("/system/failed-messages?limit=1")).toBe(3);
  });

  test("labels have values from fixed lists, and no name appears", async () => {
    const { text } = await scrape();
    for (const name of [...Object.values(NAMES), appIdOf(NAMES.application), "planted", "kv-", "acme"])
      expect(text.toLowerCase()).not.toContain(name.toLowerCase());
    const allowed: Record<string, readonly string[]> = {
      type: ASSET_TYPES,
      // Statuses of assets, scans and deliveries.
      status: [
        ...STATUSES,
        "completed",
        "partial",
        "failed",
        "timedOut",
        "cancelled",
        "pending",
        "delivered",
        "inDoubt",
      ],
      framework: FRAMEWORK_IDS,
      result: ["passed", "failed", "exempted"],
      severity: SEVERITIES,
      mode: SCAN_MODES,
    };
    const series = metricsIn(text).flatMap(({ samples }) => samples);
    for (const { labels } of series)
      for (const [label, value] of Object.entries(labels))
        expect([label, allowed[label]]).toEqual([label, expect.arrayContaining([value])]);
    expect(series.length).toBeLessThan(100);
  });

  test("a new process sends eleven table requests, each for one row or one range of rows", async () => {
    const newServices = createUnlicensedServices();
    tableProxy.requests.length = 0;
    const series = seriesIn(await newServices.metrics.text());
    const requests = tableProxy.requests.map(({ method, path }) => `${method} ${path.replace(/\(.+\)$/, "(row)")}`);
    expect(requests.sort()).toEqual([
      "GET AlertHistory()",
      "GET AlertHistory()",
      "GET AlertHistory()",
      "GET AuditStreams()",
      "GET Compliance()",
      "GET FailedMessages()",
      "GET Scans()",
      "GET Settings(row)",
      "GET UnreadableRows()",
      "GET UnreadableRows()",
      "GET Vaults()",
    ]);
    for (const { path, filter } of tableProxy.requests) {
      if (path.endsWith("()"))
        expect(filter).toMatch(/^PartitionKey eq '[^']+'( and RowKey g[te] '[^']+')?( and RowKey lt '[^']+')?$/);
    }
    // Without a license, credentials of applications are not counted, so only the vault secret `lasting` is healthy.
    expect(series[`lifecycle_assets{type="secret",status="healthy"}`]).toBe(1);
    const { failed } = await newServices.compliance.score();
    expect(series[`lifecycle_compliance_results{result="failed"}`]).toBe(failed);
    expect((await scrapeSeries())[`lifecycle_compliance_results{result="failed"}`]).toBeGreaterThan(failed);
  });
});

test("label values and help texts are escaped", () => {
  const text = gaugesText([
    {
      name: "a_metric",
      help: 'back\\slash and\nline, "quoted"',
      samples: [{ labels: { one: 'a\\b"c\nd', two: "é" }, value: 0.25 }],
    },
    { name: "another", help: "Plain.", samples: [{ value: 1e21 }] },
  ]);
  expect(metricsIn(text)).toEqual([
    {
      name: "a_metric",
      help: 'back\\slash and\nline, "quoted"',
      type: "gauge",
      samples: [{ labels: { one: 'a\\b"c\nd', two: "é" }, value: 0.25 }],
    },
    { name: "another", help: "Plain.", type: "gauge", samples: [{ labels: {}, value: 1e21 }] },
  ]);
});
