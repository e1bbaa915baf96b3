import { SHOP_REGISTRATION } from "simulated-cloud/company/acme-tenants.ts";
import { appIdOf, secretValueOf } from "simulated-cloud/company/applications.ts";
import { afterAll, beforeAll, expect, test } from "vitest";
import { licence } from "../support/licence.ts";
import { Service } from "../support/service.ts";
import { company, registrationOf } from "./support.ts";

let service: Service;
beforeAll(async () => {
  service = await Service.start({ company, env: { LICENSE_KEY: await licence() } });
});
afterAll(() => service?.stop());

const TENANTS = "/b2c/tenants";
const secret = secretValueOf(SHOP_REGISTRATION, "lifecycle");

test("a tenant of 300 credentials is registered, tested, discovered, and alerted on", async () => {
  const rule = await service.admin("POST", "/alerts/rules", {
    name: "Credentials",
    alertType: "credentialExpiry",
    thresholds: [30],
    deliveryMethod: "email",
    deliveryMode: "immediate",
    recipients: ["on-call@acme.example"],
  });
  expect([rule.status, rule.body]).toMatchObject([201, {}]);
  const given = registrationOf(service.cloud, "shop");
  const made = await service.admin("POST", TENANTS, given);
  expect([made.status, made.headers.get("location")]).toEqual([201, `${TENANTS}/${given.tenantId}`]);
  expect(made.body).toMatchObject({ state: "new", tenantType: null, autoDiscover: true, counts: null, failure: null });
  expect((await service.admin("POST", TENANTS, given)).body.code).toBe("alreadyExists");
  const one = `${TENANTS}/${given.tenantId}`;
  const tested = await service.admin("POST", `${one}/test`);
  expect(tested.body).toMatchObject({ ok: true, tenantType: "b2c", organization: { id: given.tenantId } });

  const started = await service.admin("POST", `${one}/discover`);
  expect([started.status, started.body]).toMatchObject([201, { failures: [] }]);
  const run = started.headers.get("location")!;
  await expect
    .poll(async () => (await service.admin("GET", run)).body.status, { timeout: 150_000, interval: 500 })
    .toBe("completed");
  expect((await service.admin("GET", one)).body).toMatchObject({
    state: "discovered",
    counts: { applications: 248, policyKeys: 48, identityProviders: 4 },
  });
  const all = await service.all("/api/assets/discovery/assets?source=b2c");
  expect([all.length, new Set(all.map(({ id }) => id)).size]).toEqual([300, 300]);
  const csv = await service.admin("GET", "/api/assets/discovery/assets?source=b2c&format=csv");
  expect(csv.text.trimEnd().split("\r\n")).toHaveLength(301);

  // Credentials that have expired or expire within 30 days cause one alert each, the most urgent first.
  const soon = all.filter(({ daysUntilExpiry }) => daysUntilExpiry !== null && daysUntilExpiry < 30);
  expect(soon.length).toBeGreaterThan(50);
  const mails = () => service.cloud.control.mails().map((mail) => JSON.stringify(mail));
  await expect.poll(() => mails().length, { timeout: 150_000, interval: 500 }).toBeGreaterThan(0);
  expect(mails()[0]).toContain("acmeshop.onmicrosoft.com");
  const { body: alertHistory } = await service.admin("GET", "/alerts/history");
  const { body: delivery } = await service.admin("GET", `/alerts/history/${alertHistory.items[0].id}`);
  expect(delivery.itemsTotal).toBe(soon.length);
  for (const { id, credentialTitle } of delivery.items) {
    const { applicationName, displayName, keyId } = soon.find((one) => one.id === id).credential;
    expect(credentialTitle).toBe([applicationName, displayName ?? keyId].filter(Boolean).join("/"));
  }

  const changed = await service.admin("PUT", one, { displayName: "Customers" });
  expect(changed.body.displayName).toBe("Customers");
  expect((await service.admin("DELETE", one)).body).toEqual({ deleted: true });
  expect((await service.admin("GET", one)).status).toBe(404);
  const left = await service.admin("GET", "/api/assets/discovery/assets?source=b2c");
  expect(left.body.total).toBe(0);
  expect(JSON.stringify([made.body, tested.body, started.body, changed.body])).not.toContain(secret);
  expect(service.hosts.flatMap(({ lines }) => lines).join("\n")).not.toContain(secret);
});

test("invalid and hostile input is rejected with the reason", async () => {
  const good = registrationOf(service.cloud, "partners");
  const wrong: [member: string, value: unknown][] = [
    ["tenantId", "contoso"],
    ["tenantId", "../../common"],
    ["tenantDomain", "https://contoso.onmicrosoft.com"],
    ["tenantDomain", "contoso"],
    ["tenantDomain", `${"a".repeat(64)}.com`],
    ["displayName", "two\nlines"],
    ["displayName", ""],
    ["clientId", 5],
    ["clientSecret", ""],
    ["clientSecret", "x".repeat(513)],
    ["autoDiscover", "yes"],
    ["discoveryIntervalHours", 0],
    ["discoveryIntervalHours", 721],
    ["discoveryIntervalHours", 1.5],
    ["clientSecretExpiresOn", "soon"],
    ["__proto__x", 1],
  ];
  for (const [member, value] of wrong) {
    const { status, body, text } = await service.admin("POST", TENANTS, { ...good, [member]: value });
    expect([member, value, status]).toEqual([member, value, 400]);
    expect(JSON.stringify(body.errors)).toContain(member);
    expect(text).not.toContain(good.clientSecret);
  }
  const { clientSecret: _, ...without } = good;
  expect((await service.admin("POST", TENANTS, without)).status).toBe(400);
  for (const id of ["nobody", "00000000-0000-4000-8000-000000000000", "a'b", "%00"])
    for (const [method, path] of [
      ["GET", ""],
      ["DELETE", ""],
      ["POST", "/test"],
      ["POST", "/discover"],
    ] as const)
      expect([id, (await service.admin(method, `${TENANTS}/${encodeURIComponent(id)}${path}`)).status]).toEqual([
        id,
        404,
      ]);
});

test("without a license nothing starts; an existing tenant can be read and deleted", async () => {
  const { url: unlicensed } = await service.addHost({ LICENSE_KEY: "" });
  const token = await service.signIn({
    username: service.environment.BOOTSTRAP_ADMIN_USERNAME!,
    password: service.environment.BOOTSTRAP_ADMIN_PASSWORD!,
  });
  const call = (method: string, path: string, body?: unknown) =>
    service.call(method, unlicensed + path, { token, ...(body === undefined ? {} : { body }) });
  const given = registrationOf(service.cloud, "partners");
  const one = `${TENANTS}/${given.tenantId}`;
  for (const [method, path, body] of [
    ["POST", TENANTS, given],
    ["GET", TENANTS, undefined],
    ["GET", one, undefined],
    ["PUT", one, { displayName: "x" }],
    ["DELETE", one, undefined],
    ["POST", `${one}/test`, undefined],
    ["POST", `${one}/discover`, undefined],
  ] as const)
    expect([method, path, (await call(method, path, body)).body.code]).toEqual([method, path, "licenseRequired"]);
  await service.admin("POST", TENANTS, given);
  const { body: run } = await service.admin("POST", `${one}/discover`);
  expect((await call("GET", TENANTS)).body).toMatchObject({ total: 1, items: [{ tenantDomain: given.tenantDomain }] });
  expect((await call("GET", `${one}/runs/${run.runId}`)).body.tenantId).toBe(given.tenantId);
  expect((await call("POST", `${one}/discover`)).body.code).toBe("licenseRequired");
  const left = await call("GET", "/api/assets/discovery/assets?source=b2c&counted=false&limit=1");
  expect(left.body).toMatchObject({ total: 8, items: [{ notCounted: "noLicense" }] });
  const asset = `b2c.${given.tenantId}.application.${appIdOf("Partner Portal EU")}`;
  expect((await call("GET", "/api/assets/discovery/assets?source=b2c&counted=false")).text).toContain(asset);
  expect((await call("DELETE", one)).status).toBe(200);
});
