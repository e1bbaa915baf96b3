/**
 * Runs the service with a telemetry collector (OTLP) and tests what the collector receives: traces, metrics, and no secrets.
 */
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { METRICS, traceContext } from "../../shared/platform/telemetry.ts";
import { ADMIN, Service } from "../support/service.ts";

/** Values that must not be in the telemetry. */
const VALUE = "planted-value-of-a-secret";
const RECIPIENT = "planted-recipient@acme.example";
const VAULTS = 3;

interface Span {
  name: string;
  traceId: string;
  spanId: string;
  parentSpanId?: string;
  status: { code?: number };
  attributes: { key: string; value: Record<string, unknown> }[];
}
/** A data point of a metric. */
interface Point {
  attributes: { key: string; value: { stringValue: string } }[];
  asDouble?: number;
  asInt?: number;
  count?: number;
  sum?: number;
}

const bodies: string[] = [];
const spans: Span[] = [];
const points = new Map<string, Point[]>();
const collector = createServer((request, response) => {
  const chunks: Buffer[] = [];
  request.on("data", (chunk: Buffer) => chunks.push(chunk));
  request.on("end", () => {
    store(Buffer.concat(chunks).toString("utf8"));
    response.writeHead(200, { "Content-Type": "application/json" }).end("{}");
  });
});

/** Stores the spans and data points of a request to the collector. */
function store(text: string): void {
  bodies.push(text);
  const { resourceSpans = [], resourceMetrics = [] } = JSON.parse(text);
  for (const { scopeSpans } of resourceSpans) for (const scope of scopeSpans) spans.push(...scope.spans);
  for (const { scopeMetrics } of resourceMetrics)
    for (const { metrics } of scopeMetrics)
      for (const { name, histogram, sum, gauge } of metrics)
        points.set(name, [...(points.get(name) ?? []), ...(histogram ?? sum ?? gauge).dataPoints]);
}

let service: Service;
let scanId: string;
let token: string;
beforeAll(async () => {
  await new Promise<void>((resolve) => collector.listen(0, "127.0.0.1", resolve));
  const secrets = [{ name: "one", value: VALUE, expiresInDays: 5 }];
  service = await Service.start({
    company: {
      subscriptions: [
        {
          name: "Shop",
          vaults: [
            { name: "kv-one", secrets },
            { name: "kv-two", secrets },
            { name: "kv-denied", reach: "denied", secrets },
          ],
        },
      ],
    },
    env: {
      OTEL_EXPORTER_OTLP_ENDPOINT: `http://127.0.0.1:${(collector.address() as AddressInfo).port}/`,
      OTEL_BSP_SCHEDULE_DELAY: "100",
      OTEL_METRIC_EXPORT_INTERVAL: "200",
    },
    shortWaits: true,
  });
  token = await service.signIn(ADMIN);
  const rule = { name: "Team", alertType: "expired", recipients: [RECIPIENT] };
  const createdRule = await service.call("POST", "/alerts/rules", { token, body: rule });
  await service.call("POST", `${createdRule.headers.get("location")}/test`, { token });
  service.cloud.control.addFault({
    match: { vault: "kv-one", operation: "keyvault.listSecrets" },
    action: { kind: "throttle" },
    times: 1,
  });
  // An event of a vault that no scan has seen is ignored.
  const connectionString = service.azurite.connectionString();
  await service.cloud.control.deliverEvents({ connectionString, queue: "vault-events" });
  service.cloud.control.sendExpiry("kv-one", "secrets", "one", "NearExpiry");
  await waitUntilCollected(() => points.has("vault.events"));
  await service.cloud.control.deliverEvents(undefined);
  const started = await service.call("POST", "/api/assets/discovery/scan", { token, body: { mode: "full" } });
  scanId = started.body.scanId;
  await waitUntilCollected(() => isTraceComplete() && Object.keys(METRICS).every((name) => points.has(name)));
});
afterAll(async () => {
  await service?.stop();
  collector.close();
});

const spanNamed = (name: string): Span | undefined => spans.find((one) => one.name === name);
const attributeOf = ({ attributes }: Pick<Span, "attributes">, key: string) => {
  const value = attributes.find((one) => one.key === key)?.value;
  return value && Object.values(value)[0];
};
const sumOf = (name: string) =>
  points.get(name)!.reduce((sum, one) => sum + Number(one.asInt ?? one.asDouble ?? one.sum), 0);

async function waitUntilCollected(isCollected: () => unknown): Promise<void> {
  await vi.waitUntil(isCollected, { timeout: 150_000, interval: 100 }).catch(() => {
    throw new Error(`Not all was collected, only ${spans.map(({ name }) => name)} and ${[...points.keys()]}.`);
  });
}

const SCAN = "POST /api/assets/discovery/scan";
/** Returns whether the scan's trace is complete. Spans arrive when they end, so a child can arrive before its parent. */
function isTraceComplete(): boolean {
  const trace = spans.filter(({ traceId }) => traceId === spanNamed(SCAN)?.traceId);
  const ids = new Set(trace.map(({ spanId }) => spanId));
  const names = trace.map(({ name }) => name);
  const hasAllFunctions = ["planScan", "evaluateAlertsSoon"].every((name) => names.includes(name));
  return hasAllFunctions && trace.every((one) => one.name === SCAN || ids.has(one.parentSpanId ?? ""));
}

test("a scan is one trace, from its request to its alerts", async () => {
  const root = spanNamed(SCAN)!;
  const trace = spans.filter(({ traceId }) => traceId === root.traceId);
  const names = trace.map(({ name }) => name);
  for (const name of ["planScan", "evaluateAlertsSoon"]) expect(names).toContain(name);
  const vaults = trace.filter(({ name }) => name === "read vault").map((one) => attributeOf(one, "vault.name"));
  expect(vaults.sort()).toEqual(["kv-denied", "kv-one", "kv-two"]);
  expect(vaults).toHaveLength(VAULTS);

  // All parent spans are in the trace too, except the parent of the first span: it belongs to the host, which has another
  // collector.
  const ids = new Set(trace.map(({ spanId }) => spanId));
  expect(trace.filter(({ parentSpanId = "" }) => !ids.has(parentSpanId))).toEqual([root]);
  expect(attributeOf(root, "http.response.status_code")).toBe(201);
  const { text } = await service.call("GET", `/api/assets/discovery/scan/${scanId}/status`, { token });
  expect(text).toContain('"partial"');
});

test("a caller's trace continues although the caller did not sample it", async () => {
  const trace = "0af7651916cd43dd8448eb211c80319c";
  await service.call("GET", "/auth/me", { token, headers: { traceparent: `00-${trace}-b7ad6b7169203331-00` } });
  await waitUntilCollected(() => spans.some(({ traceId }) => traceId === trace));
  expect(spans.find(({ traceId }) => traceId === trace)).toMatchObject({ name: "GET /auth/me" });
});

test("the metrics have the values of the scan", () => {
  const duration = points.get("scan.duration")!.filter(({ count }) => Number(count) > 0);
  expect(duration).toHaveLength(1);
  expect(attributeOf(duration[0]!, "status")).toBe("partial");
  expect(sumOf("vaults.failed")).toBe(1);
  const events = points.get("vault.events")!.flatMap(({ attributes }) => attributes);
  expect(events).toContainEqual({ key: "outcome", value: { stringValue: "ignored" } });
  expect(sumOf("throttled")).toBe(1);
  expect(sumOf("alerts.sent")).toBe(1);
  // The last value of each series.
  const byStatus = new Map(points.get("assets.by_status")!.map((one) => [JSON.stringify(one.attributes), one]));
  const assets = [...byStatus.values()].reduce((sum, one) => sum + Number(one.asInt ?? one.asDouble), 0);
  // One secret in kv-one and one in kv-two. The scan can't read kv-denied.
  expect(assets).toBe(2);
  expect(Number(points.get("score")!.at(-1)!.asDouble)).toBeGreaterThan(0);
});

test("log lines contain the id of their trace", () => {
  const { traceId } = spanNamed(SCAN)!;
  const line = service.hosts[0]!.lines.find((one) => one.includes("A scan is over"));
  expect(line).toContain(`"traceId":"${traceId}"`);
});

test("telemetry contains no secret values, passwords, tokens or recipients", () => {
  const all = bodies.join("\n");
  for (const planted of [VALUE, RECIPIENT, ADMIN.password, token, token.split(".")[2]!])
    expect(all).not.toContain(planted);
  expect(all).toContain("kv-denied");
});

test("without a collector, messages have no trace context", () => {
  expect(traceContext()).toEqual({});
});
