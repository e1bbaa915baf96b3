import type { IncomingMessage, ServerResponse } from "node:http";
import fc from "fast-check";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { FinderContext, Found } from "../../shared/dependencies/azure/finder.ts";
import { FINDERS } from "../../shared/dependencies/azure/finders.ts";
import { keyVaultNames, ofVaultId } from "../../shared/dependencies/azure/key-vault-names.ts";
import { kubernetesCluster } from "../../shared/dependencies/azure/kubernetes-cluster.ts";
import { createAzureEdges } from "../../shared/dependencies/azure/source.ts";
import type { ReadingItem } from "../../shared/dependencies/edge-source.ts";
import { createAppConfigurationReferences } from "../../shared/platform/azure/app-configuration-references.ts";
import { createArm } from "../../shared/platform/azure/arm.ts";
import { CloudFailure } from "../../shared/platform/azure/failure.ts";
import { createResourceManager } from "../../shared/platform/azure/resource-manager.ts";
import { type OddServer, startOddServer } from "../azure/odd-server.ts";
import { failureOf, IMPATIENT, plainIdentity, recordingLog, testConfig } from "../azure/services.ts";

/** Answers that are not what the services document, and texts that people write where references belong. */

const UNIT = "5f0c3f5e-0000-4000-8000-000000000001";
const VERSION = "0123456789abcdef0123456789abcdef";
const names = keyVaultNames("vault.azure.net");

describe("a reference", () => {
  const whole = { vaultName: "kv-main", type: "secret", name: "db" };
  const pinned = { ...whole, version: VERSION };
  const uri = "https://kv-main.vault.azure.net/secrets/db";

  test.each([
    [`@Microsoft.KeyVault(SecretUri=${uri})`, whole],
    [`@Microsoft.KeyVault(SecretUri=${uri}/)`, whole],
    [
      `@microsoft.keyvault( secreturi = ${uri.toUpperCase().replace("DB", "db").replace("KV-MAIN", "kv-main")} )`,
      whole,
    ],
    [`@Microsoft.KeyVault(SecretUri=${uri}/${VERSION})`, pinned],
    ["@Microsoft.KeyVault(VaultName=kv-main;SecretName=db)", whole],
    [" @Microsoft.KeyVault( SecretName = db ; VaultName = kv-main ; )", whole],
    [`@Microsoft.KeyVault(VaultName=kv-main;SecretName=db;SecretVersion=${VERSION})`, pinned],
    ["@Microsoft.KeyVault(VaultName=kv-main;SecretName=db;SecretVersion=)", whole],
  ])("%s is read", (text, expected) => {
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
  ])("%s is none", (text) => {
    expect(names.ofReference(text)).toBeUndefined();
  });

  test("resource ids of vaults and their secrets are read, and no others", () => {
    const vault = `/subscriptions/${UNIT}/resourceGroups/rg/providers/microsoft.keyvault/vaults/kv-main`;
    expect(ofVaultId(vault)).toEqual({ vaultName: "kv-main" });
    expect(ofVaultId(`${vault}/secrets/db`)).toEqual(whole);
    for (const other of [`${vault}/keys/db`, `${vault}/..`, vault.replace("vaults", "managedHSMs"), `x${vault}`, {}]) {
      expect(ofVaultId(other)).toBeUndefined();
    }
  });
});

test("a finder returns uses or a cloud failure for any properties of a resource, and exposes none of their values", async () => {
  const nothing = { entries: [], unreadable: [] };
  const context = {
    names,
    appService: { references: async () => nothing },
    apiManagement: { namedValues: async () => nothing, certificates: async () => nothing },
    appConfiguration: { list: async () => [] },
    dataFactory: { linkedServices: async () => nothing },
    frontDoor: { secrets: async () => nothing },
    sql: { encryptionProtector: async () => ({ serverKeyType: "ServiceManaged", autoRotationEnabled: false }) },
    vaultOfConnection: async () => "kv-main",
    entitledTo: async () => [],
  } as unknown as FinderContext;
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
  const anything = fc.letrec((tie) => ({
    value: fc.oneof(
      { maxDepth: 6 },
      words,
      fc.constantFrom<unknown>(null, true, 3, ""),
      fc.array(tie("value"), { maxLength: 3 }),
      fc.dictionary(words, tie("value"), { maxKeys: 6 }),
    ),
  })).value;
  const reached = { read: 0, used: 0, refused: 0 };
  const row = {
    id: `/subscriptions/${UNIT}/resourceGroups/rg/providers/a.b/c/d`,
    name: "d",
    kind: "",
    tags: {},
    sku: "",
  };
  await fc.assert(
    fc.asyncProperty(fc.constantFrom(...FINDERS), anything, async (finder, properties) => {
      let found: Found;
      try {
        found = await finder.find({ ...row, type: finder.types[0]!, properties }, context);
      } catch (error) {
        if (!(error instanceof CloudFailure)) throw error;
        expect(error.message).not.toContain("hunter2");
        reached.refused++;
        return;
      }
      reached.read++;
      if (found.uses.length > 0) reached.used++;
      for (const { message } of found.failures ?? []) expect(message).not.toContain("hunter2");
    }),
    { numRuns: 3_000 },
  );
  expect(Math.min(reached.read, reached.refused)).toBeGreaterThan(100);
});

describe("over the wire", () => {
  let server: OddServer;
  const site = (name: string) => `/subscriptions/${UNIT}/resourceGroups/rg/providers/Microsoft.Web/sites/${name}`;
  beforeAll(async () => {
    server = await startOddServer();
  });
  afterAll(() => server.stop());

  /** Answers Resource Graph's queries with these rows, and all else by its path. */
  function answers(rows: unknown[], byPath: (path: string) => unknown = () => ({ value: [] })): void {
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
    server.answer((request, response) => void answer(request, response));
  }
  async function queryOf(request: IncomingMessage): Promise<string> {
    let text = "";
    for await (const chunk of request) text += chunk;
    return JSON.parse(text).query;
  }

  async function reading(since?: Date): Promise<ReadingItem[]> {
    const config = testConfig({
      AZURE_KEY_VAULT_SUFFIX: "vault.azure.net",
      AZURE_RESOURCE_MANAGER_ENDPOINT: `https://management.localhost:${server.port}`,
    });
    const services = { config, identity: plainIdentity, log: recordingLog(), limits: IMPATIENT };
    const source = createAzureEdges({
      config,
      clock: { now: () => new Date() },
      arm: createArm(services),
      appConfiguration: createAppConfigurationReferences(services),
      resourceManager: createResourceManager(services),
      watched: async () => ({ all: false, named: [UNIT] }),
    });
    const found: ReadingItem[] = [];
    for await (const one of source.read(UNIT, { since })) found.push(one);
    return found;
  }
  const row = (name: string, more: object = {}) => ({ id: site(name), type: "microsoft.web/sites", name, ...more });

  test("an odd row, an odd entry and a reference of 10,000 characters cost only themselves", async () => {
    const good = {
      name: "GOOD",
      properties: { reference: "@Microsoft.KeyVault(VaultName=kv-main;SecretName=db)", status: "Resolved" },
    };
    const entries: Record<string, unknown[]> = {
      fine: [good],
      bare: [{ name: "A", properties: {} }, good],
      odd: [{ id: "x" }, null, good],
      long: [{ name: "LONG", properties: { reference: `@Microsoft.KeyVault(SecretUri=${"x".repeat(10_000)})` } }, good],
    };
    answers(
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
        if (name === "gone" || name === "none") return 404;
        if (name === "bad") return 400;
        return { value: entries[name] ?? [] };
      },
    );
    const reported = await reading();
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
    expect(unseen.sort()).toEqual([
      [`/subscriptions/${UNIT}`, "badResponse"],
      [`/subscriptions/${UNIT}`, "badResponse"],
      [`/subscriptions/${UNIT}`, "badResponse"],
      [site("long"), "invalidReference"],
      [site("odd"), "badResponse"],
      [site("odd"), "badResponse"],
    ]);
    expect(JSON.stringify(reported)).not.toContain("xxxxx");
    // No id of another shape became a path.
    expect(server.requests.filter(({ url }) => /\.\.|%2E/i.test(url))).toEqual([]);
  });

  test("rows that are cut off, and pages that do not end, end the reading", async () => {
    const graph = (body: object) =>
      server.answer((request, response) => {
        const isGraph = request.url!.includes("Microsoft.ResourceGraph");
        response.writeHead(200, { "content-type": "application/json" });
        response.end(JSON.stringify(isGraph ? { data: [], ...body } : { value: [] }));
      });
    graph({ resultTruncated: "true" });
    expect((await failureOf(reading())).message).toContain("rows are missing");
    graph({ resultTruncated: "true", $skipToken: "again" });
    expect((await failureOf(reading())).message).toContain("do not end");
    graph({ data: "none" });
    expect((await failureOf(reading(new Date()))).code).toBe("badResponse");
  });

  test("links that leave the path of a list are not followed", async () => {
    const links = [`https://management.localhost:${server.port}/subscriptions/other?x=1`, "https://evil.example/steal"];
    for (const nextLink of links) {
      answers([row("fine")], (path) => (path.includes("configreferences") ? { value: [], nextLink } : { value: [] }));
      expect((await reading()).filter((one) => "notSeen" in one)).toMatchObject([{ notSeen: { scope: site("fine") } }]);
      expect(server.requests.some(({ url }) => url.includes("other"))).toBe(false);
    }
  });

  test("a store at an address outside App Configuration gets no token", async () => {
    const store = (endpoint: string) => ({
      id: `/subscriptions/${UNIT}/resourceGroups/rg/providers/Microsoft.AppConfiguration/configurationStores/one`,
      type: "microsoft.appconfiguration/configurationstores",
      name: "one",
      properties: { endpoint },
    });
    for (const endpoint of ["https://evil.example", "http://one.azconfig.io", "https://azconfig.io.evil.example", ""]) {
      answers([store(endpoint)]);
      expect((await reading()).filter((one) => "notSeen" in one)).toMatchObject([{ notSeen: { code: "foreignHost" } }]);
    }
  });
});

test("a cluster's pods may mount the secrets of a vault that they are entitled to, and no key or certificate", async () => {
  const entitled = [
    { asset: { vaultName: "kv-whole" }, role: "access policy" },
    { asset: { vaultName: "kv-all", type: "secret" }, role: "Key Vault Secrets User" },
    { asset: { vaultName: "kv-one", type: "secret", name: "db" }, role: "Key Vault Secrets User" },
    { asset: { vaultName: "kv-all", type: "key" }, role: "Key Vault Crypto User" },
    { asset: { vaultName: "kv-all", type: "certificate" }, role: "Key Vault Certificate User" },
  ] as const;
  const asked: string[] = [];
  const context = {
    names,
    entitledTo: async (id: string) => {
      asked.push(id);
      return entitled;
    },
  } as unknown as FinderContext;
  const clusterWith = (provider: object) =>
    kubernetesCluster.find(
      { properties: { addonProfiles: { azureKeyvaultSecretsProvider: provider } } } as never,
      context,
    );
  const identity = { objectId: UNIT };
  expect((await clusterWith({ enabled: true, identity })).uses).toEqual(
    entitled.slice(0, 3).map(({ asset, role }) => ({
      asset,
      evidence: `azureKeyvaultSecretsProvider/${role}`,
      refresh: { how: "blind" },
      strength: "entitled",
    })),
  );
  // A data factory that is disabled, or has no identity, is not queried.
  for (const provider of [{ enabled: false, identity }, { enabled: true }, { identity }])
    expect((await clusterWith(provider)).uses).toEqual([]);
  expect(asked).toEqual([UNIT]);
});
