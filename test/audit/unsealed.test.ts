import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { sha256 } from "../../shared/audit/canonical.ts";
import { rollbackStatement } from "../../shared/audit/chain/authenticated-from.ts";
import type { ChainEnd } from "../../shared/audit/chain/chain.ts";
import { signingKey } from "../../shared/audit/chain/signing.ts";
import { entryText } from "../../shared/audit/entry.ts";
import { intervalOf } from "../../shared/audit/interval.ts";
import {
  EntryRow,
  entriesPartition,
  entryKey,
  FIRST_PARTITION,
  FirstRow,
  INDEX_PARTITION,
  IndexRow,
  indexKeys,
  LAST_ROWS,
  LastRow,
  lastRowKey,
  MANIFESTS_PARTITION,
  ManifestRow,
  RecordRow,
  ROLLBACK,
} from "../../shared/audit/rows.ts";
import { verifyExport } from "../../shared/audit/verify/verify-export.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import { event, eventBy, exportAll, type Fixture, makeKey, openFixture, page, publicKeys } from "./support.ts";

/**
 * Tests that changes of audit entries are found before the entries are sealed. Each case gets its own log, in which nothing is
 * sealed, and changes rows directly in storage, like an attacker with the account's key. Two processes wrote the log from 10:00
 * on. `a` wrote the entries of the actors a1, a2 and a3. `b` wrote that of b1, and a rejected request three times, which is one
 * entry with a count. A row of last entries names the newest entry of a process until its next entry does. The row of an entry
 * contains the entry's text, its authentication code (`mac`) and its link to the previous entry of the same process.
 */

const DAY = "2026-11-21";

interface Log extends Fixture {
  /** Reads the row of the entry of an actor. */
  rowOf(actor: string): Promise<{ rowKey: string; entry: string; link?: string | undefined; mac?: string | undefined }>;
  removeEntry(actor: string): Promise<void>;
  /**
   * Removes index rows of an entry: all, or those with these numbers. 0 is the row without a filter, 1 by actor, 2 by event
   * type, 3 by both.
   */
  removeIndex(actor: string, ...numbers: number[]): Promise<void>;
  /** Copies the rows of all entries and of the last entries, and returns a function that writes them back. */
  copyRows(): Promise<() => Promise<void>>;
  /** Writes an entry of an actor: process `a` writes it if the name starts with `a`, otherwise process `b`. */
  write(actor: string): Promise<void>;
}

let azurite: TestStorage;
let used = 0;
beforeAll(async () => {
  azurite = await openStorage(Array.from({ length: 44 }, (_, index) => `unsealed${index}`));
});
afterAll(() => azurite.stop());

const refusal = event({ type: "access.refused", outcome: "refused", caller: { actor: "refused", requestId: "r" } });

async function openLog(): Promise<Log> {
  const fixture = openFixture(azurite.connectionString(`unsealed${used++}`));
  const { tables, clock } = fixture;
  const processB = fixture.instance();
  const write = async (actor: string) => {
    clock.addMinutes(0.1);
    await (actor.startsWith("a") ? fixture.audit : processB).append(eventBy(actor));
  };
  for (const actor of ["a1", "b1", "a2", "a3"]) await write(actor);
  for (let time = 0; time < 3; time++) await processB.refused(refusal);
  /** Returns the rows of entries. Keys of marks and of last entries start with `~`. */
  const allRows = async () => {
    const rows = [];
    for await (const some of tables.pages(EntryRow, { partitionKey: DAY, before: "~" })) rows.push(...some);
    return rows;
  };
  const rowOf = async (actor: string) =>
    (await allRows()).find(({ entry }) => (JSON.parse(entry) as { actor: string }).actor === actor)!;
  return {
    ...fixture,
    rowOf,
    write,
    removeEntry: async (actor) => void (await tables.remove(EntryRow, DAY, (await rowOf(actor)).rowKey)),
    async removeIndex(actor, ...numbers) {
      const keys = indexKeys(JSON.parse((await rowOf(actor)).entry));
      for (const [number, key] of keys.entries())
        if (numbers.length === 0 || numbers.includes(number)) await tables.remove(IndexRow, INDEX_PARTITION, key);
    },
    async copyRows() {
      const entries = await allRows();
      const last: { rowKey: string; link: string; mac: string }[] = [];
      for await (const some of tables.pages(LastRow, { partitionKey: DAY, ...LAST_ROWS })) last.push(...some);
      return async () => {
        for (const { rowKey, entry, link, mac } of entries)
          await tables.put(EntryRow, DAY, rowKey, { entry, link, mac });
        for (const { rowKey, link, mac } of last) await tables.put(LastRow, DAY, rowKey, { link, mac });
      };
    },
  };
}

/** Writes the row of an entry, and its index rows, as someone without the keys can. */
async function plant(log: Log, instant: string, mac?: string, id = "01M7YRRT80N8G1C0BA1J86DWCA"): Promise<string> {
  const source = await log.rowOf("a1");
  const entry = { ...JSON.parse(source.entry), id, occurredAt: instant, actor: "victim" };
  const interval = intervalOf(Date.parse(instant));
  const row = { entry: entryText(entry), ...(mac && { mac, link: source.link }) };
  await log.tables.put(EntryRow, entriesPartition(interval), entryKey(interval, id), row);
  for (const key of indexKeys(entry)) await log.tables.put(IndexRow, INDEX_PARTITION, key, { id });
  return id;
}

/**
 * Each case: what is changed, and the expected kinds of findings. Kinds in square brackets are not in an export, which has no
 * index, and not recorded by sealing, which repairs the index. Kinds in parentheses are not recorded by sealing either, because
 * the rows are outside of the sealed intervals.
 */
const cases: [name: string, tamper: (log: Log) => Promise<unknown>, expected: string[]][] = [
  [
    "an entry and its index rows removed",
    async (log) => {
      await log.removeIndex("a2");
      await log.removeEntry("a2");
    },
    ["entryRemoved"],
  ],
  [
    "the newest entry of a process and its index rows removed",
    async (log) => {
      await log.removeIndex("a3");
      await log.removeEntry("a3");
    },
    ["entryRemoved"],
  ],
  [
    "the newest two entries of a process removed",
    async (log) => {
      for (const actor of ["a2", "a3"]) {
        await log.removeIndex(actor);
        await log.removeEntry(actor);
      }
    },
    ["entryRemoved", "entryRemoved"],
  ],
  [
    "an entry changed to another actor, with index rows to match",
    async (log) => {
      const { rowKey, entry, link, mac } = await log.rowOf("a2");
      await log.removeIndex("a2");
      const changed = { ...JSON.parse(entry), actor: "victim" };
      await log.tables.put(EntryRow, DAY, rowKey, { entry: entryText(changed), link, mac });
      for (const key of indexKeys(changed)) await log.tables.put(IndexRow, INDEX_PARTITION, key, { id: changed.id });
    },
    ["entryChanged"],
  ],
  [
    "an entry changed, and its authentication code removed",
    async (log) => {
      const { rowKey, entry } = await log.rowOf("a2");
      await log.tables.put(EntryRow, DAY, rowKey, { entry: entry.replace("success", "failure") });
    },
    ["entryChanged"],
  ],
  ["the index rows without a filter removed", (log) => log.removeIndex("a2", 0), ["[indexEntryMissing]"]],
  ["all index rows of an entry removed", (log) => log.removeIndex("a2"), ["[indexEntryMissing]"]],
  [
    "an index row whose id is no entry's",
    async (log) =>
      await log.tables.put(IndexRow, INDEX_PARTITION, indexKeys(JSON.parse((await log.rowOf("a2")).entry))[0]!, {
        id: "x",
      }),
    ["[indexEntryMissing]"],
  ],
  [
    "an index row that names another entry",
    async (log) => {
      const other = JSON.parse((await log.rowOf("a1")).entry) as { id: string };
      const key = indexKeys(JSON.parse((await log.rowOf("a2")).entry))[0]!;
      await log.tables.put(IndexRow, INDEX_PARTITION, key, { id: other.id });
    },
    ["[indexEntryMissing]"],
  ],
  [
    "an index row for an entry that does not exist",
    async (log) => {
      const entry = { ...JSON.parse((await log.rowOf("a2")).entry), id: "01M7YRRT80N8G1C0BA1J86DWCA" };
      await log.tables.put(IndexRow, INDEX_PARTITION, indexKeys(entry)[0]!, { id: entry.id });
    },
    ["[indexEntryInserted]"],
  ],
  [
    "an entry inserted without an authentication code",
    (log) => plant(log, "2026-11-21T10:00:03.000Z"),
    ["entryInserted"],
  ],
  [
    "an entry inserted with the authentication code of another one",
    async (log) => plant(log, "2026-11-21T10:00:03.000Z", (await log.rowOf("a1")).mac),
    ["entryChanged"],
  ],
  [
    "an entry inserted with a code of an unknown key",
    async (log) => plant(log, "2026-11-21T10:00:03.000Z", `k9.${"A".repeat(43)}`),
    ["entryChanged"],
  ],
  [
    "an entry moved to another day, with its code and index rows",
    async (log) => {
      const { rowKey, entry, link, mac } = await log.rowOf("a2");
      await log.tables.put(EntryRow, "2026-11-22", rowKey, { entry, link, mac });
      await log.removeIndex("a2");
      await log.removeEntry("a2");
    },
    ["entryRemoved", "(entryInserted)"],
  ],
  [
    "a counted entry set back to an earlier count",
    async (log) => {
      const before = await log.rowOf("refused");
      for (let time = 0; time < 2; time++) await log.audit.refused(refusal);
      const { rowKey, entry, link, mac } = before;
      await log.tables.put(EntryRow, DAY, rowKey, { entry, link, mac });
    },
    ["entryChanged"],
  ],
  [
    "the row of the last entry of a process removed",
    async (log) => {
      for await (const rows of log.tables.pages(LastRow, { partitionKey: DAY, ...LAST_ROWS }))
        await log.tables.remove(LastRow, DAY, rows[0]!.rowKey);
    },
    ["lastEntryChanged"],
  ],
  [
    "the newest entry of a process removed, and the code of the row of the last entry replaced by one of an unknown key",
    async (log) => {
      await log.removeIndex("a3");
      await log.removeEntry("a3");
      const { sequence } = JSON.parse((await log.rowOf("a2")).link!) as { sequence: string };
      const { link } = (await log.tables.get(LastRow, DAY, lastRowKey(sequence)))!;
      await log.tables.put(LastRow, DAY, lastRowKey(sequence), { link, mac: `k9.${"A".repeat(43)}` });
    },
    ["lastEntryChanged"],
  ],
  [
    "a counted entry changed before it is counted again",
    async (log) => {
      const { rowKey, entry, link, mac } = await log.rowOf("refused");
      const changed = entry.replace('"outcome":"refused"', '"outcome":"success"');
      await log.tables.put(EntryRow, DAY, rowKey, { entry: changed, link, mac });
      await log.audit.refused(refusal);
    },
    ["entryChanged"],
  ],
  [
    "an entry removed and the row of the last entry set back, before the process writes again",
    async (log) => {
      const restore = await log.copyRows();
      await log.write("a4");
      await log.removeIndex("a4");
      await log.removeEntry("a4");
      await restore();
      await log.write("a5");
    },
    ["entryRemoved"],
  ],
];

describe("before entries are sealed, verification finds, and sealing records for good:", () => {
  for (const [name, tamper, expected] of cases) {
    test(name, async () => {
      const log = await openLog();
      expect((await log.audit.verify({})).findings).toEqual([]);
      await tamper(log);

      const online = await log.audit.verify({});
      const kinds = expected.map((kind) => kind.replace(/[[\]()]/g, ""));
      expect(online.findings.map(({ kind }) => kind as string).sort()).toEqual(kinds.sort());
      expect(online.intact).toBe(false);
      const inExport = kinds.filter((_, index) => !expected[index]!.startsWith("["));
      const sealedKinds = expected.filter((kind) => /^\w/.test(kind));
      const offline = await verifyExport(
        (await exportAll(log.audit)).map((part) => JSON.parse(part)),
        publicKeys(...log.keys),
      );
      expect(offline.findings.map(({ kind }) => kind as string).sort()).toEqual(inExport.sort());
      const listed = (await log.audit.list({}, page())).items;
      expect(listed.map(({ actor }) => actor)).not.toContain("victim");

      log.clock.set("2026-11-21T10:12:00Z");
      const sealing = await log.audit.seal();
      expect(sealing.falsified ?? 0).toBe(sealedKinds.length);
      // Sealing writes missing index rows again. A falsified entry remains a finding, also in a later export.
      const sealed = (await log.audit.verify({})).findings.filter(({ digestNumber }) => digestNumber === 1);
      expect(sealed.map(({ kind }) => kind as string).sort()).toEqual(sealedKinds.sort());
    });
  }
});

test("an entry that was removed with its traces before the sealing is missed by the process's next entry", async () => {
  const log = await openLog();
  const restore = await log.copyRows();
  await log.write("a4");
  await log.removeIndex("a4");
  await log.removeEntry("a4");
  await restore();
  log.clock.set("2026-11-21T10:12:00Z");
  expect((await log.audit.seal()).falsified).toBeUndefined();
  await log.write("a5");
  expect((await log.audit.verify({})).findings).toMatchObject([{ kind: "entryRemoved", interval: `${DAY}T10:00Z` }]);
});

for (const [where, instant, interval] of [
  ["before its beginning", "2026-11-20T09:00:00.000Z", "2026-11-20T00:00Z"],
  ["an hour from now", "2026-11-21T11:15:00.000Z", "2026-11-21T11:10Z"],
  ["three days from now", "2026-11-24T11:15:00.000Z", "2026-11-24T00:00Z"],
] as const) {
  test(`an entry planted ${where} is neither listed nor exported, and verification names it`, async () => {
    const log = await openLog();
    log.clock.set("2026-11-21T10:12:00Z");
    await log.audit.seal();
    await plant(log, instant);
    expect((await log.audit.list({}, page())).items.map(({ actor }) => actor)).not.toContain("victim");
    expect((await log.audit.list({ actor: "victim" }, page())).total).toBe(0);
    expect((await exportAll(log.audit)).join()).not.toContain('"victim"');
    const { findings } = await log.audit.verify({});
    expect(findings.map(({ kind }) => kind)).toContain("entryInserted");
    expect(findings.map((finding) => finding.interval?.slice(0, 10))).toContain(interval.slice(0, 10));
    // Also without index rows.
    for await (const rows of log.tables.pages(IndexRow, { partitionKey: INDEX_PARTITION }))
      for (const { rowKey, id } of rows)
        if (id === "01M7YRRT80N8G1C0BA1J86DWCA") await log.tables.remove(IndexRow, INDEX_PARTITION, rowKey);
    expect((await log.audit.verify({})).findings).toMatchObject([{ kind: "entryInserted", interval }]);
  });
}

for (const [code, mac] of [
  ["a code of an unknown key", `k9.${"A".repeat(43)}`],
  ["no code", undefined],
] as const) {
  test(`an entry with ${code}, planted in a sealed interval, is not listed`, async () => {
    const log = await openLog();
    log.clock.set("2026-11-21T10:12:00Z");
    await log.audit.seal();
    await plant(log, "2026-11-21T10:05:00.000Z", mac);
    const { items, findings } = await log.audit.list({ actor: "victim" }, page());
    expect([items, findings?.map(({ kind }) => kind)]).toEqual([[], ["entryChanged"]]);
    expect((await log.audit.verify({})).findings.map(({ kind }) => kind)).toContain("entryInserted");
  });
}

for (const [code, mac] of [
  ["a wrong code", `k1.${"A".repeat(43)}`],
  ["a code of an unknown key", `k9.${"A".repeat(43)}`],
  ["no code", undefined],
] as const) {
  test(`an entry with ${code}, planted before its interval is sealed, is not listed after the sealing either`, async () => {
    const log = await openLog();
    await plant(log, "2026-11-21T10:05:00.000Z", mac);
    log.clock.set("2026-11-21T10:12:00Z");
    expect((await log.audit.seal()).falsified).toBe(1);
    const { items, findings } = await log.audit.list({ actor: "victim" }, page());
    expect([items, findings?.map(({ kind }) => kind)]).toEqual([[], ["entryChanged"]]);
  });
}

test("no planted entry is listed if more were planted before the sealing than the digest names", async () => {
  const log = await openLog();
  // 51 entries: a digest names up to 50. The numbers have two digits, the end of a ULID.
  for (let number = 10; number < 61; number++)
    await plant(log, "2026-11-21T10:05:00.000Z", `k9.${"A".repeat(43)}`, `01M7YRRT80N8G1C0BA1J86DW${number}`);
  log.clock.set("2026-11-21T10:12:00Z");
  expect((await log.audit.seal()).falsified).toBe(51);
  const { items, findings } = await log.audit.list({ actor: "victim" }, page());
  expect([items, findings?.length]).toEqual([[], 51]);
});

test("sealed entries are listed after their key was removed, and an inserted one is not, although the manifest names it", async () => {
  const log = await openLog();
  log.clock.set("2026-11-21T10:12:00Z");
  const next = makeKey("k2");
  await log.instance({ keys: [next, ...log.keys] }).seal();
  const audit = log.instance({ keys: [next] });
  const actors = async () => (await audit.list({}, page())).items.map(({ actor }) => actor);
  expect(await actors()).toEqual(expect.arrayContaining(["a1", "a2", "a3", "b1", "refused"]));

  const id = await plant(log, "2026-11-21T10:05:00.000Z", (await log.rowOf("a1")).mac);
  const { entry } = (await log.tables.get(EntryRow, DAY, entryKey(intervalOf(Date.parse(`${DAY}T10:00Z`)), id)))!;
  const rowKey = `${DAY}T10:00Z|000000`;
  const { hashes } = (await log.tables.get(ManifestRow, MANIFESTS_PARTITION, rowKey))!;
  const planted = [Buffer.from(id), Buffer.from(sha256(entry), "base64url")];
  await log.tables.put(ManifestRow, MANIFESTS_PARTITION, rowKey, { hashes: Buffer.concat([hashes, ...planted]) });
  expect(await actors()).not.toContain("victim");
});

/** Writes an entry of the actor `victim` as an earlier version does: without a code and a link. */
async function writeAsEarlierVersion(log: Log, instant: string): Promise<void> {
  const id = await plant(log, instant);
  const interval = intervalOf(Date.parse(instant));
  const { entry } = (await log.tables.get(EntryRow, entriesPartition(interval), entryKey(interval, id)))!;
  await log.tables.put(EntryRow, entriesPartition(interval), entryKey(interval, id), { entry });
}

describe("after the preparation for an earlier version", () => {
  test("its entries are accepted and counted until the next sealing, and no row is left that it would report", async () => {
    const log = await openLog();
    await log.audit.prepareForRollback();
    for await (const rows of log.tables.pages(LastRow, { partitionKey: DAY, ...LAST_ROWS })) expect(rows).toEqual([]);
    await writeAsEarlierVersion(log, "2026-11-21T10:02:00.000Z");
    const accepted = { findings: [], entriesWithoutCode: 1, authenticatedFrom: null };
    expect(await log.audit.verify({})).toMatchObject(accepted);
    expect((await log.instance().list({}, page())).items.map(({ actor }) => actor)).toContain("victim");
    log.clock.set("2026-11-21T10:12:00Z");
    expect((await log.audit.seal()).falsified).toBeUndefined();
    const named = { findings: [], entriesWithoutCode: 1, authenticatedFrom: "2026-11-21T11:10:00.000Z" };
    expect(await log.audit.verify({})).toMatchObject(named);
  });

  test("a removed or changed entry of this version is found as before", async () => {
    const log = await openLog();
    await log.audit.prepareForRollback();
    await log.removeIndex("a1");
    await log.removeEntry("a1");
    const { rowKey, entry } = await log.rowOf("b1");
    await log.tables.put(EntryRow, DAY, rowKey, { entry: entry.replace("success", "failure") });
    const findings = (await log.audit.verify({})).findings.map(({ kind }) => kind);
    expect(findings.sort()).toEqual(["entryChanged", "entryRemoved"]);
  });

  for (const [name, restore] of [
    ["a copy of the statement", (record: string) => record],
    ["a statement of another key", (_: string, end: string | null) => statementOf("k1", end)],
  ] as const)
    test(`${name} does not accept entries after the next sealing`, async () => {
      const log = await openLog();
      await log.audit.prepareForRollback();
      const { record } = (await log.tables.get(RecordRow, ROLLBACK, ROLLBACK))!;
      // The second time is after the hour in which entries without a code are accepted.
      for (const now of ["2026-11-21T10:12:00Z", "2026-11-21T11:31:00Z"]) {
        log.clock.set(now);
        await log.audit.seal();
      }
      const { hash } = (await log.audit.verify({})).lastDigest!;
      await log.tables.put(RecordRow, ROLLBACK, ROLLBACK, { record: restore(record, hash) });
      await writeAsEarlierVersion(log, "2026-11-21T11:30:30.000Z");
      expect((await log.audit.verify({})).findings).toMatchObject([{ kind: "entryInserted" }]);
      expect((await log.instance().list({}, page())).items.map(({ actor }) => actor)).not.toContain("victim");
    });
});

/** A statement that accepts entries after a digest, of a key that is not configured but has the name of one that is. */
const statementOf = (kid: string, hash: string | null): string =>
  rollbackStatement(hash === null ? undefined : ({ hash } as ChainEnd), signingKey(makeKey(kid)));

test("a process without keys must not write to an authenticated log", async () => {
  const fixture = openFixture(azurite.connectionString(`unsealed${used++}`));
  const withoutKeys = fixture.instance({ keys: [] });
  await withoutKeys.requireKeys();
  await fixture.audit.append(eventBy("ada"));
  await expect(withoutKeys.requireKeys()).rejects.toThrow("AUDIT_SIGNING_KEYS");
  await fixture.instance().requireKeys();
});

test("entries without a code are accepted up to an hour after the first sealing of a log of the earlier version, but not later", async () => {
  const log = await openLog();
  // The earlier version wrote neither codes nor links nor the signed statement.
  for await (const rows of log.tables.pages(EntryRow, { partitionKey: DAY, before: "~" }))
    for (const { rowKey, entry } of rows) await log.tables.put(EntryRow, DAY, rowKey, { entry });
  for await (const rows of log.tables.pages(LastRow, { partitionKey: DAY, ...LAST_ROWS }))
    for (const { rowKey } of rows) await log.tables.remove(LastRow, DAY, rowKey);
  await log.tables.put(FirstRow, FIRST_PARTITION, FIRST_PARTITION, { interval: `${DAY}T10:00Z` });
  const upgraded = log.instance();
  expect(await upgraded.verify({})).toMatchObject({ intact: true, authenticatedFrom: null, unsealedEntries: 5 });
  log.clock.set("2026-11-21T10:12:00Z");
  expect(await upgraded.seal()).toEqual({ configured: true, sealed: 1, more: false });
  expect(await upgraded.verify({})).toMatchObject({ intact: true, authenticatedFrom: "2026-11-21T11:10:00.000Z" });

  await plant(log, "2026-11-21T10:55:00.000Z");
  log.clock.set("2026-11-21T11:09:00Z");
  expect((await upgraded.verify({})).findings).toEqual([]);
  log.clock.set("2026-11-21T11:16:00Z");
  await plant(log, "2026-11-21T11:15:00.000Z");
  expect((await upgraded.verify({})).findings).toMatchObject([
    { kind: "entryInserted", interval: "2026-11-21T11:10Z" },
  ]);
});
