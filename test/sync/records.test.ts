import { TableClient } from "@azure/data-tables";
import type { Cloud } from "simulated-cloud/cloud.ts";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { Problem } from "../../shared/platform/http/problem.ts";
import type { SyncRecordRow } from "../../shared/sync/record.ts";
import { liveIn } from "../azure/live-cloud.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import { COPIES, caller, type Fixture, HOUR_MS, openFixture, PAGE, SOURCE } from "./sync-fixture.ts";

const SERVICE = "kv-lifecycle-service";

let azurite: TestStorage;
let cloud: Cloud;
let fixture: Fixture;

beforeAll(async () => {
  azurite = await openStorage(["records"]);
  const vaults = [{ name: SOURCE }, { name: COPIES }, { name: "kv-third" }];
  ({ cloud } = await liveIn({ company: { subscriptions: [{ name: "Shop", vaults }] } }));
  fixture = openFixture({ cloud, connectionString: azurite.connectionString("records") });
  await fixture.discover(SOURCE, COPIES, "kv-third", SERVICE);
});
afterAll(async () => {
  await cloud?.stop();
  await azurite?.stop();
});
beforeEach(() => fixture.messages.splice(0));

/** Returns the code of the problem and the path of its error. */
const refused = (work: Promise<unknown>) =>
  work.then(
    () => ["done"],
    (error: unknown) => {
      if (!(error instanceof Problem)) throw error;
      return [error.code, ...(error.errors?.map(({ path }) => path) ?? [])];
    },
  );

describe("a record", () => {
  test("returns the given members, and waits for its first run", async () => {
    const record = await fixture.record({ targetName: "asked-for", scheduleHours: 12 });
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

  test("that begins paused is not run, until it is enabled", async () => {
    const { recordId } = await fixture.record({ enabled: false });
    expect(fixture.messages).toEqual([]);
    expect(await refused(fixture.sync.trigger(recordId, caller))).toEqual(["conflict"]);
    await fixture.sync.records.change(recordId, { enabled: true }, caller, undefined);
    expect(await fixture.settled(recordId)).toMatchObject({ state: "inSync" });
    const paused = await fixture.sync.records.change(recordId, { enabled: false }, caller, undefined);
    expect(paused.nextRunAt).toBeUndefined();
    fixture.messages.splice(0);
    await fixture.dueAgain(paused);
    expect(fixture.messages.filter(({ message }) => message.recordId === recordId)).toEqual([]);
  });

  test("has its target alone, however it is spelt", async () => {
    const { recordId, sourceSecret } = await fixture.record({ targetName: "Only-Once" });
    const second = fixture.record({ sourceSecret, targetName: "only-once", targetRegion: COPIES.toUpperCase() });
    await expect(second).rejects.toMatchObject({ code: "alreadyExists", members: { recordId } });
    expect((await fixture.record({ sourceSecret, targetName: "another" })).recordId).not.toBe(recordId);
  });

  test("of two that are made at once for one target one stands", async () => {
    const both = await Promise.all([1, 2].map(() => refused(fixture.record({ targetName: "at-once" }))));
    expect(both.flat().sort()).toEqual(["alreadyExists", "done"]);
  });

  test("copies nothing in a circle or on", async () => {
    const first = await fixture.record({ targetName: "first-copy" });
    const on = { sourceVault: COPIES, sourceSecret: "First-Copy", targetRegion: "kv-third" };
    expect(await refused(fixture.record(on))).toEqual(["syncLoop"]);
    const back = { targetRegion: SOURCE, targetName: first.sourceSecret };
    expect(await refused(fixture.record({ sourceVault: "kv-third", sourceSecret: "any", ...back }))).toEqual([
      "syncLoop",
    ]);
    const itself = { sourceVault: "kv-third", sourceSecret: "same", targetRegion: "KV-THIRD", targetName: "Same" };
    expect(await refused(fixture.record(itself))).toEqual(["syncLoop"]);
  });

  test.each([
    SERVICE,
    SERVICE.toUpperCase(),
    ` ${SERVICE} `,
    "https://kv-lifecycle-service.vault.localhost",
    "https://KV-Lifecycle-Service.vault.localhost:8443/secrets/x",
    "https://kv%2Dlifecycle-service.vault.localhost./",
    "HTTPS://kv-lifecycle-service.vault.localhost",
  ])("never has the service's own key vault as source or target: %s", async (spelling) => {
    expect(await refused(fixture.record({ sourceVault: spelling }))).toEqual(["serviceVault"]);
    expect(await refused(fixture.record({ targetRegion: spelling }))).toEqual(["serviceVault"]);
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
  ])("refuses %j", async (given, path) => {
    expect(await refused(fixture.record(given))).toEqual(["invalidRequest", path]);
  });

  test("keeps its source and target, whatever a change says", async () => {
    const record = await fixture.record();
    const change = (given: object) => refused(fixture.sync.records.change(record.recordId, given, caller, undefined));
    expect(await change({ ...record, sourceVault: SOURCE.toUpperCase(), scheduleHours: 3 })).toEqual(["done"]);
    expect(await change({ targetName: "other" })).toEqual(["invalidRequest", "body.targetName"]);
    expect(await change({ targetRegion: "kv-third" })).toEqual(["invalidRequest", "body.targetRegion"]);
    expect(await fixture.sync.get(record.recordId)).toMatchObject({ scheduleHours: 3, targetName: record.targetName });
  });

  test("is changed and deleted only as it was read", async () => {
    const { recordId, etag } = await fixture.record();
    await fixture.sync.records.change(recordId, { onDrift: "report" }, caller, etag);
    expect(await refused(fixture.sync.records.change(recordId, { adopt: true }, caller, etag))).toEqual([
      "preconditionFailed",
    ]);
    expect(await refused(fixture.sync.remove(recordId, false, etag, caller))).toEqual(["preconditionFailed"]);
    await fixture.sync.remove(recordId, false, undefined, caller);
    expect(await refused(fixture.sync.get(recordId))).toEqual(["notFound"]);
    expect(await refused(fixture.sync.remove(recordId, false, undefined, caller))).toEqual(["notFound"]);
  });

  test("that is deleted leaves no row but its history, and its target can be had again", async () => {
    const record = await fixture.record({ targetName: "had-again" });
    expect(await fixture.settled(record.recordId)).toMatchObject({ state: "inSync" });
    await fixture.sync.remove(record.recordId, false, undefined, caller);
    expect(fixture.value("had-again")).toBe("value-one");
    expect(await fixture.kinds(record.recordId)).toEqual(["removed", "created"]);
    const rows = JSON.parse(await fixture.rows()) as { rowKey: string }[];
    const left = rows.filter((row) => JSON.stringify(row).includes(record.recordId)).map(({ rowKey }) => rowKey[0]);
    expect([...new Set(left)].sort()).toEqual(["h", "o"]);
    const again = await fixture.record({ targetName: "had-again" });
    expect(await fixture.settled(again.recordId)).toMatchObject({
      state: "failing",
      failure: { code: "targetNotOwned" },
    });
  });

  test("is deleted with its target, recoverably, only where that is its own", async () => {
    const record = await fixture.record({ targetName: "goes-along" });
    await fixture.settled(record.recordId);
    await fixture.sync.remove(record.recordId, true, undefined, caller);
    expect(fixture.value("goes-along")).toBeUndefined();
    cloud.control.putSecret(COPIES, { name: "of-others", value: "theirs" });
    const other = await fixture.record({ targetName: "of-others" });
    await fixture.drainAll();
    expect(await refused(fixture.sync.remove(other.recordId, true, undefined, caller))).toEqual(["conflict"]);
    expect(fixture.value("of-others")).toBe("theirs");
    expect(await fixture.sync.get(other.recordId)).toMatchObject({ recordId: other.recordId });
  });
});

test("the list is walked whole by cursor, and filtered", async () => {
  const made = new Set<string>();
  for (let count = 0; count < 5; count++) {
    made.add((await fixture.record({ sourceSecret: `listed-${count}`, enabled: count > 1 })).recordId);
  }
  const walked: string[] = [];
  let cursor: string | undefined;
  do {
    const { items, total, nextCursor } = await fixture.sync.list({}, { limit: 2, offset: 0, cursor });
    expect(total).toBeGreaterThanOrEqual(5);
    walked.push(...items.map(({ recordId }) => recordId));
    cursor = nextCursor ?? undefined;
  } while (cursor !== undefined);
  expect(new Set(walked).size).toBe(walked.length);
  expect([...made].filter((id) => !walked.includes(id))).toEqual([]);
  const { items, total } = await fixture.sync.list({ state: "paused", sourceSecret: "Listed-1" }, PAGE);
  expect([items.map(({ sourceSecret }) => sourceSecret), total]).toEqual([["listed-1"], 1]);
  expect(await fixture.sync.list({}, { limit: 1, offset: walked.length - 1, cursor: undefined })).toMatchObject({
    items: [{ recordId: walked.at(-1) }],
    nextCursor: null,
  });
});

describe("a record that another program wrote into the table", () => {
  test("is not run; its history has one entry with the reason, and requests for it get a problem", async () => {
    const record = await tamperedAndRun();
    const { recordId, targetName } = record;
    expect(fixture.value("elsewhere")).toBeUndefined();
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
    await fixture.dueAgain(record);
    await fixture.drainAll();
    await fixture.sync.run(recordId);
    await fixture.sync.failRun(recordId);
    await fixture.sync.runFor(SOURCE, record.sourceSecret);
    expect(await fixture.kinds(recordId)).toEqual(["failed", "created"]);
    expect(await refused(fixture.sync.get(recordId))).toEqual(["conflict"]);
    expect(await refused(fixture.sync.trigger(recordId, caller))).toEqual(["conflict"]);
    const { items: listed } = await fixture.sync.list({}, { ...PAGE, limit: 1000 });
    expect(listed.map((one) => one.recordId)).not.toContain(recordId);
  });

  test("can be deleted, without its target, and made anew", async () => {
    const record = await fixture.record();
    const { recordId, targetName } = record;
    await fixture.drainAll();
    await tamper(record.rowKey);
    expect(await refused(fixture.sync.remove(recordId, true, undefined, caller))).toEqual(["conflict"]);
    expect(await refused(fixture.sync.remove(recordId, false, record.etag, caller))).toEqual(["preconditionFailed"]);
    await fixture.sync.remove(recordId, false, undefined, caller);
    expect(fixture.value(targetName)).toBe("value-one");
    expect(await fixture.kinds(recordId)).toEqual(["removed", "created"]);
    const rows = JSON.parse(await fixture.rows()) as { rowKey: string }[];
    const left = rows.filter((row) => JSON.stringify(row).includes(recordId)).map(({ rowKey }) => rowKey[0]);
    expect([...new Set(left)].sort()).toEqual(["h", "o"]);
    const again = await fixture.record({ sourceSecret: record.sourceSecret, targetName, adopt: true });
    expect(await fixture.settled(again.recordId)).toMatchObject({ state: "inSync" });
  });

  test("is kept if its row is valid again when it is deleted, and the caller gets a conflict", async () => {
    const record = await fixture.record();
    await fixture.drainAll();
    await tamper(record.rowKey);
    fixture.whenEntered = ({ outcome }) =>
      outcome === "intent" ? tamper(record.rowKey, record.targetName) : Promise.resolve();
    expect(await refused(fixture.sync.remove(record.recordId, false, undefined, caller))).toEqual(["conflict"]);
    fixture.whenEntered = undefined;
    expect(await fixture.sync.get(record.recordId)).toMatchObject({ state: "inSync" });
    expect(await fixture.kinds(record.recordId)).toEqual(["created"]);
  });

  test("continues when its row is valid again", async () => {
    const record = await tamperedAndRun();
    const { recordId, targetName } = record;
    expect(await fixture.kinds(recordId)).toEqual(["failed", "created"]);
    await tamper(record.rowKey, targetName);
    // Half an hour later its message would be sent again. It is checked once a day.
    await fixture.pass(HOUR_MS);
    await fixture.sync.sendDueRecords();
    expect(fixture.messages.filter(({ message }) => message.recordId === recordId)).toEqual([]);
    cloud.control.putSecret(SOURCE, { name: record.sourceSecret, value: "value-two" });
    await fixture.dueAgain(record);
    await fixture.drainAll();
    expect(fixture.value(targetName)).toBe("value-two");
    await tamper(record.rowKey);
    await fixture.dueAgain(record);
    await fixture.drainAll();
    expect(await fixture.kinds(recordId)).toEqual(["failed", "updated", "failed", "created"]);
  });

  test("can be changed, run and deleted without its places in the indexes", async () => {
    const record = await fixture.record();
    const { recordId } = record;
    await fixture.drainAll();
    const remove = async (prefix: string) => {
      const rows = JSON.parse(await fixture.rows()) as { rowKey: string }[];
      const its = rows.filter(({ rowKey }) => rowKey.startsWith(prefix) && rowKey.endsWith(`|${recordId}`));
      for (const { rowKey } of its) await client().deleteEntity("sync", rowKey);
      expect(its).toHaveLength(1);
    };
    await remove("d|");
    await fixture.sync.records.change(recordId, { scheduleHours: 3 }, caller, undefined);
    await remove("d|");
    expect(await fixture.sync.trigger(recordId, caller)).toMatchObject({ state: "pending" });
    await remove("d|");
    expect(await fixture.settled(recordId)).toMatchObject({ state: "inSync" });
    await remove("d|");
    await remove("s|");
    await fixture.sync.remove(recordId, false, undefined, caller);
    expect(await refused(fixture.sync.get(recordId))).toEqual(["notFound"]);
  });

  test("is set aside once and deleted once, by however many, whatever else was written", async () => {
    const record = await fixture.record();
    const other = await fixture.record();
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
    // One row that can't be read keeps no other from being run.
    await fixture.dueAgain(other);
    expect(fixture.messages.map(({ message }) => message.recordId)).toContain(other.recordId);
    await fixture.drainAll();
    await Promise.all([1, 2, 3].map(() => fixture.sync.run(recordId)));
    expect(await fixture.kinds(recordId)).toEqual(["failed", "created"]);
    await plant();
    // Says of another record's place that it is this one's.
    const [place] = (JSON.parse(await fixture.rows()) as { rowKey: string }[]).filter(
      ({ rowKey }) => rowKey.startsWith("s|") && rowKey.endsWith(`|${other.recordId}`),
    );
    await client().updateEntity({ partitionKey: "sync", rowKey: place!.rowKey, recordId }, "Merge");
    await Promise.all([1, 2, 3].map(() => fixture.sync.remove(recordId, false, undefined, caller)));
    expect(await fixture.kinds(recordId)).toEqual(["removed", "failed", "created"]);
    const left = (JSON.parse(await fixture.rows()) as { rowKey: string }[]).map(({ rowKey }) => rowKey);
    expect(left.filter((rowKey) => rowKey.startsWith("d|") && rowKey.endsWith(recordId))).toEqual([]);
    expect(left).toContain(place!.rowKey);
    await client().deleteEntity("sync", invalidRow.rowKey);
  });

  test("leaves its target to others when its row is gone", async () => {
    const { rowKey, sourceSecret, targetName } = await fixture.record();
    expect(await refused(fixture.record({ sourceSecret, targetName }))).toEqual(["alreadyExists"]);
    await client().deleteEntity("sync", rowKey);
    await fixture.drainAll();
    const again = await fixture.record({ sourceSecret, targetName });
    expect(await fixture.settled(again.recordId)).toMatchObject({ state: "inSync" });
    expect(await refused(fixture.record({ sourceSecret, targetName }))).toEqual(["alreadyExists"]);
  });

  const client = () =>
    TableClient.fromConnectionString(fixture.connectionString, "Sync", { allowInsecureConnection: true });

  /** A record that was run, was then tampered with, and has come to its next run. */
  async function tamperedAndRun(): Promise<SyncRecordRow> {
    const record = await fixture.record();
    await fixture.drainAll();
    await tamper(record.rowKey);
    await fixture.dueAgain(record);
    await fixture.drainAll();
    return record;
  }

  async function tamper(rowKey: string, targetName = "elsewhere"): Promise<void> {
    await client().updateEntity({ partitionKey: "sync", rowKey, targetName }, "Merge");
  }
});

test("without a license existing records can be read and deleted, and none can be created or run", async () => {
  const record = await fixture.record({ targetName: "under-a-licence" });
  fixture.messages.splice(0);
  fixture.licence.tier = "core";
  try {
    await fixture.dueAgain(record);
    await fixture.sync.runFor(SOURCE, record.sourceSecret);
    expect(fixture.messages).toEqual([]);
    await fixture.sync.sendDueRecords();
    expect(fixture.events.filter(({ type }) => type === "sync.unlicensed")).toHaveLength(1);
    // A message from when there was a license.
    cloud.control.resetCounts();
    await fixture.sync.run(record.recordId);
    expect([cloud.control.requests(), fixture.value("under-a-licence")]).toEqual([[], undefined]);
    expect(await fixture.sync.status(record.recordId)).toMatchObject({ running: false });
    expect((await fixture.sync.list({}, PAGE)).total).toBeGreaterThan(0);
    expect(await refused(fixture.sync.get("01J00000000000000000000000"))).toEqual(["licenseRequired"]);
    fixture.licence.tier = "pro";
    await fixture.sync.run(record.recordId);
    expect(fixture.value("under-a-licence")).toBe("value-one");
    fixture.licence.tier = "core";
    await fixture.sync.remove(record.recordId, false, undefined, caller);
  } finally {
    fixture.licence.tier = "pro";
  }
});
