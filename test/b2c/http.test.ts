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

// Tests of the B2C tenants through HTTP, with a running service and the simulated company's tenants.

const TENANTS = "/b2c/tenants";
const clientSecret = secretValueOf(SHOP_REGISTRATION, "lifecycle");

test("a tenant with 300 credentials is discovered, and an alert lists the credentials that expire soon", async () => {
  const rule = await service.admin("POST", "/alerts/rules", {
    name: "Credentials",
    alertType: "credentialExpiry",
    thresholds: [30],
    deliveryMethod: "email",
    deliveryMode: "immediate",
    recipients: ["on-call@acme.example"],
  });
  expect([rule.status, rule.body]).toMatchObject([201, {}]);
  const registration = registrationOf(service.cloud, "shop");
  // A test before the registration saves nothing, and names the problems.
  const tried = await service.admin("POST", `${TENANTS}/test`, registration);
  expect(tried.body).toMatchObject({ ok: true, organization: { id: registration.tenantId } });
  const wrong = await service.admin("POST", `${TENANTS}/test`, { ...registration, clientSecret: "a wrong secret" });
  expect([wrong.status, wrong.body.ok, wrong.body.checks[0]]).toMatchObject([
    200,
    false,
    { name: "signIn", outcome: "failed" },
  ]);
  expect((await service.admin("GET", TENANTS)).body.total).toBe(0);
  const registered = await service.admin("POST", TENANTS, registration);
  expect([registered.status, registered.headers.get("location")]).toEqual([201, `${TENANTS}/${registration.tenantId}`]);
  expect(registered.body).toMatchObject({
    state: "new",
    tenantType: null,
    autoDiscover: true,
    counts: null,
    failure: null,
  });
  expect((await service.admin("POST", TENANTS, registration)).body.code).toBe("alreadyExists");
  const tenantPath = `${TENANTS}/${registration.tenantId}`;
  const connectionTest = await service.admin("POST", `${tenantPath}/test`);
  expect(connectionTest.body).toMatchObject({
    ok: true,
    tenantType: "b2c",
    organization: { id: registration.tenantId },
  });

  const started = await service.admin("POST", `${tenantPath}/discover`);
  expect([started.status, started.body]).toMatchObject([201, { failures: [] }]);
  const runPath = started.headers.get("location")!;
  await expect
    .poll(async () => (await service.admin("GET", runPath)).body.status, { timeout: 150_000, interval: 500 })
    .toBe("completed");
  expect((await service.admin("GET", tenantPath)).body).toMatchObject({
    state: "discovered",
    counts: { applications: 248, policyKeys: 48, identityProviders: 4 },
  });
  const assets = await service.listAll("/api/assets/discovery/assets?source=b2c");
  expect([assets.length, new Set(assets.map(({ id }) => id)).size]).toEqual([300, 300]);
  // Each number of the tenant counts the list with the same filters.
  const { counts } = (await service.admin("GET", tenantPath)).body;
  const listed = async (status: string) => {
    const query = new URLSearchParams({ b2cTenant: registration.tenantId.toUpperCase(), status });
    return (await service.admin("GET", `/api/assets/discovery/assets?${query}`)).body.total;
  };
  expect(counts.expired).toBeGreaterThan(0);
  expect([counts.expired, counts.critical, counts.expiring]).toEqual([
    await listed("expired"),
    await listed("critical"),
    (await listed("critical")) + (await listed("warning")),
  ]);
  const others = await service.admin("GET", `/api/assets/discovery/assets?b2cTenant=${crypto.randomUUID()}`);
  expect(others.body.total).toBe(0);
  // The log of changes has the titles of credentials, whose names consist of IDs.
  const { body: changes } = await service.admin("GET", "/api/assets/discovery/changes?source=b2c&limit=1");
  const { credential } = assets.find(({ id }) => id === changes.items[0].assetId);
  expect(changes.items[0].title).toContain(credential.applicationName);
  const csv = await service.admin("GET", "/api/assets/discovery/assets?source=b2c&format=csv");
  expect(csv.text.trimEnd().split("\r\n")).toHaveLength(301);

  // The alert lists each credential that has expired or expires within 30 days.
  const expiringAssets = assets.filter(({ daysUntilExpiry }) => daysUntilExpiry !== null && daysUntilExpiry < 30);
  expect(expiringAssets.length).toBeGreaterThan(50);
  const mails = () => service.cloud.control.mails().map((mail) => JSON.stringify(mail));
  await expect.poll(() => mails().length, { timeout: 150_000, interval: 500 }).toBeGreaterThan(0);
  expect(mails()[0]).toContain("acmeshop.onmicrosoft.com");
  const { body: alertHistory } = await service.admin("GET", "/alerts/history");
  const { body: delivery } = await service.admin("GET", `/alerts/history/${alertHistory.items[0].id}`);
  expect(delivery.itemsTotal).toBe(expiringAssets.length);
  for (const { id, credentialTitle } of delivery.items) {
    const { applicationName, displayName, keyId } = expiringAssets.find((asset) => asset.id === id).credential;
    expect(credentialTitle).toBe([applicationName, displayName ?? keyId].filter(Boolean).join("/"));
  }

  const changed = await service.admin("PUT", tenantPath, { displayName: "Customers" });
  expect(changed.body.displayName).toBe("Customers");
  expect((await service.admin("DELETE", tenantPath)).body).toEqual({ deleted: true });
  expect((await service.admin("GET", tenantPath)).status).toBe(404);
  const remainingAssets = await service.admin("GET", "/api/assets/discovery/assets?source=b2c");
  expect(remainingAssets.body.total).toBe(0);
  expect(JSON.stringify([registered.body, connectionTest.body, started.body, changed.body])).not.toContain(
    clientSecret,
  );
  expect(service.hosts.flatMap(({ lines }) => lines).join("\n")).not.toContain(clientSecret);
});

test("invalid input is rejected with the name of the invalid member", async () => {
  const validRegistration = registrationOf(service.cloud, "partners");
  const invalidMembers: [member: string, value: unknown][] = [
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
  for (const [member, value] of invalidMembers) {
    const { status, body, text } = await service.admin("POST", TENANTS, { ...validRegistration, [member]: value });
    expect([member, value, status]).toEqual([member, value, 400]);
    expect(JSON.stringify(body.errors)).toContain(member);
    expect(text).not.toContain(validRegistration.clientSecret);
  }
  const { clientSecret: _, ...withoutSecret } = validRegistration;
  expect((await service.admin("POST", TENANTS, withoutSecret)).status).toBe(400);
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

test("without a license, an existing tenant can only be read and deleted", async () => {
  const { url: unlicensedUrl } = await service.addHost({ LICENSE_KEY: "" });
  const token = await service.signIn({
    username: service.environment.BOOTSTRAP_ADMIN_USERNAME!,
    password: service.environment.BOOTSTRAP_ADMIN_PASSWORD!,
  });
  const call = (method: string, path: string, body?: unknown) =>
    service.call(method, unlicensedUrl + path, { token, ...(body === undefined ? {} : { body }) });
  const registration = registrationOf(service.cloud, "partners");
  const tenantPath = `${TENANTS}/${registration.tenantId}`;
  // No tenant is registered at this point: without data of an earlier license, every request is rejected.
  for (const [method, path, body] of [
    ["POST", TENANTS, registration],
    ["POST", `${TENANTS}/test`, registration],
    ["GET", TENANTS, undefined],
    ["GET", tenantPath, undefined],
    ["PUT", tenantPath, { displayName: "x" }],
    ["DELETE", tenantPath, undefined],
    ["POST", `${tenantPath}/test`, undefined],
    ["POST", `${tenantPath}/discover`, undefined],
  ] as const)
    expect([method, path, (await call(method, path, body)).body.code]).toEqual([method, path, "licenseRequired"]);
  await service.admin("POST", TENANTS, registration);
  // The request waits up to 20 seconds for the end of the discovery, which suffices for this small tenant.
  const { body: run } = await service.admin("POST", `${tenantPath}/discover`);
  expect((await call("GET", TENANTS)).body).toMatchObject({
    total: 1,
    items: [{ tenantDomain: registration.tenantDomain }],
  });
  expect((await call("GET", `${tenantPath}/runs/${run.runId}`)).body.tenantId).toBe(registration.tenantId);
  expect((await call("POST", `${tenantPath}/discover`)).body.code).toBe("licenseRequired");
  const remainingAssets = await call("GET", "/api/assets/discovery/assets?source=b2c&counted=false&limit=1");
  // Seven client secrets of applications and one of an identity provider.
  expect(remainingAssets.body).toMatchObject({ total: 8, items: [{ notCounted: "noLicense" }] });
  const asset = `b2c.${registration.tenantId}.application.${appIdOf("Partner Portal EU")}`;
  expect((await call("GET", "/api/assets/discovery/assets?source=b2c&counted=false")).text).toContain(asset);
  expect((await call("DELETE", tenantPath)).status).toBe(200);
});
