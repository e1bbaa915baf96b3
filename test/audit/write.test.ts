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
  isMarkOrLastRow,
  openMark,
} from "../../shared/audit/rows.ts";
import { verifyExport } from "../../shared/audit/verify/verify-export.ts";
import { createWriter } from "../../shared/audit/write/writer.ts";
import { systemRandomness } from "../../shared/platform/runtime.ts";
import type { Tables } from "../../shared/platform/storage/tables.ts";
import { MINUTE_MS } from "../../shared/platform/time.ts";
import { withInterruption } from "../support/delayed-tables.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import {
  AnyRow,
  event,
  eventBy,
  exportAll,
  type Fixture,
  memoryAnchor,
  openFixture,
  page,
  publicKeys,
  START,
  settableClock,
} from "./support.ts";

/**
 * Tests of writing to the audit log, above all at the same time as sealing. The log is divided into ten-minute intervals. After
 * an interval is over, sealing closes it and signs a digest of its entries. From then on no entry can be added to it.
 *
 * Two marker rows control this. The first entry of an interval inserts the born mark and the open mark. Every entry requires
 * the open mark, which sealing deletes. The born mark stays, so that the interval can't be created again.
 */

/** Storage accounts: each fixture takes the next unused one. */
const accounts = Array.from({ length: 28 }, (_, index) => `write${index}`);
let azurite: TestStorage;
let usedAccounts = 0;
beforeAll(async () => {
  azurite = await openStorage(accounts);
});
afterAll(() => azurite.stop());
const openLog = (): Fixture => openFixture(azurite.connectionString(accounts[usedAccounts++]!));

/** Returns which marks the interval of a time has, and its number of entries. */
async function intervalState(fixture: Fixture, instant: string) {
  const start = intervalOf(Date.parse(instant));
  const keys: string[] = [];
  for await (const rows of fixture.tables.pages(AnyRow, { partitionKey: entriesPartition(start) })) {
    keys.push(...rows.map(({ rowKey }) => rowKey));
  }
  return {
    born: keys.includes(bornMark(start)),
    open: keys.includes(openMark(start)),
    entries: keys.filter((key) => !isMarkOrLastRow(key) && key.startsWith(timeOf(start))).length,
  };
}

test("an entry contains the members of its event, an id and a time", async () => {
  const { audit } = openLog();
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

test("texts under names of secrets, such as Client_Secret, are redacted; booleans, numbers and null are not", async () => {
  const { audit } = openLog();
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

test("details of more than 16,384 characters are replaced by their length", async () => {
  const { audit } = openLog();
  await audit.append(event({ details: { text: "x".repeat(20_000) } }));
  // The text and the 11 characters of `{"text":""}`.
  expect((await audit.list({}, page())).items[0]!.details).toEqual({ omitted: "20011 characters of JSON" });
});

test("repeats of one rejected request within a minute are counted in one entry for all instances", async () => {
  const fixture = openLog();
  const refusal = event({ type: "access.refused", outcome: "refused" });
  const otherInstance = fixture.instance();
  await Promise.all([...Array(20)].flatMap(() => [fixture.audit.refused(refusal), otherInstance.refused(refusal)]));
  fixture.clock.set("2026-11-21T10:00:30Z");
  await otherInstance.refused(refusal);
  const sameMinute = await fixture.audit.list({}, page());
  expect(sameMinute.items).toHaveLength(1);
  expect(sameMinute.items[0]).toMatchObject({ count: 41, lastOccurredAt: "2026-11-21T10:00:30.000Z" });

  fixture.clock.set("2026-11-21T10:01:00Z");
  await fixture.audit.refused(refusal);
  await fixture.audit.refused(event({ ...refusal, target: { type: "endpoint", id: "another" } }));
  expect((await fixture.audit.list({}, page())).items.map(({ count }) => count)).toEqual([1, 1, 41]);
});

test("an entry of repeats has the request IDs of the first 20, and another reason or code has its own entry", async () => {
  const { audit } = openLog();
  const refusal = (requestId: string, details?: Record<string, string>) =>
    event({ type: "access.refused", outcome: "refused", caller: { actor: "ada", requestId }, details });
  for (let request = 0; request < 25; request++)
    await audit.refused(refusal(`r${request}`, { reason: "a", code: "x" }));
  await audit.refused(refusal("other-code", { reason: "a", code: "y" }));
  await audit.refused(refusal("other-reason", { reason: "b", code: "x" }));
  const { items } = await audit.list({}, page());
  const ids = Array.from({ length: 20 }, (_, request) => `r${request}`);
  expect(items.find(({ requestId }) => requestId === "r0")).toMatchObject({
    count: 25,
    details: { reason: "a", code: "x", requestIds: ids },
  });
  expect(items.map(({ requestId, count }) => `${requestId} ${count}`).sort()).toEqual([
    "other-code 1",
    "other-reason 1",
    "r0 25",
  ]);
});

test("a rejected request that is repeated after its interval was sealed gets a new entry", async () => {
  const fixture = openLog();
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

test("a writer whose clock is in a sealed interval writes to the first interval that is not sealed", async () => {
  const fixture = openLog();
  await fixture.audit.append(eventBy("ada"));
  fixture.clock.set("2026-11-21T10:35:00Z");
  await fixture.audit.seal();
  await fixture.instance({ clock: settableClock("2026-11-21T10:02:00Z") }).append(eventBy("late"));
  expect((await fixture.audit.list({ actor: "late" }, page())).items[0]!.occurredAt).toBe("2026-11-21T10:30:00.000Z");
  expect(await intervalState(fixture, "2026-11-21T10:00:00Z")).toEqual({ born: true, open: false, entries: 1 });
  expect(await intervalState(fixture, "2026-11-21T10:30:00Z")).toEqual({ born: true, open: true, entries: 1 });
});

test("no entry can be added to an interval that was sealed without entries", async () => {
  const fixture = openLog();
  await fixture.audit.append(eventBy("ada"));
  fixture.clock.set("2026-11-21T10:22:00Z");
  await fixture.audit.seal();
  expect(await intervalState(fixture, "2026-11-21T10:10:00Z")).toEqual({ born: true, open: false, entries: 0 });
  await fixture.instance({ clock: settableClock("2026-11-21T10:12:00Z") }).append(eventBy("late"));
  expect(await intervalState(fixture, "2026-11-21T10:10:00Z")).toEqual({ born: true, open: false, entries: 0 });
  expect((await fixture.audit.list({ actor: "late" }, page())).items[0]!.occurredAt).toBe("2026-11-21T10:20:00.000Z");
});

test("an event with its own id is recorded once, and rejected if the interval of that id is sealed", async () => {
  const fixture = openLog();
  await fixture.audit.append(eventBy("ada"));
  const [firstId, lateId] = [
    systemRandomness().ulid(fixture.clock.now()),
    systemRandomness().ulid(fixture.clock.now()),
  ];
  for (let time = 0; time < 2; time++) await fixture.audit.append({ ...eventBy("bob"), id: firstId });
  expect((await fixture.audit.list({ actor: "bob" }, page())).items.map(({ id }) => id)).toEqual([firstId]);
  fixture.clock.set("2026-11-21T10:35:00Z");
  await fixture.audit.seal();
  await expect(fixture.audit.append({ ...eventBy("bob"), id: lateId })).rejects.toThrow(IntervalSealed);
  expect((await fixture.audit.list({ actor: "bob" }, page())).items).toHaveLength(1);
});

test("all entries of 200 writers that run concurrently with sealing are sealed", async () => {
  const fixture = openLog();
  const instances = [fixture.audit, fixture.instance(), fixture.instance(), fixture.instance()];
  const slowClock = settableClock("2026-11-21T10:09:59.000Z");
  instances.push(fixture.instance({ clock: slowClock }));
  fixture.clock.set("2026-11-21T10:09:59.000Z");
  await fixture.audit.append(eventBy("first"));
  // While the entries are written, the clock passes the end of the interval, and two more instances seal it.
  const writers = [...Array(200)].map(async (_, index) => {
    if (index === 60) fixture.clock.set("2026-11-21T10:11:30.000Z");
    if (index === 70 || index === 75) await fixture.instance().seal();
    await instances[index % instances.length]!.append(eventBy(`writer-${index}`));
  });
  await Promise.all(writers);
  fixture.clock.set("2026-11-21T10:40:00Z");
  await fixture.audit.seal();

  const verified = await fixture.audit.verify({});
  expect(verified).toMatchObject({ intact: true, entries: 201 });
  const { items } = await fixture.audit.list({}, page({ limit: 1000 }));
  expect(new Set(items.map(({ actor }) => actor)).size).toBe(201);
  // The entries of the slow instance were rejected by the sealed interval and are in the next one.
  expect((await intervalState(fixture, "2026-11-21T10:00:00Z")).open).toBe(false);
  expect((await intervalState(fixture, "2026-11-21T10:10:00Z")).entries).toBeGreaterThan(0);
});

test("an entry that a slow instance writes between any two storage requests of a sealer is sealed", async () => {
  const fixture = openLog();
  const slowClock = settableClock(START);
  const slow = fixture.instance({ clock: slowClock });
  // Each round seals one interval and interrupts the sealer at its next request. The last round has no request to interrupt.
  let wasInterrupted = true;
  let round = 0;
  for (; wasInterrupted; round++) {
    const start = Date.parse(START) + round * 10 * MINUTE_MS;
    for (const clock of [fixture.clock, slowClock]) clock.set(new Date(start + 9 * MINUTE_MS).toISOString());
    await fixture.audit.append(eventBy("in time"));
    fixture.clock.set(new Date(start + 12 * MINUTE_MS).toISOString());
    wasInterrupted = false;
    const tables = withInterruption(fixture.tables, round, async () => {
      wasInterrupted = true;
      await slow.append(eventBy("slow"));
    });
    expect(await fixture.instance({ tables }).seal()).toMatchObject({ sealed: 1 });
  }
  expect(round).toBeGreaterThan(10);
  fixture.clock.addMinutes(60);
  await fixture.audit.seal();
  // Each round wrote two entries, except the last one, which was not interrupted.
  expect(await fixture.audit.verify({})).toMatchObject({ intact: true, entries: 2 * round - 1, findings: [] });
});

test("entries are recorded although a sealer with a fast clock closed future intervals and crashed", async () => {
  const fixture = openLog();
  await fixture.audit.append(eventBy("first"));
  const fastClock = settableClock("2026-11-21T23:30:00Z");
  const crashing = { ...fixture.tables, transaction: crashBeforeDigests(fixture.tables) } as Tables;
  await expect(fixture.instance({ clock: fastClock, tables: crashing }).seal()).rejects.toThrow("crashed");
  fixture.clock.set("2026-11-21T10:05:00Z");
  await Promise.all([fixture.audit.append(eventBy("ada")), fixture.audit.refused(eventBy("eve"))]);
  fixture.clock.set("2026-11-22T10:00:00Z");
  await fixture.audit.seal();
  expect(await fixture.audit.verify({})).toMatchObject({ intact: true, entries: 3, findings: [] });
});

/** Returns a `transaction` that fails before it writes a digest, after the intervals were closed. */
const crashBeforeDigests =
  (tables: Tables): Tables["transaction"] =>
  async (table, ...args) => {
    if (table === DigestRow.table) throw new Error("crashed");
    return await tables.transaction(table, ...args);
  };

test("reading the log is recorded in one entry per actor, kind and filter in 15 minutes, with the number of pages", async () => {
  const fixture = openLog();
  const [ada, bob] = ["ada", "bob"].map((actor) => ({ actor, address: "203.0.113.7", requestId: "req-1" }));
  /** Returns actor, filter and count of the entries of a type. */
  const readingEntries = async (eventType: string) =>
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
  expect((await readingEntries("audit.listed")).sort()).toEqual([
    ["ada", "actor=eve", 1],
    ["ada", "all", 4],
    ["bob", "all", 1],
  ]);
  expect(await readingEntries("audit.verified")).toEqual([["ada", "all", 1]]);
  fixture.clock.set("2026-11-21T10:15:00Z");
  await fixture.audit.list({}, page(), ada);
  expect(
    (await readingEntries("audit.listed")).filter(([actor, target]) => actor === "ada" && target === "all"),
  ).toEqual([
    ["ada", "all", 1],
    ["ada", "all", 4],
  ]);
});

test("all parts of an export are recorded as one intent and one outcome", async () => {
  const fixture = openLog();
  for (let index = 0; index < 5; index++) await fixture.audit.append(eventBy("ada"));
  const reader = { actor: "auditor", requestId: "first" };
  const exportEntries = async () =>
    (await fixture.audit.list({ eventType: "audit.exported" }, page())).items.map(
      ({ outcome, requestId, details, count }) => ({ outcome, requestId, details, count }),
    );
  const deps = { ...fixture, trust: createTrust(fixture.tables, fixture.keys), unicodeFont: "" };
  const writer = createWriter({ ...deps, randomness: systemRandomness() });
  /** Requests one part of two entries. */
  const requestPart = (cursor: string | undefined, requestId: string) => {
    const request = { format: "csv" as const, query: { actor: "ada" }, cursor, gzip: false };
    const limits = { entries: 2, bytes: 1e9 }; // the number of bytes does not limit these parts
    return recordExport(writer, request, { ...reader, requestId }, (id) => exportPart(deps, request, id, limits));
  };
  const first = await requestPart(undefined, "first");
  // The export covers the time up to its first part, so it does not contain its own outcome, which is recorded later.
  fixture.clock.addMinutes(1);
  const filter = "actor=ada";
  const intent = { outcome: "intent", requestId: "first", details: { format: "csv", filter }, count: 1 };
  expect(await exportEntries()).toEqual([intent]);
  const second = await requestPart(first.nextCursor!, "second");
  const third = await requestPart(second.nextCursor!, "third");
  expect(third.nextCursor).toBeNull();
  const details = { format: "csv", filter, parts: 3, entries: 5 };
  const outcome = { outcome: "success", requestId: "first", details, count: 1 };
  expect(await exportEntries()).toEqual(expect.arrayContaining([outcome, intent]));
  await requestPart(second.nextCursor!, "third again");
  expect(await exportEntries()).toEqual(expect.arrayContaining([{ ...outcome, count: 2 }, intent]));

  // The number of entries in an unsigned cursor is not recorded.
  const forgedCursor = { ...decodeCursor(second.nextCursor!), entries: 1_000_000 };
  const text = Buffer.from(JSON.stringify(forgedCursor)).toString("base64url");
  await requestPart(text, "forged");
  const forgedEntry = (await exportEntries()).find(({ requestId }) => requestId === "forged");
  expect(forgedEntry!.details).toEqual({ format: "csv", filter, parts: 3 });
  await expect(requestPart("nonsense", "broken")).rejects.toMatchObject({ code: "invalidCursor" });
  expect(await exportEntries()).toHaveLength(3);
});

/** Returns the payload of a signed cursor, which is a compact JWS. */
const decodeCursor = (cursor: string) => JSON.parse(Buffer.from(cursor.split(".")[1]!, "base64url").toString());

test("a failed export is recorded with the error's name", async () => {
  const fixture = openLog();
  await fixture.audit.append(eventBy("ada"));
  const failing = { ...memoryAnchor(), read: () => Promise.reject(new TypeError("the vault is down")) };
  const audit = fixture.instance({ anchor: failing });
  const request = { format: "json" as const, query: {}, cursor: undefined, gzip: false };
  await expect(audit.export(request, { actor: "auditor", requestId: "r" })).rejects.toThrow("the vault is down");
  const outcomes = (await fixture.audit.list({ eventType: "audit.exported" }, page())).items;
  expect(outcomes).toMatchObject([{ outcome: "failure", details: { reason: "TypeError" } }, { outcome: "intent" }]);
});

test("entries keep their time although an attacker planted born marks of future intervals", async () => {
  const fixture = openLog();
  await fixture.audit.append(eventBy("first"));
  const start = Date.parse("2026-11-21T10:10Z");
  for (let ahead = 0; ahead < 60; ahead++) {
    const interval = start + ahead * 10 * MINUTE_MS;
    await fixture.tables.put(AnyRow, new Date(interval).toISOString().slice(0, 10), bornMark(interval), {});
  }
  fixture.clock.set("2026-11-21T10:12:00Z");
  await Promise.all([
    fixture.audit.append(eventBy("ada")),
    fixture.instance().append(eventBy("bob")),
    fixture.audit.refused(eventBy("eve")),
  ]);
  for (const actor of ["ada", "bob", "eve"]) {
    const [entry] = (await fixture.audit.list({ actor }, page())).items;
    expect(entry!.occurredAt).toBe("2026-11-21T10:12:00.000Z");
    expect(entry).not.toHaveProperty("happenedAt");
  }
  fixture.clock.addMinutes(60);
  expect(await fixture.audit.seal()).toMatchObject({ sealed: 7 }); // the intervals that start at 10:00 to 11:00
  const verified = await fixture.audit.verify({});
  expect(verified.entries).toBe(4);
  // The planted marks of intervals that have not started yet are reported.
  expect(new Set(verified.findings.map(({ kind }) => kind))).toEqual(new Set(["markChanged"]));
});

test("closing an interval changes the ETag of its born mark", async () => {
  // If the open mark of the current interval is missing, a writer adds it in a transaction that requires the born mark's ETag.
  // Such a transaction may reach the storage only after the interval was closed. It then fails, because the ETag has changed.
  const fixture = openLog();
  // A born mark without an open mark, so that the writer reopens the interval.
  await fixture.tables.put(AnyRow, "2026-11-21", bornMark(Date.parse("2026-11-21T10:00Z")), {});
  await fixture.audit.append(eventBy("ada"));
  const markBefore = await fixture.tables.get(AnyRow, "2026-11-21", bornMark(Date.parse("2026-11-21T10:00Z")));
  fixture.clock.set("2026-11-21T10:12:00Z");
  await fixture.audit.seal();
  const markAfter = await fixture.tables.get(AnyRow, "2026-11-21", bornMark(Date.parse("2026-11-21T10:00Z")));
  expect(markAfter!.etag).not.toBe(markBefore!.etag);
});

test("an entry that is moved to a later interval also contains the time of its event", async () => {
  const fixture = openLog();
  await fixture.audit.append(eventBy("ada"));
  fixture.clock.set("2026-11-21T10:22:00Z");
  await fixture.audit.append(eventBy("ada"));
  fixture.clock.set("2026-11-21T10:32:00Z");
  await fixture.audit.seal();
  // This instance's clock falls behind the sealed intervals.
  const eventTime = "2026-11-21T10:21:00.000Z";
  fixture.clock.set(eventTime);
  await fixture.audit.append(eventBy("bob"));
  await fixture.audit.refused(eventBy("eve"));
  fixture.clock.addMinutes(60);
  await fixture.audit.seal();
  const { items } = await fixture.audit.list({}, page());
  const movedEntry = { occurredAt: "2026-11-21T10:30:00.000Z", happenedAt: eventTime };
  expect(items.slice(0, 2)).toMatchObject([movedEntry, movedEntry]);
  const verified = await fixture.audit.verify({});
  expect(verified).toMatchObject({ intact: true, lateEntries: { total: 2 } });
  expect(verified.lateEntries.listed).toMatchObject([
    { ...movedEntry, interval: "2026-11-21T10:30Z" },
    { ...movedEntry, interval: "2026-11-21T10:30Z" },
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
  test(`a new instance dates its entries by its clock if the row of the first interval contains ${interval}`, async () => {
    const fixture = openLog();
    await fixture.audit.append(eventBy("ada"));
    await fixture.tables.put(FirstRow, "first", "first", { interval });
    fixture.clock.set("2026-11-21T10:12:00Z");
    await fixture.instance().append(eventBy("bob"));
    expect((await fixture.audit.list({ actor: "bob" }, page())).items[0]!.occurredAt).toBe("2026-11-21T10:12:00.000Z");
    fixture.clock.set("2026-11-21T10:32:00Z");
    expect(await fixture.audit.seal()).toMatchObject({ sealed: 3 });
    expect(await fixture.audit.verify({})).toMatchObject({ entries: 2, findings: [{ kind: "beginningChanged" }] });
  });
}

test("a counted entry gets another id if an invalid row occupies its row key", async () => {
  const fixture = openLog();
  const refusal = event({ type: "access.refused", outcome: "refused" });
  await fixture.audit.refused(refusal);
  const [entry] = (await fixture.audit.list({}, page())).items;
  await fixture.tables.put(EntryRow, "2026-11-21", `10:00|${entry!.id}`, { entry: "nonsense" });
  await fixture.audit.refused(refusal);
  expect((await fixture.audit.list({}, page())).items).toMatchObject([{ eventType: "access.refused", count: 1 }]);
});
