import type { Cloud } from "simulated-cloud/cloud.ts";
import type { CompanySecret } from "simulated-cloud/company/company.ts";
import type { FaultAction } from "simulated-cloud/faults.ts";
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from "vitest";
import { createIdentity, type Identity } from "../../shared/platform/azure/identity.ts";
import { createKeyVaults, type VaultClient } from "../../shared/platform/azure/key-vault.ts";
import {
  createResourceManager,
  type ResourceManager,
  type VaultResource,
} from "../../shared/platform/azure/resource-manager.ts";
import type { Config } from "../../shared/platform/config/config.ts";
import { liveIn } from "./live-cloud.ts";
import { all, allVaults, failureOf, IMPATIENT, recordingLog } from "./services.ts";

const PROD = "5f0c3f5e-0000-4000-8000-000000000001";
const DENIED = "5f0c3f5e-0000-4000-8000-000000000002";
const DAY_SECONDS = 86_400;

let cloud: Cloud;
let config: Config;
let identity: Identity;
let manager: ResourceManager;

beforeAll(async () => {
  const secrets: CompanySecret[] = Array.from({ length: 60 }, (_, index) => ({ name: `secret-${index}` }));
  ({ cloud, config } = await liveIn({
    pageSizes: { subscriptions: 1 },
    company: {
      subscriptions: [
        {
          id: PROD,
          name: "Production",
          vaults: [
            { name: "kv-sixty", secrets },
            {
              name: "kv-mixed",
              location: "northeurope",
              tags: { owner: "team@acme.example" },
              secrets: [
                {
                  name: "full",
                  enabled: false,
                  createdDaysAgo: 10,
                  updatedDaysAgo: 2,
                  activeInDays: 1,
                  expiresInDays: 30,
                  contentType: "text/plain",
                  tags: { größe: "ünïcode" },
                },
              ],
              keys: [
                { name: "rsa", size: 3072, rotation: { rotateAfterDays: 90, expiryDays: 180 } },
                { name: "ec", type: "EC", curve: "P-384" },
              ],
              certificates: [
                {
                  name: "www",
                  subject: "CN=www.acme.example",
                  dnsNames: ["www.acme.example", "acme.example"],
                  issuer: "DigiCert",
                  validityMonths: 24,
                  expiresInDays: 100,
                },
                {
                  name: "told",
                  renewal: { action: "EmailContacts", daysBeforeExpiry: 30 },
                  type: "EC",
                  curve: "P-256",
                },
              ],
            },
            {
              name: "kv-loose",
              rbac: false,
              purgeProtection: false,
              softDeleteRetentionDays: 7,
              publicNetworkAccess: "Disabled",
              networkDefaultAction: "Deny",
              privateEndpoints: 2,
              sku: "premium",
              diagnostics: "none",
            },
            { name: "kv-metrics", diagnostics: "metricsOnly" },
            { name: "kv-all-logs", diagnostics: "allLogs" },
            { name: "kv-off", diagnostics: "disabled" },
            { name: "kv-denied", reach: "denied" },
            { name: "kv-walled", reach: "firewalled" },
            { name: "kv-private", reach: "privateOnly" },
            { name: "kv-lured", vaultUri: "https://evil.localhost/" },
          ],
        },
        { id: DENIED, name: "Denied", denied: true },
      ],
    },
  }));
  identity = createIdentity(config);
  manager = createResourceManager({ config, identity, log: recordingLog(), limits: IMPATIENT });
});
afterAll(() => cloud.stop());
beforeEach(() => cloud.control.resetCounts());
afterEach(() => cloud.control.clearFaults());

function vault(name: string): VaultClient {
  const port = new URL(config.cloud.resourceManager).port;
  const vaults = createKeyVaults({ config, identity, log: recordingLog(), limits: IMPATIENT });
  return vaults.open({ name, vaultUri: `https://${name}.vault.localhost:${port}/` });
}

test("reading many vaults for the first time needs one token per service and no challenge", async () => {
  const found = await allVaults(manager.vaults(PROD));
  const open = ["kv-sixty", "kv-mixed", "kv-loose", "kv-metrics"];
  await Promise.all(
    found
      .filter(({ name }) => open.includes(name))
      .flatMap(({ name }) => [all(vault(name).secrets()), all(vault(name).keys()), all(vault(name).certificates())]),
  );
  expect(cloud.control.counts()).toEqual({
    "arm.listVaults": 1,
    "identity.token": 2,
    "keyvault.listSecrets": 3 + 3,
    "keyvault.listKeys": 4,
    "keyvault.listCertificates": 4,
    total: 1 + 2 + 6 + 4 + 4,
  });
});

test("sixty secrets are three pages with every name once", async () => {
  const names = (await all(vault("kv-sixty").secrets())).map(({ name }) => name);
  expect(names).toHaveLength(60);
  expect(new Set(names).size).toBe(60);
  expect(cloud.control.counts()["keyvault.listSecrets"]).toBe(3);
});

test("a secret's list entry has all properties but the value, with times in whole seconds", async () => {
  const secret = (await all(vault("kv-mixed").secrets())).find(({ name }) => name === "full")!;
  const [known] = cloud.control.items("kv-mixed", "secrets");
  expect(secret).toEqual({
    kind: "secret",
    name: "full",
    enabled: false,
    managed: false,
    contentType: "text/plain",
    tags: { größe: "ünïcode" },
    createdOn: Date.parse(known!.created) / 1000,
    updatedOn: Date.parse(known!.updated) / 1000,
    notBefore: Date.parse(known!.notBefore!) / 1000,
    expiresOn: Date.parse(known!.expires!) / 1000,
  });
  expect(secret.expiresOn! - secret.notBefore!).toBe(29 * DAY_SECONDS);
});

test("objects that belong to a certificate are marked as managed", async () => {
  const [secrets, keys] = await Promise.all([all(vault("kv-mixed").secrets()), all(vault("kv-mixed").keys())]);
  const managed = (items: { name: string; managed: boolean }[]) =>
    items
      .filter((item) => item.managed)
      .map(({ name }) => name)
      .sort();
  expect(managed(secrets)).toEqual(["told", "www"]);
  expect(managed(keys)).toEqual(["told", "www"]);
});

test("keys have type, size or curve, and version", async () => {
  expect((await vault("kv-mixed").key("rsa")).read()).toMatchObject({
    keyType: "RSA",
    keySize: 3072,
    version: expect.stringMatching(/^[0-9a-f]{32}$/),
  });
  const curve = (await vault("kv-mixed").key("ec")).read();
  expect(curve).toMatchObject({ keyType: "EC", keyCurve: "P-384" });
  expect(curve).not.toHaveProperty("keySize");
  expect(curve.operations).toContain("sign");
});

test("rotation policies are read, including Key Vault's default", async () => {
  expect((await vault("kv-mixed").rotationPolicy("rsa"))?.read()).toEqual({
    expiresIn: "P180D",
    lifetimeActions: expect.arrayContaining([{ action: "Rotate", timeAfterCreate: "P90D" }]),
  });
  expect((await vault("kv-mixed").rotationPolicy("ec"))?.read()).toEqual({
    lifetimeActions: [{ action: "Notify", timeBeforeExpiry: "P30D" }],
  });
  expect(await vault("kv-mixed").rotationPolicy("no-such-key")).toBeUndefined();
});

test("a certificate has the properties of its X.509 and its policy", async () => {
  const [listed] = (await all(vault("kv-mixed").certificates())).filter(({ name }) => name === "www");
  const certificate = (await vault("kv-mixed").certificate("www")).read();
  expect(certificate).toMatchObject({
    subject: "CN=www.acme.example",
    issuer: expect.stringMatching(/DigiCert/),
    issuerName: "DigiCert",
    subjectAlternativeNames: ["www.acme.example", "acme.example"],
    validityMonths: 24,
    keyType: "RSA",
    keySize: 2048,
    autoRenew: true,
    expiresOn: listed!.expiresOn,
    thumbprint: expect.stringMatching(/^[0-9A-F]{40}$/),
  });
  expect(listed!.thumbprint).toBe(certificate.thumbprint);
});

test("a certificate that only notifies its contacts has autoRenew false", async () => {
  const certificate = (await vault("kv-mixed").certificate("told")).read();
  expect(certificate).toMatchObject({ autoRenew: false, keyType: "EC", keyCurve: "P-256" });
  expect(certificate.lifetimeActions).toEqual([{ action: "EmailContacts", daysBeforeExpiry: 30 }]);
});

test("an unknown name is notFound", async () => {
  expect((await failureOf(vault("kv-mixed").key("nope"))).cloudCode).toBe("KeyNotFound");
  expect((await failureOf(vault("kv-mixed").certificate("nope"))).code).toBe("notFound");
  expect((await failureOf(all(vault("kv-none").secrets()))).code).toBe("notFound");
});

test.each([
  ["kv-denied", "accessDenied"],
  ["kv-walled", "firewall"],
  ["kv-private", "firewall"],
])("%s fails with %s after one call", async (name, code) => {
  expect((await failureOf(all(vault(name).secrets()))).code).toBe(code);
  expect(cloud.control.counts().total).toBe(1);
});

test.each([
  [{ kind: "throttle", retryAfterSeconds: 3600 }, "throttled", 1],
  [{ kind: "throttle" }, "throttled", 5],
  [{ kind: "fail", status: 503 }, "unreachable", 3],
  [{ kind: "reset" }, "unreachable", 3],
  [{ kind: "garbage", as: "html" }, "badResponse", 1],
  [{ kind: "garbage", as: "truncated" }, "badResponse", 1],
  [{ kind: "garbage", as: "otherShape" }, "badResponse", 1],
] satisfies [FaultAction, string, number][])("%j fails with %s after %i calls", async (action, code, calls) => {
  cloud.control.addFault({ match: { vault: "kv-mixed" }, action });
  expect((await failureOf(all(vault("kv-mixed").keys()))).code).toBe(code);
  expect(cloud.control.counts()["keyvault.listKeys"]).toBe(calls);
});

test("a vault that throttles for a short time is read completely", async () => {
  cloud.control.addFault({
    match: { vault: "kv-sixty" },
    action: { kind: "throttle", retryAfterSeconds: 0 },
    times: 2,
    after: 1,
  });
  expect(await all(vault("kv-sixty").secrets())).toHaveLength(60);
  expect(cloud.control.counts()["keyvault.listSecrets"]).toBe(5);
});

test("a vault whose next page has an address on another host fails, and no request is sent to that host", async () => {
  cloud.control.addFault({ match: { vault: "kv-sixty" }, action: { kind: "foreignNextLink" } });
  expect((await failureOf(all(vault("kv-sixty").secrets()))).code).toBe("foreignHost");
  cloud.control.addFault({ match: { operation: "arm.listVaults" }, action: { kind: "foreignNextLink" } });
  expect((await failureOf(allVaults(manager.vaults(PROD)))).code).toBe("foreignHost");
  expect(cloud.control.foreignRequests()).toEqual([]);
});

test("a vault with an address outside the cloud's domain is listed but not opened", async () => {
  const lured = (await allVaults(manager.vaults(PROD))).find(({ name }) => name === "kv-lured")!;
  const vaults = createKeyVaults({ config, identity, log: recordingLog() });
  expect((await failureOf((async () => vaults.open(lured))())).code).toBe("foreignHost");
  expect(cloud.control.foreignRequests()).toEqual([]);
});

test("subscriptions are listed page by page, and one is read by its ID", async () => {
  expect(await manager.subscriptions()).toMatchObject({
    subscriptions: [
      { subscriptionId: PROD, displayName: "Production", state: "Enabled", tenantId: cloud.app.tenantId },
      { subscriptionId: DENIED, displayName: "Denied" },
    ],
    unreadable: [],
  });
  expect(cloud.control.counts()["arm.listSubscriptions"]).toBe(2);
  expect(await manager.subscription(PROD)).toMatchObject({ displayName: "Production" });
});

test("an unknown subscription is notFound, and the failure of a denied one names the role", async () => {
  const unknown = await failureOf(manager.subscription("5f0c3f5e-0000-4000-8000-00000000dead"));
  expect([unknown.code, unknown.cloudCode]).toEqual(["notFound", "SubscriptionNotFound"]);
  const denied = await failureOf(allVaults(manager.vaults(DENIED)));
  expect([denied.code, denied.cloudCode]).toEqual(["accessDenied", "AuthorizationFailed"]);
  expect(denied.remedy).toContain("Credential Lifecycle Inventory Reader");
  expect(denied.remedy).toContain("infra/azure/watch/subscription.bicep");
});

test("a vault's settings are read, and missing settings have their documented defaults", async () => {
  const byName = new Map((await allVaults(manager.vaults(PROD))).map((found) => [found.name, found]));
  expect(byName.get("kv-mixed")).toMatchObject({
    location: "northeurope",
    subscriptionId: PROD,
    tenantId: cloud.app.tenantId,
    sku: "standard",
    tags: { owner: "team@acme.example" },
    softDelete: true,
    softDeleteRetentionDays: 90,
    purgeProtection: true,
    rbacAuthorization: true,
    publicNetworkAccess: "Enabled",
    networkDefaultAction: "Allow",
    privateEndpoints: 0,
    createdOn: expect.stringMatching(/Z$/),
  } satisfies Partial<VaultResource>);
  expect(byName.get("kv-mixed")!.id).toContain(`/resourceGroups/${byName.get("kv-mixed")!.resourceGroup}/`);
  expect(byName.get("kv-loose")).toMatchObject({
    sku: "premium",
    softDeleteRetentionDays: 7,
    purgeProtection: false,
    rbacAuthorization: false,
    publicNetworkAccess: "Disabled",
    networkDefaultAction: "Deny",
    privateEndpoints: 2,
  } satisfies Partial<VaultResource>);
});

test.each([
  ["kv-mixed", [{ auditEvents: true, allMetrics: false }]],
  ["kv-all-logs", [{ auditEvents: true, allMetrics: false }]],
  ["kv-metrics", [{ auditEvents: false, allMetrics: true }]],
  ["kv-off", [{ auditEvents: false, allMetrics: false }]],
  ["kv-loose", []],
])("the diagnostic settings of %s are %j", async (name, settings) => {
  const { id } = (await allVaults(manager.vaults(PROD))).find((found) => found.name === name)!;
  expect(await manager.diagnosticSettings(id)).toMatchObject(settings);
  expect(cloud.control.counts()["arm.diagnosticSettings"]).toBe(1);
});

test("one vault has the same description as in the list; an unknown vault is notFound, and other resource IDs are rejected", async () => {
  const listed = (await allVaults(manager.vaults(PROD))).find(({ name }) => name === "kv-loose")!;
  expect(await manager.vault(listed.id.replace("resourceGroups", "resourcegroups"))).toEqual(listed);
  const gone = manager.vault(listed.id.replace("kv-loose", "kv-gone"));
  await expect(gone).rejects.toMatchObject({ code: "notFound" });
  await expect(manager.vault(`${listed.id}/secrets/one`)).rejects.toThrow(TypeError);
  expect(cloud.control.counts()["arm.getVault"]).toBe(2);
});

test("diagnostic settings are read for the resource ID of a vault only", async () => {
  await expect(manager.diagnosticSettings(`/subscriptions/${PROD}/../x`)).rejects.toThrow(TypeError);
  expect(cloud.control.counts().total).toBe(0);
});
