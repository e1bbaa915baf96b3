import type { ServerResponse } from "node:http";
import type { Vault } from "@azure/arm-keyvault";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { planListed } from "../../shared/discovery/plan-vaults.ts";
import { PlannedVault } from "../../shared/discovery/scan.ts";
import { createKeyVaults } from "../../shared/platform/azure/key-vault.ts";
import { createResourceManager, vaultPage } from "../../shared/platform/azure/resource-manager.ts";
import { SEED } from "../support/sampling.ts";
import { type OddServer, startOddServer } from "./odd-server.ts";
import { all, failureOf, IMPATIENT, plainIdentity, recordingLog, testConfig } from "./services.ts";

/** Lists that do not end, and lists with undocumented entries. */

let server: OddServer;
beforeAll(async () => {
  server = await startOddServer();
});
afterAll(() => server.stop());

const SUBSCRIPTION = "5f0c3f5e-0000-4000-8000-000000000001";

function services() {
  const config = testConfig({
    AZURE_KEY_VAULT_SUFFIX: "vault.localhost",
    AZURE_RESOURCE_MANAGER_ENDPOINT: `https://management.localhost:${server.port}`,
  });
  return { config, identity: plainIdentity, log: recordingLog(), limits: IMPATIENT };
}
const vaultAddress = () => `https://kv-odd.vault.localhost:${server.port}`;
const vault = () => createKeyVaults(services()).open({ name: "kv-odd", vaultUri: vaultAddress() });
const manager = () => createResourceManager(services());
const answerJson = (response: ServerResponse, body: unknown) =>
  response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify(body));

/** The lists, each with a function that reads it. */
const LISTS: [string, (signal?: AbortSignal) => Promise<unknown>][] = [
  ["secrets", (signal) => all(vault().secrets(signal))],
  ["keys", (signal) => all(vault().keys(signal))],
  ["certificates", (signal) => all(vault().certificates(signal))],
  ["vaults", (signal) => all(pagesOf(manager().vaults(SUBSCRIPTION, signal)))],
  ["subscriptions", (signal) => manager().subscriptions(signal)],
];
async function* pagesOf<T>(pages: AsyncIterable<T>): AsyncGenerator<T[]> {
  for await (const page of pages) yield [page];
}

/** Returns a page with a link to a next page at a new address. */
function endless(request: { url?: string | undefined; headers: { host?: string } }, page: number) {
  const url = new URL(request.url ?? "/", `https://${request.headers.host}`);
  url.searchParams.set("page", String(page));
  return { value: [], nextLink: url.href };
}

describe.each(LISTS)("a list of %s that does not end", (_, read) => {
  test("ends when the caller's signal is aborted, on any page", async () => {
    const controller = new AbortController();
    server.answer((request, response, count) => {
      if (count === 20) controller.abort();
      answerJson(response, endless(request, count));
    });
    expect((await failureOf(read(controller.signal))).code).toBe("timedOut");
    expect(server.requests).toHaveLength(20);
  });

  test("is a bad response if its links form a circle or are invalid", async () => {
    server.answer((request, response, count) => answerJson(response, endless(request, count % 3)));
    expect((await failureOf(read())).code).toBe("badResponse");
    expect(server.requests.length).toBeLessThanOrEqual(5);
    server.answer((_request, response) => answerJson(response, { value: [], nextLink: "nowhere" }));
    expect((await failureOf(read())).code).toBe("badResponse");
    expect(server.requests).toHaveLength(1);
  });
});

test.each(["/keys/x", "/keys", "/secrets/x/versions"])(
  "a list of secrets does not follow a link to %s of the same vault",
  async (path) => {
    server.answer((_request, response) => answerJson(response, { value: [], nextLink: `${vaultAddress()}${path}` }));
    const failure = await failureOf(all(vault().secrets()));
    expect([failure.code, server.requests.length]).toEqual(["badResponse", 1]);
  },
);

test("a list without end and without a signal ends at the limit of pages", async () => {
  server.answer((request, response, count) => answerJson(response, endless(request, count)));
  const failure = await failureOf(all(vault().secrets()));
  expect([failure.code, failure.message]).toEqual(["badResponse", expect.stringContaining("has more than 4000 pages")]);
  expect(server.requests).toHaveLength(4000);
});

describe("an entry of a vault's list that the client can't parse, or that is not what the service documents,", () => {
  const good = (name: string) => ({ id: `${vaultAddress()}/secrets/${name}`, attributes: { enabled: true } });
  const odd = [
    ["a wrong expiry", () => ({ ...good("odd"), attributes: { exp: "soon" } })],
    ["an expiry that no date can hold", () => ({ ...good("odd"), attributes: { exp: 1e300 } })],
    ["tags that are a number", () => ({ ...good("odd"), tags: 7 })],
    ["no identifier", () => ({ attributes: {} })],
    ["an identifier of another kind", () => ({ ...good("odd"), id: `${vaultAddress()}/keys/odd` })],
    ["a name that no object can have", () => ({ ...good("odd"), id: `${vaultAddress()}/secrets/a_b` })],
    ["null", () => null],
    ["a text", () => "odd"],
  ] as const;

  test.each(odd)("(%s) fails its page, after the pages before it were read", async (_, entry) => {
    server.answer((request, response) => {
      const last = request.url?.includes("page=2");
      answerJson(response, {
        value: last ? [good("b"), entry(), good("c")] : [good("a")],
        nextLink: last ? null : `${vaultAddress()}/secrets?page=2`,
      });
    });
    const read: string[] = [];
    const reading = async () => {
      for await (const page of vault().secrets()) read.push(...page.map(({ name }) => name));
    };
    expect((await failureOf(reading())).code).toBe("badResponse");
    expect(read).toEqual(["a"]);
    expect(server.requests).toHaveLength(2);
  });
});

describe("an undocumented vault in the resource manager's list", () => {
  const described = (name: string, change: (properties: Record<string, unknown>) => void = () => {}) => {
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

  test("costs only itself, if the client can parse it", async () => {
    server.answer((_, response) =>
      answerJson(response, {
        value: [
          described("kv-a"),
          described("kv-wrong-address", (properties) => {
            properties.vaultUri = 7;
          }),
          described("kv-no-policies", (properties) => delete properties.accessPolicies),
          { ...described("kv-nameless"), name: 7 },
          described("kv-z"),
        ],
      }),
    );
    const [page] = await all(pagesOf(manager().vaults(SUBSCRIPTION)));
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
    ["no SKU", () => described("kv-odd", (properties) => delete properties.sku)],
    ["no properties", () => ({ ...described("kv-odd"), properties: undefined })],
    ["null", () => null],
  ])("fails the list if the client can't parse it: %s", async (_, entry) => {
    server.answer((_request, response) => answerJson(response, { value: [described("kv-a"), entry()] }));
    expect((await failureOf(all(pagesOf(manager().vaults(SUBSCRIPTION))))).code).toBe("badResponse");
  });

  test("is planned as that vault's failure and removes no vault; a vault without a name is the subscription's failure", () => {
    const known = new Map([
      ["kv-gone", undefined],
      ["kv-no-sku", undefined],
    ]);
    const noSku = described("kv-no-sku", (properties) => delete properties.sku);
    const page = vaultPage([described("kv-a"), noSku] as unknown as Vault[], SUBSCRIPTION);
    const plan = planListed(SUBSCRIPTION, page, known, "full", "2026-11-21T00:00:00.000Z");
    expect(plan.vaults.map(({ name, action, failure }) => [name, action, failure?.code])).toEqual([
      ["kv-a", "scan", undefined],
      ["kv-gone", "remove", undefined],
      ["kv-no-sku", "fail", "badResponse"],
    ]);
    expect(plan.subscriptions).toEqual([{ subscriptionId: SUBSCRIPTION, vaults: 1 }]);
    const nameless = vaultPage([described("kv-a"), { name: 7 }] as unknown as Vault[], SUBSCRIPTION);
    const careful = planListed(SUBSCRIPTION, nameless, known, "full", "2026-11-21T00:00:00.000Z");
    expect(careful.vaults.map(({ name }) => name)).toEqual(["kv-a"]);
    expect(careful.subscriptions).toMatchObject([{ failure: { code: "badResponse" } }]);
  });

  test("never stops the scan of the other vaults: 5,000 answers with one changed member", () => {
    const draw = dice(SEED);
    const kinds = { read: 0, unreadable: 0, nameless: 0 };
    for (let count = 0; count < 5_000; count++) {
      const answer = { value: [described("kv-a"), described("kv-b"), described("kv-c")] };
      mutate(answer.value[1]!, draw);
      const entries = JSON.parse(JSON.stringify(answer)).value as Vault[];
      const page = vaultPage(entries, SUBSCRIPTION);
      const plan = planListed(SUBSCRIPTION, page, new Map(), "full", "2026-11-21T00:00:00.000Z");
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
    console.log(`5,000 mutated answers, seed ${SEED}: ${JSON.stringify(kinds)}, none ended the scan`);
    expect(kinds.read).toBeGreaterThan(500);
    expect(kinds.unreadable).toBeGreaterThan(500);
    expect(kinds.nameless).toBeGreaterThan(50);
  });
});

test("a subscription that is not what the service documents costs only itself, if the client can parse it", async () => {
  const good = { subscriptionId: SUBSCRIPTION, displayName: "Good" };
  server.answer((_, response) =>
    answerJson(response, { value: [good, { subscriptionId: 7 }, { subscriptionId: "../../etc" }] }),
  );
  const { subscriptions, unreadable } = await manager().subscriptions();
  expect(subscriptions.map((one) => one.displayName)).toEqual(["Good"]);
  expect(unreadable.map(({ code }) => code)).toEqual(["badResponse", "badResponse"]);
  server.answer((_, response) => answerJson(response, { value: [good, null] }));
  expect((await failureOf(manager().subscriptions())).code).toBe("badResponse");
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

/** Replaces one member at a random place of any depth. */
function mutate(value: object, draw: (below: number) => number): void {
  const places: [Record<string, unknown>, string][] = [];
  const walk = (at: object) => {
    for (const [name, member] of Object.entries(at)) {
      places.push([at as Record<string, unknown>, name]);
      if (typeof member === "object" && member !== null) walk(member);
    }
  };
  walk(value);
  const [parent, name] = places[draw(places.length)]!;
  parent[name] = ODD_VALUES[draw(ODD_VALUES.length)];
}

/** Returns random numbers from a seed. https://en.wikipedia.org/wiki/Xorshift */
function dice(seed: number): (below: number) => number {
  let state = seed | 1;
  return (below) => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    return (state >>> 0) % below;
  };
}
