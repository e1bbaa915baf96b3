import type { ServerResponse } from "node:http";
import type { Vault } from "@azure/arm-keyvault";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { planSubscriptionVaults } from "../../shared/discovery/plan-vaults.ts";
import { PlannedVault } from "../../shared/discovery/scan.ts";
import { createKeyVaults } from "../../shared/platform/azure/key-vault.ts";
import { createResourceManager, vaultPage } from "../../shared/platform/azure/resource-manager.ts";
import { SEED } from "../support/sampling.ts";
import { type FakeServer, startFakeServer } from "./odd-server.ts";
import { collectItems, expectFailure, fakeIdentity, recordingLog, SHORT_WAITS, testConfig } from "./services.ts";

/** Tests of Key Vault and Resource Manager lists that do not end or that have undocumented entries. */

let server: FakeServer;
beforeAll(async () => {
  server = await startFakeServer();
});
afterAll(() => server.stop());

const SUBSCRIPTION = "5f0c3f5e-0000-4000-8000-000000000001";

function services() {
  const config = testConfig({
    AZURE_KEY_VAULT_SUFFIX: "vault.localhost",
    AZURE_RESOURCE_MANAGER_ENDPOINT: `https://management.localhost:${server.port}`,
  });
  return { config, identity: fakeIdentity, log: recordingLog(), limits: SHORT_WAITS };
}
const vaultAddress = () => `https://kv-odd.vault.localhost:${server.port}`;
const openVault = () => createKeyVaults(services()).open({ name: "kv-odd", vaultUri: vaultAddress() });
const openResourceManager = () => createResourceManager(services());
const answerJson = (response: ServerResponse, body: unknown) =>
  response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify(body));

/** Each list with a function that reads it completely. */
const LISTS: [string, (signal?: AbortSignal) => Promise<unknown>][] = [
  ["secrets", (signal) => collectItems(openVault().secrets(signal))],
  ["keys", (signal) => collectItems(openVault().keys(signal))],
  ["certificates", (signal) => collectItems(openVault().certificates(signal))],
  ["vaults", (signal) => collectItems(pagesOf(openResourceManager().vaults(SUBSCRIPTION, signal)))],
  ["subscriptions", (signal) => openResourceManager().subscriptions(signal)],
];
async function* pagesOf<T>(pages: AsyncIterable<T>): AsyncGenerator<T[]> {
  for await (const page of pages) yield [page];
}

/** Returns an empty page with a link to page number `page` of the same list. */
function endlessPage(request: { url?: string | undefined; headers: { host?: string } }, page: number) {
  const url = new URL(request.url ?? "/", `https://${request.headers.host}`);
  url.searchParams.set("page", String(page));
  return { value: [], nextLink: url.href };
}

describe.each(LISTS)("a list of %s that does not end", (_, read) => {
  test("ends when the caller's signal is aborted", async () => {
    const controller = new AbortController();
    server.setResponse((request, response, count) => {
      if (count === 20) controller.abort();
      answerJson(response, endlessPage(request, count));
    });
    expect((await expectFailure(read(controller.signal))).code).toBe("timedOut");
    expect(server.requests).toHaveLength(20);
  });

  test("is a bad response if its links are circular or invalid", async () => {
    // Three pages that link to each other in a circle.
    server.setResponse((request, response, count) => answerJson(response, endlessPage(request, count % 3)));
    expect((await expectFailure(read())).code).toBe("badResponse");
    expect(server.requests.length).toBeLessThanOrEqual(5);
    server.setResponse((_request, response) => answerJson(response, { value: [], nextLink: "nowhere" }));
    expect((await expectFailure(read())).code).toBe("badResponse");
    expect(server.requests).toHaveLength(1);
  });
});

test.each(["/keys/x", "/keys", "/secrets/x/versions"])(
  "a list of secrets does not follow a link to %s of the same vault",
  async (path) => {
    server.setResponse((_request, response) =>
      answerJson(response, { value: [], nextLink: `${vaultAddress()}${path}` }),
    );
    const failure = await expectFailure(collectItems(openVault().secrets()));
    expect([failure.code, server.requests.length]).toEqual(["badResponse", 1]);
  },
);

test("an endless list without a signal fails at the limit of 4,000 pages", async () => {
  server.setResponse((request, response, count) => answerJson(response, endlessPage(request, count)));
  const failure = await expectFailure(collectItems(openVault().secrets()));
  expect([failure.code, failure.message]).toEqual(["badResponse", expect.stringContaining("has more than 4000 pages")]);
  expect(server.requests).toHaveLength(4000);
});

describe("an undocumented entry of a vault's list", () => {
  const validEntry = (name: string) => ({ id: `${vaultAddress()}/secrets/${name}`, attributes: { enabled: true } });
  const invalidEntries = [
    ["a wrong expiry", () => ({ ...validEntry("odd"), attributes: { exp: "soon" } })],
    ["an expiry that no date can hold", () => ({ ...validEntry("odd"), attributes: { exp: 1e300 } })],
    ["tags that are a number", () => ({ ...validEntry("odd"), tags: 7 })],
    ["no identifier", () => ({ attributes: {} })],
    ["an identifier of another kind", () => ({ ...validEntry("odd"), id: `${vaultAddress()}/keys/odd` })],
    ["a name that no object can have", () => ({ ...validEntry("odd"), id: `${vaultAddress()}/secrets/a_b` })],
    ["the value null", () => null],
    ["a string value", () => "odd"],
  ] as const;

  test.each(invalidEntries)("with %s fails its page after the previous pages were read", async (_, entry) => {
    server.setResponse((request, response) => {
      const isLastPage = request.url?.includes("page=2");
      answerJson(response, {
        value: isLastPage ? [validEntry("b"), entry(), validEntry("c")] : [validEntry("a")],
        nextLink: isLastPage ? null : `${vaultAddress()}/secrets?page=2`,
      });
    });
    const read: string[] = [];
    const reading = async () => {
      for await (const page of openVault().secrets()) read.push(...page.map(({ name }) => name));
    };
    expect((await expectFailure(reading())).code).toBe("badResponse");
    expect(read).toEqual(["a"]);
    expect(server.requests).toHaveLength(2);
  });
});

describe("an undocumented vault in the resource manager's list", () => {
  const vaultEntry = (name: string, change: (properties: Record<string, unknown>) => void = () => {}) => {
    const properties: Record<string, unknown> = {
      tenantId: "5f0c3f5e-0000-4000-8000-00000000000a",
      sku: { family: "A", name: "standard" },
      accessPolicies: [{ tenantId: "t", objectId: "o", permissions: { keys: ["get"] } }],
      vaultUri: `https://${name}.vault.localhost/`,
      enableSoftDelete: true,
      softDeleteRetentionInDays: 90,
      enablePurgeProtection: true,
      enableRbacAuthorization: false,
      publicNetworkAccess: "Enabled",
      networkAcls: {
        bypass: "AzureServices",
        defaultAction: "Deny",
        ipRules: [{ value: "1.2.3.4" }],
        virtualNetworkRules: [],
      },
      privateEndpointConnections: [
        {
          id: "x",
          properties: { privateLinkServiceConnectionState: { status: "Approved" }, provisioningState: "Succeeded" },
        },
      ],
    };
    change(properties);
    return {
      id: `/subscriptions/${SUBSCRIPTION}/resourceGroups/rg/providers/Microsoft.KeyVault/vaults/${name}`,
      name,
      type: "Microsoft.KeyVault/vaults",
      location: "westeurope",
      tags: { owner: "team" },
      systemData: { createdAt: "2026-01-01T00:00:00Z", lastModifiedAt: "2026-01-02T00:00:00Z" },
      properties,
    };
  };

  test("makes only that vault unreadable if the client can parse the entry", async () => {
    server.setResponse((_, response) =>
      answerJson(response, {
        value: [
          vaultEntry("kv-a"),
          vaultEntry("kv-wrong-address", (properties) => {
            properties.vaultUri = 7;
          }),
          vaultEntry("kv-no-policies", (properties) => delete properties.accessPolicies),
          { ...vaultEntry("kv-nameless"), name: 7 },
          vaultEntry("kv-z"),
        ],
      }),
    );
    const [page] = await collectItems(pagesOf(openResourceManager().vaults(SUBSCRIPTION)));
    expect(page!.vaults.map(({ name }) => name)).toEqual(["kv-a", "kv-no-policies", "kv-z"]);
    expect(page!.vaults[0]).toMatchObject({
      sku: "standard",
      createdOn: "2026-01-01T00:00:00.000Z",
      updatedOn: "2026-01-02T00:00:00.000Z",
      networkDefaultAction: "Deny",
      privateEndpoints: 1,
      softDeleteRetentionDays: 90,
      tags: { owner: "team" },
    });
    expect(page!.unreadable.map(({ name, failure }) => [name, failure.code])).toEqual([
      ["kv-wrong-address", "badResponse"],
      [undefined, "badResponse"],
    ]);
    expect(page!.unreadable[0]!.failure.message).toContain("properties.vaultUri");
  });

  test.each([
    ["no SKU", () => vaultEntry("kv-odd", (properties) => delete properties.sku)],
    ["no properties", () => ({ ...vaultEntry("kv-odd"), properties: undefined })],
    ["null", () => null],
  ])("fails the list if the client can't parse the entry: %s", async (_, entry) => {
    server.setResponse((_request, response) => answerJson(response, { value: [vaultEntry("kv-a"), entry()] }));
    expect((await expectFailure(collectItems(pagesOf(openResourceManager().vaults(SUBSCRIPTION))))).code).toBe(
      "badResponse",
    );
  });

  test("is planned as a failure and not as a removed vault", () => {
    const inventoryVaults = new Map([
      ["kv-gone", undefined],
      ["kv-no-sku", undefined],
    ]);
    const noSku = vaultEntry("kv-no-sku", (properties) => delete properties.sku);
    const page = vaultPage([vaultEntry("kv-a"), noSku] as unknown as Vault[], SUBSCRIPTION);
    const plan = planSubscriptionVaults(SUBSCRIPTION, page, inventoryVaults, "full", "2026-11-21T00:00:00.000Z");
    expect(plan.vaults.map(({ name, action, failure }) => [name, action, failure?.code])).toEqual([
      ["kv-a", "scan", undefined],
      ["kv-gone", "remove", undefined],
      ["kv-no-sku", "fail", "badResponse"],
    ]);
    expect(plan.subscriptions).toEqual([{ subscriptionId: SUBSCRIPTION, vaults: 1 }]);
    const nameless = vaultPage([vaultEntry("kv-a"), { name: 7 }] as unknown as Vault[], SUBSCRIPTION);
    const planWithoutName = planSubscriptionVaults(
      SUBSCRIPTION,
      nameless,
      inventoryVaults,
      "full",
      "2026-11-21T00:00:00.000Z",
    );
    expect(planWithoutName.vaults.map(({ name }) => name)).toEqual(["kv-a"]);
    expect(planWithoutName.subscriptions).toMatchObject([{ failure: { code: "badResponse" } }]);
  });

  test("does not stop the scan of other vaults in 5,000 randomly changed responses", () => {
    const drawBelow = createDice(SEED);
    const kinds = { read: 0, unreadable: 0, nameless: 0 };
    for (let count = 0; count < 5_000; count++) {
      const answer = { value: [vaultEntry("kv-a"), vaultEntry("kv-b"), vaultEntry("kv-c")] };
      replaceRandomMember(answer.value[1]!, drawBelow);
      const entries = JSON.parse(JSON.stringify(answer)).value as Vault[];
      const page = vaultPage(entries, SUBSCRIPTION);
      const plan = planSubscriptionVaults(SUBSCRIPTION, page, new Map(), "full", "2026-11-21T00:00:00.000Z");
      const names = plan.vaults.filter(({ action }) => action === "scan").map(({ name }) => name);
      expect(names, `seed ${SEED}, answer ${count}: ${JSON.stringify(entries[1])}`).toEqual(
        expect.arrayContaining(["kv-a", "kv-c"]),
      );
      // Rows and messages can store the planned vaults.
      for (const planned of plan.vaults) PlannedVault.parse(planned);
      expect(page.vaults.length + page.unreadable.length).toBe(3);
      if (page.vaults.length === 3) kinds.read++;
      else if (page.unreadable[0]!.name) kinds.unreadable++;
      else kinds.nameless++;
    }
    console.log(`5,000 mutated answers, seed ${SEED}: ${JSON.stringify(kinds)}, no response stopped the scan`);
    expect(kinds.read).toBeGreaterThan(500);
    expect(kinds.unreadable).toBeGreaterThan(500);
    expect(kinds.nameless).toBeGreaterThan(50);
  });
});

test("an undocumented subscription makes only itself unreadable if the client can parse it", async () => {
  const good = { subscriptionId: SUBSCRIPTION, displayName: "Good" };
  server.setResponse((_, response) =>
    answerJson(response, { value: [good, { subscriptionId: 7 }, { subscriptionId: "../../etc" }] }),
  );
  const { subscriptions, unreadable } = await openResourceManager().subscriptions();
  expect(subscriptions.map((one) => one.displayName)).toEqual(["Good"]);
  expect(unreadable.map(({ code }) => code)).toEqual(["badResponse", "badResponse"]);
  server.setResponse((_, response) => answerJson(response, { value: [good, null] }));
  expect((await expectFailure(openResourceManager().subscriptions())).code).toBe("badResponse");
});

const ODD_VALUES: readonly unknown[] = [
  null,
  undefined,
  7,
  -1.5,
  1e300,
  "",
  "text",
  "\ud800",
  "a/b\\c#d?e",
  "x".repeat(70_000),
  true,
  [],
  [null],
  [[]],
  {},
  { toString: 7 },
  { __proto__: null, constructor: 1 },
];

/** Replaces one random member of the object, at any depth, by a random element of `ODD_VALUES`. */
function replaceRandomMember(value: object, draw: (below: number) => number): void {
  const members: [Record<string, unknown>, string][] = [];
  const collectMembers = (at: object) => {
    for (const [name, member] of Object.entries(at)) {
      members.push([at as Record<string, unknown>, name]);
      if (typeof member === "object" && member !== null) collectMembers(member);
    }
  };
  collectMembers(value);
  const [parent, name] = members[draw(members.length)]!;
  parent[name] = ODD_VALUES[draw(ODD_VALUES.length)];
}

/** Returns a reproducible generator of random integers below a limit. https://en.wikipedia.org/wiki/Xorshift */
function createDice(seed: number): (below: number) => number {
  let state = seed | 1;
  return (below) => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    return (state >>> 0) % below;
  };
}
