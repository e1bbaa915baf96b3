import type { Cloud } from "simulated-cloud/cloud.ts";
import type { FaultAction } from "simulated-cloud/faults.ts";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { liveIn } from "../azure/live-cloud.ts";
import { type MovedStorage, startMovedStorage } from "../support/moved-storage.ts";
import { COPIES, caller, type Fixture, HOUR_MS, openFixture, SOURCE } from "./sync-fixture.ts";

let storage: MovedStorage;
let cloud: Cloud;
let fixture: Fixture;

beforeAll(async () => {
  storage = await startMovedStorage(["runs"]);
  const vaults = [
    { name: SOURCE, certificates: [{ name: "www" }] },
    { name: COPIES, certificates: [{ name: "www" }] },
  ];
  ({ cloud } = await liveIn({ company: { subscriptions: [{ name: "Shop", vaults }] } }));
  fixture = openFixture({ cloud, connectionString: storage.azurite.connectionString("runs"), storage });
  await fixture.discover(SOURCE, COPIES);
});
afterAll(async () => {
  await cloud?.stop();
  await storage?.stop();
});
afterEach(async () => {
  cloud.control.clearFaults();
  await fixture.clear();
});

/** Requests to the vaults of source and copies during an action. */
async function asked(work: () => Promise<unknown>): Promise<Record<string, number>> {
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
    const made = await fixture.record();
    const first = await asked(() => fixture.drainAll());
    expect(first["keyvault.getSecret"]).toBe(1);
    expect(first["keyvault.setSecret"]).toBe(1);
    const record = await fixture.sync.get(made.recordId);
    expect(record).toMatchObject({ state: "inSync", targetOwned: true, failedRuns: 0 });
    expect(Date.parse(record.nextRunAt!) - Date.parse(record.lastCheckedAt!)).toBeGreaterThan(23 * HOUR_MS);
    expect(fixture.value(record.targetName)).toBe("value-one");
    const idle = await asked(async () => {
      await fixture.dueAgain(record);
      await fixture.drainAll();
    });
    expect(idle).toEqual({ "arm.getVault": 2, "keyvault.listSecretVersions": 2 });
    const after = await fixture.sync.get(record.recordId);
    expect(after.lastCheckedAt! > record.lastCheckedAt!).toBe(true);
    expect(after.lastSyncedAt).toBe(record.lastSyncedAt);
    expect(await fixture.kinds(record.recordId)).toEqual(["created"]);
  });

  test("copies a new version when it is heard of, of all records of that secret", async () => {
    const sourceSecret = fixture.secret("value-one");
    const records = [await fixture.record({ sourceSecret }), await fixture.record({ sourceSecret })];
    await fixture.drainAll();
    fixture.secret("value-two", sourceSecret);
    await fixture.sync.runFor(SOURCE.toUpperCase(), sourceSecret.toUpperCase());
    await fixture.drain();
    for (const { targetName, recordId } of records) {
      expect(fixture.value(targetName)).toBe("value-two");
      expect(await fixture.kinds(recordId)).toEqual(["updated", "created"]);
    }
  });

  test("copies what a rotation writes", async () => {
    const { recordId, sourceSecret, targetName } = await fixture.settled((await fixture.record()).recordId);
    await fixture.rotated().write(sourceSecret, { value: "value-rotated" });
    expect(await fixture.settled(recordId)).toMatchObject({ state: "inSync" });
    expect(fixture.value(targetName)).toBe("value-rotated");
  });

  test("that nothing is due for does nothing, however often it is asked", async () => {
    const { recordId } = await fixture.settled((await fixture.record()).recordId);
    expect(await asked(() => fixture.sync.run(recordId))).toEqual({});
  });

  test("of the same record twice at once is one", async () => {
    const { recordId, targetName } = await fixture.record();
    const counts = await asked(() => Promise.all([fixture.instance().run(recordId), fixture.instance().run(recordId)]));
    expect(counts["keyvault.setSecret"]).toBe(1);
    expect(await fixture.settled(recordId)).toMatchObject({ state: "inSync" });
    expect(fixture.value(targetName)).toBe("value-one");
  });

  test("that is asked for during another follows it", async () => {
    const { recordId, sourceSecret, targetName } = await fixture.record();
    cloud.control.addFault({
      match: { operation: "keyvault.setSecret" },
      action: { kind: "latency", milliseconds: 300 },
    });
    cloud.control.resetCounts();
    const running = fixture.sync.run(recordId);
    const read = { operation: "keyvault.getSecret", vault: SOURCE };
    await expect.poll(() => cloud.control.requests(read).length).toBe(1);
    fixture.secret("value-two", sourceSecret);
    await fixture.sync.trigger(recordId, caller);
    await running;
    await fixture.drain();
    expect(fixture.value(targetName)).toBe("value-two");
  });
});

describe("a target that another writer changed", () => {
  test("is detected without reading its value, and restored", async () => {
    const record = await fixture.settled((await fixture.record()).recordId);
    cloud.control.putSecret(COPIES, { name: record.targetName, value: "by-others" });
    const counts = await asked(async () => {
      await fixture.dueAgain(record);
      await fixture.drainAll();
    });
    expect(cloud.control.requests({ operation: "keyvault.getSecret", vault: COPIES })).toEqual([]);
    expect(counts["keyvault.setSecret"]).toBe(1);
    expect(fixture.value(record.targetName)).toBe("value-one");
    expect(await fixture.kinds(record.recordId)).toEqual(["mended", "created"]);
  });

  test("is only reported if the record says so, once, until it is restored", async () => {
    const { recordId, targetName } = await fixture.record({ onDrift: "report" });
    const record = await fixture.settled(recordId);
    cloud.control.putSecret(COPIES, { name: targetName, value: "by-others" });
    fixture.secret("value-two", record.sourceSecret);
    for (let ticks = 0; ticks < 2; ticks++) {
      await fixture.dueAgain(record);
      expect(await fixture.settled(recordId)).toMatchObject({ state: "drifted" });
    }
    expect(fixture.value(targetName)).toBe("by-others");
    expect(await fixture.kinds(recordId)).toEqual(["driftFound", "created"]);
    await fixture.sync.records.change(recordId, { onDrift: "overwrite" }, caller, undefined);
    expect(await fixture.settled(recordId)).toMatchObject({ state: "inSync" });
    expect(fixture.value(targetName)).toBe("value-two");
  });

  test("is brought back when it was deleted, and never removed for good", async () => {
    const record = await fixture.settled((await fixture.record()).recordId);
    fixture.secret("value-two", record.sourceSecret);
    await fixture.copies().remove(record.targetName);
    const counts = await asked(async () => {
      await fixture.dueAgain(record);
      await fixture.drainAll();
    });
    expect([counts["keyvault.recoverSecret"], counts["keyvault.purgeSecret"]]).toEqual([1, undefined]);
    expect(fixture.value(record.targetName)).toBe("value-two");
    expect(await fixture.sync.get(record.recordId)).toMatchObject({ state: "inSync" });
    expect(await fixture.kinds(record.recordId)).toEqual(["updated", "created"]);
  });
});

describe("a target that is not ours", () => {
  test("is refused, and taken over where the record says so", async () => {
    const targetName = fixture.fresh("theirs");
    cloud.control.putSecret(COPIES, { name: targetName, value: "theirs" });
    const { recordId } = await fixture.record({ targetName });
    expect(await fixture.settled(recordId)).toMatchObject({
      state: "failing",
      targetOwned: false,
      failure: { code: "targetNotOwned", side: "target" },
    });
    expect(fixture.value(targetName)).toBe("theirs");
    await fixture.sync.records.change(recordId, { adopt: true }, caller, undefined);
    expect(await fixture.settled(recordId)).toMatchObject({ state: "inSync", targetOwned: true });
    expect(fixture.value(targetName)).toBe("value-one");
  });

  test.each([
    ["without what its tags say of an owner", "<b>call 0900</b>".padEnd(256, "!")],
    ["with the record that its tags name", "01J00000000000000000000000"],
  ])("reports %s", async (_how, owner) => {
    const targetName = fixture.fresh("tagged");
    const tags = { "managed-by": "credential-lifecycle", "sync-record": owner };
    cloud.control.putSecret(COPIES, { name: targetName, value: "theirs", tags });
    const { recordId } = await fixture.record({ targetName });
    const { failure } = await fixture.settled(recordId);
    expect(failure).toMatchObject({ code: "targetNotOwned" });
    const { state } = await fixture.sync.plan(recordId);
    const isRecord = owner.startsWith("01J");
    expect([failure!.message.includes(owner), state!.ownedBy]).toEqual([isRecord, isRecord ? owner : null]);
  });

  test("is refused where it belongs to a certificate", async () => {
    const { recordId } = await fixture.record({ targetName: "www", adopt: true });
    expect(await fixture.settled(recordId)).toMatchObject({ failure: { code: "targetRefused" } });
  });
});

describe("a source", () => {
  test.each([
    ["that is missing", "sourceNotFound", async () => fixture.fresh("missing")],
    ["that is disabled", "sourceDisabled", async () => put({ enabled: false })],
    ["that has expired", "sourceExpired", async () => put({ expiresInDays: -1 })],
    ["that is not valid yet", "sourceNotYetValid", async () => put({ activeInDays: 1000 })],
    ["that backs a certificate", "sourceManaged", async () => "www"],
    ["that is a copy itself", "syncLoop", async () => put({ tags: MARKED })],
  ])("%s fails as %s, with what to do, and is entered once", async (_what, code, make) => {
    const { recordId, targetName, scheduleHours } = await fixture.record({ sourceSecret: await make() });
    for (let ticks = 0; ticks < 2; ticks++) {
      const record = await fixture.settled(recordId);
      expect(record).toMatchObject({ state: "failing", failedRuns: ticks + 1, failure: { code, side: "source" } });
      expect(record.failure!.remedy).toMatch(/\.$/);
      await fixture.dueAgain({ scheduleHours });
    }
    expect(fixture.value(targetName)).toBeUndefined();
    expect(await fixture.kinds(recordId)).toEqual(["failed"]);
  });

  test("that works again is copied", async () => {
    const sourceSecret = put({ enabled: false });
    const record = await fixture.settled((await fixture.record({ sourceSecret })).recordId);
    fixture.secret("value-two", sourceSecret);
    await fixture.dueAgain(record);
    const after = await fixture.settled(record.recordId);
    expect(after).toMatchObject({ state: "inSync", failedRuns: 0 });
    expect(after.failure).toBeUndefined();
  });

  const MARKED = { "managed-by": "credential-lifecycle", "sync-record": "01J00000000000000000000000" };
  function put(secret: object): string {
    const name = fixture.fresh("odd");
    cloud.control.putSecret(SOURCE, { name, value: "value-one", ...secret });
    return name;
  }
});

describe("what fails", () => {
  const FAULTS: [string, FaultAction, boolean][] = [
    ["throttled", { kind: "throttle", retryAfterSeconds: 120 }, true],
    ["accessDenied", { kind: "deny" }, false],
    ["badResponse", { kind: "garbage", as: "html" }, true],
    ["unreachable", { kind: "reset" }, true],
  ];
  test.each(FAULTS)(
    "at the target as %s is shown with what to do, and tried again in time",
    async (code, action, soon) => {
      const { recordId, targetName } = await fixture.record();
      cloud.control.addFault({ match: { vault: COPIES }, action });
      const record = await fixture.settled(recordId);
      expect(record).toMatchObject({ state: "failing", failure: { code, side: "target" }, failedRuns: 1 });
      const waits = Date.parse(record.nextRunAt!) - fixture.clock.now().getTime();
      expect(waits < HOUR_MS).toBe(soon);
      cloud.control.clearFaults();
      await fixture.dueAgain(record);
      expect(await fixture.settled(recordId)).toMatchObject({ state: "inSync", failedRuns: 0 });
      expect(fixture.value(targetName)).toBe("value-one");
    },
  );

  test("after the write was carried out is checked before a result is stored", async () => {
    const { recordId, targetName } = await fixture.record();
    cloud.control.addFault({
      match: { vault: COPIES, operation: "keyvault.setSecret" },
      action: { kind: "loseAnswer" },
      times: 1,
    });
    const counts = await asked(() => fixture.settled(recordId));
    expect(await fixture.sync.get(recordId)).toMatchObject({ state: "inSync" });
    expect([counts["keyvault.setSecret"], fixture.value(targetName)]).toEqual([1, "value-one"]);
    const entered = fixture.events.filter(
      ({ type, target }) => type === "syncTarget.written" && target!.id === recordId,
    );
    expect(entered.map(({ outcome }) => outcome)).toEqual(["intent", "success"]);
  });

  test("and stays unclear leaves the intent alone in the audit log", async () => {
    const { recordId } = await fixture.record();
    const match = { vault: COPIES };
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
    const record = await fixture.settled(recordId);
    expect(record).toMatchObject({ state: "failing", failure: { code: "unreachable" } });
    const outcomes = () =>
      fixture.events
        .filter(({ type, target }) => type === "syncTarget.written" && target!.id === recordId)
        .map(({ outcome }) => outcome);
    expect(outcomes()).toEqual(["intent"]);
    cloud.control.clearFaults();
    const counts = await asked(async () => {
      await fixture.dueAgain(record);
      await fixture.drainAll();
    });
    expect(counts["keyvault.setSecret"]).toBeUndefined();
    expect(outcomes()).toEqual(["intent", "success"]);
    expect(await fixture.kinds(recordId)).toEqual(["created", "failed"]);
  });

  test("less and less often, and never later than the schedule", async () => {
    const { recordId } = await fixture.record({ scheduleHours: 1 });
    cloud.control.addFault({ match: { vault: COPIES }, action: { kind: "reset" } });
    const waits: number[] = [];
    for (let runs = 0; runs < 4; runs++) {
      const { nextRunAt } = await fixture.settled(recordId);
      waits.push(Math.round((Date.parse(nextRunAt!) - fixture.clock.now().getTime()) / 60_000));
      await fixture.pass(Date.parse(nextRunAt!) - fixture.clock.now().getTime() + 1);
      await fixture.sync.sendDueRecords();
    }
    expect(waits).toEqual([10, 20, 40, 60]);
  });

  test("by an error of ours five times is shown, and left to the schedule", async () => {
    const { recordId } = await fixture.record();
    await fixture.sync.failRun(recordId);
    expect(await fixture.sync.get(recordId)).toMatchObject({ state: "failing", failure: { code: "internal" } });
  });
});

test("a value over the target's size is refused before it is sent", async () => {
  const record = await fixture.record({ sourceSecret: fixture.secret("x".repeat(25_601)) });
  expect(await fixture.settled(record.recordId)).toMatchObject({ failure: { code: "tooLarge", side: "target" } });
});

test("a due record gets one message, and another one if it had no effect", async () => {
  const record = await fixture.settled((await fixture.record()).recordId);
  await fixture.dueAgain(record);
  const mine = () => fixture.messages.filter(({ message }) => message.recordId === record.recordId);
  expect(mine()).toHaveLength(1);
  await fixture.sync.sendDueRecords();
  expect(mine()).toHaveLength(1);
  fixture.messages.splice(0);
  await fixture.pass(HOUR_MS);
  await fixture.sync.sendDueRecords();
  expect(mine()).toHaveLength(1);
});

test("no value is in a row, a message, an audit entry or the log", async () => {
  const planted = "planted-9f8e7d6c";
  const record = await fixture.record({ sourceSecret: fixture.secret(planted) });
  await fixture.drainAll();
  expect(fixture.value(record.targetName)).toBe(planted);
  for (const action of [{ kind: "loseAnswer" }, { kind: "deny" }, { kind: "garbage", as: "html" }] as const) {
    fixture.secret(`${planted}-${action.kind}`, record.sourceSecret);
    cloud.control.addFault({ match: { vault: COPIES, operation: "keyvault.setSecret" }, action, times: 1 });
    await fixture.sync.runFor(SOURCE, record.sourceSecret);
    await fixture.drainAll();
  }
  const everything = [
    await fixture.rows(),
    ...[fixture.events, fixture.logged, fixture.messages].map((one) => JSON.stringify(one)),
  ];
  expect(everything.filter((text) => text.includes(planted))).toEqual([]);
});
