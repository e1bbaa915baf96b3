import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type Cloud, startCloud } from "../../infra/local/cloud/cloud.ts";
import type { Company } from "../../infra/local/cloud/company/company.ts";
import { SdkClient } from "./sdk-client.ts";

const ID = "33333333-3333-4333-8333-333333333333";
const company: Company = {
  subscriptions: [
    {
      name: "Main",
      id: ID,
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
        ...[1, 2, 3].map((number) => ({ name: `kv-more-${number}` })),
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

test("lists the subscriptions over pages", async () => {
  cloud.control.resetCounts();
  const found = await sdk.call("subscriptions");
  expect(found.map(({ displayName, state }) => [displayName, state])).toEqual([
    ["Main", "Enabled"],
    ["Closed", "Enabled"],
    ["Third", "Warned"],
  ]);
  expect(cloud.control.counts()).toMatchObject({ "arm.listSubscriptions": 2 });
});

test("lists the vaults over as many pages as $top asks for", async () => {
  cloud.control.resetCounts();
  const found = await sdk.call("vaults", ID, 2);
  expect(found.map(({ name }) => name)).toEqual(["kv-strict", "kv-loose", "kv-more-1", "kv-more-2", "kv-more-3"]);
  expect(cloud.control.counts()).toMatchObject({ "arm.listVaults": 3 });
});

test("shows a vault with its settings, and leaves out purge protection where it is off", async () => {
  const [strict, loose] = await sdk.call("vaults", ID);
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
  expect(await sdk.call("vault", ID, "rg-main", "KV-Strict")).toMatchObject({ id: strict!.id! });
});

describe("refuses", () => {
  test("a subscription it may not look into", async () => {
    const closed = cloud.control.subscriptions().find(({ denied }) => denied)!;
    const failure = await sdk.failure("vaults", closed.id);
    expect(failure).toMatchObject({ statusCode: 403, code: "AuthorizationFailed" });
  });

  test("what does not exist", async () => {
    const nobody = "99999999-9999-4999-8999-999999999999";
    expect(await sdk.failure("subscription", nobody)).toMatchObject({ statusCode: 404, code: "SubscriptionNotFound" });
    expect(await sdk.failure("subscription", "x")).toMatchObject({ statusCode: 400, code: "InvalidSubscriptionId" });
    expect(await sdk.failure("vault", ID, "rg-other", "kv-strict")).toMatchObject({ code: "ResourceNotFound" });
  });

  test("a token that was made for Key Vault", async () => {
    const failure = await sdk.failure("vaultsWithTokenFor", ID, "https://vault.localhost/.default");
    expect(failure).toMatchObject({ statusCode: 401, code: "InvalidAuthenticationTokenAudience" });
    expect(failure.headers!["www-authenticate"]).toContain('error="invalid_token"');
  });

  test("throttled calls with Retry-After, which the client waits for", async () => {
    cloud.control.resetCounts();
    cloud.control.addFault({
      match: { operation: "arm.listVaults", subscription: ID },
      action: { kind: "throttle", retryAfterSeconds: 0 },
      times: 1,
    });
    expect(await sdk.call("vaults", ID)).toHaveLength(5);
    cloud.control.clearFaults();
    expect(cloud.control.requests({ operation: "arm.listVaults" }).map(({ status }) => status)).toEqual([429, 200]);
  });
});
