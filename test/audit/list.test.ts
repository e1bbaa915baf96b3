import { encodeTime } from "ulid";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import * as z from "zod";
import { entryOf, entryText } from "../../shared/audit/entry.ts";
import { intervalOf } from "../../shared/audit/interval.ts";
import type { AuditQuery } from "../../shared/audit/list.ts";
import {
  EntryRow,
  entryKey,
  INDEX_PARTITION,
  IndexRow,
  indexKeys,
  indexPrefix,
  MANIFESTS_PARTITION,
  ManifestRow,
  position,
} from "../../shared/audit/rows.ts";
import { entity } from "../../shared/platform/storage/entity.ts";
import { insert, put } from "../../shared/platform/storage/tables.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import { startTableProxy, type TableProxy } from "../support/table-proxy.ts";
import { AnyRow, eventBy, type Fixture, openFixture, page } from "./support.ts";

/**
 * Tests of lists of the audit log, and of the number of storage requests that they take. Each entry has one primary row with
 * its content and four index rows: one per combination of filters (none, actor, event type, both). Index rows only name the
 * entry.
 */

/** An index row whose id has a wrong type, as an attacker could write it. */
const MalformedIndexRow = entity("AuditIndex", z.object({ id: z.number() }));

let azurite: TestStorage;
/** A log of 60 entries, and the proxy that records its storage requests. */
let fixture: Fixture;
let proxy: TableProxy;
/** A log of more than 10,000 entries, and the proxy that records its storage requests. */
let largeLog: Fixture;
let largeLogProxy: TableProxy;

beforeAll(async () => {
  azurite = await openStorage(["few", "many", "writes", "index", "broken"]);
  proxy = await startTableProxy(azurite.connectionString("few"));
  fixture = openFixture(proxy.connectionString);
  for (let index = 0; index < 60; index++) {
    const type = index % 3 === 0 ? "user.signedIn" : "settings.changed";
    await fixture.audit.append(eventBy(index % 2 === 0 ? "Ada" : "bob|%/é", type));
    fixture.clock.addMinutes(7);
  }
  largeLogProxy = await startTableProxy(azurite.connectionString("many"));
  largeLog = openFixture(largeLogProxy.connectionString);
  await largeLog.audit.append(eventBy("ada"));
  await largeLog.tables.write(EntryRow.table, "2026-01-01", primaryRows(), { parallel: 4 });
  await largeLog.tables.write(IndexRow.table, INDEX_PARTITION, indexRows(), { parallel: 4 });
});
afterAll(async () => {
  await proxy.stop();
  await largeLogProxy.stop();
  await azurite.stop();
});
beforeEach(() => {
  proxy.requests.length = 0;
  largeLogProxy.requests.length = 0;
});

/**
 * The entries of the large log: one actor and type, a second apart. Written directly, because appending this many takes long.
 */
const largeLogEntries = Array.from({ length: 10_500 }, (_, index) => {
  const occurredAtMs = Date.parse("2026-01-01T00:00:00Z") + index * 1000;
  // A ULID: the time, then 16 characters that are usually random.
  const id = `${encodeTime(occurredAtMs)}${String(index).padStart(16, "0")}`;
  return entryOf(eventBy("ada"), id, occurredAtMs);
});

function* primaryRows() {
  for (const entry of largeLogEntries) {
    yield insert(EntryRow, entryKey(intervalOf(Date.parse(entry.occurredAt)), entry.id), { entry: entryText(entry) });
  }
}

/** Yields the index rows of `largeLogEntries` for two of the four combinations: no filter, and both filters. */
function* indexRows() {
  for (const entry of largeLogEntries) {
    for (const filter of [{}, { actor: "ada", eventType: "settings.changed" }]) {
      yield put(IndexRow, indexPrefix(filter) + position(entry.id, Date.parse(entry.occurredAt)), { id: entry.id });
    }
  }
}

/** Reads all pages of a list, and checks the offset and the total of each. */
async function readAllPages(query: AuditQuery, limit: number) {
  const items: { id: string; occurredAt: string; actor: string; eventType: string }[] = [];
  let cursor: string | undefined;
  let pages = 0;
  do {
    const answer = await fixture.audit.list(query, page({ limit, cursor }));
    expect(answer.offset).toBe(items.length);
    expect(answer.total).toBe((await fixture.audit.list(query, page())).total);
    items.push(...answer.items);
    cursor = answer.nextCursor ?? undefined;
    pages += 1;
  } while (cursor !== undefined);
  return { items, pages };
}

describe("following the cursors returns every matching entry once, newest first:", () => {
  const PAGE_SIZE = 7;
  const start = new Date("2026-11-21T11:10:00Z");
  const end = new Date("2026-11-21T15:05:00Z");
  for (const actor of [undefined, "ada", "BOB|%/É"]) {
    for (const eventType of [undefined, "user.signedIn"]) {
      for (const range of [{}, { start }, { end }, { start, end }]) {
        const query = { actor, eventType, ...range };
        test(JSON.stringify(query), async () => {
          const all = (await fixture.audit.list({}, page())).items;
          const expected = all.filter(
            (entry) =>
              (actor === undefined || entry.actor.toLowerCase() === actor.toLowerCase()) &&
              (eventType === undefined || entry.eventType === eventType) &&
              !("start" in range && Date.parse(entry.occurredAt) < start.getTime()) &&
              !("end" in range && Date.parse(entry.occurredAt) >= end.getTime()),
          );
          expect(expected.length).toBeGreaterThan(0);
          const { items, pages } = await readAllPages(query, PAGE_SIZE);
          expect(items).toEqual(expected);
          expect(pages).toBe(Math.ceil(expected.length / PAGE_SIZE));
          expect([...items].sort((a, b) => (a.occurredAt < b.occurredAt ? 1 : -1))).toEqual(items);
        });
      }
    }
  }
});

test("a period includes its start and excludes its end", async () => {
  const entryTime = new Date("2026-11-21T10:07:00Z");
  const oneMsLater = new Date(entryTime.getTime() + 1);
  expect((await fixture.audit.list({ start: entryTime, end: oneMsLater }, page())).items).toHaveLength(1);
  expect(
    (await fixture.audit.list({ start: oneMsLater, end: new Date("2026-11-21T10:14:00Z") }, page())).items,
  ).toEqual([]);
});

test("offset skips entries, and the cursor continues after the returned page", async () => {
  const all = (await fixture.audit.list({}, page())).items;
  const skipped = await fixture.audit.list({}, page({ offset: 10, limit: 5 }));
  expect(skipped.items).toEqual(all.slice(10, 15));
  expect(skipped).toMatchObject({ total: 60, offset: 10 });
  const next = await fixture.audit.list({}, page({ cursor: skipped.nextCursor!, limit: 5 }));
  expect(next.items).toEqual(all.slice(15, 20));
  expect(await fixture.audit.list({}, page({ offset: 61 }))).toMatchObject({ items: [], total: 60, nextCursor: null });
});

test("an entry added between two pages neither repeats nor hides entries of the second page", async () => {
  const query = { actor: "newcomer" };
  for (let index = 0; index < 4; index++) await fixture.audit.append(eventBy("newcomer"));
  const first = await fixture.audit.list(query, page({ limit: 2 }));
  await fixture.audit.append(eventBy("newcomer"));
  const second = await fixture.audit.list(query, page({ limit: 2, cursor: first.nextCursor! }));
  expect(new Set([...first.items, ...second.items].map(({ id }) => id)).size).toBe(4);
  expect(second.nextCursor).toBeNull();
});

test("a cursor is rejected with other filters than those of its first page", async () => {
  expect(await fixture.audit.list({ actor: "nobody" }, page())).toMatchObject({
    items: [],
    total: 0,
    nextCursor: null,
  });
  const { nextCursor } = await fixture.audit.list({}, page({ limit: 2 }));
  const invalidCursor = { code: "invalidCursor", status: 400 };
  await expect(fixture.audit.list({ actor: "ada" }, page({ cursor: nextCursor! }))).rejects.toMatchObject(
    invalidCursor,
  );
  await expect(fixture.audit.list({}, page({ cursor: "nonsense" }))).rejects.toMatchObject(invalidCursor);
});

test("a page with a cursor costs one index request and one request per entry, or one per day for ten entries or more", async () => {
  const first = await fixture.audit.list({ actor: "ada" }, page({ limit: 3 }));
  proxy.requests.length = 0;
  await fixture.audit.list({ actor: "ada" }, page({ limit: 3, cursor: first.nextCursor! }));
  expect(proxy.requests.map(({ path }) => path.split("(")[0])).toEqual([
    "AuditIndex",
    ...Array(3).fill("AuditEntries"),
  ]);
  expect(proxy.requests[0]!.filter).toMatch(/^PartitionKey eq '[^']+' and RowKey gt '[^']+' and RowKey lt '[^']+'$/);
  expect(proxy.requests[0]!.top).toBe(4); // one more than the limit, to know whether another page follows
  proxy.requests.length = 0;
  await fixture.audit.list({ actor: "ada" }, page({ limit: 20, cursor: first.nextCursor! }));
  expect(proxy.requests.map(({ path }) => path.split("(")[0])).toEqual(["AuditIndex", "AuditEntries"]);
});

test("pages of the storage service with fewer rows than requested lose no entries", async () => {
  const all = (await fixture.audit.list({}, page())).items;
  proxy.shortPages(3);
  expect((await fixture.audit.list({}, page({ limit: 50, offset: 3 }))).items).toEqual(all.slice(3, 53));
  proxy.shortPages(1000);
});

describe("a list of more than 10,000 entries", () => {
  for (const query of [{}, { actor: "ada", eventType: "settings.changed" }]) {
    test(`has no exact total, and a page with a cursor costs two requests at any offset: ${JSON.stringify(query)}`, async () => {
      const first = await largeLog.audit.list(query, page({ limit: 100 }));
      expect(first).toMatchObject({ total: null, totalAtLeast: 10_000 });
      // One page of the index, one of the entries, and up to eleven requests that count up to 10,000 entries. Once a minute, a
      // process also sends up to six requests that read from which time on every entry must have an authentication code.
      expect(largeLogProxy.requests.length).toBeLessThanOrEqual(19);
      const late = await largeLog.audit.list(query, page({ limit: 100, offset: 10_000 }));
      expect(late.items).toHaveLength(100);
      for (const { nextCursor } of [first, late]) {
        largeLogProxy.requests.length = 0;
        const answer = await largeLog.audit.list(query, page({ limit: 100, cursor: nextCursor! }));
        expect(answer).toMatchObject({ total: null, totalAtLeast: 10_000 });
        expect(largeLogProxy.requests).toHaveLength(2);
      }
    });
  }

  test("has an exact total if a period limits it to 10,000 entries", async () => {
    const start = new Date("2026-01-01T00:08:20Z"); // excludes the first 500 of the 10,500 entries
    const end = new Date("2026-02-01T00:00:00Z");
    expect((await largeLog.audit.list({ start, end }, page({ limit: 10 }))).total).toBe(10_000);
    const oneMore = new Date(start.getTime() - 1000);
    expect((await largeLog.audit.list({ start: oneMore, end }, page({ limit: 10 }))).total).toBeNull();
  });
});

test("appending an entry costs two storage requests", async () => {
  const writes = await startTableProxy(azurite.connectionString("writes"));
  const { audit, clock } = openFixture(writes.connectionString);
  await audit.append(eventBy("ada")); // the first entry also creates the tables
  for (const minutes of [1, 10]) {
    clock.addMinutes(minutes);
    writes.requests.length = 0;
    await audit.append(eventBy("ada"));
    // One transaction writes the entry, and one writes its index rows.
    expect(writes.requests.map(({ path }) => path)).toEqual(["$batch", "$batch"]);
  }
  await writes.stop();
});

describe("a list takes an entry's content from its primary row:", () => {
  /** Appends three entries of a new actor. Returns the newest one and the key of its index row by actor. */
  async function appendThree() {
    const { audit, tables } = openFixture(azurite.connectionString("index"));
    const actor = `ann-${Math.random()}`;
    for (let index = 0; index < 3; index++) await audit.append(eventBy(actor));
    const list = () => audit.list({ actor }, page());
    const [newest] = (await list()).items;
    return { tables, list, entry: newest!, key: indexKeys(newest!)[1]! };
  }

  test("an entry's text in an index row is ignored", async () => {
    const { tables, list, entry, key } = await appendThree();
    await tables.put(IndexRow, INDEX_PARTITION, key, { entry: entryText({ ...entry, outcome: "failure" }) });
    const { items, findings } = await list();
    expect(items).toHaveLength(3);
    expect(items[0]).toEqual(entry);
    expect(findings).toBeUndefined();
  });

  test("an index row without a primary row is reported, and the other entries are returned", async () => {
    const { tables, list, entry } = await appendThree();
    const forged = { ...entry, id: `${entry.id.slice(0, -4)}0000` };
    await tables.put(IndexRow, INDEX_PARTITION, indexKeys(forged)[1]!, { id: forged.id });
    const { items, findings } = await list();
    expect(items).toHaveLength(3);
    expect(findings).toMatchObject([{ kind: "indexEntryInserted", entryId: forged.id }]);
  });

  test("an index row that names another entry is reported", async () => {
    const { tables, list, key } = await appendThree();
    const [, other] = (await list()).items;
    await tables.put(IndexRow, INDEX_PARTITION, key, { id: other!.id });
    expect(await list()).toMatchObject({ items: { length: 2 }, findings: [{ kind: "entryChanged" }] });
  });

  test("an unreadable index row or primary row is reported, and the other entries are returned", async () => {
    const { tables, list, entry, key } = await appendThree();
    await tables.put(MalformedIndexRow, INDEX_PARTITION, key, { id: 7 });
    expect(await list()).toMatchObject({ items: { length: 2 }, findings: [{ kind: "indexEntryInserted" }] });
    await tables.put(IndexRow, INDEX_PARTITION, key, { id: entry.id });
    const interval = intervalOf(Date.parse(entry.occurredAt));
    await tables.put(AnyRow, entry.occurredAt.slice(0, 10), entryKey(interval, entry.id), { entry: 7 });
    const changed = { kind: "entryChanged", entryId: entry.id };
    expect(await list()).toMatchObject({ items: { length: 2 }, findings: [changed] });
  });
});

test("hundreds of malformed rows don't increase the number of storage requests of lists and verification", async () => {
  const malformedLogProxy = await startTableProxy(azurite.connectionString("broken"));
  const { audit, tables, clock } = openFixture(malformedLogProxy.connectionString);
  await audit.append(eventBy("ada"));
  const day = clock.now().toISOString().slice(0, 10);
  const ids = Array.from(
    { length: 300 },
    (_, index) => `${encodeTime(clock.now().getTime())}${String(index).padStart(16, "0")}`,
  );
  const interval = intervalOf(clock.now().getTime());
  const malformedIndexRows = ids.map((id) =>
    put(MalformedIndexRow, indexPrefix({}) + position(id, clock.now().getTime()), { id: 7 }),
  );
  await tables.write(IndexRow.table, INDEX_PARTITION, malformedIndexRows);
  await tables.write(
    EntryRow.table,
    day,
    ids.map((id) => put(AnyRow, entryKey(interval, id), { entry: 7 })),
  );
  clock.addMinutes(15);
  expect(await audit.seal()).toMatchObject({ sealed: 1 });

  malformedLogProxy.requests.length = 0;
  const { items, findings } = await audit.list({}, page({ limit: 1000 }));
  expect(items).toHaveLength(1);
  expect(findings).toHaveLength(300);
  expect(malformedLogProxy.requests.length).toBeLessThan(10);

  malformedLogProxy.requests.length = 0;
  expect(await audit.verify({})).toMatchObject({ intact: false });
  expect(malformedLogProxy.requests.length).toBeLessThan(60);

  const requestsBefore = malformedLogProxy.requests.length;
  // A manifest, the fingerprints of an interval's entries, for an interval that was never sealed.
  const unexpectedManifests = Array.from({ length: 500 }, (_, index) =>
    put(ManifestRow, `2025-01-01T00:00Z|${index + 100_000}`, NO_FINGERPRINTS),
  );
  await tables.write(ManifestRow.table, MANIFESTS_PARTITION, unexpectedManifests);
  malformedLogProxy.requests.length = 0;
  await audit.verify({});
  expect(malformedLogProxy.requests.length).toBe(requestsBefore);
  await malformedLogProxy.stop();
});

const NO_FINGERPRINTS = { hashes: new Uint8Array() };
