import { afterAll, beforeAll, expect, test } from "vitest";
import { createTrust } from "../../shared/audit/chain/trust.ts";
import { exportPart } from "../../shared/audit/export/export.ts";
import { IntervalSealed, intervalOf, timeOf } from "../../shared/audit/interval.ts";
import { recordExport } from "../../shared/audit/reading-events.ts";
import {
  bornMark,
  DigestRow,
  EntryRow,
  entriesPartition,
  FirstRow,
  isMark,
  openMark,
} from "../../shared/audit/rows.ts";
import { verifyExport } from "../../shared/audit/verify/verify-export.ts";
import { createWriter } from "../../shared/audit/write/writer.ts";
import { systemRandomness } from "../../shared/platform/runtime.ts";
import type { Tables } from "../../shared/platform/storage/tables.ts";
import { MINUTE_MS } from "../../shared/platform/time.ts";
import { interrupted } from "../support/delayed-tables.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import {
  AnyRow,
  by,
  event,
  exportAll,
  type Fixture,
  memoryAnchor,
  openFixture,
  page,
  publicKeys,
  START,
  settableClock,
} from "./support.ts";

const accounts = Array.from({ length: 28 }, (_, index) => `write${index}`);
let azurite: TestStorage;
let used = 0;
beforeAll(async () => {
  azurite = await openStorage(accounts);
});
afterAll(() => azurite.stop());
const open = (): Fixture => openFixture(azurite.connectionString(accounts[used++]!));

/** Returns the marks and entries of the interval of a time. */
async function interval(fixture: Fixture, instant: string) {
  const start = intervalOf(Date.parse(instant));
  const keys: string[] = [];
  for await (const rows of fixture.tables.pages(AnyRow, { partitionKey: entriesPartition(start) })) {
    keys.push(...rows.map(({ rowKey }) => rowKey));
  }
  return {
    born: keys.includes(bornMark(start)),
    open: keys.includes(openMark(start)),
    entries: keys.filter((key) => !isMark(key) && key.startsWith(timeOf(start))).length,
  };
}

test("an entry contains the actor, the action, the address, the request and the target", async () => {
  const { audit } = open();
  await audit.append(event());
  const { items } = await audit.list({}, page());
  expect(items).toEqual([
    {
      id: expect.stringMatching(/^[0-7][0-9A-HJKMNP-TV-Z]{25}$/),
      occurredAt: "2026-11-21T10:00:00.000Z",
      eventType: "settings.changed",
      outcome: "success",
      actor: "ada",
      address: "203.0.113.7",
      requestId: "req-1",
      target: { type: "setting", id: "criticalExpiryDays" },
      before: { criticalExpiryDays: 7 },
      after: { criticalExpiryDays: 5 },
      count: 1,
    },
  ]);
});

test("no secret is stored in the log, however deep and however its name is spelled", async () => {
  const { audit } = open();
  await audit.append(
    event({
      before: { password: "planted-1", nested: [{ Client_Secret: "planted-2" }] },
      after: { secretAccessKey: "planted-3", "access-token": "planted-4", region: "eu-west-1" },
      details: {
        webhookUrl: "https://planted-5",
        secretId: "s-1",
        secrets: 12,
        password: true,
        connectionString: null,
      },
    }),
  );
  const [entry] = (await audit.list({}, page())).items;
  expect(JSON.stringify(entry)).not.toContain("planted");
  expect(entry).toMatchObject({
    before: { password: "[redacted]", nested: [{ Client_Secret: "[redacted]" }] },
    after: { secretAccessKey: "[redacted]", region: "eu-west-1" },
    details: { secretId: "s-1", secrets: 12, password: true, connectionString: null },
  });
});

test("details that are too large are left out, and the entry says so", async () => {
  const { audit } = open();
  await audit.append(event({ details: { text: "x".repeat(20_000) } }));
  expect((await audit.list({}, page())).items[0]!.details).toEqual({ omitted: "20011 characters of JSON" });
});

test("repeats of one rejected request within a minute share an entry with a count, over all instances", async () => {
  const fixture = open();
  const refusal = event({ type: "access.refused", outcome: "refused" });
  const other = fixture.instance();
  await Promise.all([...Array(20)].flatMap(() => [fixture.audit.refused(refusal), other.refused(refusal)]));
  fixture.clock.set("2026-11-21T10:00:30Z");
  await other.refused(refusal);
  const sameMinute = await fixture.audit.list({}, page());
  expect(sameMinute.items).toHaveLength(1);
  expect(sameMinute.items[0]).toMatchObject({ count: 41, lastOccurredAt: "2026-11-21T10:00:30.000Z" });

  fixture.clock.set("2026-11-21T10:01:00Z");
  await fixture.audit.refused(refusal);
  await fixture.audit.refused(event({ ...refusal, target: { type: "endpoint", id: "another" } }));
  expect((await fixture.audit.list({}, page())).items.map(({ count }) => count)).toEqual([1, 1, 41]);
});

test("a rejected request that is repeated after its interval was sealed gets a new entry", async () => {
  const fixture = open();
  const refusal = event({ type: "access.refused", outcome: "refused" });
  const slow = fixture.instance({ clock: settableClock("2026-11-21T10:00:00Z") });
  await slow.refused(refusal);
  fixture.clock.set("2026-11-21T10:12:00Z");
  await fixture.audit.seal();
  await slow.refused(refusal);
  const { items } = await fixture.audit.list({}, page());
  expect(items.map(({ occurredAt, count }) => [occurredAt, count])).toEqual([
    ["2026-11-21T10:10:00.000Z", 1],
    ["2026-11-21T10:00:00.000Z", 1],
  ]);
  expect((await fixture.audit.verify({})).findings).toEqual([]);
});

test("a writer whose clock is behind the sealing uses the first open interval", async () => {
  const fixture = open();
  await fixture.audit.append(by("ada"));
  fixture.clock.set("2026-11-21T10:35:00Z");
  await fixture.audit.seal();
  await fixture.instance({ clock: settableClock("2026-11-21T10:02:00Z") }).append(by("late"));
  expect((await fixture.audit.list({ actor: "late" }, page())).items[0]!.occurredAt).toBe("2026-11-21T10:30:00.000Z");
  expect(await interval(fixture, "2026-11-21T10:00:00Z")).toEqual({ born: true, open: false, entries: 1 });
  expect(await interval(fixture, "2026-11-21T10:30:00Z")).toEqual({ born: true, open: true, entries: 1 });
});

test("sealing an interval without entries prevents that entries are added to it", async () => {
  const fixture = open();
  await fixture.audit.append(by("ada"));
  fixture.clock.set("2026-11-21T10:22:00Z");
  await fixture.audit.seal();
  expect(await interval(fixture, "2026-11-21T10:10:00Z")).toEqual({ born: true, open: false, entries: 0 });
  await fixture.instance({ clock: settableClock("2026-11-21T10:12:00Z") }).append(by("late"));
  expect(await interval(fixture, "2026-11-21T10:10:00Z")).toEqual({ born: true, open: false, entries: 0 });
  expect((await fixture.audit.list({ actor: "late" }, page())).items[0]!.occurredAt).toBe("2026-11-21T10:20:00.000Z");
});

test("an event with its own id is recorded once, in the interval of that id, and not after that is sealed", async () => {
  const fixture = open();
  await fixture.audit.append(by("ada"));
  const [first, late] = [systemRandomness().ulid(fixture.clock.now()), systemRandomness().ulid(fixture.clock.now())];
  for (let time = 0; time < 2; time++) await fixture.audit.append({ ...by("bob"), id: first });
  expect((await fixture.audit.list({ actor: "bob" }, page())).items.map(({ id }) => id)).toEqual([first]);
  fixture.clock.set("2026-11-21T10:35:00Z");
  await fixture.audit.seal();
  await expect(fixture.audit.append({ ...by("bob"), id: late })).rejects.toThrow(IntervalSealed);
  expect((await fixture.audit.list({ actor: "bob" }, page())).items).toHaveLength(1);
});

test("200 concurrent writers during sealing lose no entry and leave none unsealed", async () => {
  const fixture = open();
  const instances = [fixture.audit, fixture.instance(), fixture.instance(), fixture.instance()];
  const slowClock = settableClock("2026-11-21T10:09:59.000Z");
  instances.push(fixture.instance({ clock: slowClock }));
  fixture.clock.set("2026-11-21T10:09:59.000Z");
  await fixture.audit.append(by("first"));
  const writers = [...Array(200)].map(async (_, index) => {
    if (index === 60) fixture.clock.set("2026-11-21T10:11:30.000Z");
    if (index === 70 || index === 75) await fixture.instance().seal();
    await instances[index % instances.length]!.append(by(`writer-${index}`));
  });
  await Promise.all(writers);
  fixture.clock.set("2026-11-21T10:40:00Z");
  await fixture.audit.seal();

  const verified = await fixture.audit.verify({});
  expect(verified).toMatchObject({ intact: true, entries: 201 });
  const { items } = await fixture.audit.list({}, page({ limit: 1000 }));
  expect(new Set(items.map(({ actor }) => actor)).size).toBe(201);
  // The entries of the slow instance were rejected by the sealed interval and are in the next one.
  expect((await interval(fixture, "2026-11-21T10:00:00Z")).open).toBe(false);
  expect((await interval(fixture, "2026-11-21T10:10:00Z")).entries).toBeGreaterThan(0);
});

test("at any step of a sealer, an instance whose clock is behind writes no entry that the seal misses", async () => {
  const fixture = open();
  const slowClock = settableClock(START);
  const slow = fixture.instance({ clock: slowClock });
  let wasHeld = true;
  let at = 0;
  for (; wasHeld; at++) {
    const start = Date.parse(START) + at * 10 * MINUTE_MS;
    for (const clock of [fixture.clock, slowClock]) clock.set(new Date(start + 9 * MINUTE_MS).toISOString());
    await fixture.audit.append(by("in time"));
    fixture.clock.set(new Date(start + 12 * MINUTE_MS).toISOString());
    wasHeld = false;
    const tables = interrupted(fixture.tables, at, async () => {
      wasHeld = true;
      await slow.append(by("slow"));
    });
    expect(await fixture.instance({ tables }).seal()).toMatchObject({ sealed: 1 });
  }
  expect(at).toBeGreaterThan(10);
  fixture.clock.addMinutes(60);
  await fixture.audit.seal();
  expect(await fixture.audit.verify({})).toMatchObject({ intact: true, entries: 2 * at - 1, findings: [] });
});

test("intervals that a sealer with a fast clock closed but did not seal don't reject entries for good", async () => {
  const fixture = open();
  await fixture.audit.append(by("first"));
  const ahead = settableClock("2026-11-21T23:30:00Z");
  const crashing = { ...fixture.tables, transaction: refuseDigests(fixture.tables) } as Tables;
  await expect(fixture.instance({ clock: ahead, tables: crashing }).seal()).rejects.toThrow("died");
  fixture.clock.set("2026-11-21T10:05:00Z");
  await Promise.all([fixture.audit.append(by("ada")), fixture.audit.refused(by("eve"))]);
  fixture.clock.set("2026-11-22T10:00:00Z");
  await fixture.audit.seal();
  expect(await fixture.audit.verify({})).toMatchObject({ intact: true, entries: 3, findings: [] });
});

/** Crashes before it writes a digest. */
const refuseDigests =
  (tables: Tables): Tables["transaction"] =>
  async (table, ...given) => {
    if (table === DigestRow.table) throw new Error("died");
    return await tables.transaction(table, ...given);
  };

test("reading the log is recorded: one entry per actor, kind and filter in 15 minutes, with a count of pages", async () => {
  const fixture = open();
  const [ada, bob] = ["ada", "bob"].map((actor) => ({ actor, address: "203.0.113.7", requestId: "req-1" }));
  const entered = async (eventType: string) =>
    (await fixture.audit.list({ eventType }, page())).items.map(({ actor, target, count }) => [
      actor,
      target!.id,
      count,
    ]);
  for (let index = 0; index < 3; index++) await fixture.audit.list({}, page(), ada);
  await fixture.audit.list({ actor: "Eve" }, page(), { ...ada!, address: "198.51.100.9" });
  await fixture.audit.list({}, page(), bob);
  fixture.clock.set("2026-11-21T10:09:00Z");
  await fixture.audit.list({}, page(), ada);
  await fixture.audit.verify({}, ada);
  expect((await entered("audit.listed")).sort()).toEqual([
    ["ada", "actor=eve", 1],
    ["ada", "all", 4],
    ["bob", "all", 1],
  ]);
  expect(await entered("audit.verified")).toEqual([["ada", "all", 1]]);
  fixture.clock.set("2026-11-21T10:15:00Z");
  await fixture.audit.list({}, page(), ada);
  expect((await entered("audit.listed")).filter(([actor, target]) => actor === "ada" && target === "all")).toEqual([
    ["ada", "all", 1],
    ["ada", "all", 4],
  ]);
});

test("an export is recorded as one intent and one outcome for all parts", async () => {
  const fixture = open();
  for (let index = 0; index < 5; index++) await fixture.audit.append(by("ada"));
  const reader = { actor: "auditor", requestId: "first" };
  const entered = async () =>
    (await fixture.audit.list({ eventType: "audit.exported" }, page())).items.map(
      ({ outcome, requestId, details, count }) => ({ outcome, requestId, details, count }),
    );
  const make = { ...fixture, trust: createTrust(fixture.tables, fixture.keys), unicodeFont: "" };
  const counter = createWriter({ ...make, randomness: systemRandomness() });
  const part = (cursor: string | undefined, requestId: string) => {
    const request = { format: "csv" as const, query: { actor: "ada" }, cursor, gzip: false };
    const limits = { entries: 2, bytes: 1e9 };
    return recordExport(counter, request, { ...reader, requestId }, (id) => exportPart(make, request, id, limits));
  };
  const first = await part(undefined, "first");
  // The export ends at the time it started, so it does not contain its own outcome.
  fixture.clock.addMinutes(1);
  const filter = "actor=ada";
  const intent = { outcome: "intent", requestId: "first", details: { format: "csv", filter }, count: 1 };
  expect(await entered()).toEqual([intent]);
  const second = await part(first.nextCursor!, "second");
  const third = await part(second.nextCursor!, "third");
  expect(third.nextCursor).toBeNull();
  const details = { format: "csv", filter, parts: 3, entries: 5 };
  const outcome = { outcome: "success", requestId: "first", details, count: 1 };
  expect(await entered()).toEqual(expect.arrayContaining([outcome, intent]));
  await part(second.nextCursor!, "third again");
  expect(await entered()).toEqual(expect.arrayContaining([{ ...outcome, count: 2 }, intent]));

  // Values of a cursor are recorded only if this service signed it.
  const forged = { ...decoded(second.nextCursor!), entries: 1_000_000 };
  const text = Buffer.from(JSON.stringify(forged)).toString("base64url");
  await part(text, "forged");
  const reported = (await entered()).find(({ requestId }) => requestId === "forged");
  expect(reported!.details).toEqual({ format: "csv", filter, parts: 3 });
  await expect(part("nonsense", "broken")).rejects.toMatchObject({ code: "invalidCursor" });
  expect(await entered()).toHaveLength(3);
});

const decoded = (cursor: string) => JSON.parse(Buffer.from(cursor.split(".")[1]!, "base64url").toString());

test("a failed export is recorded in the log", async () => {
  const fixture = open();
  await fixture.audit.append(by("ada"));
  const failing = { ...memoryAnchor(), read: () => Promise.reject(new TypeError("the vault is down")) };
  const audit = fixture.instance({ anchor: failing });
  const request = { format: "json" as const, query: {}, cursor: undefined, gzip: false };
  await expect(audit.export(request, { actor: "auditor", requestId: "r" })).rejects.toThrow("the vault is down");
  const outcomes = (await fixture.audit.list({ eventType: "audit.exported" }, page())).items;
  expect(outcomes).toMatchObject([{ outcome: "failure", details: { reason: "TypeError" } }, { outcome: "intent" }]);
});

test("planted marks of future intervals keep no entry out, however many, and are reported", async () => {
  const fixture = open();
  await fixture.audit.append(by("first"));
  const start = Date.parse("2026-11-21T10:10Z");
  for (let ahead = 0; ahead < 60; ahead++) {
    const interval = start + ahead * 10 * MINUTE_MS;
    await fixture.tables.put(AnyRow, new Date(interval).toISOString().slice(0, 10), bornMark(interval), {});
  }
  fixture.clock.set("2026-11-21T10:12:00Z");
  await Promise.all([
    fixture.audit.append(by("ada")),
    fixture.instance().append(by("bob")),
    fixture.audit.refused(by("eve")),
  ]);
  for (const actor of ["ada", "bob", "eve"]) {
    const [entry] = (await fixture.audit.list({ actor }, page())).items;
    expect(entry!.occurredAt).toBe("2026-11-21T10:12:00.000Z");
    expect(entry).not.toHaveProperty("happenedAt");
  }
  fixture.clock.addMinutes(60);
  expect(await fixture.audit.seal()).toMatchObject({ sealed: 7 });
  const verified = await fixture.audit.verify({});
  expect(verified.entries).toBe(4);
  // No instance writes marks of future intervals.
  expect(new Set(verified.findings.map(({ kind }) => kind))).toEqual(new Set(["markChanged"]));
});

test("a reopening that arrives after its interval was closed is rejected", async () => {
  const fixture = open();
  await fixture.tables.put(AnyRow, "2026-11-21", bornMark(Date.parse("2026-11-21T10:00Z")), {});
  await fixture.audit.append(by("ada"));
  const before = await fixture.tables.get(AnyRow, "2026-11-21", bornMark(Date.parse("2026-11-21T10:00Z")));
  fixture.clock.set("2026-11-21T10:12:00Z");
  await fixture.audit.seal();
  const after = await fixture.tables.get(AnyRow, "2026-11-21", bornMark(Date.parse("2026-11-21T10:00Z")));
  expect(after!.etag).not.toBe(before!.etag);
});

test("an entry that meets a sealed interval contains the time of its event, which is sealed, too", async () => {
  const fixture = open();
  await fixture.audit.append(by("ada"));
  fixture.clock.set("2026-11-21T10:22:00Z");
  await fixture.audit.append(by("ada"));
  fixture.clock.set("2026-11-21T10:32:00Z");
  await fixture.audit.seal();
  // This instance's clock falls behind the sealed intervals.
  const at = "2026-11-21T10:21:00.000Z";
  fixture.clock.set(at);
  await fixture.audit.append(by("bob"));
  await fixture.audit.refused(by("eve"));
  fixture.clock.addMinutes(60);
  await fixture.audit.seal();
  const { items } = await fixture.audit.list({}, page());
  const pushed = { occurredAt: "2026-11-21T10:30:00.000Z", happenedAt: at };
  expect(items.slice(0, 2)).toMatchObject([pushed, pushed]);
  const verified = await fixture.audit.verify({});
  expect(verified).toMatchObject({ intact: true, lateEntries: { total: 2 } });
  expect(verified.lateEntries.listed).toMatchObject([
    { ...pushed, interval: "2026-11-21T10:30Z" },
    { ...pushed, interval: "2026-11-21T10:30Z" },
  ]);
  expect((await fixture.audit.verify({ end: new Date("2026-11-21T10:30:00Z") })).lateEntries.total).toBe(0);
  const [part] = await exportAll(fixture.audit);
  const offline = await verifyExport([JSON.parse(part!)], publicKeys(...fixture.keys));
  expect(offline).toMatchObject({
    intact: true,
    notes: [expect.stringContaining("2 entries are listed under a later")],
  });
});

for (const interval of ["2099-01-01T00:00Z", "nonsense"]) {
  test(`a new instance dates its entries by the clock, whatever the row of the first interval contains: ${interval}`, async () => {
    const fixture = open();
    await fixture.audit.append(by("ada"));
    await fixture.tables.put(FirstRow, "first", "first", { interval });
    fixture.clock.set("2026-11-21T10:12:00Z");
    await fixture.instance().append(by("bob"));
    expect((await fixture.audit.list({ actor: "bob" }, page())).items[0]!.occurredAt).toBe("2026-11-21T10:12:00.000Z");
    fixture.clock.set("2026-11-21T10:32:00Z");
    expect(await fixture.audit.seal()).toMatchObject({ sealed: 3 });
    expect(await fixture.audit.verify({})).toMatchObject({ entries: 2, findings: [{ kind: "beginningChanged" }] });
  });
}

test("a counted entry whose place is occupied is recorded under another id", async () => {
  const fixture = open();
  const refusal = event({ type: "access.refused", outcome: "refused" });
  await fixture.audit.refused(refusal);
  const [entry] = (await fixture.audit.list({}, page())).items;
  await fixture.tables.put(EntryRow, "2026-11-21", `10:00|${entry!.id}`, { entry: "nonsense" });
  await fixture.audit.refused(refusal);
  expect((await fixture.audit.list({}, page())).items).toMatchObject([{ eventType: "access.refused", count: 1 }]);
});
