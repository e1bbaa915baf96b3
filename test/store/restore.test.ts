import { execFile } from "node:child_process";
import { appendFileSync, readFileSync, statSync } from "node:fs";
import path from "node:path";
import { TableClient } from "@azure/data-tables";
import { afterAll, beforeAll, expect, test } from "vitest";
import { markRestored } from "../../shared/alerts/restore-marker.ts";
import { APPROVALS, Approvals } from "../../shared/approvals/approval.ts";
import type { AuditEvent } from "../../shared/audit/event.ts";
import { SCAN_LIST, Scans } from "../../shared/discovery/scan.ts";
import { createGraph } from "../../shared/platform/azure/graph.ts";
import { createIdentity } from "../../shared/platform/azure/identity.ts";
import { type Clock, systemRandomness } from "../../shared/platform/runtime.ts";
import type { RowKeys } from "../../shared/platform/storage/signing.ts";
import { createTables, type StorageCorrupt } from "../../shared/platform/storage/tables.ts";
import { HOUR_MS, MINUTE_MS, SECOND_MS } from "../../shared/platform/time.ts";
import { PROPOSALS, Proposals } from "../../shared/proposals/proposal.ts";
import type { RotationRecord } from "../../shared/rotation/rotation.ts";
import { workInProgress } from "../../shared/store/work-in-progress.ts";
import { caller, DAY_MS, openFixture, type TestAsset } from "../alerts/alerts-setup.ts";
import { SHORT_WAITS } from "../azure/config.ts";
import { startTestCloud } from "../azure/live-cloud.ts";
import { BOSS, VAULT, World } from "../rotation/world.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import { COMMANDS, COMPILE_CACHE } from "../support/test-app.ts";
import { copyAccount, newFolder, restoreAccount } from "./copies.ts";

// Tests of copies of the store and of restores. One test runs the command `npm run store`, the others call its functions.

let azurite: TestStorage;
let world: World;

beforeAll(async () => {
  azurite = await openStorage([
    "source",
    "target",
    "rotation",
    "alerts",
    "crash",
    "marker",
    "planted",
    "approvals",
    "proposals",
  ]);
  const subscriptions = [{ id: "11111111-1111-4111-8111-111111111111", name: "Shop", vaults: [{ name: VAULT }] }];
  const { cloud, config } = await startTestCloud({ company: { subscriptions } });
  world = new World(cloud, config, azurite.connectionString("rotation"));
});
afterAll(async () => {
  await world.cloud.stop();
  await azurite.stop();
});

const JWT_SIGNING_KEYS = `k1:${Buffer.alloc(32, 1).toString("base64")}`;
const clientOf = (account: string, table: string) =>
  TableClient.fromConnectionString(azurite.connectionString(account), table, { allowInsecureConnection: true });

const copy = (account: string, folder: string, report?: (line: string) => unknown, clock?: Clock) =>
  copyAccount(azurite.connectionString(account), folder, { ...(report && { report }), ...(clock && { clock }) });
const restore = (account: string, folder: string, options?: Parameters<typeof restoreAccount>[2]) =>
  restoreAccount(azurite.connectionString(account), folder, { replace: false, ...options });

/** Returns the rows of a table with the types of their columns. */
async function typedRows(account: string, table: string): Promise<object[]> {
  const rows: object[] = [];
  for await (const row of clientOf(account, table).listEntities({ disableTypeConversion: true })) {
    const { etag: _, timestamp: __, ...columns } = row as Record<string, unknown>;
    rows.push(columns);
  }
  return rows;
}

/** Runs `npm run store` on an account. */
const run = (account: string, ...args: string[]): Promise<{ code: number; out: string; err: string }> =>
  new Promise((resolve) => {
    const env = {
      PATH: process.env.PATH,
      NODE_COMPILE_CACHE: COMPILE_CACHE,
      AzureWebJobsStorage: azurite.connectionString(account),
      JWT_SIGNING_KEYS,
      USER: "maria",
    };
    execFile(process.execPath, [COMMANDS.store, ...args], { env }, (error, out, err) =>
      resolve({ code: error ? Number(error.code) : 0, out, err }),
    );
  });

/** A row with a column of each type, and with characters in its keys that are escaped in requests. */
const row = {
  partitionKey: "a'b",
  rowKey: "ü|1",
  text: "é\u2028",
  yes: true,
  int: 7,
  whole: { type: "Double", value: "3" },
  fraction: 2.5,
  long: { type: "Int64", value: "9007199254740993" },
  date: { type: "DateTime", value: "2026-11-21T10:00:00.1234567Z" },
  guid: { type: "Guid", value: "11111111-1111-4111-8111-111111111111" },
  bytes: new Uint8Array([0, 1, 255]),
} as const;

test("the command restores every row with the types of its columns, and rejects a store that is not empty", async () => {
  const users = clientOf("source", "Users");
  await users.createTable();
  await users.createEntity(row);
  for (let index = 0; index < 150; index++) await users.createEntity({ partitionKey: "many", rowKey: String(index) });
  const folder = newFolder();
  expect(await run("source", "backup", "--to", folder)).toMatchObject({ code: 0, err: "" });
  expect(statSync(path.join(folder, "Users.jsonl")).mode & 0o777).toBe(0o600);
  expect(await run("target", "restore", "--from", folder)).toMatchObject({ code: 0, err: "" });
  const restored = await typedRows("target", "Users");
  expect(restored).toHaveLength(151);
  expect(restored).toEqual(await typedRows("source", "Users"));
  const { copiedAt } = JSON.parse(readFileSync(path.join(folder, "manifest.json"), "utf8")) as { copiedAt: string };
  const entries: unknown[] = [];
  for await (const { entry } of clientOf("target", "AuditEntries").listEntities())
    if (entry !== undefined) entries.push(JSON.parse(String(entry)));
  expect(entries[0]).toMatchObject({
    eventType: "store.restored",
    actor: "system",
    details: { copiedAt, startedBy: "maria", replacedRows: {}, heldDeliveries: 0 },
  });

  await clientOf("target", "Users").createEntity({ partitionKey: "later", rowKey: "1" });
  const refused = await run("target", "restore", "--from", folder);
  expect([refused.code, refused.err]).toEqual([1, expect.stringContaining("The store is not empty")]);
  const events: AuditEvent[] = [];
  await restore("target", folder, { replace: true, append: async (event) => void events.push(event) });
  expect(await typedRows("target", "Users")).toEqual(await typedRows("source", "Users"));
  expect(events).toMatchObject([{ type: "store.restored", details: { replacedRows: { Users: 152 } } }]);
});

test("a table that changes during the copy is copied again, and a store that keeps changing is not copied", async () => {
  const settings = clientOf("source", "Settings");
  await settings.createTable();
  let writes = 0;
  const write = () => settings.upsertEntity({ partitionKey: "p", rowKey: "r", writes: ++writes });
  const folder = newFolder();
  await copy("source", folder, async (line) => {
    if (line.startsWith("Copied Vaults")) await write();
  });
  await restore("target", folder, { replace: true });
  expect(await typedRows("target", "Settings")).toEqual(await typedRows("source", "Settings"));
  await expect(copy("source", newFolder(), write)).rejects.toThrow(
    "Settings changed during the copy, 5 times. Stop the app",
  );
});

test("a changed copy is not restored", async () => {
  const folder = newFolder();
  await copy("source", folder);
  appendFileSync(path.join(folder, "Users.jsonl"), '["x","y",{}]\n');
  await expect(restore("target", folder, { replace: true })).rejects.toThrow("The file of the table Users");
});

/** Returns a text that changes whenever a rotation has changed something in the cloud or is about to. */
const progressOf = ({ status, attempts, publications, steps }: RotationRecord): string =>
  [
    status,
    ...attempts.map(({ state }) => state),
    ...publications.map(({ state }) => state),
    ...steps.flatMap(({ name, status: stepStatus }) => (stepStatus === "done" ? [name] : [])),
  ].join(" ");

/** Returns the lines about the work that was in progress at the copy, as the command prints them. */
async function linesOfWork(): Promise<string> {
  const { config, log, clock } = world;
  const graph = createGraph({ config, identity: createIdentity(config), log, limits: SHORT_WAITS });
  const lines: string[] = [];
  for await (const line of workInProgress({ tables: world.tables(), graph, clock })) lines.push(line);
  return lines.join("\n");
}

test("the list of work compares a rotation with the directory, and says if the identity may not read it", async () => {
  const app = world.addApplication("compared");
  const { rotationId } = await world.start().begin(app.request, BOSS);
  const start = `Rotation ${rotationId} of compared was planned.`;
  expect(await linesOfWork()).toContain(`${start} The application has the client secrets that the record knows.`);
  const { directory } = world.cloud.control;
  const { keyId } = directory.addSecret(app.appId, { name: "by hand", expiresInDays: 9 });
  expect(await linesOfWork()).toContain(`${start} The record does not know the secret ${keyId} (by hand).`);
  world.cloud.control.addFault({ match: { operation: "graph.getApplication" }, action: { kind: "deny" } });
  expect(await linesOfWork()).toContain(`${start} Its application's client secrets could not be compared. Could not`);
  world.cloud.control.clearFaults();
  await world.start().cancel(rotationId, BOSS);
  await world.run(rotationId);
});

// Held copies: the copies of the new value that the rotation keeps in the service's own vault, which is not part of the store.
test.each(["gone", "restored"])(
  "a completed rotation causes no lockout if the store is restored from a copy of any of its steps, with held copies that are %s",
  async (heldCopies) => {
    let steps = 0;
    // Each round copies the store after another step of its own rotation. The last round has a rotation with fewer steps.
    for (let stepToCopy = 1; ; stepToCopy++) {
      const name = `${heldCopies}-${stepToCopy}`;
      const app = world.addApplication(name, { places: 2 });
      const reader = world.start();
      const recordedSteps: string[] = [];
      let folder: string | undefined;
      let held: ReturnType<World["heldCopiesOf"]> = [];
      world.afterWrite = async () => {
        const rotationId = folder === undefined ? await reader.unfinishedOf(app.appId) : undefined;
        if (rotationId === undefined) return;
        const rotation = await reader.get(rotationId);
        const progress = progressOf(rotation);
        if (recordedSteps.includes(progress)) return;
        recordedSteps.push(progress);
        if (recordedSteps.length !== stepToCopy) return;
        folder = newFolder();
        await copy("rotation", folder);
        held = world.heldCopiesOf(rotation);
      };
      const { rotationId } = await world.start().begin(app.request, BOSS);
      expect((await world.run(rotationId)).row.status).toBe("completed");
      world.afterWrite = async () => {};
      if (folder === undefined) break;
      steps++;
      await restore("rotation", folder, { replace: true });
      if (heldCopies === "restored") world.restoreHeldCopies(held);
      // The rotation completed after the copy, so the old secret is gone.
      expect(await linesOfWork()).toContain(
        `Rotation ${rotationId} of ${name} was ${recordedSteps.at(-1)!.split(" ")[0]}. The old secret ${app.keyId} is gone.`,
      );
      world.messages.length = 0;
      await world.run(rotationId, { until: ({ needsConfirmation }) => needsConfirmation });
      const { directory } = world.cloud.control;
      const copied = `copied at: ${recordedSteps.at(-1)}`;
      expect(
        directory.secrets(app.appId).filter(({ removedAt }) => removedAt === undefined),
        copied,
      ).not.toEqual([]);
      for (const place of app.places)
        expect(directory.signsIn(app.appId, world.cloud.control.secretValue(VAULT, place)!), copied).toBe(true);
      // No place ever held a value that did not sign in.
      expect(
        directory.gaps().filter(({ appId }) => appId === app.appId),
        copied,
      ).toEqual([]);
    }
    // A rotation has at least nine steps, so the copies were not all of its beginning.
    expect(steps).toBeGreaterThan(8);
  },
);

test("alerts that were sent after the copy are held after a restore, and are sent or dropped only on request", async () => {
  const { cloud } = world;
  const connectionString = azurite.connectionString("alerts");
  const fixture = openFixture({ connectionString, cloud });
  await fixture.writeAssets("kv-a", [{ name: "one", expiresInDays: 8.5 }]);
  const hook = await fixture.webhookRule();
  const mail = await fixture.mailRule();
  const posted = () => hook.received().length;
  const mailed = () => mail.mails().length;
  const alerts = fixture.instance();
  // The deliveries of the threshold 30 are pending in the copy. The evaluation after the copy creates those of the threshold 7.
  await alerts.evaluate();
  const folder = newFolder();
  await copy("alerts", folder);
  await fixture.handleAllMessages(alerts);
  fixture.clock.add(2 * DAY_MS);
  await alerts.evaluate();
  await fixture.handleAllMessages(alerts);
  expect([posted(), mailed()]).toEqual([2, 2]);

  await restore("alerts", folder, { replace: true, clock: fixture.clock });
  const restarted = fixture.instance();
  const work = async () => {
    fixture.clock.add(MINUTE_MS);
    await restarted.evaluate();
    await fixture.handleAllMessages(restarted);
  };
  await work();
  await work();
  expect([posted(), mailed()]).toEqual([2, 2]);
  const page = { limit: 100, offset: 0, cursor: undefined };
  const held = (await restarted.history.list({ status: "inDoubt" }, page)).items;
  expect(held).toHaveLength(4);
  expect((await restarted.history.list({ status: "pending" }, page)).items).toEqual([]);

  // The mail provider knows the mail that was pending in the copy by its operation id. It does not know the other delivery,
  // which the evaluation after the restore created, so this mail is sent because a person asked for it.
  for (const { deliveryId, deliveryMethod } of held)
    await restarted.held[deliveryMethod === "email" ? "send" : "drop"](deliveryId, caller);
  await work();
  expect([posted(), mailed()]).toEqual([2, 3]);
  const statuses = (await restarted.history.list({}, page)).items.map(
    ({ status, deliveryMethod: by }) => `${by} ${status}`,
  );
  expect(statuses.sort()).toEqual(["email delivered", "email delivered", "webhook cancelled", "webhook cancelled"]);
  expect((await restarted.history.list({ status: "inDoubt" }, page)).items).toEqual([]);
});

test("a restore that crashes leaves no store that sends alerts of the copy again, and can be repeated", async () => {
  const fixture = openFixture({ connectionString: azurite.connectionString("crash"), cloud: world.cloud });
  await fixture.writeAssets("kv-a", [{ name: "one", expiresInDays: 8.5 }]);
  const hook = await fixture.webhookRule();
  const mail = await fixture.mailRule();
  const alerts = fixture.instance();
  await alerts.evaluate();
  const folder = newFolder();
  await copy("crash", folder, undefined, fixture.clock);
  await fixture.handleAllMessages(alerts);
  const sent = () => [hook.received().length, mail.mails().length];
  expect(sent()).toEqual([1, 1]);
  // The restore crashes before it writes this table, or before it reads the tables back to check them.
  for (const crashAt of ["AlertRules", "AlertStates", "AlertTold", "Vaults", "readBack"]) {
    const { clock } = fixture;
    await expect(restore("crash", folder, { replace: true, clock, crashAt })).rejects.toThrow("Crash");
    const restarted = fixture.instance();
    for (let round = 0; round < 2; round++) {
      // Deliveries that are overdue are queued again.
      fixture.clock.add(HOUR_MS);
      await restarted.evaluate();
      await fixture.handleAllMessages(restarted);
    }
    expect(sent(), crashAt).toEqual([1, 1]);
  }
  const { heldDeliveries } = await restore("crash", folder, { replace: true, clock: fixture.clock });
  expect(heldDeliveries).toBe(2);
  const page = { limit: 100, offset: 0, cursor: undefined };
  expect((await fixture.instance().history.list({ status: "inDoubt" }, page)).items).toHaveLength(2);

  // A copy of a restored store contains its marker, which does not replace the marker of the next restore.
  const again = newFolder();
  await copy("crash", again, undefined, fixture.clock);
  fixture.clock.add(SECOND_MS);
  await restore("crash", again, { replace: true, clock: fixture.clock });
  const marker = await clientOf("crash", "AlertStates").getEntity("restore", "restore");
  expect(marker.restoredAt).toBe(fixture.clock.now().toISOString());
});

/** Keys of signed rows, as the service's own key vault has them. */
function newRowKeys(): RowKeys {
  const key = systemRandomness().bytes(32);
  return { current: async () => ({ name: "k1", key }), named: async (name) => (name === "k1" ? key : undefined) };
}

/** Opens alerts in a service with a key vault of its own, whose rule finds assets that expire soon. */
async function openRestoredAlerts(account: string) {
  const fixture = openFixture({ connectionString: azurite.connectionString(account), cloud: world.cloud });
  const unreadable: string[] = [];
  const onUnreadable = async (rows: readonly StorageCorrupt[]) =>
    void unreadable.push(...rows.map(({ reason }) => reason));
  const connection = { connectionString: azurite.connectionString(account) };
  const tables = createTables(connection, { onUnreadable, keys: newRowKeys() });
  const hook = await fixture.webhookRule();
  const alerts = fixture.instance(undefined, { tables, clock: fixture.clock });
  const nowPlus = (minutes: number) => new Date(fixture.clock.now().getTime() + minutes * 60_000).toISOString();
  const assets: TestAsset[] = [];
  return {
    tables,
    unreadable,
    clock: fixture.clock,
    nowPlus,
    markers: clientOf(account, "AlertStates"),
    /**
     * Evaluates 15 minutes later, with a new asset that expires some days after the start of the test. Returns the numbers of held
     * and of sent alerts.
     */
    async evaluateLater(newAsset?: string, expiresInDays = 5) {
      fixture.clock.add(15 * MINUTE_MS);
      if (newAsset) assets.push({ name: newAsset, expiresInDays });
      await fixture.writeAssets("kv-a", assets);
      await alerts.evaluate();
      await fixture.handleAllMessages(alerts);
      return [await alerts.held.count(), hook.received().length];
    },
  };
}

test("after a restore, alerts are held up to the first evaluation after a full scan, also one that timed out", async () => {
  const { tables, unreadable, clock, nowPlus, markers, evaluateLater } = await openRestoredAlerts("marker");
  await markRestored(tables, { copiedAt: nowPlus(-60) }, clock.now());
  expect(await evaluateLater("one")).toEqual([1, 0]);
  const scan = { mode: "full", status: "timedOut", trigger: "api", requestedBy: "a", requestId: "1" } as const;
  const times = { createdAt: nowPlus(1), finishedAt: nowPlus(5) };
  await tables.put(Scans, SCAN_LIST, "1", { ...scan, ...times, scanId: "1", vaultsTotal: 1, subscriptionOutcomes: [] });
  expect(await evaluateLater()).toEqual([1, 0]);
  expect(await evaluateLater("two")).toEqual([1, 1]);

  // A marker that can't be read is reported, and holds nothing.
  await markers.upsertEntity({ partitionKey: "restore", rowKey: "restore", restoredAt: "soon" }, "Replace");
  expect(await evaluateLater("three")).toEqual([1, 2]);
  expect(unreadable.at(-1)).toContain("restoredAt");
  // A scan of the copy does not count as a scan after the restore, even if the clock of the restore was behind.
  expect(await markRestored(tables, { copiedAt: nowPlus(-9), newestScanAt: nowPlus(3) }, clock.now())).toBe(nowPlus(3));
});

test("approvals that were open in the copy can't be used after the restore", async () => {
  const tables = createTables({ connectionString: azurite.connectionString("approvals") });
  const approval = {
    summary: "Create an API token",
    method: "POST",
    path: "/auth/tokens",
    details: {},
    digest: "d",
    requestedBy: "maria",
    requesterId: "1",
    createdAt: "2026-11-27T08:00:00.000Z",
    expiresAt: "2026-11-28T08:00:00.000Z",
    writeId: "w",
  };
  for (const state of ["approved", "pending", "rejected", "used"] as const)
    await tables.insert(Approvals, APPROVALS, state, { ...approval, state });
  const folder = newFolder();
  await copy("approvals", folder);
  await restore("approvals", folder, { replace: true });
  const states = [];
  for await (const rows of tables.pages(Approvals, { partitionKey: APPROVALS }))
    states.push(...rows.map(({ rowKey, state }) => [rowKey, state]));
  expect(states).toEqual([
    ["approved", "expired"],
    ["pending", "expired"],
    ["rejected", "rejected"],
    ["used", "used"],
  ]);
});

test("proposals that waited in the copy can't be approved after the restore", async () => {
  const tables = createTables({ connectionString: azurite.connectionString("proposals") });
  const proposal = {
    endpoint: "removeAllOverrides",
    summary: "Remove all overrides",
    method: "DELETE",
    path: "/api/settings/all",
    params: {},
    query: {},
    dryRun: "{}",
    reason: "None",
    proposedBy: "maria",
    proposerId: "uid",
    createdAt: "2026-11-27T08:00:00.000Z",
    expiresAt: "2026-11-28T08:00:00.000Z",
    writeId: "w",
  };
  for (const state of ["done", "pending", "started"] as const)
    await tables.insert(Proposals, PROPOSALS, state, { ...proposal, state });
  const folder = newFolder();
  await copy("proposals", folder);
  await restore("proposals", folder, { replace: true });
  const states = [];
  for await (const rows of tables.pages(Proposals, { partitionKey: PROPOSALS }))
    states.push(...rows.map(({ rowKey, state }) => [rowKey, state]));
  expect(states).toEqual([
    ["done", "done"],
    ["pending", "expired"],
    ["started", "started"],
  ]);
});

test("someone who can write to the storage account can't hold alerts with a planted marker of a restore, nor with a copy of an earlier one", async () => {
  const { tables, unreadable, clock, nowPlus, markers, evaluateLater } = await openRestoredAlerts("planted");
  await evaluateLater();
  const keys = { partitionKey: "restore", rowKey: "restore" };
  const now = nowPlus(0);
  await markers.upsertEntity({ ...keys, copiedAt: now, restoredAt: now }, "Replace");
  expect(await evaluateLater("one")).toEqual([0, 1]);
  expect(unreadable).toEqual(["the signature does not match the content"]);
  await markRestored(tables, { copiedAt: now }, new Date(clock.now().getTime() + DAY_MS));
  expect(await evaluateLater("two")).toEqual([0, 2]);
  expect(unreadable.at(-1)).toBe("restoredAt is in the future");

  // Without a full scan, a marker has an effect for two weeks. After that it has none, so its copy has none either.
  await markRestored(tables, { copiedAt: nowPlus(0) }, clock.now());
  expect(await evaluateLater("three")).toEqual([1, 2]);
  clock.add(13 * DAY_MS);
  expect(await evaluateLater("four", 18)).toEqual([2, 2]);
  clock.add(DAY_MS);
  expect(await evaluateLater("five", 19)).toEqual([2, 3]);
});
