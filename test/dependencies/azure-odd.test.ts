import type { IncomingMessage, ServerResponse } from "node:http";
import fc from "fast-check";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { FinderContext, Found } from "../../shared/dependencies/azure/finder.ts";
import { FINDER_OF, FINDERS } from "../../shared/dependencies/azure/finders.ts";
import { keyVaultNames, ofVaultId } from "../../shared/dependencies/azure/key-vault-names.ts";
import { kubernetesCluster } from "../../shared/dependencies/azure/kubernetes-cluster.ts";
import { createAzureEdges } from "../../shared/dependencies/azure/source.ts";
import type { ReadingItem } from "../../shared/dependencies/edge-source.ts";
import { createAppConfigurationReferences } from "../../shared/platform/azure/app-configuration-references.ts";
import { createArm } from "../../shared/platform/azure/arm.ts";
import { CloudFailure } from "../../shared/platform/azure/failure.ts";
import { createResourceManager } from "../../shared/platform/azure/resource-manager.ts";
import { type FakeServer, startFakeServer } from "../azure/odd-server.ts";
import { expectFailure, fakeIdentity, recordingLog, SHORT_WAITS, testConfig } from "../azure/services.ts";

/**
 * Tests of dependency discovery in Azure with unusual input: responses that differ from the services' documentation, and texts
 * instead of Key Vault references. A discovery reads resources (web apps, clusters, …) and reports which secrets they use.
 */

const SUBSCRIPTION = "5f0c3f5e-0000-4000-8000-000000000001";
const VERSION = "0123456789abcdef0123456789abcdef";
const names = keyVaultNames("vault.azure.net");

describe("a Key Vault reference", () => {
  const unpinned = { vaultName: "kv-main", type: "secret", name: "db" };
  const pinned = { ...unpinned, version: VERSION };
  const uri = "https://kv-main.vault.azure.net/secrets/db";

  test.each([
    [`@Microsoft.KeyVault(SecretUri=${uri})`, unpinned],
    [`@Microsoft.KeyVault(SecretUri=${uri}/)`, unpinned],
    [
      `@microsoft.keyvault( secreturi = ${uri.toUpperCase().replace("DB", "db").replace("KV-MAIN", "kv-main")} )`,
      unpinned,
    ],
    [`@Microsoft.KeyVault(SecretUri=${uri}/${VERSION})`, pinned],
    ["@Microsoft.KeyVault(VaultName=kv-main;SecretName=db)", unpinned],
    [" @Microsoft.KeyVault( SecretName = db ; VaultName = kv-main ; )", unpinned],
    [`@Microsoft.KeyVault(VaultName=kv-main;SecretName=db;SecretVersion=${VERSION})`, pinned],
    ["@Microsoft.KeyVault(VaultName=kv-main;SecretName=db;SecretVersion=)", unpinned],
  ])("%s is valid", (text, expected) => {
    expect(names.ofReference(text)).toEqual(expected);
  });

  test.each([
    "",
    "plain",
    uri,
    `@Microsoft.KeyVault(${uri})`,
    `@Microsoft.KeyVault(SecretUri=${uri}`,
    `@Microsoft.KeyVault(SecretUri=${uri};SecretName=db)`,
    `@Microsoft.KeyVault(SecretUri=${uri}/${VERSION}/more)`,
    `@Microsoft.KeyVault(SecretUri=${uri}/latest)`,
    `@Microsoft.KeyVault(SecretUri=${uri}?x=1)`,
    "@Microsoft.KeyVault(SecretUri=http://kv-main.vault.azure.net/secrets/db)",
    "@Microsoft.KeyVault(SecretUri=https://kv-main.vault.azure.cn/secrets/db)",
    "@Microsoft.KeyVault(SecretUri=https://kv-main.vault.azure.net.evil.example/secrets/db)",
    "@Microsoft.KeyVault(SecretUri=https://evil.example/?kv-main.vault.azure.net/secrets/db)",
    "@Microsoft.KeyVault(SecretUri=https://a.b.vault.azure.net/secrets/db)",
    "@Microsoft.KeyVault(SecretUri=https://user@kv-main.vault.azure.net/secrets/db)",
    "@Microsoft.KeyVault(SecretUri=https://kv-main.vault.azure.net/keys/db)",
    "@Microsoft.KeyVault(SecretUri=https://kv-main.vault.azure.net/secrets/d%2Fb)",
    "@Microsoft.KeyVault(VaultName=kv-main)",
    "@Microsoft.KeyVault(VaultName=kv-main;SecretName=db;SecretName=other)",
    "@Microsoft.KeyVault(VaultName=kv/main;SecretName=db)",
    "@Microsoft.KeyVault(VaultName=kv-main;SecretName=db;Else=1)",
    `@Microsoft.KeyVault(VaultName=kv-main;SecretName=${"d".repeat(10_000)})`,
    7,
    null,
  ])("%s is not valid", (text) => {
    expect(names.ofReference(text)).toBeUndefined();
  });

  test("only resource ids of vaults and of their secrets are accepted", () => {
    const vault = `/subscriptions/${SUBSCRIPTION}/resourceGroups/rg/providers/microsoft.keyvault/vaults/kv-main`;
    expect(ofVaultId(vault)).toEqual({ vaultName: "kv-main" });
    expect(ofVaultId(`${vault}/secrets/db`)).toEqual(unpinned);
    for (const other of [`${vault}/keys/db`, `${vault}/..`, vault.replace("vaults", "managedHSMs"), `x${vault}`, {}]) {
      expect(ofVaultId(other)).toBeUndefined();
    }
  });
});

test("a certificate of very many or very long host names fits into a row", async () => {
  const finder = FINDER_OF.get("microsoft.network/applicationgateways")!;
  const hostNames = [...Array.from({ length: 5_000 }, (_, index) => `www${index}.shop.example`), "a".repeat(100_000)];
  const certificate = { name: "one", properties: { keyVaultSecretId: "https://kv-main.vault.azure.net/secrets/one" } };
  const listener = { properties: { hostNames, sslCertificate: { id: "/sslCertificates/one" } } };
  const row = {
    id: `/subscriptions/${SUBSCRIPTION}/resourceGroups/rg/providers/Microsoft.Network/applicationGateways/agw`,
    name: "agw",
    properties: { sslCertificates: [certificate], httpListeners: [listener] },
  };
  const { uses } = (await finder.find(row as never, { names } as unknown as FinderContext)) as Found;
  expect(uses).toHaveLength(1);
  // A text of a row has at most 32,768 characters.
  expect(JSON.stringify(uses[0]!.hosts).length).toBeLessThan(32_768);
  expect(uses[0]!.hosts).toHaveLength(50);
  const odd = { ...row, properties: { sslCertificates: [certificate], httpListeners: [{ properties: 1 }] } };
  const found = (await finder.find(odd as never, { names } as unknown as FinderContext)) as Found;
  expect(found.uses).toMatchObject([{ asset: { name: "one" } }]);
});

test("a finder returns uses or a cloud failure for any properties of a resource, and exposes none of their values", async () => {
  const emptyList = { entries: [], unreadable: [] };
  const context = {
    names,
    appService: { references: async () => emptyList },
    apiManagement: { namedValues: async () => emptyList, certificates: async () => emptyList },
    appConfiguration: { list: async () => [] },
    dataFactory: { linkedServices: async () => emptyList },
    frontDoor: { secrets: async () => emptyList },
    sql: { encryptionProtector: async () => ({ serverKeyType: "ServiceManaged", autoRotationEnabled: false }) },
    vaultOfConnection: async () => "kv-main",
    hostsServing: async () => [],
    entitledTo: async () => [],
  } as unknown as FinderContext;
  // Property names and values that finders look for. `hunter2hunter2` stands for a secret value that must not be reported.
  const words = fc.constantFrom(
    "configuration",
    "secrets",
    "keyVaultUrl",
    "name",
    "properties",
    "sslCertificates",
    "keyVaultSecretId",
    "settings",
    "encryption",
    "keyvaultproperties",
    "keySource",
    "Microsoft.Keyvault",
    "keyvaulturi",
    "activeKey",
    "keyUrl",
    "type",
    "osProfile",
    "vaultCertificates",
    "certificateUrl",
    "definition",
    "actions",
    "inputs",
    "path",
    "host",
    "connection",
    "parameters",
    "$connections",
    "value",
    "connectionId",
    "hostnameConfigurations",
    "keyVaultId",
    "hunter2hunter2",
    "https://kv-main.vault.azure.net/secrets/db",
    "/secrets/@{encodeURIComponent('db')}/value",
    "__proto__",
  );
  const anyValue = fc.letrec((tie) => ({
    value: fc.oneof(
      { maxDepth: 6 },
      words,
      fc.constantFrom<unknown>(null, true, 3, ""),
      fc.array(tie("value"), { maxLength: 3 }),
      fc.dictionary(words, tie("value"), { maxKeys: 6 }),
    ),
  })).value;
  const outcomes = { read: 0, used: 0, failed: 0 };
  const row = {
    id: `/subscriptions/${SUBSCRIPTION}/resourceGroups/rg/providers/a.b/c/d`,
    name: "d",
    kind: "",
    tags: {},
    sku: "",
  };
  await fc.assert(
    fc.asyncProperty(fc.constantFrom(...FINDERS), anyValue, async (finder, properties) => {
      let found: Found;
      try {
        found = await finder.find({ ...row, type: finder.types[0]!, properties }, context);
      } catch (error) {
        if (!(error instanceof CloudFailure)) throw error;
        expect(error.message).not.toContain("hunter2");
        outcomes.failed++;
        return;
      }
      outcomes.read++;
      if (found.uses.length > 0) outcomes.used++;
      for (const { message } of found.failures ?? []) expect(message).not.toContain("hunter2");
    }),
    { numRuns: 3_000 },
  );
  expect(Math.min(outcomes.read, outcomes.failed)).toBeGreaterThan(100);
});

describe("with a fake Azure server", () => {
  let server: FakeServer;
  const site = (name: string) =>
    `/subscriptions/${SUBSCRIPTION}/resourceGroups/rg/providers/Microsoft.Web/sites/${name}`;
  beforeAll(async () => {
    server = await startFakeServer();
  });
  afterAll(() => server.stop());

  /**
   * Makes the server return `rows` for the Resource Graph query of sites, and no rows for other queries. For other requests it
   * returns `byPath(path)`: a body, or a number for a response with that status.
   */
  function respondWith(rows: unknown[], byPath: (path: string) => unknown = () => ({ value: [] })): void {
    const answer = async (request: IncomingMessage, response: ServerResponse) => {
      const path = new URL(request.url!, "https://x").pathname;
      const query = path.endsWith("/Microsoft.ResourceGraph/resources") ? await queryOf(request) : "";
      const data = query.includes("'microsoft.web/sites'") && query.startsWith("resources") ? rows : [];
      const body = query
        ? { totalRecords: data.length, count: data.length, resultTruncated: "false", data }
        : byPath(path);
      if (typeof body === "number") response.writeHead(body).end("{}");
      else response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify(body));
    };
    server.setResponse((request, response) => void answer(request, response));
  }
  async function queryOf(request: IncomingMessage): Promise<string> {
    let text = "";
    for await (const chunk of request) text += chunk;
    return JSON.parse(text).query;
  }

  /** Reads the subscription and returns the reported items. `since` reads only changes. */
  async function readSubscription(since?: Date): Promise<ReadingItem[]> {
    const config = testConfig({
      AZURE_KEY_VAULT_SUFFIX: "vault.azure.net",
      AZURE_RESOURCE_MANAGER_ENDPOINT: `https://management.localhost:${server.port}`,
    });
    const services = { config, identity: fakeIdentity, log: recordingLog(), limits: SHORT_WAITS };
    const source = createAzureEdges({
      config,
      clock: { now: () => new Date() },
      arm: createArm(services),
      appConfiguration: createAppConfigurationReferences(services),
      resourceManager: createResourceManager(services),
      watched: async () => ({ all: false, named: [SUBSCRIPTION] }),
    });
    const items: ReadingItem[] = [];
    for await (const item of source.read(SUBSCRIPTION, { since })) items.push(item);
    return items;
  }
  const row = (name: string, more: object = {}) => ({ id: site(name), type: "microsoft.web/sites", name, ...more });

  test("an invalid row, entry or reference does not affect other dependencies", async () => {
    const good = {
      name: "GOOD",
      properties: { reference: "@Microsoft.KeyVault(VaultName=kv-main;SecretName=db)", status: "Resolved" },
    };
    // References by site. Each site has a valid one, `bare` and `long` also an empty and a very long one, `odd` invalid
    // entries.
    const entries: Record<string, unknown[]> = {
      fine: [good],
      bare: [{ name: "A", properties: {} }, good],
      odd: [{ id: "x" }, null, good],
      long: [{ name: "LONG", properties: { reference: `@Microsoft.KeyVault(SecretUri=${"x".repeat(10_000)})` } }, good],
    };
    respondWith(
      [
        row("fine", { tags: null, kind: null }),
        row("bare"),
        row("odd"),
        row("long"),
        { name: "no id" },
        null,
        row("a/../b"),
        row("gone"),
        row("none"),
        row("bad"),
      ],
      (path) => {
        const name = path.split("/")[8]!;
        if (path.includes("/connectionstrings")) return { value: [], nextLink: null };
        // App Service also answers 404 or 400 for a site without references.
        if (name === "gone" || name === "none") return 404;
        if (name === "bad") return 400;
        return { value: entries[name] ?? [] };
      },
    );
    const reported = await readSubscription();
    // The site's name, the number of its references, and whether some of its entries could not be read.
    const uses = reported.flatMap((one) =>
      "resource" in one ? [[one.resource.name, one.edges.length, one.partial ?? false]] : [],
    );
    expect(uses.sort()).toEqual([
      ["bad", 0, false],
      ["bare", 1, false],
      ["fine", 1, false],
      ["gone", 0, false],
      ["long", 1, true],
      ["none", 0, false],
      ["odd", 1, true],
    ]);
    const unseen = reported.flatMap((one) => ("notSeen" in one ? [[one.notSeen.scope, one.notSeen.code]] : []));
    // The three rows without a usable id can't be assigned to a site, so their scope is the subscription.
    expect(unseen.sort()).toEqual([
      [`/subscriptions/${SUBSCRIPTION}`, "badResponse"],
      [`/subscriptions/${SUBSCRIPTION}`, "badResponse"],
      [`/subscriptions/${SUBSCRIPTION}`, "badResponse"],
      [site("long"), "invalidReference"],
      [site("odd"), "badResponse"],
      [site("odd"), "badResponse"],
    ]);
    expect(JSON.stringify(reported)).not.toContain("xxxxx");
    // An id with `..` must not be used as a path.
    expect(server.requests.filter(({ url }) => /\.\.|%2E/i.test(url))).toEqual([]);
  });

  test("a truncated result and endless pages fail the read", async () => {
    const respondToGraph = (body: object) =>
      server.setResponse((request, response) => {
        const isGraph = request.url!.includes("Microsoft.ResourceGraph");
        response.writeHead(200, { "content-type": "application/json" });
        response.end(JSON.stringify(isGraph ? { data: [], ...body } : { value: [] }));
      });
    respondToGraph({ resultTruncated: "true" });
    expect((await expectFailure(readSubscription())).message).toContain("rows are missing");
    respondToGraph({ resultTruncated: "true", $skipToken: "again" });
    expect((await expectFailure(readSubscription())).message).toContain("do not end");
    respondToGraph({ data: "none" });
    expect((await expectFailure(readSubscription(new Date()))).code).toBe("badResponse");
  });

  test("links that leave the path of a list are not followed", async () => {
    const links = [`https://management.localhost:${server.port}/subscriptions/other?x=1`, "https://evil.example/steal"];
    for (const nextLink of links) {
      respondWith([row("fine")], (path) =>
        path.includes("configreferences") ? { value: [], nextLink } : { value: [] },
      );
      expect((await readSubscription()).filter((one) => "notSeen" in one)).toMatchObject([
        { notSeen: { scope: site("fine") } },
      ]);
      expect(server.requests.some(({ url }) => url.includes("other"))).toBe(false);
    }
  });

  test("a store at an address outside App Configuration gets no token", async () => {
    const store = (endpoint: string) => ({
      id: `/subscriptions/${SUBSCRIPTION}/resourceGroups/rg/providers/Microsoft.AppConfiguration/configurationStores/one`,
      type: "microsoft.appconfiguration/configurationstores",
      name: "one",
      properties: { endpoint },
    });
    for (const endpoint of ["https://evil.example", "http://one.azconfig.io", "https://azconfig.io.evil.example", ""]) {
      respondWith([store(endpoint)]);
      expect((await readSubscription()).filter((one) => "notSeen" in one)).toMatchObject([
        { notSeen: { code: "foreignHost" } },
      ]);
    }
  });
});

test("a cluster's secrets add-on may read the secrets that its identity has access to, but no keys or certificates", async () => {
  const entitled = [
    { asset: { vaultName: "kv-whole" }, role: "access policy" },
    { asset: { vaultName: "kv-all", type: "secret" }, role: "Key Vault Secrets User" },
    { asset: { vaultName: "kv-one", type: "secret", name: "db" }, role: "Key Vault Secrets User" },
    { asset: { vaultName: "kv-all", type: "key" }, role: "Key Vault Crypto User" },
    { asset: { vaultName: "kv-all", type: "certificate" }, role: "Key Vault Certificate User" },
  ] as const;
  const queriedIdentities: string[] = [];
  const context = {
    names,
    entitledTo: async (id: string) => {
      queriedIdentities.push(id);
      return entitled;
    },
  } as unknown as FinderContext;
  const clusterWith = (provider: object) =>
    kubernetesCluster.find(
      { properties: { addonProfiles: { azureKeyvaultSecretsProvider: provider } } } as never,
      context,
    );
  const identity = { objectId: SUBSCRIPTION };
  expect((await clusterWith({ enabled: true, identity })).uses).toEqual(
    entitled.slice(0, 3).map(({ asset, role }) => ({
      asset,
      evidence: `azureKeyvaultSecretsProvider/${role}`,
      refresh: { how: "blind" },
      strength: "entitled",
    })),
  );
  // The access of an add-on that is disabled or has no identity is not queried.
  for (const provider of [{ enabled: false, identity }, { enabled: true }, { identity }])
    expect((await clusterWith(provider)).uses).toEqual([]);
  expect(queriedIdentities).toEqual([SUBSCRIPTION]);
});
