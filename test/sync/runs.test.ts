import type { Cloud } from "simulated-cloud/cloud.ts";
import type { FaultAction } from "simulated-cloud/faults.ts";
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from "vitest";
import { MINUTE_MS } from "../../shared/platform/time.ts";
import { changeLease, takeRecordLease } from "../../shared/sync/leases.ts";
import { Leases, leaseKey, SYNC } from "../../shared/sync/record.ts";
import { startTestCloud } from "../azure/live-cloud.ts";
import { type MovedStorage, startMovedStorage } from "../support/moved-storage.ts";
import { COPIES, caller, type Fixture, HOUR_MS, openFixture, SOURCE } from "./sync-fixture.ts";

// Runs of sync records from one key vault to another: what a run copies, restores and reports.

let storage: MovedStorage;
let cloud: Cloud;
let fixture: Fixture;

beforeAll(async () => {
  storage = await startMovedStorage(["runs"]);
  const vaults = [
    { name: SOURCE, certificates: [{ name: "www" }] },
    { name: COPIES, certificates: [{ name: "www" }] },
  ];
  ({ cloud } = await startTestCloud({ company: { subscriptions: [{ name: "Shop", vaults }] } }));
  fixture = openFixture({ cloud, connectionString: storage.azurite.connectionString("runs"), storage });
  await fixture.discover(SOURCE, COPIES);
});
afterAll(async () => {
  await cloud?.stop();
  await storage?.stop();
});
afterEach(async () => {
  vi.useRealTimers();
  fixture.onAuditEvent = undefined;
  cloud.control.clearFaults();
  await fixture.removeAllRecords();
});

/** Returns the requests to the source vault and the vault of copies during some work, by operation. */
async function countRequests(work: () => Promise<unknown>): Promise<Record<string, number>> {
  cloud.control.resetCounts();
  await work();
  const counts: Record<string, number> = {};
  for (const { operation, vault } of cloud.control.requests()) {
    if (operation === "keyvault.challenge" || (vault !== SOURCE && vault !== COPIES)) continue;
    counts[operation] = (counts[operation] ?? 0) + 1;
  }
  return counts;
}

describe("a run", () => {
  test("copies the secret, and the next one reads no value and writes nothing", async () => {
    const { recordId } = await fixture.createRecord();
    const first = await countRequests(() => fixture.drainAll());
    expect(first["keyvault.getSecret"]).toBe(1);
    expect(first["keyvault.setSecret"]).toBe(1);
    const record = await fixture.sync.get(recordId);
    expect(record).toMatchObject({ state: "inSync", targetOwned: true, failedRuns: 0 });
    expect(Date.parse(record.nextRunAt!) - Date.parse(record.lastCheckedAt!)).toBeGreaterThan(23 * HOUR_MS);
    expect(fixture.copyValue(record.targetName)).toBe("value-one");
    const idle = await countRequests(async () => {
      await fixture.makeDue(record);
      await fixture.drainAll();
    });
    expect(idle).toEqual({ "arm.getVault": 2, "keyvault.listSecretVersions": 2 });
    const after = await fixture.sync.get(record.recordId);
    expect(after.lastCheckedAt! > record.lastCheckedAt!).toBe(true);
    expect(after.lastSyncedAt).toBe(record.lastSyncedAt);
    expect(await fixture.historyKinds(record.recordId)).toEqual(["created"]);
  });

  test("copies a new version for all records of that secret", async () => {
    const sourceSecret = fixture.putSourceSecret("value-one");
    const records = [await fixture.createRecord({ sourceSecret }), await fixture.createRecord({ sourceSecret })];
    await fixture.drainAll();
    fixture.putSourceSecret("value-two", sourceSecret);
    await fixture.sync.runFor(SOURCE.toUpperCase(), sourceSecret.toUpperCase());
    await fixture.drain();
    for (const { targetName, recordId } of records) {
      expect(fixture.copyValue(targetName)).toBe("value-two");
      expect(await fixture.historyKinds(recordId)).toEqual(["updated", "created"]);
    }
  });

  test("copies a value that a rotation writes", async () => {
    const { recordId, sourceSecret, targetName } = await fixture.runAndGet((await fixture.createRecord()).recordId);
    await fixture.openSourceForRotation().write(sourceSecret, { value: "value-rotated" });
    expect(await fixture.runAndGet(recordId)).toMatchObject({ state: "inSync" });
    expect(fixture.copyValue(targetName)).toBe("value-rotated");
  });

  test("of a record that is not due makes no request", async () => {
    const { recordId } = await fixture.runAndGet((await fixture.createRecord()).recordId);
    expect(await countRequests(() => fixture.sync.run(recordId))).toEqual({});
  });

  test("writes the target once if two instances run the same record at the same time", async () => {
    const { recordId, targetName } = await fixture.createRecord();
    const counts = await countRequests(() =>
      Promise.all([fixture.instance().run(recordId), fixture.instance().run(recordId)]),
    );
    expect(counts["keyvault.setSecret"]).toBe(1);
    expect(await fixture.runAndGet(recordId)).toMatchObject({ state: "inSync" });
    expect(fixture.copyValue(targetName)).toBe("value-one");
  });

  test("that is triggered during another run follows it", async () => {
    const { recordId, sourceSecret, targetName } = await fixture.createRecord();
    cloud.control.addFault({
      match: { operation: "keyvault.setSecret" },
      action: { kind: "latency", milliseconds: 300 },
    });
    cloud.control.resetCounts();
    const running = fixture.sync.run(recordId);
    const read = { operation: "keyvault.getSecret", vault: SOURCE };
    await expect.poll(() => cloud.control.requests(read).length).toBe(1);
    fixture.putSourceSecret("value-two", sourceSecret);
    await fixture.sync.trigger(recordId, caller);
    await running;
    await fixture.drain();
    expect(fixture.copyValue(targetName)).toBe("value-two");
  });

  test("that takes minutes stores its outcome, and nothing renews its lease", async () => {
    const { recordId } = await fixture.createRecord();
    vi.useFakeTimers({ toFake: ["setInterval", "clearInterval"] });
    let timers = 0;
    fixture.onAuditEvent = async ({ outcome }) => {
      if (outcome !== "intent") return;
      timers += vi.getTimerCount();
      vi.advanceTimersByTime(5 * MINUTE_MS);
    };
    await fixture.drain();
    expect(timers).toBe(0);
    expect(await fixture.sync.get(recordId)).toMatchObject({ state: "inSync" });
    expect(await fixture.tables.get(Leases, SYNC, leaseKey(recordId))).toBeUndefined();
  });

  test("can announce two writes at the same time without losing its lease", async () => {
    const lease = await takeRecordLease(fixture.tables, "01KFFFFFFFFFFFFFFFFFFFFFFF", "worker");
    if ("waitMs" in lease) throw new Error("The record is leased.");
    const announce = (writing: string) => changeLease(lease, { type: "announced", writing, creating: false });
    await Promise.all([announce("one"), announce("two")]);
    expect([lease.signal.aborted, lease.row.writing]).toEqual([false, "two"]);
  });
});

describe("a target that another writer changed", () => {
  test("is detected without reading its value, and restored", async () => {
    const record = await fixture.runAndGet((await fixture.createRecord()).recordId);
    cloud.control.putSecret(COPIES, { name: record.targetName, value: "by-others" });
    const counts = await countRequests(async () => {
      await fixture.makeDue(record);
      await fixture.drainAll();
    });
    expect(cloud.control.requests({ operation: "keyvault.getSecret", vault: COPIES })).toEqual([]);
    expect(counts["keyvault.setSecret"]).toBe(1);
    expect(fixture.copyValue(record.targetName)).toBe("value-one");
    expect(await fixture.historyKinds(record.recordId)).toEqual(["mended", "created"]);
  });

  test("is reported once but not restored if the record is set to report", async () => {
    const { recordId, targetName } = await fixture.createRecord({ onDrift: "report" });
    const record = await fixture.runAndGet(recordId);
    cloud.control.putSecret(COPIES, { name: targetName, value: "by-others" });
    fixture.putSourceSecret("value-two", record.sourceSecret);
    for (let ticks = 0; ticks < 2; ticks++) {
      await fixture.makeDue(record);
      expect(await fixture.runAndGet(recordId)).toMatchObject({ state: "drifted" });
    }
    expect(fixture.copyValue(targetName)).toBe("by-others");
    expect(await fixture.historyKinds(recordId)).toEqual(["driftFound", "created"]);
    await fixture.sync.records.change(recordId, { onDrift: "overwrite" }, caller, undefined);
    expect(await fixture.runAndGet(recordId)).toMatchObject({ state: "inSync" });
    expect(fixture.copyValue(targetName)).toBe("value-two");
  });

  test("is recovered if it was deleted, and is not purged", async () => {
    const record = await fixture.runAndGet((await fixture.createRecord()).recordId);
    fixture.putSourceSecret("value-two", record.sourceSecret);
    await fixture.openCopiesVault().remove(record.targetName);
    const counts = await countRequests(async () => {
      await fixture.makeDue(record);
      await fixture.drainAll();
    });
    expect([counts["keyvault.recoverSecret"], counts["keyvault.purgeSecret"]]).toEqual([1, undefined]);
    expect(fixture.copyValue(record.targetName)).toBe("value-two");
    expect(await fixture.sync.get(record.recordId)).toMatchObject({ state: "inSync" });
    expect(await fixture.historyKinds(record.recordId)).toEqual(["updated", "created"]);
  });
});

describe("a target that the record does not own", () => {
  test("is not overwritten unless the record is set to adopt it", async () => {
    const targetName = fixture.unusedName("theirs");
    cloud.control.putSecret(COPIES, { name: targetName, value: "theirs" });
    const { recordId } = await fixture.createRecord({ targetName });
    expect(await fixture.runAndGet(recordId)).toMatchObject({
      state: "failing",
      targetOwned: false,
      failure: { code: "targetNotOwned", side: "target" },
    });
    expect(fixture.copyValue(targetName)).toBe("theirs");
    await fixture.sync.records.change(recordId, { adopt: true }, caller, undefined);
    expect(await fixture.runAndGet(recordId)).toMatchObject({ state: "inSync", targetOwned: true });
    expect(fixture.copyValue(targetName)).toBe("value-one");
  });

  test.each([
    ["without the owner that its tags name, because that is not a record ID", "<b>call 0900</b>".padEnd(256, "!")],
    ["with the record ID that its tags name", "01J00000000000000000000000"],
  ])("is reported %s", async (_how, owner) => {
    const targetName = fixture.unusedName("tagged");
    const tags = { "managed-by": "credential-lifecycle", "sync-record": owner };
    cloud.control.putSecret(COPIES, { name: targetName, value: "theirs", tags });
    const { recordId } = await fixture.createRecord({ targetName });
    const { failure } = await fixture.runAndGet(recordId);
    expect(failure).toMatchObject({ code: "targetNotOwned" });
    const { state } = await fixture.sync.plan(recordId);
    const isRecord = owner.startsWith("01J");
    expect([failure!.message.includes(owner), state!.ownedBy]).toEqual([isRecord, isRecord ? owner : null]);
  });

  test("is rejected if it belongs to a certificate", async () => {
    const { recordId } = await fixture.createRecord({ targetName: "www", adopt: true });
    expect(await fixture.runAndGet(recordId)).toMatchObject({ failure: { code: "targetRefused" } });
  });
});

describe("a source", () => {
  test.each([
    // The last member makes the source and returns its name.
    ["that is missing", "sourceNotFound", async () => fixture.unusedName("missing")],
    ["that is disabled", "sourceDisabled", async () => put({ enabled: false })],
    ["that has expired", "sourceExpired", async () => put({ expiresInDays: -1 })],
    ["that is not valid yet", "sourceNotYetValid", async () => put({ activeInDays: 1000 })],
    ["that backs a certificate", "sourceManaged", async () => "www"],
    ["that is a copy itself", "syncLoop", async () => put({ tags: TAGS_OF_COPY })],
  ])("%s fails with the code %s and has one history entry", async (_what, code, make) => {
    const { recordId, targetName, scheduleHours } = await fixture.createRecord({ sourceSecret: await make() });
    for (let ticks = 0; ticks < 2; ticks++) {
      const record = await fixture.runAndGet(recordId);
      expect(record).toMatchObject({ state: "failing", failedRuns: ticks + 1, failure: { code, side: "source" } });
      expect(record.failure!.remedy).toMatch(/\.$/);
      await fixture.makeDue({ scheduleHours });
    }
    expect(fixture.copyValue(targetName)).toBeUndefined();
    expect(await fixture.historyKinds(recordId)).toEqual(["failed"]);
  });

  test("that works again is copied", async () => {
    const sourceSecret = put({ enabled: false });
    const record = await fixture.runAndGet((await fixture.createRecord({ sourceSecret })).recordId);
    fixture.putSourceSecret("value-two", sourceSecret);
    await fixture.makeDue(record);
    const after = await fixture.runAndGet(record.recordId);
    expect(after).toMatchObject({ state: "inSync", failedRuns: 0 });
    expect(after.failure).toBeUndefined();
  });

  /** Tags of a secret that another sync record wrote. */
  const TAGS_OF_COPY = { "managed-by": "credential-lifecycle", "sync-record": "01J00000000000000000000000" };
  function put(secret: object): string {
    const name = fixture.unusedName("odd");
    cloud.control.putSecret(SOURCE, { name, value: "value-one", ...secret });
    return name;
  }
});

describe("a failure", () => {
  /** The failure's code, its cause, and whether the record is retried within an hour instead of at its daily schedule. */
  const FAULTS: [string, FaultAction, boolean][] = [
    ["throttled", { kind: "throttle", retryAfterSeconds: 120 }, true],
    ["accessDenied", { kind: "deny" }, false],
    ["badResponse", { kind: "garbage", as: "html" }, true],
    ["unreachable", { kind: "reset" }, true],
  ];
  test.each(FAULTS)(
    "of the target with the code %s is stored, and the record is retried",
    async (code, action, isRetriedWithinHour) => {
      const { recordId, targetName } = await fixture.createRecord();
      cloud.control.addFault({ match: { vault: COPIES }, action });
      const record = await fixture.runAndGet(recordId);
      expect(record).toMatchObject({ state: "failing", failure: { code, side: "target" }, failedRuns: 1 });
      const waitMs = Date.parse(record.nextRunAt!) - fixture.clock.now().getTime();
      expect(waitMs < HOUR_MS).toBe(isRetriedWithinHour);
      cloud.control.clearFaults();
      await fixture.makeDue(record);
      expect(await fixture.runAndGet(recordId)).toMatchObject({ state: "inSync", failedRuns: 0 });
      expect(fixture.copyValue(targetName)).toBe("value-one");
    },
  );

  test("whose write was applied is recognized as a success", async () => {
    const { recordId, targetName } = await fixture.createRecord();
    cloud.control.addFault({
      match: { vault: COPIES, operation: "keyvault.setSecret" },
      action: { kind: "loseAnswer" },
      times: 1,
    });
    const counts = await countRequests(() => fixture.runAndGet(recordId));
    expect(await fixture.sync.get(recordId)).toMatchObject({ state: "inSync" });
    expect([counts["keyvault.setSecret"], fixture.copyValue(targetName)]).toEqual([1, "value-one"]);
    const auditEvents = fixture.events.filter(
      ({ type, target }) => type === "syncTarget.written" && target!.id === recordId,
    );
    expect(auditEvents.map(({ outcome }) => outcome)).toEqual(["intent", "success"]);
  });

  test("with an unknown outcome leaves only the intent in the audit log until the next run", async () => {
    const { recordId } = await fixture.createRecord();
    const match = { vault: COPIES };
    // The run lists the versions of the copy three times: to decide, before the write, and to see whether the write happened.
    // The third time fails, so the outcome stays unknown.
    cloud.control.addFault({
      match: { ...match, operation: "keyvault.listSecretVersions" },
      action: { kind: "reset" },
      after: 2,
    });
    cloud.control.addFault({
      match: { ...match, operation: "keyvault.setSecret" },
      action: { kind: "loseAnswer" },
      times: 1,
    });
    const record = await fixture.runAndGet(recordId);
    expect(record).toMatchObject({ state: "failing", failure: { code: "unreachable" } });
    const outcomes = () =>
      fixture.events
        .filter(({ type, target }) => type === "syncTarget.written" && target!.id === recordId)
        .map(({ outcome }) => outcome);
    expect(outcomes()).toEqual(["intent"]);
    cloud.control.clearFaults();
    const counts = await countRequests(async () => {
      await fixture.makeDue(record);
      await fixture.drainAll();
    });
    expect(counts["keyvault.setSecret"]).toBeUndefined();
    expect(outcomes()).toEqual(["intent", "success"]);
    expect(await fixture.historyKinds(recordId)).toEqual(["created", "failed"]);
  });

  test("is retried with increasing delays, but not later than the schedule", async () => {
    const { recordId } = await fixture.createRecord({ scheduleHours: 1 });
    cloud.control.addFault({ match: { vault: COPIES }, action: { kind: "reset" } });
    const waits: number[] = [];
    for (let runs = 0; runs < 4; runs++) {
      const { nextRunAt } = await fixture.runAndGet(recordId);
      waits.push(Math.round((Date.parse(nextRunAt!) - fixture.clock.now().getTime()) / 60_000));
      await fixture.passTime(Date.parse(nextRunAt!) - fixture.clock.now().getTime() + 1);
      await fixture.sync.sendDueRecords();
    }
    expect(waits).toEqual([10, 20, 40, 60]);
  });

  test("of a message that was moved to the poison queue is stored as an internal failure", async () => {
    const { recordId } = await fixture.createRecord();
    await fixture.sync.failRun(recordId);
    expect(await fixture.sync.get(recordId)).toMatchObject({ state: "failing", failure: { code: "internal" } });
  });
});

test("a value that is too large for the target is rejected", async () => {
  // One byte more than Key Vault allows.
  const record = await fixture.createRecord({ sourceSecret: fixture.putSourceSecret("x".repeat(25_601)) });
  expect(await fixture.runAndGet(record.recordId)).toMatchObject({ failure: { code: "tooLarge", side: "target" } });
});

test("a due record gets one message, and another one if it had no effect", async () => {
  const record = await fixture.runAndGet((await fixture.createRecord()).recordId);
  await fixture.makeDue(record);
  const messagesOfRecord = () => fixture.messages.filter(({ message }) => message.recordId === record.recordId);
  expect(messagesOfRecord()).toHaveLength(1);
  await fixture.sync.sendDueRecords();
  expect(messagesOfRecord()).toHaveLength(1);
  fixture.messages.splice(0);
  // Longer than the 30 minutes after which a message counts as lost.
  await fixture.passTime(HOUR_MS);
  await fixture.sync.sendDueRecords();
  expect(messagesOfRecord()).toHaveLength(1);
});

test("rows, messages, audit entries and logs contain no secret value", async () => {
  const value = "planted-9f8e7d6c";
  const record = await fixture.createRecord({ sourceSecret: fixture.putSourceSecret(value) });
  await fixture.drainAll();
  expect(fixture.copyValue(record.targetName)).toBe(value);
  for (const action of [{ kind: "loseAnswer" }, { kind: "deny" }, { kind: "garbage", as: "html" }] as const) {
    fixture.putSourceSecret(`${value}-${action.kind}`, record.sourceSecret);
    cloud.control.addFault({ match: { vault: COPIES, operation: "keyvault.setSecret" }, action, times: 1 });
    await fixture.sync.runFor(SOURCE, record.sourceSecret);
    await fixture.drainAll();
  }
  const allTexts = [
    await fixture.rowsAsText(),
    ...[fixture.events, fixture.logged, fixture.messages].map((one) => JSON.stringify(one)),
  ];
  expect(allTexts.filter((text) => text.includes(value))).toEqual([]);
});
