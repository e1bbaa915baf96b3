import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type Cloud, startCloud } from "../cloud.ts";
import type { Company } from "../company/company.ts";
import { armClient } from "./arm-client.ts";
import { SdkClient } from "./sdk-client.ts";

// Tests Azure Resource Manager in the simulated cloud with Azure's SDK clients: subscriptions, vaults, and the keys and secrets
// of a vault.

const SUBSCRIPTION_ID = "33333333-3333-4333-8333-333333333333";
const company: Company = {
  subscriptions: [
    {
      name: "Main",
      id: SUBSCRIPTION_ID,
      vaults: [
        {
          name: "kv-strict",
          resourceGroup: "rg-main",
          location: "northeurope",
          tags: { owner: "me" },
          publicNetworkAccess: "Disabled",
          privateEndpoints: 1,
          networkDefaultAction: "Deny",
          softDeleteRetentionDays: 30,
        },
        { name: "kv-loose", rbac: false, purgeProtection: false, diagnostics: "none" },
        {
          name: "kv-full",
          resourceGroup: "rg-main",
          generate: { secrets: 24 },
          keys: [
            { name: "signing", expiresInDays: 30 },
            { name: "idle", enabled: false },
          ],
          certificates: [{ name: "web" }, { name: "api" }],
        },
        ...[1, 2].map((number) => ({ name: `kv-more-${number}` })),
      ],
    },
    { name: "Closed", denied: true, vaults: [{ name: "kv-hidden" }] },
    { name: "Third", state: "Warned" },
  ],
};

let cloud: Cloud;
let sdk: SdkClient;
beforeAll(async () => {
  cloud = await startCloud({ company, pageSizes: { subscriptions: 2 } });
  sdk = await SdkClient.start(cloud);
});
afterAll(async () => {
  await sdk?.stop();
  await cloud?.stop();
});

test("lists the subscriptions in pages", async () => {
  cloud.control.resetCounts();
  const subscriptions = await sdk.call("subscriptions");
  expect(subscriptions.map(({ displayName, state }) => [displayName, state])).toEqual([
    ["Main", "Enabled"],
    ["Closed", "Enabled"],
    ["Third", "Warned"],
  ]);
  expect(cloud.control.counts()).toMatchObject({ "arm.listSubscriptions": 2 });
});

test("lists the vaults in pages of $top entries", async () => {
  cloud.control.resetCounts();
  const vaults = await sdk.call("vaults", SUBSCRIPTION_ID, 2);
  expect(vaults.map(({ name }) => name)).toEqual(["kv-strict", "kv-loose", "kv-full", "kv-more-1", "kv-more-2"]);
  expect(cloud.control.counts()).toMatchObject({ "arm.listVaults": 3 });
});

test("returns the settings of a vault, and omits purge protection if it is off", async () => {
  const [strict, loose] = await sdk.call("vaults", SUBSCRIPTION_ID);
  expect(strict).toMatchObject({
    location: "northeurope",
    tags: { owner: "me" },
    properties: {
      vaultUri: expect.stringMatching(/^https:\/\/kv-strict\.vault\.localhost:\d+\/$/),
      enableRbacAuthorization: true,
      enablePurgeProtection: true,
      softDeleteRetentionInDays: 30,
      publicNetworkAccess: "Disabled",
      networkAcls: { defaultAction: "Deny" },
      privateEndpointConnections: [{ privateLinkServiceConnectionState: { status: "Approved" } }],
    },
  });
  expect(loose?.properties).toMatchObject({ enableRbacAuthorization: false, accessPolicies: [{}, {}] });
  expect(loose?.properties.enablePurgeProtection).toBeUndefined();
  expect(await sdk.call("vault", SUBSCRIPTION_ID, "rg-main", "KV-Strict")).toMatchObject({ id: strict!.id! });
});

test("lists the keys and secrets of a vault in pages, including those of certificates", async () => {
  cloud.control.resetCounts();
  const keys = await sdk.call("managedKeys", SUBSCRIPTION_ID, "rg-main", "kv-full");
  expect(keys.map(({ name }) => name)).toEqual(["signing", "idle", "web", "api"]);
  expect(keys[0]).toMatchObject({
    id: expect.stringMatching(/\/vaults\/kv-full\/keys\/signing$/),
    type: "Microsoft.KeyVault/vaults/keys",
    keyUri: expect.stringMatching(/^https:\/\/kv-full\.vault\.localhost:\d+\/keys\/signing$/),
    attributes: { enabled: true, expires: expect.any(Number) },
  });
  expect(keys[1]!.attributes).toMatchObject({ enabled: false });
  expect(keys[1]!.attributes!.expires).toBeUndefined();
  const secrets = await sdk.call("managedSecrets", SUBSCRIPTION_ID, "rg-main", "kv-full");
  expect(secrets).toHaveLength(26);
  expect(new Set(secrets.map(({ id }) => id)).size).toBe(26);
  expect(secrets.at(-1)!.properties).toMatchObject({ attributes: { enabled: true, expires: expect.any(Date) } });
  expect(secrets.every(({ properties }) => properties.value === undefined)).toBe(true);
  expect(cloud.control.counts()).toMatchObject({ "arm.listKeys": 1, "arm.listSecrets": 2 });
});

test("lists the tenant and a subscription's locations", async () => {
  expect(await sdk.call("tenants")).toMatchObject([{ tenantId: cloud.app.tenantId }]);
  expect((await sdk.call("locations", SUBSCRIPTION_ID)).map(({ name }) => name)).toEqual(["westeurope", "northeurope"]);
});

test("returns empty lists of alert rules and diagnostic settings, also for a path with a double slash", async () => {
  const arm = await armClient(cloud);
  const emptyList = { status: 200, body: { value: [] } };
  const insights = `/subscriptions/${SUBSCRIPTION_ID}/providers/Microsoft.Insights`;
  expect(await arm("GET", `${insights}/activityLogAlerts`, "2020-10-01")).toMatchObject(emptyList);
  const settings = `${insights}/diagnosticSettings`.replace("/providers", "//providers");
  expect(await arm("GET", settings, "2021-05-01-preview")).toMatchObject(emptyList);
  expect(await arm("GET", `${insights}/activityLogAlerts`, "2021-05-01-preview")).toMatchObject({ status: 400 });
});

describe("rejects", () => {
  test("a subscription without read permission", async () => {
    const closed = cloud.control.subscriptions().find(({ denied }) => denied)!;
    const failure = await sdk.failure("vaults", closed.id);
    expect(failure).toMatchObject({ statusCode: 403, code: "AuthorizationFailed" });
  });

  test("unknown resources", async () => {
    const unknownSubscription = "99999999-9999-4999-8999-999999999999";
    expect(await sdk.failure("subscription", unknownSubscription)).toMatchObject({
      statusCode: 404,
      code: "SubscriptionNotFound",
    });
    expect(await sdk.failure("subscription", "x")).toMatchObject({ statusCode: 400, code: "InvalidSubscriptionId" });
    expect(await sdk.failure("vault", SUBSCRIPTION_ID, "rg-other", "kv-strict")).toMatchObject({
      code: "ResourceNotFound",
    });
    expect(await sdk.failure("managedKeys", SUBSCRIPTION_ID, "rg-other", "kv-full")).toMatchObject({
      code: "ResourceNotFound",
    });
    expect(await sdk.failure("locations", unknownSubscription)).toMatchObject({ code: "SubscriptionNotFound" });
  });

  test("a token for Key Vault", async () => {
    const failure = await sdk.failure("vaultsWithTokenFor", SUBSCRIPTION_ID, "https://vault.localhost/.default");
    expect(failure).toMatchObject({ statusCode: 401, code: "InvalidAuthenticationTokenAudience" });
    expect(failure.headers!["www-authenticate"]).toContain('error="invalid_token"');
  });

  test("calls over the limit, with a Retry-After that the client waits for", async () => {
    cloud.control.resetCounts();
    cloud.control.addFault({
      match: { operation: "arm.listVaults", subscription: SUBSCRIPTION_ID },
      action: { kind: "throttle", retryAfterSeconds: 0 },
      times: 1,
    });
    expect(await sdk.call("vaults", SUBSCRIPTION_ID)).toHaveLength(5);
    cloud.control.clearFaults();
    expect(cloud.control.requests({ operation: "arm.listVaults" }).map(({ status }) => status)).toEqual([429, 200]);
  });
});
