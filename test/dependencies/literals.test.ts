import { TableClient, TableServiceClient } from "@azure/data-tables";
import type { Cloud } from "simulated-cloud/cloud.ts";
import type { CompanyResource } from "simulated-cloud/company/resources.ts";
import { parseTemplates } from "template-checks/check.ts";
import { readInfraFiles } from "template-checks/files.ts";
import { grantsOf } from "template-checks/grants.ts";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { dependencyView } from "../../shared/dependencies/api.ts";
import { candidatesIn, isComparable } from "../../shared/dependencies/literals/comparable-values.ts";
import { createLiteralSource } from "../../shared/dependencies/literals/source.ts";
import { createInventoryWriter } from "../../shared/inventory/write.ts";
import { createArm } from "../../shared/platform/azure/arm.ts";
import { createIdentity } from "../../shared/platform/azure/identity.ts";
import { createResourceManager } from "../../shared/platform/azure/resource-manager.ts";
import { createVaultSecrets } from "../../shared/platform/azure/vault-secrets.ts";
import type { Config } from "../../shared/platform/config/config.ts";
import { systemRandomness } from "../../shared/platform/runtime.ts";
import { createTables } from "../../shared/platform/storage/tables.ts";
import { startTestCloud } from "../azure/live-cloud.ts";
import { recordingLog, SHORT_WAITS } from "../azure/services.ts";
import { assetRecord, vaultRecord, writeVault } from "../inventory/write-assets.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import { Deployment, FIRST_1000 } from "./discovery-fixture.ts";

/**
 * Tests of the optional comparison of settings with secret values, against the simulated cloud. It finds copies: settings that
 * contain the value of a vault's secret instead of a reference.
 */

/** Subscription with the resources, and another one whose vault has a secret that is copied into the first. */
const SHOP = "aaaaaaaa-3333-4333-8333-333333333333";
const FAR = "bbbbbbbb-3333-4333-8333-333333333333";
/** Values of the secrets. Each contains a unique `Lq…`, so that the tests can search all outputs for it. */
const planted = {
  db: "planted-db-password-Lq1",
  hook: "https://hooks.acme.example/planted/Lq2",
  off: "planted-switched-off-Lq3",
  sealed: "planted-in-a-sealed-vault-Lq4",
  far: "planted-far-away-Lq5",
  /** The other key of the resource of which a secret stores a key. */
  otherKey: "planted-other-key-of-the-resource-Lq8",
  /** Values that are not compared, because they are too short or too regular and could be equal by chance. */
  short: "planted-Lq6",
  regular: "Lq7Lq7Lq7Lq7Lq7Lq7",
};

const site = (name: string, more: Partial<CompanyResource>): CompanyResource => ({
  type: "Microsoft.Web/sites",
  name,
  kind: "app,linux",
  identity: { system: true },
  ...more,
});
const company = {
  subscriptions: [
    {
      id: SHOP,
      name: "Shop",
      vaults: [
        {
          name: "kv-shop",
          secrets: [
            { name: "db", value: planted.db },
            { name: "hook", value: planted.hook },
            { name: "off", value: planted.off, enabled: false },
            { name: "short", value: planted.short },
            { name: "regular", value: planted.regular },
          ],
        },
        { name: "kv-sealed", reach: "denied" as const, secrets: [{ name: "sealed", value: planted.sealed }] },
      ],
      resources: [
        site("app-copies", {
          tags: { env: "prod" },
          settings: {
            DB_PASSWORD: planted.db,
            OTHER_KEY: planted.otherKey,
            BOTH_KEYS: `First=${planted.db};Second=${planted.otherKey};Again=${planted.db}`,
            FAR: planted.far,
            OFF: planted.off,
            SEALED: planted.sealed,
            SHORT: planted.short,
            REGULAR: planted.regular,
            REFERENCE: "@Microsoft.KeyVault(VaultName=kv-shop;SecretName=db)",
            OTHER: "nothing of a vault's",
          },
          connectionStrings: {
            Main: { value: `Server=tcp:sql.acme.example;User=app;Password=${planted.db};`, type: "SQLAzure" },
            Hooks: { value: planted.hook, type: "Custom" },
          },
          children: { slots: [{ name: "staging", settings: { HOOK: planted.hook } }] },
        }),
        site("app-plain", { settings: { REGION: "westeurope", URL: "https://shop.acme.example/orders" } }),
        site("app-denied", { settings: { DB_PASSWORD: planted.db }, denied: true }),
        {
          type: "Microsoft.App/containerApps",
          name: "ca-copies",
          properties: {
            configuration: { secrets: [{ name: "db", value: planted.db }] },
            template: {
              containers: [
                {
                  name: "web",
                  env: [
                    { name: "HOOK", value: planted.hook },
                    { name: "DB", secretRef: "db" },
                    { name: "MODE", value: "production" },
                  ],
                },
              ],
            },
          },
        },
        {
          type: "Microsoft.App/jobs",
          name: "job-copies",
          properties: { configuration: { secrets: [{ name: "broker", value: `amqps://app:${planted.db}@mq` }] } },
        },
      ],
    },
    { id: FAR, name: "Far", vaults: [{ name: "kv-far", secrets: [{ name: "far", value: planted.far }] }] },
  ],
};

let storage: TestStorage;
let cloud: Cloud;
let config: Config;
let account = 0;
let deployment: Deployment;
const log = recordingLog();

beforeAll(async () => {
  storage = await openStorage(Array.from({ length: 12 }, (_, index) => `literals${index}`));
  ({ cloud, config } = await startTestCloud({ company }));
});
afterAll(async () => {
  await cloud?.stop();
  await storage?.stop();
});
/** Starts a process with the comparison turned on. `units` are the subscriptions that the source reads. */
function start(change: Partial<Config> = {}, units = [SHOP, FAR]) {
  const services = { config, identity: createIdentity(config), log, limits: SHORT_WAITS };
  const source = createLiteralSource({
    config: { ...config, DEPENDENCY_LITERAL_SCAN: true, ...change },
    tables: createTables({ connectionString: deployment.connectionString }),
    arm: createArm(services),
    resourceManager: createResourceManager(services),
    vaults: createVaultSecrets(services),
    audit: { append: async (event) => void deployment.events.push(event) },
    randomness: systemRandomness(),
    units: async () => units,
    ownObjectId: async () => undefined,
    async *keysOfLinks() {
      yield {
        places: [{ vaultName: "kv-shop", secretName: "db" }],
        keys: [
          { name: "key1", value: planted.db },
          { name: "key2", value: planted.otherKey },
        ],
      };
    },
  });
  return deployment.start({ sources: [source] });
}
const run = (mode: "full" | "changes" = "full", process = start()) => deployment.run(mode, process);
const readEdges = async () => (await start().dependencies.list({}, FIRST_1000)).page.items;
/** Returns the found copies as `vault/secret resource setting`. */
const readCopies = async () =>
  (await readEdges()).map(({ edge }) => `${edge.vaultName}/${edge.name} ${edge.resource.name} ${edge.evidence}`).sort();
/** Returns the scopes that could not be read, with their codes. */
const readNotSeen = async () =>
  (await start().dependencies.coverage(FIRST_1000)).items
    .map(({ scope, code }) => `${scope.split("/").at(-1)} ${code}`)
    .sort();

const COPIES = [
  "kv-far/far app-copies appsettings/FAR",
  "kv-shop/db app-copies appsettings/BOTH_KEYS",
  "kv-shop/db app-copies appsettings/DB_PASSWORD",
  "kv-shop/db app-copies appsettings/OTHER_KEY",
  "kv-shop/db app-copies connectionstrings/Main",
  "kv-shop/db ca-copies secrets/db",
  "kv-shop/db job-copies secrets/broker",
  "kv-shop/hook app-copies connectionstrings/Hooks",
  "kv-shop/hook app-copies/staging appsettings/HOOK",
  "kv-shop/hook ca-copies env/web/HOOK",
];

describe("a discovery run", () => {
  beforeEach(async () => {
    const connectionString = storage.connectionString(`literals${account++}`);
    deployment = new Deployment(connectionString);
    const tables = createTables({ connectionString });
    const { port } = new URL(config.SERVICE_KEY_VAULT_URL!);
    for (const { id, vaults } of company.subscriptions) {
      for (const { name, secrets } of vaults) {
        const vaultUri = `https://${name}.${config.cloud.keyVaultSuffix}:${port}/`;
        const record = { ...vaultRecord(name, id), id: cloud.control.vaultId(name)!, vaultUri };
        const assets = secrets.map((one) =>
          assetRecord(record, "secret", one.name, { enabled: !("enabled" in one) || one.enabled }),
        );
        await writeVault(createInventoryWriter({ tables }), record, assets);
      }
    }
    cloud.control.resetCounts();
  });
  afterEach(() => {
    cloud.control.clearFaults();
    cloud.control.allowOnly(undefined);
  });

  test("finds the copies in each kind of setting", async () => {
    expect(await run()).toMatchObject({ status: "completed", units: 2, unitsFailed: 0 });
    expect(await readCopies()).toEqual(COPIES);
    for (const { edge } of await readEdges())
      expect(edge).toMatchObject({ strength: "references", refresh: { how: "willBreak" }, copy: true });
    // The other key of a resource is a copy too: the next rotation would regenerate it. A setting can contain both keys.
    const keyNames = (await readEdges())
      .filter(({ edge }) => edge.keyNames?.includes("key2"))
      .map(({ edge }) => `${edge.evidence} ${edge.keyNames!.join(" ")}`);
    expect(keyNames.sort()).toEqual(["appsettings/BOTH_KEYS key1 key2", "appsettings/OTHER_KEY key2"]);
    const [first] = await start()
      .dependencies.list({ asset: { vaultName: "kv-far", type: "secret", name: "far" } }, FIRST_1000)
      .then(({ page }) => page.items);
    expect(dependencyView(first!)).toMatchObject({
      secret: "kv-far.secret.far",
      copy: true,
      resource: { kind: "webApp", environment: "prod", subscriptionId: SHOP },
    });
    expect(await readNotSeen()).toEqual(["app-denied accessDenied", `${FAR} nothingListed`, "kv-sealed accessDenied"]);
  });

  test("reads each value once, and does not store or log it", async () => {
    await run();
    const readSecrets = cloud.control
      .requests({ operation: "keyvault.getSecret" })
      .map(({ path }) => path.split("/")[2]);
    expect(readSecrets.sort()).toEqual(["db", "far", "hook", "regular", "sealed", "short"]);
    const auditEvents = deployment.events.filter(({ type }) => type === "dependencies.valuesRead");
    expect(auditEvents.map(({ outcome }) => outcome)).toEqual(["intent", "success"]);
    // Five readable secrets and the two keys of the resource. "short" and "regular" are left out; "kv-sealed" is not readable.
    expect(auditEvents[1]!.details).toEqual({ vaults: 3, values: 7, leftOut: 2, vaultsNotRead: 1 });
    const texts = [
      ...log.lines,
      ...(await readAllRows()),
      JSON.stringify([
        deployment.messages,
        deployment.events,
        await readEdges(),
        (await start().dependencies.coverage(FIRST_1000)).items,
      ]),
    ];
    expect(texts.some((text) => text.includes("app-copies"))).toBe(true);
    for (const value of Object.values(planted))
      for (const form of [value, Buffer.from(value).toString("base64").replace(/=+$/, ""), encodeURIComponent(value)])
        expect(texts.filter((text) => text.includes(form))).toEqual([]);
  });

  test("reads no values of a subscription that is no longer watched", async () => {
    await run("full", start({}, [SHOP]));
    expect(await readCopies()).toEqual(COPIES.filter((one) => !one.startsWith("kv-far")));
    const read = cloud.control.requests({ operation: "keyvault.getSecret" }).map(({ vault }) => vault);
    expect([...new Set(read)].sort()).toEqual(["kv-sealed", "kv-shop"]);
  });

  test("keeps known copies while values can't be read, and deletes a copy that became a reference", async () => {
    await run();
    cloud.control.addFault({
      match: { operation: "keyvault.getSecret", vault: "kv-shop" },
      action: { kind: "fail", status: 500 },
    });
    expect(await run()).toMatchObject({ status: "completed" });
    expect(await readCopies()).toEqual(COPIES);
    expect(await readNotSeen()).toContain("kv-shop unreachable");
    cloud.control.clearFaults();
    const id = cloud.control.consumers.idOf("app-copies");
    cloud.control.consumers.changeSettings(id, { DB_PASSWORD: "@Microsoft.KeyVault(VaultName=kv-shop;SecretName=db)" });
    await run();
    expect(await readCopies()).toEqual(COPIES.filter((one) => !one.endsWith("DB_PASSWORD")));
    cloud.control.consumers.changeSettings(id, { DB_PASSWORD: planted.db });
  });

  test("that reads only changes makes no request", async () => {
    await run();
    cloud.control.resetCounts();
    expect(await run("changes")).toMatchObject({ status: "completed", changed: 0 });
    expect(cloud.control.counts()).toEqual({ total: 0 });
    expect(await readCopies()).toEqual(COPIES);
  });

  test("with the comparison turned off makes no request and deletes known copies", async () => {
    await run();
    cloud.control.resetCounts();
    // Two runs, because the second one finds the coverage item of the first.
    for (let count = 0; count < 2; count++) {
      expect(await run("full", start({ DEPENDENCY_LITERAL_SCAN: false }))).toMatchObject({
        status: "completed",
        edges: 0,
      });
      expect(await readNotSeen()).toEqual(["literals switchedOff"]);
    }
    expect(cloud.control.counts()).toEqual({ total: 0 });
    await run();
    expect(await readNotSeen()).not.toContain("literals switchedOff");
  });

  test("needs exactly the permissions of the optional roles in the templates", async () => {
    const { bicep } = await parseTemplates(readInfraFiles());
    const grants = grantsOf(bicep);
    const optionalGrants = grants.filter(({ scope }) => scope === "compared");
    expect(optionalGrants.map(({ role }) => role).sort()).toEqual([
      "Key Vault Secrets User",
      "literalScannerDefinition",
    ]);
    const custom = optionalGrants.find(({ role }) => role === "literalScannerDefinition")!;
    const onBothSubscriptions = (some: typeof grants) =>
      [SHOP, FAR].flatMap((id) => some.map((grant) => ({ ...grant, scope: `/subscriptions/${id}` })));
    const watched = grants.filter(({ scope }) => scope === "watched");
    cloud.control.allowOnly(onBothSubscriptions([...watched, ...optionalGrants]));
    expect(await run()).toMatchObject({ status: "completed" });
    expect(await readCopies()).toEqual(COPIES);
    for (const action of custom.actions) {
      const actions = custom.actions.filter((one) => one !== action);
      cloud.control.allowOnly(
        onBothSubscriptions([...watched, ...optionalGrants.filter((one) => one !== custom), { ...custom, actions }]),
      );
      await run();
      // Three scopes can't be read even with all permissions: see the first test.
      expect((await readNotSeen()).length, action).toBeGreaterThan(3);
    }
    cloud.control.allowOnly(onBothSubscriptions(watched));
    await run();
    expect(await readNotSeen()).toEqual(expect.arrayContaining(["kv-shop accessDenied", "app-copies accessDenied"]));
    const parameter = bicep
      .get("infra/azure/main.bicep")!
      .parameters.find(({ name }) => name === "literalScanSubscriptionIds");
    expect(parameter?.defaultValue).toMatchObject({ kind: "array", items: [] });
  });
});

describe("comparable values", () => {
  test.each([
    ["planted-db-1", true],
    ["planted-db-", false],
    ["aaaaaaaaaaaaaaaaaaaaaaaa", false],
    ["abababababababababababab", false],
    ["0000000000001", false],
    ["8f14e45fceea", true],
  ])("include the value %s: %s", (value, expected) => {
    expect(isComparable(value)).toBe(expected);
  });

  test.each([
    ["AccountName=acme;AccountKey=c2VjcmV0LXZhbHVl==;", "c2VjcmV0LXZhbHVl=="],
    ['Server=x;Pwd="planted-quoted-1"', "planted-quoted-1"],
    ["postgres://app:p%40ss-word-1234@db:5432/shop", "p@ss-word-1234"],
    ["amqps://app:100%-planted-word@mq", "100%-planted-word"],
    ["  planted-with-space  ", "planted-with-space"],
  ])("of the setting %s include %s", (setting, value) => {
    expect(candidatesIn(setting)).toContain(value);
  });
});

/** Returns all rows of all tables as text, including binary columns. */
async function readAllRows(): Promise<string[]> {
  const options = { allowInsecureConnection: true };
  const all: string[] = [];
  for await (const { name } of TableServiceClient.fromConnectionString(
    deployment.connectionString,
    options,
  ).listTables()) {
    const client = TableClient.fromConnectionString(deployment.connectionString, name!, options);
    for await (const row of client.listEntities())
      all.push(
        Object.entries(row)
          .map(([, value]) => (value instanceof Uint8Array ? Buffer.from(value).toString("latin1") : String(value)))
          .join(" "),
      );
  }
  return all;
}
