// The declarations in functions/compliance.ts: endpoints, timers and queues, called with the input that HTTP would give them.
import { afterAll, beforeAll, expect, test } from "vitest";
import type { z } from "zod";
import { endpoints, queues, timers } from "../../functions/compliance.ts";
import { type ComplianceReports, createComplianceReports } from "../../shared/compliance/report/reports.ts";
import type { PoisonMessage } from "../../shared/messages/failed-messages.ts";
import { parse } from "../../shared/platform/http/parse-request.ts";
import type { Reply } from "../../shared/platform/http/reply.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import { asset, caller, type Fixture, inDays, openFixture, vault } from "./compliance-fixture.ts";

let azurite: TestStorage;
let fixture: Fixture;
let reports: ComplianceReports;
beforeAll(async () => {
  azurite = await openStorage(["endpoints"]);
  fixture = openFixture(azurite.connectionString());
  const { compliance, clock } = fixture;
  reports = createComplianceReports({
    compliance,
    clock,
    unreadableVaults: async () => 1,
    unreadSubscriptions: async () => ({ names: [], isListRead: true }),
  });
  await fixture.scan(vault("kv", { privateEndpoints: 0 }), [
    asset("kv", "secret", "a", { expiresOn: undefined }),
    asset("kv", "certificate", "c", { expiresOn: inDays(-1), autoRenew: false }),
  ]);
});
afterAll(() => azurite.stop());

const endpointNamed = (name: string) => endpoints.find((endpoint) => endpoint.name === name)!;

/** Calls an endpoint with HTTP input, and expects the JSON of the response to match its declared schema exactly. */
async function call(name: string, input: { query?: object; body?: object; params?: Record<string, string> } = {}) {
  const endpoint = endpointNamed(name);
  const reply: Reply = await endpoint.handle({
    params: input.params,
    query: endpoint.query && parse(endpoint.query, input.query ?? {}, "query"),
    body: endpoint.body && parse(endpoint.body, input.body, "body"),
    caller,
    url: new URL("https://service.example/compliance"),
    services: { compliance: fixture.compliance, complianceReports: reports },
  } as never);
  if (reply.content) return { ...reply, json: undefined };
  const json = JSON.parse(JSON.stringify(reply.json));
  expect((endpoint.responds[reply.status] as z.ZodType).parse(json)).toEqual(json);
  return { ...reply, json };
}

test("each endpoint's response matches its declared schema", async () => {
  expect((await call("getComplianceScore", { query: { history: "30" } })).json.history).toHaveLength(1);
  expect((await call("listViolations", { query: { severity: "critical", limit: "5" } })).json.total).toBe(1);
  expect((await call("listViolations", { query: { framework: "mcsb-v3" } })).json.total).toBe(4);
  expect((await call("listViolations", { query: { check: "certificate-expired", exempted: "true" } })).json.total).toBe(
    0,
  );
  const { json: evaluated } = await call("evaluateCompliance");
  expect(evaluated).toMatchObject({ status: "completed", score: { failed: 4 } });
  const params = { evaluation_id: evaluated.evaluationId };
  expect((await call("getEvaluation", { params })).json).toEqual(evaluated);
  expect((await call("listFrameworks")).json.items).toHaveLength(15);
  const soc = await call("getFramework", { params: { framework_id: "SOC-2" }, query: { history: "30" } });
  expect(soc.json.controls).toHaveLength(2);
  expect(soc.json.history).toHaveLength(1);
});

test("the breakdown and the list of owners have the same numbers as the score", async () => {
  const { json: score } = await call("getComplianceScore");
  const { json: breakdown } = await call("getComplianceBreakdown");
  const sum = (items: { failed: number }[]) => items.reduce((total, { failed }) => total + failed, 0);
  expect(sum(breakdown.checks)).toBe(score.failed);
  expect(breakdown.checks[0]).toMatchObject({ id: "certificate-expired", severity: "critical", failed: 1 });
  // The title names the failure, not the requirement.
  expect(breakdown.checks[0].title).toBe("Expired certificate is still enabled");
  expect(breakdown.subscriptions).toEqual([
    expect.objectContaining({ score: score.score, passed: score.passed, failed: score.failed }),
  ]);
  const { json: owners } = await call("listComplianceOwners");
  expect(owners).toMatchObject({ examined: score.failed, complete: true });
  expect(sum(owners.owners) + owners.none).toBe(score.failed);
  const { critical, high, medium, low } = owners.noneBySeverity;
  expect(critical + high + medium + low).toBe(owners.none);
});

test.each([
  ["exportViolations", "text/csv; charset=utf-8; header=present", /^\uFEFF"id"/],
  ["exportFramework", "text/csv; charset=utf-8; header=present", /^\uFEFF"framework"/],
  ["reportViolations", "application/pdf", /^%PDF-/],
  ["reportFramework", "application/pdf", /^%PDF-/],
])("%s returns a file of type %s", async (name, type, firstBytes) => {
  const { content, headers } = await call(name, { params: { framework_id: "soc-2" } });
  expect(content!.type).toBe(type);
  expect(Buffer.from(content!.data).toString("utf8")).toMatch(firstBytes);
  expect(headers!["Content-Disposition"]).toMatch(/^attachment; filename="(violations|soc-2)\.(csv|pdf)"$/);
});

test("an exemption can be created, read, listed and removed", async () => {
  // Fields can also be written in snake_case. A date without a time includes the whole day.
  const body = {
    check_id: "certificate-expired",
    scope: { type: "asset", id: "kv.certificate.c" },
    category: "mitigated",
    reason: "Not served any more",
    until: "2026-12-24",
  };
  const created = await call("createExemption", { body });
  const id = "certificate-expired.asset.kv.certificate.c";
  expect(created).toMatchObject({
    status: 201,
    headers: { Location: `/compliance/exemptions/${id}` },
    json: { id, until: "2026-12-25T00:00:00.000Z", active: true, ticket: null },
  });
  const params = { exemption_id: id };
  expect((await call("getExemption", { params })).json).toEqual(created.json);
  expect((await call("listExemptions")).json.items).toEqual([created.json]);
  expect((await call("removeExemption", { params })).json).toEqual({ deleted: true });
  await expect(call("getExemption", { params })).rejects.toMatchObject({ code: "notFound" });
});

test.each([
  ["listViolations", { query: { severity: "urgent" } }],
  ["listViolations", { query: { framework: "cis" } }],
  ["listViolations", { query: { status: "open" } }],
  ["listViolations", { query: { check: "vault-recoverable" } }],
  ["listViolations", { query: { vault: "kv/../x" } }],
  ["listViolations", { query: { subscription: "one" } }],
  ["listViolations", { query: { exempted: "maybe" } }],
  ["reportViolations", { query: { limit: "5" } }],
  ["reportFramework", { query: { days: "0" } }],
  ["getComplianceScore", { query: { history: "0" } }],
  ["getComplianceScore", { query: { history: "400" } }],
  ["createExemption", { body: { checkId: "x" } }],
  [
    "createExemption",
    { body: { checkId: "x", scope: { type: "team" }, category: "waiver", reason: "r", until: "2027-01-01" } },
  ],
  [
    "createExemption",
    { body: { checkId: "x", scope: { type: "all" }, category: "waiver", reason: " ", until: "2027-01-01" } },
  ],
  [
    "createExemption",
    { body: { checkId: "x", scope: { type: "all" }, category: "waiver", reason: "r", until: "tomorrow" } },
  ],
])("%s rejects %o", async (name, input) => {
  await expect(call(name, input)).rejects.toMatchObject({ code: "invalidRequest" });
});

test("users may read, operators may change exemptions, and administrators may request evaluations", () => {
  for (const { method, route, access } of endpoints) {
    const roleForChanges = route.startsWith("compliance/exemptions") ? "operator" : "admin";
    expect(access).toBe(method === "GET" ? "user" : roleForChanges);
  }
});

test("timers and queue handlers call the compliance module", async () => {
  // Passes each message of the poison queue to the handler. test/messages tests the real module.
  const failedMessages = {
    handleDelivery: (_message: unknown, run: () => Promise<void>) => run(),
    receive: (message: PoisonMessage, _schema: unknown, handle: (body: unknown) => Promise<void>) =>
      handle(message.body),
  };
  const invocation = { services: { compliance: fixture.compliance, failedMessages }, requestId: "r" } as never;
  for (const { handle } of timers) await handle(invocation);
  const [evaluationQueue, poisonQueue] = queues;
  for (const message of await fixture.drain()) {
    await evaluationQueue!.handle(message, invocation);
    await poisonQueue!.handle(message, invocation);
  }
  expect(fixture.events.at(-1)).toMatchObject({ type: "compliance.evaluationFailed", caller: { actor: "system" } });
  await expect(evaluationQueue!.handle({ kind: "other" }, invocation)).rejects.toThrow();
});
