import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { ADMIN, Service } from "../support/service.ts";
import { createUsers, makeToken } from "../support/users.ts";

const DAY = 24 * 60 * 60_000;

let service: Service;
beforeAll(async () => {
  service = await Service.start();
});
afterAll(() => service.stop());

test("a line logged by a module has the request id of its call", async () => {
  const headers = { "X-Request-Id": "the-first-sign-in" };
  expect((await service.call("POST", "/auth/login", { body: ADMIN, headers })).status).toBe(200);
  const line = await service.hosts[0]!.line((text) => text.includes("Created the bootstrap administrator"));
  expect(line).toContain('{"requestId":"the-first-sign-in","username":"admin"}');
  expect(line).toContain("Function.signIn");
});

describe("an operator", () => {
  let token: string;
  const as = (method: string, path: string, body?: unknown) => service.call(method, path, { token, body });
  const EXEMPTIONS = "/compliance/exemptions";
  const exemption = (days: number, checkId = "secret-content-type") => ({
    checkId,
    scope: { type: "all" },
    category: "waiver",
    reason: "A legacy system",
    until: new Date(Date.now() + days * DAY).toISOString(),
  });

  beforeAll(async () => {
    await createUsers(service, [{ username: "oscar", password: "a password of their own", role: "operator" }]);
    token = await makeToken(service, "oscar");
  });

  test("starts and cancels scans", async () => {
    const started = await as("POST", "/api/assets/discovery/scan", { mode: "full" });
    expect(started.status).toBe(201);
    const cancelled = await as("DELETE", `/api/assets/discovery/scan/${started.body.scanId}`);
    // The scan may have ended meanwhile.
    expect([200, 409]).toContain(cancelled.status);
    await service.scanEnds(started.body.scanId);
  });

  test("creates exemptions of up to 90 days with a reason, which name the operator", async () => {
    const made = await as("POST", EXEMPTIONS, exemption(89.9));
    expect([made.status, made.body.createdBy, made.body.createdByRole]).toEqual([201, "oscar", "operator"]);
    const { body } = await service.admin("GET", "/audit/entries?event_type=compliance.exemptionCreated");
    expect(body.items[0]).toMatchObject({ actor: "oscar", outcome: "success", after: { createdByRole: "operator" } });
    expect((await as("DELETE", `${EXEMPTIONS}/${made.body.id}`)).body).toEqual({ deleted: true });
    const { reason: _, ...without } = exemption(30);
    expect((await as("POST", EXEMPTIONS, without)).body.errors[0].path).toBe("body.reason");
  });

  test("can neither create nor remove a longer exemption, and the problem says who can and how", async () => {
    const refused = await as("POST", EXEMPTIONS, exemption(90.1));
    expect([refused.status, refused.body.code, refused.body.requiredRole]).toEqual([403, "forbidden", "admin"]);
    expect(refused.body.detail).toMatch(/within 90 days.*ask an administrator/);
    const long = await service.admin("POST", EXEMPTIONS, exemption(365));
    expect([long.status, long.body.createdByRole]).toEqual([201, "admin"]);
    const path = `${EXEMPTIONS}/${long.body.id}`;
    expect((await as("DELETE", path)).body.requiredRole).toBe("admin");
    expect((await service.admin("GET", path)).status).toBe(200);
    expect((await service.admin("DELETE", path)).status).toBe(200);
  });

  test("sends test alerts and snoozes, but can't change rules or read the audit log", async () => {
    const rule = { alertType: "expiration", deliveryMethod: "email", deliveryMode: "digest", thresholdDays: 30 };
    const made = await service.admin("POST", "/alerts/rules", { ...rule, name: "x", recipients: ["a@example.com"] });
    expect((await as("POST", `/alerts/rules/${made.body.id}/test`)).status).not.toBe(403);
    const snooze = { ruleId: made.body.id, assetId: "kv-none.secret.none", reason: "known", until: "2099-01-01" };
    expect((await as("POST", "/alerts/snoozes", snooze)).status).not.toBe(403);
    for (const [method, path, role] of [
      ["PUT", `/alerts/rules/${made.body.id}`, "admin"],
      ["DELETE", `/alerts/rules/${made.body.id}`, "admin"],
      ["PUT", "/api/settings/logging", "admin"],
      ["POST", "/compliance/evaluate", "admin"],
      ["GET", "/audit/entries", "auditor"],
      ["GET", "/audit/export", "auditor"],
    ] as const) {
      const answer = await as(method, path, method === "GET" || method === "DELETE" ? undefined : {});
      expect([path, answer.status, answer.body.requiredRole]).toEqual([path, 403, role]);
    }
  });
});
