import { hash } from "node:crypto";
import { TABLES, type VaultEvent, type Workspace } from "simulated-cloud/logs/workspaces.ts";
import { parseTemplates } from "template-checks/check.ts";
import { readInfraFiles } from "template-checks/files.ts";
import { grantsOf } from "template-checks/grants.ts";
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import { createUsageNotices } from "../../shared/alerts/usage-notices.ts";
import type { EdgeSource, ReadingItem } from "../../shared/dependencies/edge-source.ts";
import { createLogs } from "../../shared/dependencies/logs/logs.ts";
import type { UnexpectedReader } from "../../shared/dependencies/logs/rows.ts";
import {
  ASSET_USES,
  AssetUses,
  FENCE_KEY,
  UsageFences,
  under,
  WORKSPACES,
  WorkspaceRows,
} from "../../shared/dependencies/logs/rows.ts";
import { nameOfReader } from "../../shared/dependencies/logs/unexpected-readers.ts";
import type { CallLimits } from "../../shared/platform/azure/calls.ts";
import { createIdentity } from "../../shared/platform/azure/identity.ts";
import { createLogAnalytics } from "../../shared/platform/azure/log-analytics.ts";
import { createVaultSecrets } from "../../shared/platform/azure/vault-secrets.ts";
import type { Config } from "../../shared/platform/config/config.ts";
import { systemRandomness } from "../../shared/platform/runtime.ts";
import { createTables, type Tables } from "../../shared/platform/storage/tables.ts";
import { DAY_MS, HOUR_MS, MINUTE_MS } from "../../shared/platform/time.ts";
import { configFor, startTestCloud } from "../azure/live-cloud.ts";
import { recordingLog, SHORT_WAITS } from "../azure/services.ts";
import { crashable, SimulatedCrash, type Steps } from "../support/simulated-crash.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import { startTableProxy } from "../support/table-proxy.ts";
import { app, Deployment, FIRST_1000 } from "./discovery-fixture.ts";

// Tests readers of secrets that the service finds in the vaults' logs, with real tables and the simulated Log Analytics. The logs
// are a source of dependencies. Each of its units is a workspace, and each reader is an edge (dependency) of strength "observed".
// The company's workspaces: "law-operations" has resource-specific tables, "law-former" has the legacy table AzureDiagnostics.

const VAULT = "kv-observed";
const READER = "33333333-3333-4333-8333-333333333333";
const OTHER_READER = "44444444-4444-4444-8444-444444444444";
const VALUE = "the-value-that-nobody-may-see-7Q";
let live: Awaited<ReturnType<typeof startTestCloud>>;
let storage: TestStorage;
const ACCOUNTS = Array.from({ length: 46 }, (_, index) => `logs${index}`);
let accounts = 0;
const control = () => live.cloud.control;
const now = () => Date.parse(control().now());
const workspace = (): Workspace => control().logs.getOrThrow("law-operations");
const log = recordingLog();

beforeAll(async () => {
  storage = await openStorage([...ACCOUNTS]);
  const vaults = [{ name: VAULT, secrets: [{ name: "db", value: VALUE }, { name: "api" }] }];
  const subscriptions = [{ id: "11111111-1111-4111-8111-111111111111", name: "Shop", vaults }];
  live = await startTestCloud({ company: { subscriptions } });
});
afterAll(async () => {
  await live.cloud.stop();
  await storage.stop();
});
beforeEach(() => {
  control().clearFaults();
  secrets = [];
  changed = [];
  control().resetCounts();
  for (const one of control().logs.all) Object.assign(one, { events: [], delayMilliseconds: 0, volume: undefined });
  // Each test starts on its own day, in the middle of an hour, so that it does not reach the next hour.
  control().moveClock(2 * DAY_MS + 12.5 * HOUR_MS - (now() % DAY_MS));
});

/** The vault's secrets in the inventory. */
let secrets: { asset: { name: string; enabled: boolean; createdOn: number } }[] = [];
/** Calls that tell compliance which secrets became used or unused: the vault's name, followed by its assets. */
let changed: string[][] = [];

/** Creates a storage account. `start` returns the module as one instance of the service has it. */
function createInstances({
  ids = [workspace().id],
  config = live.config,
  limits = SHORT_WAITS,
  connectionString = storage.connectionString(ACCOUNTS[accounts++]!),
}: {
  ids?: string[];
  config?: Config;
  limits?: Partial<CallLimits>;
  connectionString?: string;
} = {}) {
  const configWithWorkspaces = { ...config, LOG_ANALYTICS_WORKSPACE_IDS: ids };
  const identity = createIdentity(configWithWorkspaces);
  const clock = { now: () => new Date(now()) };
  const tables = createTables({ connectionString });
  const start = (steps?: Steps) =>
    createLogs({
      tables: steps ? crashingTables(tables, steps) : tables,
      config: configWithWorkspaces,
      logAnalytics: createLogAnalytics({ config: configWithWorkspaces, identity, log, limits }),
      ownObjectId: async () => (await identity.describe()).objectId,
      settings: { values: async () => ({ unusedSecretDays: 5 }) },
      inventory: {
        moment: async () => ({ now: now(), criticalDays: 7, warningDays: 30 }),
        assets: {
          list: async () => ({ items: secrets as never[], limit: 1000, offset: 0, total: 0, nextCursor: null }),
        },
      },
      unusedChanged: async (vaultName, assets) => void changed.push([vaultName, ...assets.sort()]),
      clock,
      randomness: systemRandomness(),
    });
  return { start, tables, connectionString };
}

const WRITES = new Set(["insert", "put", "replace", "take", "write"]);

/** Returns the tables of a process that crashes at one of its writes. */
function crashingTables(tables: Tables, steps: Steps): Tables {
  const counted = (method: string) => WRITES.has(method);
  return {
    ...crashable(tables, steps, counted),
    fence: (...args) => crashable(tables.fence(...args), steps, counted),
  };
}

/** Reads a workspace and returns the reported items. */
async function readWorkspace(source: EdgeSource, unit = workspace().id): Promise<ReadingItem[]> {
  const items: ReadingItem[] = [];
  for await (const item of source.read(unit, {})) items.push(item);
  return items;
}
const edgesIn = (all: readonly ReadingItem[]) => all.flatMap((one) => ("edges" in one ? one.edges : []));
const notSeenIn = (all: readonly ReadingItem[]) => all.flatMap((one) => ("notSeen" in one ? [one.notSeen.code] : []));
const db = { vaultName: VAULT, type: "secret", name: "db" } as const;
const countQueries = () => control().counts()["loganalytics.query"] ?? 0;
const vaultUrl = () =>
  `https://${VAULT}.${live.config.cloud.keyVaultSuffix}:${new URL(live.config.SERVICE_KEY_VAULT_URL!).port}`;

/** Adds an event to the log: by default, `READER` read the secret `db` a minute ago. */
const logRead = (more: Partial<VaultEvent> & { secret?: string; version?: string } = {}) => {
  const { secret = "db", version = "a".repeat(32), ...event } = more;
  control().logs.addEvent(event.table === "AzureDiagnostics" ? "law-former" : "law-operations", {
    table: "AZKVAuditLogs",
    at: now() - MINUTE_MS,
    operation: "SecretGet",
    vaultId: control().vaultId(VAULT)!,
    id: `${vaultUrl()}/secrets/${secret}/${version}`,
    requestUri: `${vaultUrl()}/secrets/${secret}?api-version=7.4`,
    status: 200,
    objectId: READER,
    appId: READER,
    ...event,
  });
};

test("a reader is reported with the version that it read, but the service's own reads are not", async () => {
  const logs = createInstances().start();
  const application = { ...configFor(live.cloud, live.cloud.app.clientSecret), LOG_ANALYTICS_WORKSPACE_IDS: [] };
  const services = { log, limits: SHORT_WAITS };
  const vaultUri = `${vaultUrl()}/`;
  for (const config of [live.config, application])
    await createVaultSecrets({ ...services, config, identity: createIdentity(config) })
      .open({ name: VAULT, vaultUri })
      .read("db");
  const { version } = control()
    .items(VAULT, "secrets")
    .find(({ name }) => name === "db")!;
  const found = await readWorkspace(logs.source);
  expect(edgesIn(found)).toEqual([
    expect.objectContaining({
      ...db,
      strength: "observed",
      evidence: "SecretGet",
      // The service can't make a reader load a new value, nor see which value it uses.
      refresh: { how: "blind" },
      lastReadOn: control().now().slice(0, 10),
      resource: expect.objectContaining({ id: `entra/${live.cloud.app.objectId}`, kind: "principal" }),
    }),
  ]);
  const usage = await logs.usage.ofAsset(db);
  expect(usage.readers).toEqual([
    expect.objectContaining({
      id: live.cloud.app.objectId,
      uses: 1,
      versions: [{ version, lastAt: usage.lastAt }],
    }),
  ]);
  expect(usage.logs).toEqual([expect.objectContaining({ failure: undefined, vaultSince: expect.any(String) })]);
  expect(JSON.stringify([found, usage, log.lines])).not.toContain(VALUE);
});

test("only successful reads of the vault's secrets count, in both tables of vault events", async () => {
  const legacy = control().logs.getOrThrow("law-former");
  const logs = createInstances({ ids: [workspace().id, legacy.id] }).start();
  logRead();
  logRead({ table: "AzureDiagnostics", userName: "ada@acme.example", objectId: OTHER_READER });
  logRead({ status: 403, objectId: "55555555-5555-4555-8555-555555555555" });
  logRead({ operation: "SecretList", id: "" });
  logRead({ id: "https://kv-observed.evil.example/secrets/db/1" });
  logRead({ objectId: "", appId: "" });
  const found = [...(await readWorkspace(logs.source)), ...(await readWorkspace(logs.source, legacy.id))];
  expect(edgesIn(found).map(({ resource }) => resource.name)).toEqual([READER, "ada@acme.example"]);
  expect((await logs.usage.ofAsset(db)).readers.map(({ id, userName }) => [id, userName]).sort()).toEqual([
    [READER, undefined],
    [OTHER_READER, "ada@acme.example"],
  ]);
});

test("a reader in several workspaces has the name of its last read", async () => {
  const legacy = control().logs.getOrThrow("law-former");
  const logs = createInstances({ ids: [workspace().id, legacy.id] }).start();
  const at = now() - MINUTE_MS;
  logRead({ objectId: OTHER_READER, userName: "ada.before@acme.example", at: at - MINUTE_MS });
  logRead({ table: "AzureDiagnostics", objectId: OTHER_READER, userName: "ada@acme.example", at });
  for (const unit of [workspace().id, legacy.id]) await readWorkspace(logs.source, unit);
  const lastAt = new Date(at).toISOString();
  expect(await logs.usage.ofAsset(db)).toMatchObject({
    lastAt,
    readers: [{ id: OTHER_READER, userName: "ada@acme.example", lastAt }],
  });
});

test("a day with two million log rows costs 24 queries, also with failures and two instances", async () => {
  const { start } = createInstances();
  const instances = [start(), start()];
  control().moveClock(DAY_MS - (now() % DAY_MS));
  const volume = {
    rowsPerDay: 2_000_000,
    vaultId: control().vaultId(VAULT)!,
    vaultUri: vaultUrl(),
    secrets: 8,
    readers: 5,
  };
  Object.assign(workspace(), { volume, delayMilliseconds: 2 * HOUR_MS });
  // The time of an event that reaches the log late.
  const late = now() + 3 * HOUR_MS;
  for (let hour = 0; hour < 24; hour++) {
    if (hour === 3) logRead({ at: late, objectId: OTHER_READER });
    if (hour === 5 || hour === 6)
      control().addFault({ match: { operation: "loganalytics.query" }, action: { kind: "throttle" }, times: 1 });
    if (hour === 8)
      control().addFault({
        match: { operation: "loganalytics.query" },
        action: { kind: "refuse", as: "partial" },
        times: 1,
      });
    // A workspace is queried once an hour, also if the query fails. Further reads in that hour repeat the failure.
    for (const minute of hour === 5 || hour === 8 ? [0, 20] : [0]) {
      const all = await Promise.all(instances.map(({ source }) => readWorkspace(source)));
      if (hour === 5 && minute === 20) expect(notSeenIn(all.flat())).toEqual(["throttled", "throttled"]);
      if (hour === 8 && minute === 20) expect(notSeenIn(all.flat())).toEqual(["incomplete", "incomplete"]);
      if (minute === 0) control().moveClock(20 * MINUTE_MS);
    }
    control().moveClock(40 * MINUTE_MS);
  }
  expect(countQueries()).toBe(24);
  expect(notSeenIn(await readWorkspace(instances[0]!.source))).toEqual([]);
  const [reader] = (await instances[0]!.usage.ofAsset({ ...db, name: "generated-3" })).readers;
  // Each row counts once although the same days are queried 24 times. Each of the 40 pairs of a secret and a reader has 50,000
  // rows a day on eight days: the day itself and the seven days before it, which the first query includes.
  expect(reader!.uses).toBeGreaterThan(7.8 * 50_000);
  expect(reader!.uses).toBeLessThanOrEqual(8 * 50_000);
  expect((await instances[0]!.usage.ofAsset(db)).readers).toEqual([
    expect.objectContaining({ id: OTHER_READER, uses: 1 }),
  ]);
});

test("the period of a partial response is queried again", async () => {
  const logs = createInstances().start();
  for (let index = 0; index < 9; index++) logRead({ secret: `s-${index}` });
  control().addFault({
    match: { operation: "loganalytics.query" },
    action: { kind: "refuse", as: "partial" },
    times: 1,
  });
  const partial = await readWorkspace(logs.source);
  expect(edgesIn(partial).length).toBeLessThan(9);
  expect(notSeenIn(partial)).toEqual(["incomplete"]);
  expect((await logs.usage.ofAsset(db)).logs).toEqual([
    expect.objectContaining({ readTo: undefined, failure: expect.objectContaining({ code: "incomplete" }) }),
  ]);
  // Past midnight: the next query is on another day, and still includes the period of the partial response.
  control().moveClock(12 * HOUR_MS);
  expect(edgesIn(await readWorkspace(logs.source)).length).toBe(9);
});

test("a workspace that can't be queried is reported as not seen, and its known readers stay", async () => {
  const logs = createInstances({ limits: { ...SHORT_WAITS, requestTimeoutMs: 2_000 } }).start();
  logRead();
  expect(edgesIn(await readWorkspace(logs.source))).toHaveLength(1);
  const faults = [
    [{ kind: "deny" }, "accessDenied"],
    [{ kind: "garbage", as: "html" }, "badResponse"],
    [{ kind: "hang" }, "unreachable"],
    [{ kind: "fail", status: 504 }, "timedOut"],
  ] as const;
  for (const [action, code] of faults) {
    control().moveClock(HOUR_MS);
    control().addFault({ match: { operation: "loganalytics.query" }, action, times: 1 });
    const all = await readWorkspace(logs.source);
    expect(edgesIn(all)).toHaveLength(1);
    expect(notSeenIn(all)).toEqual([code]);
  }
  // A throttled workspace is not queried until the time in its Retry-After header.
  control().moveClock(HOUR_MS);
  control().resetCounts();
  const throttle = { kind: "throttle", retryAfterSeconds: 5400 } as const;
  control().addFault({ match: { operation: "loganalytics.query" }, action: throttle, times: 1 });
  for (const [codes, count] of [
    [["throttled"], 1],
    [["throttled"], 1],
    [[], 2],
  ] as const) {
    expect([notSeenIn(await readWorkspace(logs.source)), countQueries()]).toEqual([codes, count]);
    control().moveClock(HOUR_MS);
  }
  const unknown = createInstances({ ids: ["99999999-9999-4999-8999-999999999999"] }).start();
  expect(notSeenIn(await readWorkspace(unknown.source, "99999999-9999-4999-8999-999999999999"))).toEqual(["notFound"]);
  const none = createInstances({ ids: [] }).start();
  expect([none.source.off?.code, await none.source.units()]).toEqual(["notConfigured", []]);
});

test.each([
  [2, 2],
  [3, 1],
])(
  // The third failure shortens the queried period, so that the read four days ago is no longer part of it.
  "after %i consecutive failures, the next query finds %i of two reads, one today and one four days ago",
  async (failures, found) => {
    const logs = createInstances().start();
    logRead();
    logRead({ secret: "api", at: now() - 4 * DAY_MS });
    for (let failed = 0; failed < failures; failed++) {
      control().addFault({
        match: { operation: "loganalytics.query" },
        action: { kind: "fail", status: 504 },
        times: 1,
      });
      expect(notSeenIn(await readWorkspace(logs.source))).toEqual(["timedOut"]);
      control().moveClock(HOUR_MS);
    }
    expect(edgesIn(await readWorkspace(logs.source))).toHaveLength(found);
  },
);

// The worker's write is applied but its response is lost, so the worker repeats the write. Before the repetition, another worker
// takes the workspace's fence: the row whose ETag each write must name, so that a write of an earlier worker fails. In the first
// case, it was a delayed request of an earlier worker, so the worker takes the fence again and writes. In the second case, a later
// worker has also claimed the workspace by changing its row, so the worker gives up.
test.each([
  ["the worker writes again if the workspace is unchanged", false],
  ["the worker does not write if a later worker has changed the workspace", true],
])("after a lost response and a fence that another worker took: %s", async (_, isClaimedByLaterWorker) => {
  const proxy = await startTableProxy(storage.connectionString(ACCOUNTS[accounts++]!));
  const { start, tables } = createInstances({ connectionString: proxy.connectionString });
  logRead();
  let sent = 0;
  proxy.fail(["LostAnswer"], ({ path }) => path === "$batch");
  proxy.before(
    async () => {
      if (isClaimedByLaterWorker) {
        const row = (await tables.get(WorkspaceRows, WORKSPACES, workspace().id))!;
        await tables.replace(WorkspaceRows, { ...row, failures: 7 });
      }
      await tables.fence(UsageFences, workspace().id, FENCE_KEY, { owner: "late", etag: undefined }).take();
    },
    ({ path }) => path === "$batch" && ++sent === 2,
  );
  const found = edgesIn(await readWorkspace(start().source));
  const row = await tables.get(WorkspaceRows, WORKSPACES, workspace().id);
  await proxy.stop();
  expect([found.length, row?.readTo, row?.failures]).toEqual(
    isClaimedByLaterWorker ? [0, undefined, 7] : [1, expect.any(String), 0],
  );
  expect(countQueries()).toBe(1);
});

test.each([
  [{ userName: "ada@acme.example", name: "Ada" }, "ada@acme.example"],
  [{ name: "shop" }, "shop"],
  [{ identityOf: "/subscriptions/s1/resourcegroups/r/providers/microsoft.web/sites/shop" }, "shop"],
  [{}, READER],
])("the name of reader %o is %s", (reader, name) => {
  expect(nameOfReader({ id: READER, kind: "application", ...reader } as never)).toBe(name);
});

test("a reader without a role, access policy or reference is reported as unexpected once", async () => {
  const { start, tables, connectionString } = createInstances();
  const deployment = new Deployment(connectionString);
  const logs = start();
  const readUnexpected = async () => {
    const readers: UnexpectedReader[] = [];
    for await (const page of logs.usage.unexpected(new Date(0))) readers.push(...page);
    return readers.map(({ readerId, name }) => [readerId, name]);
  };
  const owner = "/subscriptions/s1/sites/shop";
  logRead();
  logRead({ objectId: OTHER_READER });
  logRead({ objectId: "66666666-6666-4666-8666-666666666666", identityOf: owner.toUpperCase() });
  logRead({ objectId: "77777777-7777-4777-8777-777777777777", userName: "ada@acme.example" });
  await readWorkspace(logs.source);
  // While access to the vault is unknown, no reader is unexpected.
  expect(await readUnexpected()).toEqual([]);

  const principal = (id: string, name: string) =>
    ({ resource: { id: `entra/${id}`, kind: "principal", name } as const, edges: [] as never[] }) as const;
  const entitled = (id: string, name: string, secret = "db") => {
    const { resource } = principal(id, name);
    const edge = {
      vaultName: VAULT,
      type: "secret",
      name: secret,
      resource,
      strength: "entitled",
      evidence: "r",
    } as const;
    return { resource, edges: [{ ...edge, refresh: { how: "blind" as const } }] };
  };
  const shop = app("shop", { DB: { vault: VAULT } }, { id: owner });
  deployment.company.itemsByUnit = {
    s1: [
      shop,
      entitled(OTHER_READER, `ServicePrincipal ${OTHER_READER}`),
      entitled(READER, `ServicePrincipal ${READER}`, "api"),
      entitled("g", "Group g"),
    ],
  };
  await deployment.run("full");
  control().moveClock(HOUR_MS);
  await readWorkspace(logs.source);
  expect(await readUnexpected()).toEqual([[READER, "db"]]);
  control().moveClock(HOUR_MS);
  logRead();
  await readWorkspace(logs.source);
  expect(await readUnexpected()).toEqual([[READER, "db"]]);
  // The first digit identifies the reader: READER, OTHER_READER, the managed identity of `shop`, and a user. The user is expected
  // because a group has access, whose members are unknown.
  expect((await logs.usage.ofAsset(db)).readers.map(({ id, expected }) => [id[0], expected]).sort()).toEqual([
    ["3", false],
    ["4", true],
    ["6", true],
    ["7", true],
  ]);

  const notices = [];
  for await (const page of createUsageNotices(logs.usage).notices("unexpectedReader", new Date(0)))
    for (const one of page) notices.push([one.id, await one.notice()]);
  const title = `${VAULT}/db`;
  expect(notices).toEqual([
    [expect.stringMatching(/^reader\./), expect.objectContaining({ title, what: expect.stringContaining(READER) })],
  ]);

  // In the dependencies, a managed identity is shown as the resource that it belongs to.
  deployment.assets.set(`${VAULT}.secret.db`, { asset: { ...db, enabled: true } } as never);
  await deployment.run("full", deployment.start({ sources: [deployment.company, logs.source] }));
  const { consumers } = await deployment.start().dependencies.blastRadius(`${VAULT}.secret.db`);
  const shown = consumers.map(({ resource, edges }) => [resource.name, edges.map(({ edge }) => edge.strength).sort()]);
  expect(shown).toContainEqual(["shop", ["observed", "references"]]);
  expect(shown).toContainEqual([READER, ["observed"]]);
  const page = await deployment.start().dependencies.list({ strength: "observed" }, FIRST_1000);
  expect(page.page.items).toHaveLength(4);
  const rows: unknown[] = [];
  for await (const one of tables.pages(AssetUses, under(workspace().id, ASSET_USES))) rows.push(...one);
  expect(rows).toHaveLength(1);
});

test("a secret is unused if complete logs show no read during the days of the policy", async () => {
  const logs = createInstances().start();
  const secret = (name: string, days: number, enabled = true) => ({
    asset: { name, enabled, createdOn: Math.floor((now() - days * DAY_MS) / 1000) },
  });
  secrets = [
    secret("db", 300),
    secret("my-API", 300),
    secret("never", 300),
    secret("fresh", 1),
    secret("off", 300, false),
  ];
  const listed = (daysAgo: number) => logRead({ operation: "SecretList", id: "", at: now() - daysAgo * DAY_MS });
  for (const daysAgo of [1, 2, 3]) listed(daysAgo);
  await readWorkspace(logs.source);
  // Logs of three days are not sufficient, because the policy is five days.
  expect([await logs.unused.usesOf(VAULT), changed]).toEqual([[], []]);

  const complete = createInstances().start();
  for (const daysAgo of [4, 5, 6]) listed(daysAgo);
  logRead({ secret: "db", at: now() - 5.5 * DAY_MS });
  logRead({ secret: "my-api", at: now() - DAY_MS });
  const first = now() - 6 * DAY_MS;
  await readWorkspace(complete.source);
  const day = (at: number) => new Date(at).toISOString().slice(0, 10);
  expect(await complete.unused.usesOf(VAULT)).toEqual([
    { asset: "secret.db", unused: true, evidence: `No log shows a read after ${day(now() - 5.5 * DAY_MS)}.` },
    { asset: "secret.my-API", unused: false, evidence: "A log shows a read within the last 5 days." },
    { asset: "secret.never", unused: true, evidence: expect.stringContaining(`since ${day(first)}, the start of`) },
  ]);
  expect(changed).toEqual([[VAULT, "secret.db", "secret.my-API", "secret.never"]]);

  control().moveClock(DAY_MS);
  logRead({ secret: "db" });
  await readWorkspace(complete.source);
  expect(changed.slice(1)).toEqual([[VAULT, "secret.db"]]);
  // A vault whose log has ended is no longer evaluated.
  control().moveClock(3 * DAY_MS);
  await readWorkspace(complete.source);
  expect(await complete.unused.usesOf(VAULT)).toEqual([]);
  expect(changed.slice(2)).toEqual([[VAULT, "secret.db", "secret.my-API", "secret.never"]]);
});

test("sign-in logs prove the time without use only since their last long gap", async () => {
  const { start } = createInstances();
  const logs = start();
  const signIn = (keyId: string, daysAgo: number) =>
    control().logs.addEvent("law-operations", {
      table: "AADServicePrincipalSignInLogs",
      at: now() - daysAgo * DAY_MS,
      appId: READER,
      keyId,
      name: "Shop",
      result: "0",
    });
  const evidence = async () => {
    await readWorkspace(logs.source);
    return await logs.usage.signInEvidence(READER);
  };
  const daysSince = (time: string | undefined) => time && Math.round((now() - Date.parse(time)) / DAY_MS);
  expect(await logs.usage.signInEvidence()).toMatchObject({ workspaces: 1, completeSince: undefined });
  for (const daysAgo of [6, 3, 0.1]) signIn(OTHER_READER, daysAgo);
  const first = await evidence();
  expect(daysSince(first.completeSince)).toBe(6);
  expect(daysSince(first.lastSignIn({ appId: READER, keyId: OTHER_READER }))).toBe(0);
  expect(first.lastSignIn({ appId: READER, keyId: READER })).toBeUndefined();

  // Without any sign-in for longer than a long weekend, the log counts as interrupted.
  control().moveClock(5 * DAY_MS);
  const interrupted = await evidence();
  expect(interrupted.completeSince).toBeUndefined();
  expect(daysSince(interrupted.lastSignIn({ appId: READER, keyId: OTHER_READER }))).toBe(5);
  signIn(OTHER_READER, 0.01);
  control().moveClock(2 * DAY_MS);
  expect(daysSince((await evidence()).completeSince)).toBe(2);
});

test("all secrets of a vault with 20,000 secrets are evaluated", async () => {
  const logs = createInstances().start();
  const createdOn = Math.floor((now() - 300 * DAY_MS) / 1000);
  const name = (index: number) => hash("sha512", String(index)).slice(0, 127);
  secrets = Array.from({ length: 20_000 }, (_, index) => ({ asset: { name: name(index), enabled: true, createdOn } }));
  for (const daysAgo of [1, 2, 3, 4, 5, 6]) logRead({ operation: "SecretList", id: "", at: now() - daysAgo * DAY_MS });
  await readWorkspace(logs.source);
  expect(changed.map((one) => one.length)).toEqual([20_001]);
  control().moveClock(DAY_MS);
  for (const index of [7, 19_999]) logRead({ secret: name(index) });
  await readWorkspace(logs.source);
  expect(changed.slice(1)).toEqual([[VAULT, ...[7, 19_999].map((index) => `secret.${name(index)}`).sort()]]);
});

test("the role of the templates allows exactly the queries of these tables", async () => {
  const { bicep } = await parseTemplates(readInfraFiles());
  const role = grantsOf(bicep).find((one) => one.role === "logReaderDefinition")!;
  const on = "Microsoft.OperationalInsights/workspaces";
  expect([...role.actions].sort()).toEqual(
    [`${on}/read`, `${on}/query/read`, ...TABLES.map((table) => `${on}/query/${table}/read`)].sort(),
  );
  expect([role.dataActions, role.scope]).toEqual([[], "workspace"]);
  const logs = createInstances().start();
  const scope = workspace().resourceId;
  for (const [actions, expected] of [
    [role.actions, []],
    [role.actions.filter((one) => one !== `${on}/query/read`), ["accessDenied"]],
  ] as const) {
    control().moveClock(HOUR_MS);
    control().allowOnly([{ scope, actions, dataActions: [] }]);
    expect(notSeenIn(await readWorkspace(logs.source))).toEqual(expected);
  }
  control().allowOnly(undefined);
});

test("after a crash at any write, the next hour's worker continues and counts each read once", async () => {
  // Ends with the first run that has fewer writes than `crashAt`, so it survives.
  for (let crashAt = 1; ; crashAt++) {
    for (const one of control().logs.all) one.events = [];
    const { start } = createInstances();
    for (const secret of ["db", "api"]) logRead({ secret });
    control().logs.addEvent("law-operations", {
      table: "AADServicePrincipalSignInLogs",
      at: now() - MINUTE_MS,
      appId: READER,
      keyId: OTHER_READER,
      name: "shop",
      result: "0",
    });
    const steps: Steps = { taken: 0, crashAt, when: crashAt % 2 === 0 ? "before" : "after" };
    const survived = await readWorkspace(start(steps).source).then(
      () => true,
      (error: unknown) => !(error instanceof SimulatedCrash),
    );
    control().moveClock(HOUR_MS);
    const nextWorker = start();
    expect(edgesIn(await readWorkspace(nextWorker.source)).map(({ name }) => name)).toEqual(["api", "db"]);
    expect((await nextWorker.usage.ofAsset(db)).readers).toEqual([expect.objectContaining({ uses: 1, name: "shop" })]);
    expect(await nextWorker.usage.lastSignIn({ appId: READER, keyId: OTHER_READER })).toEqual(expect.any(Date));
    expect(await nextWorker.usage.unreadSignIns()).toEqual([]);
    if (!survived) continue;
    // A crash was tested at each of the writes, of which there are at least six.
    expect(crashAt).toBeGreaterThan(6);
    return;
  }
});
