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
import { liveIn } from "../azure/live-cloud.ts";
import { IMPATIENT, recordingLog } from "../azure/services.ts";
import { assetRecord, vaultRecord, writeVault } from "../inventory/write-assets.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import { Deployment, everything } from "./discovery-fixture.ts";

/** Copies of secrets in settings, over the wires of the stand-in cloud. */

const SHOP = "aaaaaaaa-3333-4333-8333-333333333333";
const FAR = "bbbbbbbb-3333-4333-8333-333333333333";
const planted = {
  db: "planted-db-password-Lq1",
  hook: "https://hooks.acme.example/planted/Lq2",
  off: "planted-switched-off-Lq3",
  sealed: "planted-in-a-sealed-vault-Lq4",
  far: "planted-far-away-Lq5",
  /** Too short, and too regular: equal by chance. */
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
  ({ cloud, config } = await liveIn({ company }));
});
afterAll(async () => {
  await cloud?.stop();
  await storage?.stop();
});
function start(change: Partial<Config> = {}, units = [SHOP, FAR]) {
  const services = { config, identity: createIdentity(config), log, limits: IMPATIENT };
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
  });
  return deployment.start({ sources: [source] });
}
const run = (mode: "full" | "changes" = "full", process = start()) => deployment.run(mode, process);
const edges = async () => (await start().fixture.list({}, everything)).page.items;
const lines = async () =>
  (await edges()).map(({ edge }) => `${edge.vaultName}/${edge.name} ${edge.resource.name} ${edge.evidence}`).sort();
const notSeen = async () =>
  (await start().fixture.coverage(everything)).items
    .map(({ scope, code }) => `${scope.split("/").at(-1)} ${code}`)
    .sort();

const COPIES = [
  "kv-far/far app-copies appsettings/FAR",
  "kv-shop/db app-copies appsettings/DB_PASSWORD",
  "kv-shop/db app-copies connectionstrings/Main",
  "kv-shop/db ca-copies secrets/db",
  "kv-shop/db job-copies secrets/broker",
  "kv-shop/hook app-copies connectionstrings/Hooks",
  "kv-shop/hook app-copies/staging appsettings/HOOK",
  "kv-shop/hook ca-copies env/web/HOOK",
];

describe("a reading", () => {
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

  test("copies are found in each kind of setting, other values are not, and missing permissions are reported", async () => {
    expect(await run()).toMatchObject({ status: "completed", units: 2, unitsFailed: 0 });
    expect(await lines()).toEqual(COPIES);
    for (const { edge } of await edges())
      expect(edge).toMatchObject({ strength: "references", refresh: { how: "willBreak" }, copy: true });
    const [first] = await start()
      .fixture.list({ place: { vaultName: "kv-far", type: "secret", name: "far" } }, everything)
      .then(({ page }) => page.items);
    expect(dependencyView(first!)).toMatchObject({
      secret: "kv-far.secret.far",
      copy: true,
      resource: { kind: "webApp", environment: "prod", subscriptionId: SHOP },
    });
    expect(await notSeen()).toEqual(["app-denied accessDenied", `${FAR} nothingListed`, "kv-sealed accessDenied"]);
  });

  test("the values are read once in a run, which the audit log says, and come out nowhere", async () => {
    await run();
    const read = cloud.control.requests({ operation: "keyvault.getSecret" }).map(({ path }) => path.split("/")[2]);
    expect(read.sort()).toEqual(["db", "far", "hook", "regular", "sealed", "short"]);
    const reported = deployment.events.filter(({ type }) => type === "dependencies.valuesRead");
    expect(reported.map(({ outcome }) => outcome)).toEqual(["intent", "success"]);
    expect(reported[1]!.details).toEqual({ vaults: 3, values: 5, leftOut: 2, vaultsNotRead: 1 });
    const texts = [
      ...log.lines,
      ...(await rows()),
      JSON.stringify([
        deployment.messages,
        deployment.events,
        await edges(),
        (await start().fixture.coverage(everything)).items,
      ]),
    ];
    expect(texts.some((text) => text.includes("app-copies"))).toBe(true);
    for (const value of Object.values(planted))
      for (const form of [value, Buffer.from(value).toString("base64").replace(/=+$/, ""), encodeURIComponent(value)])
        expect(texts.filter((text) => text.includes(form))).toEqual([]);
  });

  test("no value is read of a subscription that is not watched any more", async () => {
    await run("full", start({}, [SHOP]));
    expect(await lines()).toEqual(COPIES.filter((one) => !one.startsWith("kv-far")));
    const read = cloud.control.requests({ operation: "keyvault.getSecret" }).map(({ vault }) => vault);
    expect([...new Set(read)].sort()).toEqual(["kv-sealed", "kv-shop"]);
  });

  test("a copy that became a reference is deleted, and known copies stay while values can't be read", async () => {
    await run();
    cloud.control.addFault({
      match: { operation: "keyvault.getSecret", vault: "kv-shop" },
      action: { kind: "fail", status: 500 },
    });
    expect(await run()).toMatchObject({ status: "completed" });
    expect(await lines()).toEqual(COPIES);
    expect(await notSeen()).toContain("kv-shop unreachable");
    cloud.control.clearFaults();
    const id = cloud.control.consumers.idOf("app-copies");
    cloud.control.consumers.changeSettings(id, { DB_PASSWORD: "@Microsoft.KeyVault(VaultName=kv-shop;SecretName=db)" });
    await run();
    expect(await lines()).toEqual(COPIES.filter((one) => !one.endsWith("DB_PASSWORD")));
    cloud.control.consumers.changeSettings(id, { DB_PASSWORD: planted.db });
  });

  test("a reading of changes reads no value and no setting", async () => {
    await run();
    cloud.control.resetCounts();
    expect(await run("changes")).toMatchObject({ status: "completed", changed: 0 });
    expect(cloud.control.counts()).toEqual({ total: 0 });
    expect(await lines()).toEqual(COPIES);
  });

  test("when turned off it makes no request, reports that, and deletes known copies", async () => {
    await run();
    cloud.control.resetCounts();
    for (const _ of ["twice", "is the same"]) {
      expect(await run("full", start({ DEPENDENCY_LITERAL_SCAN: false }))).toMatchObject({
        status: "completed",
        edges: 0,
      });
      expect(await notSeen()).toEqual(["literals switchedOff"]);
    }
    expect(cloud.control.counts()).toEqual({ total: 0 });
    await run();
    expect(await notSeen()).not.toContain("literals switchedOff");
  });

  test("the optional roles of the templates are sufficient, have no other permissions, and are assigned only if subscriptions are named", async () => {
    const { bicep } = await parseTemplates(readInfraFiles());
    const grants = grantsOf(bicep);
    const given = grants.filter(({ scope }) => scope === "compared");
    expect(given.map(({ role }) => role).sort()).toEqual(["Key Vault Secrets User", "literalScannerDefinition"]);
    const custom = given.find(({ role }) => role === "literalScannerDefinition")!;
    const on = (of: typeof grants) =>
      [SHOP, FAR].flatMap((id) => of.map((grant) => ({ ...grant, scope: `/subscriptions/${id}` })));
    const watched = grants.filter(({ scope }) => scope === "watched");
    cloud.control.allowOnly(on([...watched, ...given]));
    expect(await run()).toMatchObject({ status: "completed" });
    expect(await lines()).toEqual(COPIES);
    for (const action of custom.actions) {
      const actions = custom.actions.filter((one) => one !== action);
      cloud.control.allowOnly(on([...watched, ...given.filter((one) => one !== custom), { ...custom, actions }]));
      await run();
      expect((await notSeen()).length, action).toBeGreaterThan(3);
    }
    cloud.control.allowOnly(on(watched));
    await run();
    expect(await notSeen()).toEqual(expect.arrayContaining(["kv-shop accessDenied", "app-copies accessDenied"]));
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
  ])("%s: %s", (value, reports) => {
    expect(isComparable(value)).toBe(reports);
  });

  test.each([
    ["AccountName=acme;AccountKey=c2VjcmV0LXZhbHVl==;", "c2VjcmV0LXZhbHVl=="],
    ['Server=x;Pwd="planted-quoted-1"', "planted-quoted-1"],
    ["postgres://app:p%40ss-word-1234@db:5432/shop", "p@ss-word-1234"],
    ["amqps://app:100%-planted-word@mq", "100%-planted-word"],
    ["  planted-with-space  ", "planted-with-space"],
  ])("in %s stands %s", (setting, value) => {
    expect(candidatesIn(setting)).toContain(value);
  });
});

/** Every row of every table, binary columns as text too. */
async function rows(): Promise<string[]> {
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
