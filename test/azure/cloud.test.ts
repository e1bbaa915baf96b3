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
import { startTestCloud } from "./live-cloud.ts";
import { collectItems, collectVaults, expectFailure, recordingLog, SHORT_WAITS } from "./services.ts";

/** Tests of the Key Vault and Resource Manager clients against the simulated cloud. */

const PRODUCTION_SUBSCRIPTION = "5f0c3f5e-0000-4000-8000-000000000001";
const DENIED_SUBSCRIPTION = "5f0c3f5e-0000-4000-8000-000000000002";
const DAY_SECONDS = 86_400;

let cloud: Cloud;
let config: Config;
let identity: Identity;
let manager: ResourceManager;

beforeAll(async () => {
  const secrets: CompanySecret[] = Array.from({ length: 60 }, (_, index) => ({ name: `secret-${index}` }));
  ({ cloud, config } = await startTestCloud({
    pageSizes: { subscriptions: 1 },
    company: {
      subscriptions: [
        {
          id: PRODUCTION_SUBSCRIPTION,
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
                  name: "notify-only",
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
            { name: "kv-foreign-uri", vaultUri: "https://evil.localhost/" },
          ],
        },
        { id: DENIED_SUBSCRIPTION, name: "Denied", denied: true },
      ],
    },
  }));
  identity = createIdentity(config);
  manager = createResourceManager({ config, identity, log: recordingLog(), limits: SHORT_WAITS });
});
afterAll(() => cloud.stop());
beforeEach(() => cloud.control.resetCounts());
afterEach(() => cloud.control.clearFaults());

function openVault(name: string): VaultClient {
  const port = new URL(config.cloud.resourceManager).port;
  const vaults = createKeyVaults({ config, identity, log: recordingLog(), limits: SHORT_WAITS });
  return vaults.open({ name, vaultUri: `https://${name}.vault.localhost:${port}/` });
}

test("reading many vaults needs one token per service", async () => {
  const vaults = await collectVaults(manager.vaults(PRODUCTION_SUBSCRIPTION));
  const readableVaults = ["kv-sixty", "kv-mixed", "kv-loose", "kv-metrics"];
  await Promise.all(
    vaults
      .filter(({ name }) => readableVaults.includes(name))
      .flatMap(({ name }) => [
        collectItems(openVault(name).secrets()),
        collectItems(openVault(name).keys()),
        collectItems(openVault(name).certificates()),
      ]),
  );
  // One token is for the resource manager, one for Key Vault. kv-sixty has three pages of secrets, each other vault one.
  expect(cloud.control.counts()).toEqual({
    "arm.listVaults": 1,
    "identity.token": 2,
    "keyvault.listSecrets": 3 + 3,
    "keyvault.listKeys": 4,
    "keyvault.listCertificates": 4,
    total: 1 + 2 + 6 + 4 + 4,
  });
});

test("sixty secrets are read in three pages without duplicates", async () => {
  const names = (await collectItems(openVault("kv-sixty").secrets())).map(({ name }) => name);
  expect(names).toHaveLength(60);
  expect(new Set(names).size).toBe(60);
  expect(cloud.control.counts()["keyvault.listSecrets"]).toBe(3);
});

test("a listed secret has its properties, with times in whole seconds", async () => {
  const secret = (await collectItems(openVault("kv-mixed").secrets())).find(({ name }) => name === "full")!;
  const [storedSecret] = cloud.control.items("kv-mixed", "secrets");
  expect(secret).toEqual({
    kind: "secret",
    name: "full",
    enabled: false,
    managed: false,
    contentType: "text/plain",
    tags: { größe: "ünïcode" },
    createdOn: Date.parse(storedSecret!.created) / 1000,
    updatedOn: Date.parse(storedSecret!.updated) / 1000,
    notBefore: Date.parse(storedSecret!.notBefore!) / 1000,
    expiresOn: Date.parse(storedSecret!.expires!) / 1000,
  });
  expect(secret.expiresOn! - secret.notBefore!).toBe(29 * DAY_SECONDS);
});

test("objects that belong to a certificate are marked as managed", async () => {
  const [secrets, keys] = await Promise.all([
    collectItems(openVault("kv-mixed").secrets()),
    collectItems(openVault("kv-mixed").keys()),
  ]);
  const managed = (items: { name: string; managed: boolean }[]) =>
    items
      .filter((item) => item.managed)
      .map(({ name }) => name)
      .sort();
  expect(managed(secrets)).toEqual(["notify-only", "www"]);
  expect(managed(keys)).toEqual(["notify-only", "www"]);
});

test("a key has its type, its size or curve, and its version", async () => {
  expect((await openVault("kv-mixed").key("rsa")).read()).toMatchObject({
    keyType: "RSA",
    keySize: 3072,
    version: expect.stringMatching(/^[0-9a-f]{32}$/),
  });
  const curve = (await openVault("kv-mixed").key("ec")).read();
  expect(curve).toMatchObject({ keyType: "EC", keyCurve: "P-384" });
  expect(curve).not.toHaveProperty("keySize");
  expect(curve.operations).toContain("sign");
});

test("rotation policies are read, including Key Vault's default", async () => {
  expect((await openVault("kv-mixed").rotationPolicy("rsa"))?.read()).toEqual({
    expiresIn: "P180D",
    lifetimeActions: expect.arrayContaining([{ action: "Rotate", timeAfterCreate: "P90D" }]),
  });
  expect((await openVault("kv-mixed").rotationPolicy("ec"))?.read()).toEqual({
    lifetimeActions: [{ action: "Notify", timeBeforeExpiry: "P30D" }],
  });
  expect(await openVault("kv-mixed").rotationPolicy("no-such-key")).toBeUndefined();
});

test("a certificate has the properties of its X.509 data and its policy", async () => {
  const [listed] = (await collectItems(openVault("kv-mixed").certificates())).filter(({ name }) => name === "www");
  const certificate = (await openVault("kv-mixed").certificate("www")).read();
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
  const certificate = (await openVault("kv-mixed").certificate("notify-only")).read();
  expect(certificate).toMatchObject({ autoRenew: false, keyType: "EC", keyCurve: "P-256" });
  expect(certificate.lifetimeActions).toEqual([{ action: "EmailContacts", daysBeforeExpiry: 30 }]);
});

test("an unknown vault, key or certificate fails with notFound", async () => {
  expect((await expectFailure(openVault("kv-mixed").key("nope"))).cloudCode).toBe("KeyNotFound");
  expect((await expectFailure(openVault("kv-mixed").certificate("nope"))).code).toBe("notFound");
  expect((await expectFailure(collectItems(openVault("kv-none").secrets()))).code).toBe("notFound");
});

test.each([
  ["kv-denied", "accessDenied"],
  ["kv-walled", "firewall"],
  ["kv-private", "firewall"],
])("%s fails with %s after one call", async (name, code) => {
  expect((await expectFailure(collectItems(openVault(name).secrets()))).code).toBe(code);
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
  expect((await expectFailure(collectItems(openVault("kv-mixed").keys()))).code).toBe(code);
  expect(cloud.control.counts()["keyvault.listKeys"]).toBe(calls);
});

test("a vault that throttles for a short time is read completely", async () => {
  cloud.control.addFault({
    match: { vault: "kv-sixty" },
    action: { kind: "throttle", retryAfterSeconds: 0 },
    times: 2,
    after: 1,
  });
  expect(await collectItems(openVault("kv-sixty").secrets())).toHaveLength(60);
  expect(cloud.control.counts()["keyvault.listSecrets"]).toBe(5);
});

test("a list with a next page on another host fails without a request to that host", async () => {
  cloud.control.addFault({ match: { vault: "kv-sixty" }, action: { kind: "foreignNextLink" } });
  expect((await expectFailure(collectItems(openVault("kv-sixty").secrets()))).code).toBe("foreignHost");
  cloud.control.addFault({ match: { operation: "arm.listVaults" }, action: { kind: "foreignNextLink" } });
  expect((await expectFailure(collectVaults(manager.vaults(PRODUCTION_SUBSCRIPTION)))).code).toBe("foreignHost");
  expect(cloud.control.foreignRequests()).toEqual([]);
});

test("a vault with an address outside the cloud's domain is listed but not opened", async () => {
  const foreignVault = (await collectVaults(manager.vaults(PRODUCTION_SUBSCRIPTION))).find(
    ({ name }) => name === "kv-foreign-uri",
  )!;
  const vaults = createKeyVaults({ config, identity, log: recordingLog() });
  expect((await expectFailure((async () => vaults.open(foreignVault))())).code).toBe("foreignHost");
  expect(cloud.control.foreignRequests()).toEqual([]);
});

test("subscriptions are listed page by page, and one is read by its ID", async () => {
  expect(await manager.subscriptions()).toMatchObject({
    subscriptions: [
      {
        subscriptionId: PRODUCTION_SUBSCRIPTION,
        displayName: "Production",
        state: "Enabled",
        tenantId: cloud.app.tenantId,
      },
      { subscriptionId: DENIED_SUBSCRIPTION, displayName: "Denied" },
    ],
    unreadable: [],
  });
  expect(cloud.control.counts()["arm.listSubscriptions"]).toBe(2);
  expect(await manager.subscription(PRODUCTION_SUBSCRIPTION)).toMatchObject({ displayName: "Production" });
});

test("a denied subscription fails with the role that is missing", async () => {
  const unknown = await expectFailure(manager.subscription("5f0c3f5e-0000-4000-8000-00000000dead"));
  expect([unknown.code, unknown.cloudCode]).toEqual(["notFound", "SubscriptionNotFound"]);
  const denied = await expectFailure(collectVaults(manager.vaults(DENIED_SUBSCRIPTION)));
  expect([denied.code, denied.cloudCode]).toEqual(["accessDenied", "AuthorizationFailed"]);
  expect(denied.remedy).toContain("Credential Lifecycle Inventory Reader");
  expect(denied.remedy).toContain("the deployment template for monitored subscriptions creates and assigns it");
});

test("a vault has its settings, with the documented defaults for missing ones", async () => {
  const byName = new Map(
    (await collectVaults(manager.vaults(PRODUCTION_SUBSCRIPTION))).map((found) => [found.name, found]),
  );
  expect(byName.get("kv-mixed")).toMatchObject({
    location: "northeurope",
    subscriptionId: PRODUCTION_SUBSCRIPTION,
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
  const { id } = (await collectVaults(manager.vaults(PRODUCTION_SUBSCRIPTION))).find((found) => found.name === name)!;
  expect(await manager.diagnosticSettings(id)).toMatchObject(settings);
  expect(cloud.control.counts()["arm.diagnosticSettings"]).toBe(1);
});

test("a vault read by its resource ID equals its list entry", async () => {
  const listed = (await collectVaults(manager.vaults(PRODUCTION_SUBSCRIPTION))).find(
    ({ name }) => name === "kv-loose",
  )!;
  expect(await manager.vault(listed.id.replace("resourceGroups", "resourcegroups"))).toEqual(listed);
  const gone = manager.vault(listed.id.replace("kv-loose", "kv-gone"));
  await expect(gone).rejects.toMatchObject({ code: "notFound" });
  await expect(manager.vault(`${listed.id}/secrets/one`)).rejects.toThrow(TypeError);
  expect(cloud.control.counts()["arm.getVault"]).toBe(2);
});

test("diagnostic settings of a resource that is no vault are not requested", async () => {
  await expect(manager.diagnosticSettings(`/subscriptions/${PRODUCTION_SUBSCRIPTION}/../x`)).rejects.toThrow(TypeError);
  expect(cloud.control.counts().total).toBe(0);
});
