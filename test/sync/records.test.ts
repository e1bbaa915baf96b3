import { TableClient } from "@azure/data-tables";
import type { Cloud } from "simulated-cloud/cloud.ts";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { Problem } from "../../shared/platform/http/problem.ts";
import type { SyncRecordRow } from "../../shared/sync/record.ts";
import { liveIn } from "../azure/live-cloud.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import { COPIES, caller, HOUR_MS, openRoom, PAGE, type Room, SOURCE } from "./sync-fixture.ts";

const SERVICE = "kv-lifecycle-service";

let azurite: TestStorage;
let cloud: Cloud;
let room: Room;

beforeAll(async () => {
  azurite = await openStorage(["records"]);
  const vaults = [{ name: SOURCE }, { name: COPIES }, { name: "kv-third" }];
  ({ cloud } = await liveIn({ company: { subscriptions: [{ name: "Shop", vaults }] } }));
  room = openRoom({ cloud, connectionString: azurite.connectionString("records") });
  await room.discover(SOURCE, COPIES, "kv-third", SERVICE);
});
afterAll(async () => {
  await cloud?.stop();
  await azurite?.stop();
});
beforeEach(() => room.messages.splice(0));

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
    const record = await room.record({ targetName: "asked-for", scheduleHours: 12 });
    expect(record).toMatchObject({
      sourceVault: SOURCE,
      targetRegion: COPIES,
      targetName: "asked-for",
      scheduleHours: 12,
      state: "new",
      targetOwned: false,
    });
    expect(room.messages).toMatchObject([{ message: { recordId: record.recordId } }]);
    expect(await room.sync.get(record.recordId)).toEqual(record);
    expect(room.events.filter(({ type }) => type === "syncRecord.created").map(({ outcome }) => outcome)).toEqual([
      "intent",
      "success",
    ]);
  });

  test("that begins paused is not run, until it is enabled", async () => {
    const { recordId } = await room.record({ enabled: false });
    expect(room.messages).toEqual([]);
    expect(await refused(room.sync.trigger(recordId, caller))).toEqual(["conflict"]);
    await room.sync.records.change(recordId, { enabled: true }, caller, undefined);
    expect(await room.settled(recordId)).toMatchObject({ state: "inSync" });
    const paused = await room.sync.records.change(recordId, { enabled: false }, caller, undefined);
    expect(paused.nextRunAt).toBeUndefined();
    room.messages.splice(0);
    await room.dueAgain(paused);
    expect(room.messages.filter(({ message }) => message.recordId === recordId)).toEqual([]);
  });

  test("has its target alone, however it is spelt", async () => {
    const { recordId, sourceSecret } = await room.record({ targetName: "Only-Once" });
    const second = room.record({ sourceSecret, targetName: "only-once", targetRegion: COPIES.toUpperCase() });
    await expect(second).rejects.toMatchObject({ code: "alreadyExists", members: { recordId } });
    expect((await room.record({ sourceSecret, targetName: "another" })).recordId).not.toBe(recordId);
  });

  test("of two that are made at once for one target one stands", async () => {
    const both = await Promise.all([1, 2].map(() => refused(room.record({ targetName: "at-once" }))));
    expect(both.flat().sort()).toEqual(["alreadyExists", "done"]);
  });

  test("copies nothing in a circle or on", async () => {
    const first = await room.record({ targetName: "first-copy" });
    const on = { sourceVault: COPIES, sourceSecret: "First-Copy", targetRegion: "kv-third" };
    expect(await refused(room.record(on))).toEqual(["syncLoop"]);
    const back = { targetRegion: SOURCE, targetName: first.sourceSecret };
    expect(await refused(room.record({ sourceVault: "kv-third", sourceSecret: "any", ...back }))).toEqual(["syncLoop"]);
    const itself = { sourceVault: "kv-third", sourceSecret: "same", targetRegion: "KV-THIRD", targetName: "Same" };
    expect(await refused(room.record(itself))).toEqual(["syncLoop"]);
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
    expect(await refused(room.record({ sourceVault: spelling }))).toEqual(["serviceVault"]);
    expect(await refused(room.record({ targetRegion: spelling }))).toEqual(["serviceVault"]);
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
    expect(await refused(room.record(given))).toEqual(["invalidRequest", path]);
  });

  test("keeps its source and target, whatever a change says", async () => {
    const record = await room.record();
    const change = (given: object) => refused(room.sync.records.change(record.recordId, given, caller, undefined));
    expect(await change({ ...record, sourceVault: SOURCE.toUpperCase(), scheduleHours: 3 })).toEqual(["done"]);
    expect(await change({ targetName: "other" })).toEqual(["invalidRequest", "body.targetName"]);
    expect(await change({ targetRegion: "kv-third" })).toEqual(["invalidRequest", "body.targetRegion"]);
    expect(await room.sync.get(record.recordId)).toMatchObject({ scheduleHours: 3, targetName: record.targetName });
  });

  test("is changed and deleted only as it was read", async () => {
    const { recordId, etag } = await room.record();
    await room.sync.records.change(recordId, { onDrift: "report" }, caller, etag);
    expect(await refused(room.sync.records.change(recordId, { adopt: true }, caller, etag))).toEqual([
      "preconditionFailed",
    ]);
    expect(await refused(room.sync.remove(recordId, false, etag, caller))).toEqual(["preconditionFailed"]);
    await room.sync.remove(recordId, false, undefined, caller);
    expect(await refused(room.sync.get(recordId))).toEqual(["notFound"]);
    expect(await refused(room.sync.remove(recordId, false, undefined, caller))).toEqual(["notFound"]);
  });

  test("that is deleted leaves no row but its history, and its target can be had again", async () => {
    const record = await room.record({ targetName: "had-again" });
    expect(await room.settled(record.recordId)).toMatchObject({ state: "inSync" });
    await room.sync.remove(record.recordId, false, undefined, caller);
    expect(room.value("had-again")).toBe("value-one");
    expect(await room.kinds(record.recordId)).toEqual(["removed", "created"]);
    const rows = JSON.parse(await room.rows()) as { rowKey: string }[];
    const left = rows.filter((row) => JSON.stringify(row).includes(record.recordId)).map(({ rowKey }) => rowKey[0]);
    expect([...new Set(left)].sort()).toEqual(["h", "o"]);
    const again = await room.record({ targetName: "had-again" });
    expect(await room.settled(again.recordId)).toMatchObject({ state: "failing", failure: { code: "targetNotOwned" } });
  });

  test("is deleted with its target, recoverably, only where that is its own", async () => {
    const record = await room.record({ targetName: "goes-along" });
    await room.settled(record.recordId);
    await room.sync.remove(record.recordId, true, undefined, caller);
    expect(room.value("goes-along")).toBeUndefined();
    cloud.control.putSecret(COPIES, { name: "of-others", value: "theirs" });
    const other = await room.record({ targetName: "of-others" });
    await room.drainAll();
    expect(await refused(room.sync.remove(other.recordId, true, undefined, caller))).toEqual(["conflict"]);
    expect(room.value("of-others")).toBe("theirs");
    expect(await room.sync.get(other.recordId)).toMatchObject({ recordId: other.recordId });
  });
});

test("the list is walked whole by cursor, and filtered", async () => {
  const made = new Set<string>();
  for (let count = 0; count < 5; count++) {
    made.add((await room.record({ sourceSecret: `listed-${count}`, enabled: count > 1 })).recordId);
  }
  const walked: string[] = [];
  let cursor: string | undefined;
  do {
    const { items, total, nextCursor } = await room.sync.list({}, { limit: 2, offset: 0, cursor });
    expect(total).toBeGreaterThanOrEqual(5);
    walked.push(...items.map(({ recordId }) => recordId));
    cursor = nextCursor ?? undefined;
  } while (cursor !== undefined);
  expect(new Set(walked).size).toBe(walked.length);
  expect([...made].filter((id) => !walked.includes(id))).toEqual([]);
  const { items, total } = await room.sync.list({ state: "paused", sourceSecret: "Listed-1" }, PAGE);
  expect([items.map(({ sourceSecret }) => sourceSecret), total]).toEqual([["listed-1"], 1]);
  expect(await room.sync.list({}, { limit: 1, offset: walked.length - 1, cursor: undefined })).toMatchObject({
    items: [{ recordId: walked.at(-1) }],
    nextCursor: null,
  });
});

describe("a record that another program wrote into the table", () => {
  test("is not run; its history has one entry with the reason, and requests for it get a problem", async () => {
    const record = await tamperedAndRun();
    const { recordId, targetName } = record;
    expect(room.value("elsewhere")).toBeUndefined();
    const { items } = await room.sync.history(recordId, PAGE);
    expect(items).toEqual([
      expect.objectContaining({
        kind: "failed",
        failure: expect.objectContaining({ code: "tampered" }),
        source: `${SOURCE}/${record.sourceSecret}`,
        target: expect.stringContaining(targetName),
      }),
      expect.objectContaining({ kind: "created" }),
    ]);
    await room.dueAgain(record);
    await room.drainAll();
    await room.sync.run(recordId);
    await room.sync.gaveUp(recordId);
    await room.sync.runFor(SOURCE, record.sourceSecret);
    expect(await room.kinds(recordId)).toEqual(["failed", "created"]);
    expect(await refused(room.sync.get(recordId))).toEqual(["conflict"]);
    expect(await refused(room.sync.trigger(recordId, caller))).toEqual(["conflict"]);
    const { items: listed } = await room.sync.list({}, { ...PAGE, limit: 1000 });
    expect(listed.map((one) => one.recordId)).not.toContain(recordId);
  });

  test("can be deleted, without its target, and made anew", async () => {
    const record = await room.record();
    const { recordId, targetName } = record;
    await room.drainAll();
    await tamper(record.rowKey);
    expect(await refused(room.sync.remove(recordId, true, undefined, caller))).toEqual(["conflict"]);
    expect(await refused(room.sync.remove(recordId, false, record.etag, caller))).toEqual(["preconditionFailed"]);
    await room.sync.remove(recordId, false, undefined, caller);
    expect(room.value(targetName)).toBe("value-one");
    expect(await room.kinds(recordId)).toEqual(["removed", "created"]);
    const rows = JSON.parse(await room.rows()) as { rowKey: string }[];
    const left = rows.filter((row) => JSON.stringify(row).includes(recordId)).map(({ rowKey }) => rowKey[0]);
    expect([...new Set(left)].sort()).toEqual(["h", "o"]);
    const again = await room.record({ sourceSecret: record.sourceSecret, targetName, adopt: true });
    expect(await room.settled(again.recordId)).toMatchObject({ state: "inSync" });
  });

  test("is kept if its row is valid again when it is deleted, and the caller gets a conflict", async () => {
    const record = await room.record();
    await room.drainAll();
    await tamper(record.rowKey);
    room.whenEntered = ({ outcome }) =>
      outcome === "intent" ? tamper(record.rowKey, record.targetName) : Promise.resolve();
    expect(await refused(room.sync.remove(record.recordId, false, undefined, caller))).toEqual(["conflict"]);
    room.whenEntered = undefined;
    expect(await room.sync.get(record.recordId)).toMatchObject({ state: "inSync" });
    expect(await room.kinds(record.recordId)).toEqual(["created"]);
  });

  test("continues when its row is valid again", async () => {
    const record = await tamperedAndRun();
    const { recordId, targetName } = record;
    expect(await room.kinds(recordId)).toEqual(["failed", "created"]);
    await tamper(record.rowKey, targetName);
    // Half an hour later its message would be sent again. It is checked once a day.
    await room.pass(HOUR_MS);
    await room.sync.tick();
    expect(room.messages.filter(({ message }) => message.recordId === recordId)).toEqual([]);
    cloud.control.putSecret(SOURCE, { name: record.sourceSecret, value: "value-two" });
    await room.dueAgain(record);
    await room.drainAll();
    expect(room.value(targetName)).toBe("value-two");
    await tamper(record.rowKey);
    await room.dueAgain(record);
    await room.drainAll();
    expect(await room.kinds(recordId)).toEqual(["failed", "updated", "failed", "created"]);
  });

  test("can be changed, run and deleted without its places in the indexes", async () => {
    const record = await room.record();
    const { recordId } = record;
    await room.drainAll();
    const remove = async (prefix: string) => {
      const rows = JSON.parse(await room.rows()) as { rowKey: string }[];
      const its = rows.filter(({ rowKey }) => rowKey.startsWith(prefix) && rowKey.endsWith(`|${recordId}`));
      for (const { rowKey } of its) await client().deleteEntity("sync", rowKey);
      expect(its).toHaveLength(1);
    };
    await remove("d|");
    await room.sync.records.change(recordId, { scheduleHours: 3 }, caller, undefined);
    await remove("d|");
    expect(await room.sync.trigger(recordId, caller)).toMatchObject({ state: "pending" });
    await remove("d|");
    expect(await room.settled(recordId)).toMatchObject({ state: "inSync" });
    await remove("d|");
    await remove("s|");
    await room.sync.remove(recordId, false, undefined, caller);
    expect(await refused(room.sync.get(recordId))).toEqual(["notFound"]);
  });

  test("is set aside once and deleted once, by however many, whatever else was written", async () => {
    const record = await room.record();
    const other = await room.record();
    const { recordId } = record;
    await room.drainAll();
    await tamper(record.rowKey);
    const planted = Array.from({ length: 120 }, (_, index) => `d|2020-01-01T00:00:00.${index + 100}Z|${recordId}`);
    const plant = async () => {
      for (const rowKey of planted) await client().upsertEntity({ partitionKey: "sync", rowKey });
    };
    await plant();
    const odd = { partitionKey: "sync", rowKey: `d|2020-01-01T00:00:00.000Z|odd`, sentAt: 7, recordId: 7 };
    await client().upsertEntity(odd);
    // One row that can't be read keeps no other from being run.
    await room.dueAgain(other);
    expect(room.messages.map(({ message }) => message.recordId)).toContain(other.recordId);
    await room.drainAll();
    await Promise.all([1, 2, 3].map(() => room.sync.run(recordId)));
    expect(await room.kinds(recordId)).toEqual(["failed", "created"]);
    await plant();
    // Says of another record's place that it is this one's.
    const [place] = (JSON.parse(await room.rows()) as { rowKey: string }[]).filter(
      ({ rowKey }) => rowKey.startsWith("s|") && rowKey.endsWith(`|${other.recordId}`),
    );
    await client().updateEntity({ partitionKey: "sync", rowKey: place!.rowKey, recordId }, "Merge");
    await Promise.all([1, 2, 3].map(() => room.sync.remove(recordId, false, undefined, caller)));
    expect(await room.kinds(recordId)).toEqual(["removed", "failed", "created"]);
    const left = (JSON.parse(await room.rows()) as { rowKey: string }[]).map(({ rowKey }) => rowKey);
    expect(left.filter((rowKey) => rowKey.startsWith("d|") && rowKey.endsWith(recordId))).toEqual([]);
    expect(left).toContain(place!.rowKey);
    await client().deleteEntity("sync", odd.rowKey);
  });

  test("leaves its target to others when its row is gone", async () => {
    const { rowKey, sourceSecret, targetName } = await room.record();
    expect(await refused(room.record({ sourceSecret, targetName }))).toEqual(["alreadyExists"]);
    await client().deleteEntity("sync", rowKey);
    await room.drainAll();
    const again = await room.record({ sourceSecret, targetName });
    expect(await room.settled(again.recordId)).toMatchObject({ state: "inSync" });
    expect(await refused(room.record({ sourceSecret, targetName }))).toEqual(["alreadyExists"]);
  });

  const client = () =>
    TableClient.fromConnectionString(room.connectionString, "Sync", { allowInsecureConnection: true });

  /** A record that was run, was then tampered with, and has come to its next run. */
  async function tamperedAndRun(): Promise<SyncRecordRow> {
    const record = await room.record();
    await room.drainAll();
    await tamper(record.rowKey);
    await room.dueAgain(record);
    await room.drainAll();
    return record;
  }

  async function tamper(rowKey: string, targetName = "elsewhere"): Promise<void> {
    await client().updateEntity({ partitionKey: "sync", rowKey, targetName }, "Merge");
  }
});

test("without a license existing records can be read and deleted, and none can be created or run", async () => {
  const record = await room.record({ targetName: "under-a-licence" });
  room.messages.splice(0);
  room.licence.tier = "core";
  try {
    await room.dueAgain(record);
    await room.sync.runFor(SOURCE, record.sourceSecret);
    expect(room.messages).toEqual([]);
    await room.sync.tick();
    expect(room.events.filter(({ type }) => type === "sync.unlicensed")).toHaveLength(1);
    // A message from when there was a license.
    cloud.control.resetCounts();
    await room.sync.run(record.recordId);
    expect([cloud.control.requests(), room.value("under-a-licence")]).toEqual([[], undefined]);
    expect(await room.sync.status(record.recordId)).toMatchObject({ running: false });
    expect((await room.sync.list({}, PAGE)).total).toBeGreaterThan(0);
    expect(await refused(room.sync.get("01J00000000000000000000000"))).toEqual(["licenseRequired"]);
    room.licence.tier = "pro";
    await room.sync.run(record.recordId);
    expect(room.value("under-a-licence")).toBe("value-one");
    room.licence.tier = "core";
    await room.sync.remove(record.recordId, false, undefined, caller);
  } finally {
    room.licence.tier = "pro";
  }
});
