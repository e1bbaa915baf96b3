import { afterAll, beforeAll, expect, test } from "vitest";
import { metricsIn } from "../metrics/exposition.ts";
import { TableWriter } from "../signed-rows/table-writer.ts";
import { ADMIN, Service } from "../support/service.ts";
import { createUsers } from "../support/users.ts";

// Audit streams over HTTP: roles, approval, the list with state and lag, metrics and alerts.

const PATH = "/audit/streams";
let service: Service;
let endpoint: string;
beforeAll(async () => {
  service = await Service.start({ company: "small", env: { ALLOW_PRIVATE_WEBHOOK_ADDRESSES: "true" } });
  endpoint = `https://evhns-lifecycle.servicebus.localhost:${new URL(service.environment.SERVICE_KEY_VAULT_URL!).port}`;
});
afterAll(() => service?.stop());

const hub = (name: string) => ({ name, destination: "eventHubs", endpoint, eventHub: "audit" });
const sink = () => service.cloud.controlUrl.replace("/control", "/sink/siem-http");

test("an administrator creates, reads, changes, tests and deletes streams", async () => {
  const first = await service.admin("POST", PATH, hub("Hub"));
  expect([first.status, first.body.state], first.text).toEqual([201, "active"]);
  expect(first.body).not.toHaveProperty("webhookSecret");
  const second = await service.admin("POST", PATH, {
    name: "Webhook",
    destination: "webhook",
    webhookUrl: `${sink()}?token=a-secret-token`,
    from: "beginning",
  });
  expect(second.body.webhookSecret).toMatch(/^whsec_/);
  expect((await service.admin("POST", PATH, hub("hub"))).status).toBe(409);
  const list = await service.admin("GET", PATH);
  expect(list.body.items.map(({ name }: { name: string }) => name)).toEqual(["Hub", "Webhook"]);
  expect(list.text).not.toContain("a-secret-token");
  expect(list.text).not.toContain(second.body.webhookSecret);
  expect(list.body.items[1].host).toBe(new URL(sink()).host);
  const one = `${PATH}/${second.body.id}`;
  expect((await service.admin("POST", `${one}/test`)).body).toEqual({
    delivered: true,
    message: "The receiver accepted the test event.",
  });
  const [event] = JSON.parse(service.cloud.control.sinkRequests("siem-http")[0]!.body);
  expect(event).toMatchObject({ type: "lifecycle.stream.test", subject: one.slice(1) });
  const paused = await service.admin("PUT", one, { enabled: false });
  expect([paused.status, paused.body.state]).toEqual([200, "disabled"]);
  const stale = await service.call("PUT", one, {
    token: await service.signIn(ADMIN),
    body: { name: "Other" },
    headers: { "If-Match": second.body.etag },
  });
  expect(stale.status).toBe(412);
  expect((await service.admin("POST", `${one}/rotate-secret`)).body.webhookSecret).toMatch(/^whsec_/);
  expect((await service.admin("POST", `${PATH}/${first.body.id}/rotate-secret`)).status).toBe(409);
  expect((await service.admin("DELETE", one)).status).toBe(200);
  expect((await service.admin("GET", one)).status).toBe(404);
  expect(service.hosts[0]!.lines.join("")).not.toContain("a-secret-token");
});

test("other roles have no access", async () => {
  const user = { username: "olga", password: "a password of olga", role: "operator" } as const;
  await createUsers(service, [user]);
  const token = await service.signIn(user);
  for (const [method, path] of [
    ["GET", PATH],
    ["POST", PATH],
  ] as const)
    expect((await service.call(method, path, { token, ...(method === "POST" && { body: hub("x") }) })).status).toBe(
      403,
    );
});

test("metrics show the lag and the failure of each stream", async () => {
  const { items } = (await service.admin("GET", PATH)).body;
  const labels = `{stream="${items[0].id}"}`;
  const { body } = await service.admin("GET", `${PATH}/${items[0].id}`);
  expect(body.lag).toEqual({ entries: 0, since: null });
  const { text } = await service.admin("GET", "/metrics");
  expect(metricsIn(text).map(({ name }) => name)).toContain("lifecycle_audit_stream_lag_entries");
  for (const name of ["lag_entries", "lag_seconds", "failing"])
    expect(text).toContain(`lifecycle_audit_stream_${name}${labels} 0`);
});

test("a deleted stream that someone who can write the tables puts back is not used", async () => {
  const writer = new TableWriter(service.azurite.connectionString());
  const check = async () => {
    const answer = await fetch(`${service.url}/__host/timers/watchScans`, { method: "POST" });
    expect(await answer.json()).toMatchObject({ succeeded: true });
  };
  const { body } = await service.admin("POST", PATH, hub("Put back"));
  await check();
  const rows = [...(await writer.rows("AuditStreams")).values()].filter(({ rowKey }) => rowKey.endsWith(body.id));
  expect(rows).toHaveLength(2);
  expect((await service.admin("DELETE", `${PATH}/${body.id}`)).status).toBe(200);
  for (const row of rows) await writer.write("AuditStreams", row);
  await check();
  expect((await service.admin("GET", `${PATH}/${body.id}`)).status).toBe(409);
  expect((await service.admin("GET", PATH)).body.items.map(({ id }: { id: string }) => id)).not.toContain(body.id);
  expect((await service.admin("DELETE", `${PATH}/${body.id}`)).status).toBe(200);
});

test("creating, pausing or deleting a stream needs the approval of another administrator if the setting requires it", async () => {
  const second = { username: "anna", password: "a password of anna", role: "admin" } as const;
  await createUsers(service, [second]);
  const required = await service.admin("PUT", "/api/settings/features", { requireApproval: true });
  expect(required.status, required.text).toBe(200);
  const [existing] = (await service.admin("GET", PATH)).body.items;
  const one = `${PATH}/${existing.id}`;
  expect((await service.admin("PUT", one, { name: "Renamed" })).status).toBe(200);
  const webhookUrl = "https://ada:a-password@siem.acme.example/services/a-secret-of-the-path?token=a-secret-token#x";
  for (const [method, path, body] of [
    ["POST", PATH, hub("Guarded")],
    ["POST", PATH, { name: "Webhook", destination: "webhook", webhookUrl }],
    ["PUT", one, { enabled: false }],
    ["DELETE", one],
  ] as const) {
    const answer = await service.admin(method, path, body);
    expect([answer.status, answer.body.code], `${method} ${path}`).toEqual([403, "approvalRequired"]);
  }
  // The other administrator sees where the events go, but no secret.
  const token = await service.signIn(second);
  const { body, text } = await service.call("GET", "/approvals", { token });
  const details = body.items.map(({ details: shown }: { details: object }) => shown);
  expect(details).toContainEqual(
    expect.objectContaining({ webhookTarget: "https://siem.acme.example/services/[hidden]" }),
  );
  expect(text).not.toMatch(/a-password|a-secret/);
});
