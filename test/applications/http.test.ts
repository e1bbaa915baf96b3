import { appIdOf, keyIdOf, secretValueOf } from "simulated-cloud/company/applications.ts";
import { afterAll, beforeAll, expect, test } from "vitest";
import { licence } from "../support/licence.ts";
import { Service } from "../support/service.ts";
import { applications } from "./applications-fixture.ts";

// Tests of the applications through HTTP.

let service: Service;
/** URL of a host without a license. */
let unlicensedUrl: string;
beforeAll(async () => {
  service = await Service.start({
    company: { subscriptions: [], applications: applications(12) },
    env: { LICENSE_KEY: await licence() },
  });
  ({ url: unlicensedUrl } = await service.addHost({ LICENSE_KEY: "" }));
});
afterAll(() => service?.stop());

const BASE = "/api/automation/rotation";

test("a discovery's credentials are in the applications, in the assets and in the audit log", async () => {
  const started = await service.admin("POST", `${BASE}/discover`);
  expect([started.status, started.body]).toMatchObject([201, { status: "completed", apps: 12, failures: [] }]);
  const location = started.headers.get("location")!;
  expect(location).toBe(`${BASE}/runs/${started.body.runId}`);
  expect((await service.admin("GET", location)).body).toEqual(started.body);
  expect((await service.admin("GET", `${BASE}/runs/01ARZ3NDEKTSV4RRFFQ69G5FAV`)).status).toBe(404);

  const { body: list } = await service.admin("GET", `${BASE}/apps?search=app%2000&limit=5`);
  expect([list.total, list.items.length]).toEqual([10, 5]);
  expect((await service.listAll(`${BASE}/apps?search=app%2000`)).length).toBe(10);
  const application = await service.admin("GET", `${BASE}/apps/${appIdOf("App 003")}`);
  expect(application.body).toMatchObject({ displayName: "App 003", policy: null, rotatable: true, federated: [] });
  expect(application.body.credentials.map(({ keyId }: { keyId: string }) => keyId).sort()).toEqual(
    [keyIdOf("App 003", "secret-0"), keyIdOf("App 003", "secret-1")].sort(),
  );
  expect(application.text).not.toContain(secretValueOf("App 003", "secret-0"));
  for (const { assetId, status, daysUntilExpiry } of application.body.credentials) {
    const { body: asset } = await service.admin("GET", `/api/assets/discovery/assets/${assetId}`);
    expect(asset).toMatchObject({
      id: assetId,
      source: "entra",
      vaultName: null,
      status,
      daysUntilExpiry,
      type: "secret",
    });
  }
  const csv = await service.admin("GET", "/api/assets/discovery/assets?source=entra&format=csv");
  expect(csv.text.trimEnd().split("\r\n")).toHaveLength(1 + started.body.credentials);
  const { body: entries } = await service.admin("GET", "/audit/entries?event_type=applications.discovered");
  const counted = { apps: 12, added: 12, updated: 0, removed: 0 };
  expect(entries.items).toMatchObject([{ outcome: "success", target: { id: started.body.runId }, details: counted }]);
});

test.each([
  "status=bad",
  "rotatable=1",
  "rotatable=",
  "expiresBefore=2026-13-01",
  "search=",
  "limit=0",
  "cursor=x",
  "unknown=1",
])("a list with %s is rejected", async (query) => {
  expect((await service.admin("GET", `${BASE}/apps?${query}`)).status).toBe(400);
});

test("a list accepts a search of up to 120 characters and an owner of up to 256", async () => {
  const status = async (name: string, length: number) =>
    (await service.admin("GET", `${BASE}/apps?${name}=${"x".repeat(length)}`)).status;
  expect([await status("search", 120), await status("search", 121)]).toEqual([200, 400]);
  expect([await status("owner", 256), await status("owner", 257)]).toEqual([200, 400]);
});

test("without a license applications can't be read, and credentials are not counted", async () => {
  const token = await service.signIn({
    username: service.environment.BOOTSTRAP_ADMIN_USERNAME!,
    password: service.environment.BOOTSTRAP_ADMIN_PASSWORD!,
  });
  const { body: run } = await service.admin("POST", `${BASE}/discover`);
  const call = (method: string, path: string) => service.call(method, unlicensedUrl + path, { token });
  for (const [method, path] of [
    ["POST", `${BASE}/discover`],
    ["GET", `${BASE}/apps`],
    ["GET", `${BASE}/apps/${appIdOf("App 003")}`],
  ] as const)
    expect([path, (await call(method, path)).body.code]).toEqual([path, "licenseRequired"]);
  expect((await call("GET", `${BASE}/runs/${run.runId}`)).body).toEqual(run);
  const assets = await call("GET", "/api/assets/discovery/assets?source=entra");
  expect(assets.body).toMatchObject({ total: 0, items: [] });
  const uncounted = await call("GET", "/api/assets/discovery/assets?source=entra&counted=false&limit=1");
  expect(uncounted.body).toMatchObject({ total: run.credentials, items: [{ notCounted: "noLicense" }] });
});
