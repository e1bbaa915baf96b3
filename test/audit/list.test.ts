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
import { AnyRow, by, type Fixture, openFixture, page } from "./support.ts";

/** A row of the index with a member of another type. */
const Broken = entity("AuditIndex", z.object({ id: z.number() }));

let azurite: TestStorage;
let proxy: TableProxy;
let fixture: Fixture;
let many: Fixture;
let manyProxy: TableProxy;

beforeAll(async () => {
  azurite = await openStorage(["few", "many", "writes", "index", "broken"]);
  proxy = await startTableProxy(azurite.connectionString("few"));
  fixture = openFixture(proxy.connectionString);
  for (let index = 0; index < 60; index++) {
    const type = index % 3 === 0 ? "user.signedIn" : "settings.changed";
    await fixture.audit.append(by(index % 2 === 0 ? "Ada" : "bob|%/é", type));
    fixture.clock.addMinutes(7);
  }
  manyProxy = await startTableProxy(azurite.connectionString("many"));
  many = openFixture(manyProxy.connectionString);
  await many.audit.append(by("ada"));
  await many.tables.write(EntryRow.table, "2026-01-01", primaryRows(), { parallel: 4 });
  await many.tables.write(IndexRow.table, INDEX_PARTITION, indexRows(), { parallel: 4 });
});
afterAll(async () => {
  await proxy.stop();
  await manyProxy.stop();
  await azurite.stop();
});
beforeEach(() => {
  proxy.requests.length = 0;
  manyProxy.requests.length = 0;
});

/** Entries of one actor and type, a second apart. Written directly, because appending this many takes long. */
const manyEntries = Array.from({ length: 10_500 }, (_, index) => {
  const at = Date.parse("2026-01-01T00:00:00Z") + index * 1000;
  const id = `${encodeTime(at)}${String(index).padStart(16, "0")}`;
  return entryOf(by("ada"), id, at);
});

function* primaryRows() {
  for (const entry of manyEntries) {
    yield insert(EntryRow, entryKey(intervalOf(Date.parse(entry.occurredAt)), entry.id), { entry: entryText(entry) });
  }
}

/** Their index rows without a filter and with both filters. */
function* indexRows() {
  for (const entry of manyEntries) {
    for (const filter of [{}, { actor: "ada", eventType: "settings.changed" }]) {
      yield put(IndexRow, indexPrefix(filter) + position(entry.id, Date.parse(entry.occurredAt)), { id: entry.id });
    }
  }
}

async function walk(query: AuditQuery, limit: number) {
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

describe("each combination of filters yields its entries once across cursors, newest first", () => {
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
          const { items, pages } = await walk(query, 7);
          expect(items).toEqual(expected);
          expect(pages).toBe(Math.ceil(expected.length / 7));
          expect([...items].sort((a, b) => (a.occurredAt < b.occurredAt ? 1 : -1))).toEqual(items);
        });
      }
    }
  }
});

test("a period includes its start and excludes its end", async () => {
  const at = new Date("2026-11-21T10:07:00Z");
  const later = new Date(at.getTime() + 1);
  expect((await fixture.audit.list({ start: at, end: later }, page())).items).toHaveLength(1);
  expect((await fixture.audit.list({ start: later, end: new Date("2026-11-21T10:14:00Z") }, page())).items).toEqual([]);
});

test("offset skips entries, a page after the end is empty, and a cursor continues from there", async () => {
  const all = (await fixture.audit.list({}, page())).items;
  const skipped = await fixture.audit.list({}, page({ offset: 10, limit: 5 }));
  expect(skipped.items).toEqual(all.slice(10, 15));
  expect(skipped).toMatchObject({ total: 60, offset: 10 });
  const next = await fixture.audit.list({}, page({ cursor: skipped.nextCursor!, limit: 5 }));
  expect(next.items).toEqual(all.slice(15, 20));
  expect(await fixture.audit.list({}, page({ offset: 61 }))).toMatchObject({ items: [], total: 60, nextCursor: null });
});

test("entries that are added while pages are read neither shift nor repeat the following ones", async () => {
  const query = { actor: "newcomer" };
  for (let index = 0; index < 4; index++) await fixture.audit.append(by("newcomer"));
  const first = await fixture.audit.list(query, page({ limit: 2 }));
  await fixture.audit.append(by("newcomer"));
  const second = await fixture.audit.list(query, page({ limit: 2, cursor: first.nextCursor! }));
  expect(new Set([...first.items, ...second.items].map(({ id }) => id)).size).toBe(4);
  expect(second.nextCursor).toBeNull();
});

test("a filter without matches returns an empty list; a cursor of other filters is rejected", async () => {
  expect(await fixture.audit.list({ actor: "nobody" }, page())).toMatchObject({
    items: [],
    total: 0,
    nextCursor: null,
  });
  const { nextCursor } = await fixture.audit.list({}, page({ limit: 2 }));
  const refused = { code: "invalidCursor", status: 400 };
  await expect(fixture.audit.list({ actor: "ada" }, page({ cursor: nextCursor! }))).rejects.toMatchObject(refused);
  await expect(fixture.audit.list({}, page({ cursor: "nonsense" }))).rejects.toMatchObject(refused);
});

test("a page with a cursor costs one request of the index, and one per entry or one for all of a day", async () => {
  const first = await fixture.audit.list({ actor: "ada" }, page({ limit: 3 }));
  proxy.requests.length = 0;
  await fixture.audit.list({ actor: "ada" }, page({ limit: 3, cursor: first.nextCursor! }));
  expect(proxy.requests.map(({ path }) => path.split("(")[0])).toEqual([
    "AuditIndex",
    ...Array(3).fill("AuditEntries"),
  ]);
  expect(proxy.requests[0]!.filter).toMatch(/^PartitionKey eq '[^']+' and RowKey gt '[^']+' and RowKey lt '[^']+'$/);
  expect(proxy.requests[0]!.top).toBe(4);
  proxy.requests.length = 0;
  await fixture.audit.list({ actor: "ada" }, page({ limit: 20, cursor: first.nextCursor! }));
  expect(proxy.requests.map(({ path }) => path.split("(")[0])).toEqual(["AuditIndex", "AuditEntries"]);
});

test("short and empty pages of the storage service lose no entries", async () => {
  const all = (await fixture.audit.list({}, page())).items;
  proxy.shortPages(3);
  expect((await fixture.audit.list({}, page({ limit: 50, offset: 3 }))).items).toEqual(all.slice(3, 53));
  proxy.shortPages(1000);
});

describe("more than 10,000", () => {
  for (const query of [{}, { actor: "ada", eventType: "settings.changed" }]) {
    test(`are not counted further, and any page costs the same: ${JSON.stringify(query)}`, async () => {
      const first = await many.audit.list(query, page({ limit: 100 }));
      expect(first).toMatchObject({ total: null, totalAtLeast: 10_000 });
      expect(manyProxy.requests.length).toBeLessThanOrEqual(13);
      const late = await many.audit.list(query, page({ limit: 100, offset: 10_000 }));
      expect(late.items).toHaveLength(100);
      for (const { nextCursor } of [first, late]) {
        manyProxy.requests.length = 0;
        const answer = await many.audit.list(query, page({ limit: 100, cursor: nextCursor! }));
        expect(answer).toMatchObject({ total: null, totalAtLeast: 10_000 });
        expect(manyProxy.requests).toHaveLength(2);
      }
    });
  }

  test("an exact count of 10,000 is returned as exact", async () => {
    const start = new Date("2026-01-01T00:08:20Z"); // without the first 500
    const end = new Date("2026-02-01T00:00:00Z");
    expect((await many.audit.list({ start, end }, page({ limit: 10 }))).total).toBe(10_000);
    const oneMore = new Date(start.getTime() - 1000);
    expect((await many.audit.list({ start: oneMore, end }, page({ limit: 10 }))).total).toBeNull();
  });
});

test("an entry costs two requests, one for the entry and one for the index", async () => {
  const writes = await startTableProxy(azurite.connectionString("writes"));
  const { audit, clock } = openFixture(writes.connectionString);
  await audit.append(by("ada")); // the first entry also creates the tables
  for (const minutes of [1, 10]) {
    clock.addMinutes(minutes);
    writes.requests.length = 0;
    await audit.append(by("ada"));
    expect(writes.requests.map(({ path }) => path)).toEqual(["$batch", "$batch"]);
  }
  await writes.stop();
});

describe("the primary row gives an entry's content, whatever the index contains", () => {
  async function three() {
    const { audit, tables } = openFixture(azurite.connectionString("index"));
    const actor = `ann-${Math.random()}`;
    for (let index = 0; index < 3; index++) await audit.append(by(actor));
    const list = () => audit.list({ actor }, page());
    const [newest] = (await list()).items;
    return { tables, list, entry: newest!, key: indexKeys(newest!)[1]! };
  }

  test("an entry's text in the index is not shown", async () => {
    const { tables, list, entry, key } = await three();
    await tables.put(IndexRow, INDEX_PARTITION, key, { entry: entryText({ ...entry, outcome: "failure" }) });
    const { items, findings } = await list();
    expect(items).toHaveLength(3);
    expect(items[0]).toEqual(entry);
    expect(findings).toBeUndefined();
  });

  test("an index row without an entry is reported, and the others are shown", async () => {
    const { tables, list, entry } = await three();
    const forged = { ...entry, id: `${entry.id.slice(0, -4)}0000` };
    await tables.put(IndexRow, INDEX_PARTITION, indexKeys(forged)[1]!, { id: forged.id });
    const { items, findings } = await list();
    expect(items).toHaveLength(3);
    expect(findings).toMatchObject([{ kind: "indexEntryInserted", entryId: forged.id }]);
  });

  test("an index row that names another entry is reported", async () => {
    const { tables, list, key } = await three();
    const [, other] = (await list()).items;
    await tables.put(IndexRow, INDEX_PARTITION, key, { id: other!.id });
    expect(await list()).toMatchObject({ items: { length: 2 }, findings: [{ kind: "entryChanged" }] });
  });

  test("a damaged row in the index or the log affects only itself", async () => {
    const { tables, list, entry, key } = await three();
    await tables.put(Broken, INDEX_PARTITION, key, { id: 7 });
    expect(await list()).toMatchObject({ items: { length: 2 }, findings: [{ kind: "indexEntryInserted" }] });
    await tables.put(IndexRow, INDEX_PARTITION, key, { id: entry.id });
    const interval = intervalOf(Date.parse(entry.occurredAt));
    await tables.put(AnyRow, entry.occurredAt.slice(0, 10), entryKey(interval, entry.id), { entry: 7 });
    const changed = { kind: "entryChanged", entryId: entry.id };
    expect(await list()).toMatchObject({ items: { length: 2 }, findings: [changed] });
  });
});

test("planted rows, however many, don't increase the requests of a page, in lists and in verification", async () => {
  const through = await startTableProxy(azurite.connectionString("broken"));
  const { audit, tables, clock } = openFixture(through.connectionString);
  await audit.append(by("ada"));
  const day = clock.now().toISOString().slice(0, 10);
  const ids = Array.from(
    { length: 300 },
    (_, index) => `${encodeTime(clock.now().getTime())}${String(index).padStart(16, "0")}`,
  );
  const interval = intervalOf(clock.now().getTime());
  const inIndex = ids.map((id) => put(Broken, indexPrefix({}) + position(id, clock.now().getTime()), { id: 7 }));
  await tables.write(IndexRow.table, INDEX_PARTITION, inIndex);
  await tables.write(
    EntryRow.table,
    day,
    ids.map((id) => put(AnyRow, entryKey(interval, id), { entry: 7 })),
  );
  clock.addMinutes(15);
  expect(await audit.seal()).toMatchObject({ sealed: 1 });

  through.requests.length = 0;
  const { items, findings } = await audit.list({}, page({ limit: 1000 }));
  expect(items).toHaveLength(1);
  expect(findings).toHaveLength(300);
  expect(through.requests.length).toBeLessThan(10);

  through.requests.length = 0;
  expect(await audit.verify({})).toMatchObject({ intact: false });
  expect(through.requests.length).toBeLessThan(60);

  const requests = through.requests.length;
  const strange = Array.from({ length: 500 }, (_, index) =>
    put(ManifestRow, `2025-01-01T00:00Z|${index + 100_000}`, NONE),
  );
  await tables.write(ManifestRow.table, MANIFESTS_PARTITION, strange);
  through.requests.length = 0;
  await audit.verify({});
  expect(through.requests.length).toBe(requests);
  await through.stop();
});

const NONE = { hashes: new Uint8Array() };
