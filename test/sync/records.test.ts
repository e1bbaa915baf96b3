import { TableClient } from "@azure/data-tables";
import type { Cloud } from "simulated-cloud/cloud.ts";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { Problem } from "../../shared/platform/http/problem.ts";
import type { SyncRecordRow } from "../../shared/sync/record.ts";
import { startTestCloud } from "../azure/live-cloud.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import { COPIES, caller, type Fixture, HOUR_MS, openFixture, PAGE, SOURCE } from "./sync-fixture.ts";

// Sync records: how they are created, changed, listed and deleted, and what happens to a record that another program changed in
// the table. The rows of the table `Sync` have these prefixes: r| record, d| due time, s| index by source, t| index by target,
// h| history of a record, o| all history entries.

const SERVICE_VAULT = "kv-lifecycle-service";

let azurite: TestStorage;
let cloud: Cloud;
let fixture: Fixture;

beforeAll(async () => {
  azurite = await openStorage(["records"]);
  const vaults = [{ name: SOURCE }, { name: COPIES }, { name: "kv-third" }];
  ({ cloud } = await startTestCloud({ company: { subscriptions: [{ name: "Shop", vaults }] } }));
  fixture = openFixture({ cloud, connectionString: azurite.connectionString("records") });
  await fixture.discover(SOURCE, COPIES, "kv-third", SERVICE_VAULT);
});
afterAll(async () => {
  await cloud?.stop();
  await azurite?.stop();
});
beforeEach(() => fixture.messages.splice(0));

/** Returns the code of the problem in which some work ends, with the paths of its errors, or "done" if there is no problem. */
const problemOf = (work: Promise<unknown>) =>
  work.then(
    () => ["done"],
    (error: unknown) => {
      if (!(error instanceof Problem)) throw error;
      return [error.code, ...(error.errors?.map(({ path }) => path) ?? [])];
    },
  );

describe("a record", () => {
  test("is created with the given members and a message for its first run", async () => {
    const record = await fixture.createRecord({ targetName: "asked-for", scheduleHours: 12 });
    expect(record).toMatchObject({
      sourceVault: SOURCE,
      targetRegion: COPIES,
      targetName: "asked-for",
      scheduleHours: 12,
      state: "new",
      targetOwned: false,
    });
    expect(fixture.messages).toMatchObject([{ message: { recordId: record.recordId } }]);
    expect(await fixture.sync.get(record.recordId)).toEqual(record);
    expect(fixture.events.filter(({ type }) => type === "syncRecord.created").map(({ outcome }) => outcome)).toEqual([
      "intent",
      "success",
    ]);
  });

  test("that is created paused does not run until it is enabled", async () => {
    const { recordId } = await fixture.createRecord({ enabled: false });
    expect(fixture.messages).toEqual([]);
    expect(await problemOf(fixture.sync.trigger(recordId, caller))).toEqual(["conflict"]);
    await fixture.sync.records.change(recordId, { enabled: true }, caller, undefined);
    expect(await fixture.runAndGet(recordId)).toMatchObject({ state: "inSync" });
    const paused = await fixture.sync.records.change(recordId, { enabled: false }, caller, undefined);
    expect(paused.nextRunAt).toBeUndefined();
    fixture.messages.splice(0);
    await fixture.makeDue(paused);
    expect(fixture.messages.filter(({ message }) => message.recordId === recordId)).toEqual([]);
  });

  test("is the only one with its target, whatever the spelling", async () => {
    const { recordId, sourceSecret } = await fixture.createRecord({ targetName: "Only-Once" });
    const second = fixture.createRecord({ sourceSecret, targetName: "only-once", targetRegion: COPIES.toUpperCase() });
    await expect(second).rejects.toMatchObject({ code: "alreadyExists", members: { recordId } });
    expect((await fixture.createRecord({ sourceSecret, targetName: "another" })).recordId).not.toBe(recordId);
  });

  test("is created by only one of two concurrent requests for the same target", async () => {
    const both = await Promise.all([1, 2].map(() => problemOf(fixture.createRecord({ targetName: "at-once" }))));
    expect(both.flat().sort()).toEqual(["alreadyExists", "done"]);
  });

  test("can't copy a copy or back to its source", async () => {
    const first = await fixture.createRecord({ targetName: "first-copy" });
    const copyOfCopy = { sourceVault: COPIES, sourceSecret: "First-Copy", targetRegion: "kv-third" };
    expect(await problemOf(fixture.createRecord(copyOfCopy))).toEqual(["syncLoop"]);
    const back = { targetRegion: SOURCE, targetName: first.sourceSecret };
    expect(await problemOf(fixture.createRecord({ sourceVault: "kv-third", sourceSecret: "any", ...back }))).toEqual([
      "syncLoop",
    ]);
    const itself = { sourceVault: "kv-third", sourceSecret: "same", targetRegion: "KV-THIRD", targetName: "Same" };
    expect(await problemOf(fixture.createRecord(itself))).toEqual(["syncLoop"]);
  });

  test.each([
    SERVICE_VAULT,
    SERVICE_VAULT.toUpperCase(),
    ` ${SERVICE_VAULT} `,
    "https://kv-lifecycle-service.vault.localhost",
    "https://KV-Lifecycle-Service.vault.localhost:8443/secrets/x",
    "https://kv%2Dlifecycle-service.vault.localhost./",
    "HTTPS://kv-lifecycle-service.vault.localhost",
  ])("can't have the service's own key vault as source or target: %s", async (spelling) => {
    expect(await problemOf(fixture.createRecord({ sourceVault: spelling }))).toEqual(["serviceVault"]);
    expect(await problemOf(fixture.createRecord({ targetRegion: spelling }))).toEqual(["serviceVault"]);
  });

  test.each([
    [{ sourceVault: "kv-lifecycle-service.vault.localhost" }, "body.sourceVault"],
    [{ sourceVault: "https://kv-shop.vault.localhost.evil.example" }, "body.sourceVault"],
    [{ sourceVault: "https://evil.example/kv-shop" }, "body.sourceVault"],
    [{ sourceVault: "kv-unknown" }, "body.sourceVault"],
    [{ targetRegion: "kv-unknown" }, "body.targetRegion"],
    [{ targetRegion: null }, "body.targetRegion"],
    [{ targetService: "secretsmanager" }, "body.targetService"],
    [{ targetService: "toString" }, "body.targetService"],
    [{ targetName: "a/b" }, "body.targetName"],
  ])("is rejected with %j", async (given, path) => {
    expect(await problemOf(fixture.createRecord(given))).toEqual(["invalidRequest", path]);
  });

  test("keeps its source and target: a change of them is rejected", async () => {
    const record = await fixture.createRecord();
    const change = (given: object) => problemOf(fixture.sync.records.change(record.recordId, given, caller, undefined));
    expect(await change({ ...record, sourceVault: SOURCE.toUpperCase(), scheduleHours: 3 })).toEqual(["done"]);
    expect(await change({ targetName: "other" })).toEqual(["invalidRequest", "body.targetName"]);
    expect(await change({ targetRegion: "kv-third" })).toEqual(["invalidRequest", "body.targetRegion"]);
    expect(await fixture.sync.get(record.recordId)).toMatchObject({ scheduleHours: 3, targetName: record.targetName });
  });

  test("is not changed or deleted with an outdated ETag", async () => {
    const { recordId, etag } = await fixture.createRecord();
    await fixture.sync.records.change(recordId, { onDrift: "report" }, caller, etag);
    expect(await problemOf(fixture.sync.records.change(recordId, { adopt: true }, caller, etag))).toEqual([
      "preconditionFailed",
    ]);
    expect(await problemOf(fixture.sync.remove(recordId, false, etag, caller))).toEqual(["preconditionFailed"]);
    await fixture.sync.remove(recordId, false, undefined, caller);
    expect(await problemOf(fixture.sync.get(recordId))).toEqual(["notFound"]);
    expect(await problemOf(fixture.sync.remove(recordId, false, undefined, caller))).toEqual(["notFound"]);
  });

  test("that is deleted leaves only its history, and another record can have its target", async () => {
    const record = await fixture.createRecord({ targetName: "had-again" });
    expect(await fixture.runAndGet(record.recordId)).toMatchObject({ state: "inSync" });
    await fixture.sync.remove(record.recordId, false, undefined, caller);
    expect(fixture.copyValue("had-again")).toBe("value-one");
    expect(await fixture.historyKinds(record.recordId)).toEqual(["removed", "created"]);
    const rows = JSON.parse(await fixture.rowsAsText()) as { rowKey: string }[];
    const left = rows.filter((row) => JSON.stringify(row).includes(record.recordId)).map(({ rowKey }) => rowKey[0]);
    expect([...new Set(left)].sort()).toEqual(["h", "o"]);
    const again = await fixture.createRecord({ targetName: "had-again" });
    expect(await fixture.runAndGet(again.recordId)).toMatchObject({
      state: "failing",
      failure: { code: "targetNotOwned" },
    });
  });

  test("is deleted with its target only if the record owns the target", async () => {
    const record = await fixture.createRecord({ targetName: "goes-along" });
    await fixture.runAndGet(record.recordId);
    await fixture.sync.remove(record.recordId, true, undefined, caller);
    expect(fixture.copyValue("goes-along")).toBeUndefined();
    cloud.control.putSecret(COPIES, { name: "of-others", value: "theirs" });
    const other = await fixture.createRecord({ targetName: "of-others" });
    await fixture.drainAll();
    expect(await problemOf(fixture.sync.remove(other.recordId, true, undefined, caller))).toEqual(["conflict"]);
    expect(fixture.copyValue("of-others")).toBe("theirs");
    expect(await fixture.sync.get(other.recordId)).toMatchObject({ recordId: other.recordId });
  });
});

test("the list returns each record once by cursor, and can be filtered", async () => {
  const created = new Set<string>();
  for (let count = 0; count < 5; count++) {
    created.add((await fixture.createRecord({ sourceSecret: `listed-${count}`, enabled: count > 1 })).recordId);
  }
  const listed: string[] = [];
  let cursor: string | undefined;
  do {
    const { items, total, nextCursor } = await fixture.sync.list({}, { limit: 2, offset: 0, cursor });
    expect(total).toBeGreaterThanOrEqual(5);
    listed.push(...items.map(({ recordId }) => recordId));
    cursor = nextCursor ?? undefined;
  } while (cursor !== undefined);
  expect(new Set(listed).size).toBe(listed.length);
  expect([...created].filter((id) => !listed.includes(id))).toEqual([]);
  const { items, total } = await fixture.sync.list({ state: "paused", sourceSecret: "Listed-1" }, PAGE);
  expect([items.map(({ sourceSecret }) => sourceSecret), total]).toEqual([["listed-1"], 1]);
  expect(await fixture.sync.list({}, { limit: 1, offset: listed.length - 1, cursor: undefined })).toMatchObject({
    items: [{ recordId: listed.at(-1) }],
    nextCursor: null,
  });
});

describe("a record that another program changed in the table", () => {
  test("is not run, and its history has one entry with the reason", async () => {
    const record = await tamperedAndRun();
    const { recordId, targetName } = record;
    expect(fixture.copyValue("elsewhere")).toBeUndefined();
    const { items } = await fixture.sync.history(recordId, PAGE);
    expect(items).toEqual([
      expect.objectContaining({
        kind: "failed",
        failure: expect.objectContaining({ code: "tampered" }),
        source: `${SOURCE}/${record.sourceSecret}`,
        target: expect.stringContaining(targetName),
      }),
      expect.objectContaining({ kind: "created" }),
    ]);
    await fixture.makeDue(record);
    await fixture.drainAll();
    await fixture.sync.run(recordId);
    await fixture.sync.failRun(recordId);
    await fixture.sync.runFor(SOURCE, record.sourceSecret);
    expect(await fixture.historyKinds(recordId)).toEqual(["failed", "created"]);
    expect(await problemOf(fixture.sync.get(recordId))).toEqual(["conflict"]);
    expect(await problemOf(fixture.sync.trigger(recordId, caller))).toEqual(["conflict"]);
    const { items: listed } = await fixture.sync.list({}, { ...PAGE, limit: 1000 });
    expect(listed.map((one) => one.recordId)).not.toContain(recordId);
  });

  test("can be deleted without its target and created again", async () => {
    const record = await fixture.createRecord();
    const { recordId, targetName } = record;
    await fixture.drainAll();
    await tamper(record.rowKey);
    expect(await problemOf(fixture.sync.remove(recordId, true, undefined, caller))).toEqual(["conflict"]);
    expect(await problemOf(fixture.sync.remove(recordId, false, record.etag, caller))).toEqual(["preconditionFailed"]);
    await fixture.sync.remove(recordId, false, undefined, caller);
    expect(fixture.copyValue(targetName)).toBe("value-one");
    expect(await fixture.historyKinds(recordId)).toEqual(["removed", "created"]);
    const rows = JSON.parse(await fixture.rowsAsText()) as { rowKey: string }[];
    const left = rows.filter((row) => JSON.stringify(row).includes(recordId)).map(({ rowKey }) => rowKey[0]);
    expect([...new Set(left)].sort()).toEqual(["h", "o"]);
    const again = await fixture.createRecord({ sourceSecret: record.sourceSecret, targetName, adopt: true });
    expect(await fixture.runAndGet(again.recordId)).toMatchObject({ state: "inSync" });
  });

  test("is not deleted if its row becomes valid again during the deletion", async () => {
    const record = await fixture.createRecord();
    await fixture.drainAll();
    await tamper(record.rowKey);
    fixture.onAuditEvent = ({ outcome }) =>
      outcome === "intent" ? tamper(record.rowKey, record.targetName) : Promise.resolve();
    expect(await problemOf(fixture.sync.remove(record.recordId, false, undefined, caller))).toEqual(["conflict"]);
    fixture.onAuditEvent = undefined;
    expect(await fixture.sync.get(record.recordId)).toMatchObject({ state: "inSync" });
    expect(await fixture.historyKinds(record.recordId)).toEqual(["created"]);
  });

  test("continues when its row is valid again", async () => {
    const record = await tamperedAndRun();
    const { recordId, targetName } = record;
    expect(await fixture.historyKinds(recordId)).toEqual(["failed", "created"]);
    await tamper(record.rowKey, targetName);
    // The message of a due record is repeated after half an hour, but a changed record is checked only once a day.
    await fixture.passTime(HOUR_MS);
    await fixture.sync.sendDueRecords();
    expect(fixture.messages.filter(({ message }) => message.recordId === recordId)).toEqual([]);
    cloud.control.putSecret(SOURCE, { name: record.sourceSecret, value: "value-two" });
    await fixture.makeDue(record);
    await fixture.drainAll();
    expect(fixture.copyValue(targetName)).toBe("value-two");
    await tamper(record.rowKey);
    await fixture.makeDue(record);
    await fixture.drainAll();
    expect(await fixture.historyKinds(recordId)).toEqual(["failed", "updated", "failed", "created"]);
  });

  test("can be changed, run and deleted without its index rows", async () => {
    const record = await fixture.createRecord();
    const { recordId } = record;
    await fixture.drainAll();
    const remove = async (prefix: string) => {
      const rows = JSON.parse(await fixture.rowsAsText()) as { rowKey: string }[];
      const indexRows = rows.filter(({ rowKey }) => rowKey.startsWith(prefix) && rowKey.endsWith(`|${recordId}`));
      for (const { rowKey } of indexRows) await client().deleteEntity("sync", rowKey);
      expect(indexRows).toHaveLength(1);
    };
    await remove("d|");
    await fixture.sync.records.change(recordId, { scheduleHours: 3 }, caller, undefined);
    await remove("d|");
    expect(await fixture.sync.trigger(recordId, caller)).toMatchObject({ state: "pending" });
    await remove("d|");
    expect(await fixture.runAndGet(recordId)).toMatchObject({ state: "inSync" });
    await remove("d|");
    await remove("s|");
    await fixture.sync.remove(recordId, false, undefined, caller);
    expect(await problemOf(fixture.sync.get(recordId))).toEqual(["notFound"]);
  });

  test("has one history entry for its failure and one for its deletion, also with concurrent requests", async () => {
    const record = await fixture.createRecord();
    const other = await fixture.createRecord();
    const { recordId } = record;
    await fixture.drainAll();
    await tamper(record.rowKey);
    const planted = Array.from({ length: 120 }, (_, index) => `d|2020-01-01T00:00:00.${index + 100}Z|${recordId}`);
    const plant = async () => {
      for (const rowKey of planted) await client().upsertEntity({ partitionKey: "sync", rowKey });
    };
    await plant();
    const invalidRow = { partitionKey: "sync", rowKey: `d|2020-01-01T00:00:00.000Z|odd`, sentAt: 7, recordId: 7 };
    await client().upsertEntity(invalidRow);
    // A due row that can't be read does not prevent other records from running.
    await fixture.makeDue(other);
    expect(fixture.messages.map(({ message }) => message.recordId)).toContain(other.recordId);
    await fixture.drainAll();
    await Promise.all([1, 2, 3].map(() => fixture.sync.run(recordId)));
    expect(await fixture.historyKinds(recordId)).toEqual(["failed", "created"]);
    await plant();
    // Makes the source index row of another record name this record.
    const [sourceRow] = (JSON.parse(await fixture.rowsAsText()) as { rowKey: string }[]).filter(
      ({ rowKey }) => rowKey.startsWith("s|") && rowKey.endsWith(`|${other.recordId}`),
    );
    await client().updateEntity({ partitionKey: "sync", rowKey: sourceRow!.rowKey, recordId }, "Merge");
    await Promise.all([1, 2, 3].map(() => fixture.sync.remove(recordId, false, undefined, caller)));
    expect(await fixture.historyKinds(recordId)).toEqual(["removed", "failed", "created"]);
    const left = (JSON.parse(await fixture.rowsAsText()) as { rowKey: string }[]).map(({ rowKey }) => rowKey);
    expect(left.filter((rowKey) => rowKey.startsWith("d|") && rowKey.endsWith(recordId))).toEqual([]);
    expect(left).toContain(sourceRow!.rowKey);
    await client().deleteEntity("sync", invalidRow.rowKey);
  });

  test("leaves its target to another record if its row is gone", async () => {
    const { rowKey, sourceSecret, targetName } = await fixture.createRecord();
    expect(await problemOf(fixture.createRecord({ sourceSecret, targetName }))).toEqual(["alreadyExists"]);
    await client().deleteEntity("sync", rowKey);
    await fixture.drainAll();
    const again = await fixture.createRecord({ sourceSecret, targetName });
    expect(await fixture.runAndGet(again.recordId)).toMatchObject({ state: "inSync" });
    expect(await problemOf(fixture.createRecord({ sourceSecret, targetName }))).toEqual(["alreadyExists"]);
  });

  const client = () =>
    TableClient.fromConnectionString(fixture.connectionString, "Sync", { allowInsecureConnection: true });

  /** Creates a record, runs it, changes its row, and runs it again. */
  async function tamperedAndRun(): Promise<SyncRecordRow> {
    const record = await fixture.createRecord();
    await fixture.drainAll();
    await tamper(record.rowKey);
    await fixture.makeDue(record);
    await fixture.drainAll();
    return record;
  }

  /** Changes the target in a row without its signature. With the original name, the row is valid again. */
  async function tamper(rowKey: string, targetName = "elsewhere"): Promise<void> {
    await client().updateEntity({ partitionKey: "sync", rowKey, targetName }, "Merge");
  }
});

test("without a license existing records can be read and deleted, and none can be created or run", async () => {
  const record = await fixture.createRecord({ targetName: "under-a-licence" });
  fixture.messages.splice(0);
  fixture.licence.tier = "core";
  try {
    await fixture.makeDue(record);
    await fixture.sync.runFor(SOURCE, record.sourceSecret);
    expect(fixture.messages).toEqual([]);
    await fixture.sync.sendDueRecords();
    expect(fixture.events.filter(({ type }) => type === "sync.unlicensed")).toHaveLength(1);
    // A message from when there was a license.
    cloud.control.resetCounts();
    await fixture.sync.run(record.recordId);
    expect([cloud.control.requests(), fixture.copyValue("under-a-licence")]).toEqual([[], undefined]);
    expect(await fixture.sync.status(record.recordId)).toMatchObject({ running: false });
    expect((await fixture.sync.list({}, PAGE)).total).toBeGreaterThan(0);
    expect(await problemOf(fixture.sync.get("01J00000000000000000000000"))).toEqual(["licenseRequired"]);
    fixture.licence.tier = "pro";
    await fixture.sync.run(record.recordId);
    expect(fixture.copyValue("under-a-licence")).toBe("value-one");
    fixture.licence.tier = "core";
    await fixture.sync.remove(record.recordId, false, undefined, caller);
  } finally {
    fixture.licence.tier = "pro";
  }
});
