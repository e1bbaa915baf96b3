import { appIdOf, secretValueOf } from "simulated-cloud/company/applications.ts";
import type { Company } from "simulated-cloud/company/company.ts";
import type { CompanyTenant } from "simulated-cloud/company/tenants.ts";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { licence } from "../support/licence.ts";
import { Service } from "../support/service.ts";

// The blast radius of credentials outside key vaults, with a running service and the simulated cloud. An Azure DevOps connection
// signs in as an application with a client secret. The service can't find what uses certificates and B2C credentials.

const APP = "Payments API";
const outlet: CompanyTenant = {
  name: "Acme Outlet",
  domain: "acmeoutlet.onmicrosoft.com",
  type: "AAD B2C",
  registration: "Outlet Credential Lifecycle",
  applications: [
    { name: "Outlet Credential Lifecycle", secrets: [{ name: "lifecycle", expiresInDays: 60 }] },
    { name: "Outlet Web", secrets: [{ name: "web", expiresInDays: 50 }] },
  ],
  keySets: [{ id: "B2C_1A_TokenSigning", keys: [{ name: "first" }] }],
  identityProviders: [{ id: "Google-OAUTH", name: "Google", type: "socialIdentityProvider", clientId: "outlet" }],
};
const company: Company = {
  subscriptions: [{ name: "Shop", vaults: [{ name: "kv-shop", secrets: [{ name: "db" }] }] }],
  applications: [
    {
      name: APP,
      secrets: [{ name: "current", expiresInDays: 200 }],
      certificates: [{ name: "signing", expiresInDays: 200 }],
    },
  ],
  tenants: [outlet],
  devops: {
    organization: "acme",
    projects: [{ name: "Shop", connections: [{ name: "azure-prod", application: APP, secret: "current" }] }],
  },
};

let service: Service;
beforeAll(async () => {
  service = await Service.start({ company, env: { LICENSE_KEY: await licence() } });
  await service.scan({ mode: "full" });
  await run("/api/automation/rotation/discover");
  await service.admin("PUT", "/api/settings/integrations/devops", { orgUrl: "https://dev.azure.com/acme" });
  const { id: tenantId, clientId } = service.cloud.control.tenants.list()[0]!;
  const clientSecret = secretValueOf(outlet.registration, "lifecycle");
  const registration = { tenantId, tenantDomain: outlet.domain, displayName: outlet.name, clientId, clientSecret };
  expect((await service.admin("POST", "/b2c/tenants", registration)).status).toBe(201);
  await run(`/b2c/tenants/${tenantId}/discover`);
});
afterAll(() => service?.stop());

/** Starts a run with a POST request and waits for its end. */
async function run(path: string): Promise<void> {
  const started = await service.admin("POST", path);
  expect(started.status, started.text).toBe(201);
  const isOver = async () => {
    const { body } = await service.admin("GET", started.headers.get("location")!);
    return !["queued", "running"].includes(body.status);
  };
  await vi.waitUntil(isOver, { timeout: 150_000, interval: 200 });
}
const radiusOf = async (assetId: string) =>
  (await service.admin("GET", `/api/assets/dependencies/blast-radius/${assetId}`)).body;
const credentials = async (query: string) =>
  (await service.listAll(`/api/assets/discovery/assets?${query}`)) as {
    id: string;
    type: string;
    credential: { appId?: string; kind?: string };
  }[];
const credentialOf = async (type: string) =>
  (await credentials(`source=entra&type=${type}`)).find(({ credential }) => credential.appId === appIdOf(APP))!.id;

test("before the first discovery of dependencies, a blast radius is incomplete", async () => {
  expect(await radiusOf("kv-shop.secret.db")).toMatchObject({
    score: 0,
    incomplete: true,
    incompleteReason: "neverSearched",
    coverage: { lastFullAt: null },
  });
});

test("a connection with a client secret is a consumer of the secret, and not of the application's certificate", async () => {
  await run("/api/assets/dependencies/discover");
  const secret = await radiusOf(await credentialOf("secret"));
  expect(secret.consumers).toMatchObject([{ resource: { kind: "devopsServiceConnection", name: "azure-prod" } }]);
  expect(secret.score).toBeGreaterThan(0);
  expect(secret.incompleteReason).not.toBe("undetectable");

  const certificate = await radiusOf(await credentialOf("certificate"));
  expect(certificate).toMatchObject({
    score: 0,
    total: 0,
    consumers: [],
    incomplete: true,
    incompleteReason: "undetectable",
    coverage: { total: 1, lastFullAt: null },
  });
  expect(certificate.coverage.items).toMatchObject([
    {
      scope: certificate.secret,
      source: null,
      code: "consumersNotDetectable",
      message: "The service can't find which programs hold this certificate.",
      remedy:
        "Before you change it, see the last sign-in with it: in its blast radius, or in the sign-in logs of Microsoft Entra.",
      since: null,
    },
  ]);
});

test.each([
  ["policyKey", /custom policies in the B2C tenant/],
  ["identityProvider", /user flows and custom policies in the B2C tenant/],
  ["application", /last sign-in/],
])(
  "the blast radius of a B2C credential of the kind %s says that its consumers can't be found",
  async (kind, remedy) => {
    const found = (await credentials("source=b2c")).find(
      ({ credential }) => (credential.kind ?? "application") === kind,
    );
    const radius = await radiusOf(found!.id);
    expect(radius).toMatchObject({ score: 0, incomplete: true, incompleteReason: "undetectable" });
    expect(radius.coverage.items).toMatchObject([
      { message: "The service can't find what uses this.", remedy: expect.stringMatching(remedy) },
    ]);
  },
);

test("resources that discovery can't read make a blast radius incomplete", async () => {
  // The source of plaintext copies is off by default, so it is listed as not searched.
  const radius = await radiusOf("kv-shop.secret.db");
  expect(radius.coverage.total).toBeGreaterThan(0);
  expect(radius).toMatchObject({ incomplete: true, incompleteReason: "notAllSearched" });
});
