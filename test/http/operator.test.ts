import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { DAY_MS } from "../../shared/platform/time.ts";
import { ADMIN, Service } from "../support/service.ts";
import { createUsers, makeToken } from "../support/users.ts";

// The permissions of a user with the role operator over HTTP, and their limits. The first test is about the log: it needs the
// first sign-in of a new service, which creates the bootstrap administrator.

let service: Service;
beforeAll(async () => {
  service = await Service.start();
});
afterAll(() => service.stop());

test("a line logged by a module has the request id of its call", async () => {
  const headers = { "X-Request-Id": "the-first-sign-in" };
  expect((await service.call("POST", "/auth/login", { body: ADMIN, headers })).status).toBe(200);
  const line = await service.hosts[0]!.waitForLine((text) => text.includes("Created the bootstrap administrator"));
  expect(line).toContain('{"requestId":"the-first-sign-in","username":"admin"}');
  expect(line).toContain("Function.signIn");
});

describe("an operator", () => {
  let token: string;
  const callAsOperator = (method: string, path: string, body?: unknown) => service.call(method, path, { token, body });
  const EXEMPTIONS = "/compliance/exemptions";
  const exemptionFor = (days: number) => ({
    checkId: "secret-content-type",
    scope: { type: "all" },
    category: "waiver",
    reason: "A legacy system",
    until: new Date(Date.now() + days * DAY_MS).toISOString(),
  });

  beforeAll(async () => {
    await createUsers(service, [{ username: "oscar", password: "a password of their own", role: "operator" }]);
    token = await makeToken(service, "oscar");
  });

  test("starts and cancels scans", async () => {
    const started = await callAsOperator("POST", "/api/assets/discovery/scan", { mode: "full" });
    expect(started.status).toBe(201);
    const cancelled = await callAsOperator("DELETE", `/api/assets/discovery/scan/${started.body.scanId}`);
    // 409 if the scan finished before the request.
    expect([200, 409]).toContain(cancelled.status);
    await service.waitForScan(started.body.scanId);
  });

  test("creates and deletes exemptions of up to 90 days, with a reason", async () => {
    const created = await callAsOperator("POST", EXEMPTIONS, exemptionFor(89.9));
    expect([created.status, created.body.createdBy, created.body.createdByRole]).toEqual([201, "oscar", "operator"]);
    const { body } = await service.admin("GET", "/audit/entries?event_type=compliance.exemptionCreated");
    expect(body.items[0]).toMatchObject({ actor: "oscar", outcome: "success", after: { createdByRole: "operator" } });
    expect((await callAsOperator("DELETE", `${EXEMPTIONS}/${created.body.id}`)).body).toEqual({ deleted: true });
    const { reason: _, ...withoutReason } = exemptionFor(30);
    expect((await callAsOperator("POST", EXEMPTIONS, withoutReason)).body.errors[0].path).toBe("body.reason");
  });

  test("can neither create nor delete a longer exemption, and is asked to contact an administrator", async () => {
    const rejected = await callAsOperator("POST", EXEMPTIONS, exemptionFor(90.1));
    expect([rejected.status, rejected.body.code, rejected.body.requiredRole]).toEqual([403, "forbidden", "admin"]);
    expect(rejected.body.detail).toMatch(/within 90 days.*ask an administrator/);
    const ofAdmin = await service.admin("POST", EXEMPTIONS, exemptionFor(365));
    expect([ofAdmin.status, ofAdmin.body.createdByRole]).toEqual([201, "admin"]);
    const path = `${EXEMPTIONS}/${ofAdmin.body.id}`;
    expect((await callAsOperator("DELETE", path)).body.requiredRole).toBe("admin");
    expect((await service.admin("GET", path)).status).toBe(200);
    expect((await service.admin("DELETE", path)).status).toBe(200);
  });

  test("can send test alerts and create snoozes, but can't change rules and settings or read the audit log", async () => {
    const rule = { alertType: "expiration", deliveryMethod: "email", deliveryMode: "digest", thresholdDays: 30 };
    const createdRule = await service.admin("POST", "/alerts/rules", {
      ...rule,
      name: "x",
      recipients: ["a@example.com"],
    });
    expect((await callAsOperator("POST", `/alerts/rules/${createdRule.body.id}/test`)).status).not.toBe(403);
    const snooze = {
      ruleId: createdRule.body.id,
      assetId: "kv-none.secret.none",
      reason: "known",
      until: "2099-01-01",
    };
    expect((await callAsOperator("POST", "/alerts/snoozes", snooze)).status).not.toBe(403);
    for (const [method, path, role] of [
      ["PUT", `/alerts/rules/${createdRule.body.id}`, "admin"],
      ["DELETE", `/alerts/rules/${createdRule.body.id}`, "admin"],
      ["PUT", "/api/settings/logging", "admin"],
      ["POST", "/compliance/evaluate", "admin"],
      ["GET", "/audit/entries", "auditor"],
      ["GET", "/audit/export", "auditor"],
    ] as const) {
      const answer = await callAsOperator(method, path, method === "GET" || method === "DELETE" ? undefined : {});
      expect([path, answer.status, answer.body.requiredRole]).toEqual([path, 403, role]);
    }
  });
});
