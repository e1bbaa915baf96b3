import { readFileSync } from "node:fs";
import path from "node:path";
import { TableClient } from "@azure/data-tables";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { AnchorState } from "../../shared/audit/chain/anchor.ts";
import { authenticationStatement } from "../../shared/audit/chain/authenticated-from.ts";
import { publicKeyFrom, signingKey } from "../../shared/audit/chain/signing.ts";
import { intervalFrom } from "../../shared/audit/interval.ts";
import { DigestRow, EntryRow, entriesPartition, entryKey, FIRST_PARTITION, FirstRow } from "../../shared/audit/rows.ts";
import { verifyExport } from "../../shared/audit/verify/verify-export.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import { eventBy, exportAll, type Fixture, openFixture, page } from "./support.ts";

/**
 * Tests that this version reads and continues an audit log of an earlier version, whose entries have no authentication codes. The digests
 * of d7e4a4b also don't name the log's beginning.
 *
 * Each log was recorded with the version of that commit: 24 entries within 100 minutes, with rejected requests, sealed up to
 * 11:30 with two keys. Two entries are not sealed yet. The recording also has a JSON export, and the anchor (the copy of the
 * newest digest in the key vault).
 */
interface Recording {
  now: string;
  keys: { kid: string; publicKey: string; seed: string }[];
  anchor: AnchorState;
  export: { entries: { id: string; occurredAt: string }[]; statement: string };
  rows: { table: string; partitionKey: string; rowKey: string; columns: Record<string, string | { base64: string }> }[];
}

let azurite: TestStorage;
let used = 0;
beforeAll(async () => {
  azurite = await openStorage(Array.from({ length: 12 }, (_, index) => `upgrade${index}`));
});
afterAll(() => azurite.stop());

describe.each(["d7e4a4b", "f8ec7568"])("a log of %s", (commit) => {
  const recorded = JSON.parse(
    readFileSync(path.join(import.meta.dirname, `../fixtures/audit-${commit}.json`), "utf8"),
  ) as Recording;
  const trustedKeys = new Map(recorded.keys.map(({ kid, publicKey }) => [kid, publicKeyFrom(publicKey)]));
  /** The key that signs. It vouches for the older key in signed statements, which exports contain. */
  const [newestKey] = [...trustedKeys].slice(0, 1);
  const keys = recorded.keys.map(({ kid, seed }) => ({ kid, key: new Uint8Array(Buffer.from(seed, "base64")) }));

  /** Writes the recorded rows to an account, and opens the log with this version. */
  async function openRecordedLog(): Promise<Fixture> {
    const connection = azurite.connectionString(`upgrade${used++}`);
    for (const [table, rows] of Map.groupBy(recorded.rows, (row) => row.table)) {
      const client = TableClient.fromConnectionString(connection, table, { allowInsecureConnection: true });
      await client.createTable();
      for (const { partitionKey, rowKey, columns } of rows) {
        const values = Object.entries(columns).map(([name, value]) => [
          name,
          typeof value === "string" ? value : new Uint8Array(Buffer.from(value.base64, "base64")),
        ]);
        await client.createEntity({ partitionKey, rowKey, ...Object.fromEntries(values) });
      }
    }
    const fixture = openFixture(connection, { start: recorded.now });
    fixture.anchor.digest = recorded.anchor;
    return { ...fixture, keys, audit: fixture.instance({ keys }) };
  }

  /**
   * Verifies a new export offline. Only the newest key is given as trusted; the older one is trusted because this key vouches for
   * it.
   */
  const verifyOffline = async (fixture: Fixture) =>
    await verifyExport(
      (await exportAll(fixture.audit)).map((part) => JSON.parse(part)),
      new Map([newestKey!]),
    );

  test("the service and the offline check find an old log intact, and its lists contain every entry", async () => {
    const fixture = await openRecordedLog();
    const online = await fixture.audit.verify({});
    expect(online.findings).toEqual([]);
    expect(online).toMatchObject({ intact: true, digests: 9, entries: 22, beginning: "2026-11-20T10:00:00.000Z" });
    expect(await verifyOffline(fixture)).toMatchObject({ verdict: "intact", findings: [], digests: 9, unsealed: 2 });
    const { items, findings } = await fixture.audit.list({}, page());
    expect(findings).toBeUndefined();
    expect(items.map(({ id }) => id).reverse()).toEqual(recorded.export.entries.map(({ id }) => id));
    expect(items.filter(({ count }) => count === 3)).toHaveLength(4); // rejected requests that were repeated twice
  });

  // The digests of the later version name the beginning.
  if (commit === "d7e4a4b")
    test("the first sealing by this version derives the log's beginning from the oldest digest and records that once", async () => {
      const fixture = await openRecordedLog();
      const adoptionEntries = async () =>
        (await fixture.audit.list({ eventType: "audit.beginningAdopted" }, page())).items;
      // An interval is sealed a minute after its end: that of 11:30 one second later.
      fixture.clock.set("2026-11-20T11:40:59Z");
      expect(await fixture.audit.seal()).toMatchObject({ sealed: 0 });
      expect(await adoptionEntries()).toEqual([]);
      for (const now of ["2026-11-20T12:01:00Z", "2026-11-20T12:31:00Z"]) {
        fixture.clock.set(now);
        expect(await fixture.audit.seal()).toMatchObject({ configured: true, sealed: 3, more: false });
      }
      const oldest = { interval: "2026-11-20T10:00Z", hash: expect.stringMatching(/^[\w-]{43}$/) };
      expect(await adoptionEntries()).toMatchObject([
        {
          actor: "system",
          details: { beginning: oldest, newestDigest: recorded.anchor, anchor: "matches" },
        },
      ]);
      expect(fixture.anchor.digest).toMatchObject({ number: 15, beginning: oldest });
      expect(await fixture.audit.verify({})).toMatchObject({ intact: true, digests: 15, findings: [] });
      expect(await verifyOffline(fixture)).toMatchObject({ verdict: "intact", findings: [], digests: 15 });

      // The new digests contain the log's beginning, so that removing the oldest digest is detected.
      await fixture.tables.remove(DigestRow, "digests", "2026-11-20T10:00Z");
      expect((await fixture.audit.verify({})).findings).toMatchObject([
        { kind: "digestMissing", interval: "2026-11-20T10:00Z" },
      ]);
    });

  test("the offline check accepts an export of the earlier version and reports a changed one", async () => {
    expect(await verifyExport([recorded.export], trustedKeys)).toMatchObject({
      verdict: "intact",
      findings: [],
      entries: 24,
      digests: 9,
      unsealed: 2,
    });
    const altered = structuredClone(recorded.export);
    altered.entries.splice(3, 1);
    expect((await verifyExport([altered], trustedKeys)).findings.map(({ kind }) => kind)).toEqual([
      "exportChanged",
      "entryRemoved",
    ]);
  });

  test("entries of the earlier version and of this one in the same interval are sealed together", async () => {
    const fixture = await openRecordedLog();
    await fixture.audit.append(eventBy("ada"));
    fixture.clock.set("2026-11-20T12:02:00Z");
    await fixture.audit.seal();
    expect(await fixture.audit.verify({})).toMatchObject({ intact: true, entries: 25 }); // the 24 recorded ones and the new one
  });

  test("a changed entry is found by its digest, and its removed digests by the anchor", async () => {
    const fixture = await openRecordedLog();
    const { id, occurredAt } = recorded.export.entries[3]!;
    const interval = intervalFrom(`${occurredAt.slice(0, 15)}0Z`);
    const [day, key] = [entriesPartition(interval), entryKey(interval, id)];
    const { entry } = (await fixture.tables.get(EntryRow, day, key))!;
    await fixture.tables.put(EntryRow, day, key, { entry: entry.replace('"requestId":"', '"requestId":"x') });
    expect((await fixture.audit.verify({})).findings).toMatchObject([{ kind: "entryChanged", entryId: id }]);
    await fixture.tables.remove(DigestRow, "digests", recorded.anchor.interval);
    expect((await fixture.audit.verify({})).findings.map(({ kind }) => kind)).toContain("digestsCut");
  });

  test("its unsealed entries are accepted once and named, and entries without a code an hour later are not", async () => {
    const fixture = await openRecordedLog();
    const unsealed = recorded.export.entries.slice(-2);
    const upgraded = { intact: true, unsealedEntries: 2, entriesWithoutCode: 2, authenticatedFrom: null };
    expect(await fixture.audit.verify({})).toMatchObject(upgraded);
    expect(await fixture.audit.seal()).toMatchObject({ sealed: 1 });
    // An hour after the interval of that sealing (11:40), no instance of the earlier version can write an entry.
    expect(await fixture.audit.verify({})).toMatchObject({
      intact: true,
      entriesWithoutCode: 2,
      authenticatedFrom: "2026-11-20T12:40:00.000Z",
    });
    fixture.clock.set("2026-11-20T12:51:00Z");
    await fixture.audit.seal();
    const copy = { ...unsealed[0]!, occurredAt: "2026-11-20T12:50:30.000Z" };
    const interval = intervalFrom("2026-11-20T12:50Z");
    await fixture.tables.insert(EntryRow, entriesPartition(interval), entryKey(interval, copy.id), {
      entry: JSON.stringify(copy),
    });
    expect(await fixture.audit.verify({})).toMatchObject({
      findings: [{ kind: "entryInserted", entryId: copy.id }],
      entriesWithoutCode: 2,
    });
  });

  test("its last entries are accepted also if a later version created the log, and the earlier one sealed last", async () => {
    const fixture = await openRecordedLog();
    const beginning = "2026-11-20T10:00Z";
    const authenticated = authenticationStatement(intervalFrom(beginning), signingKey(keys[0]!));
    await fixture.tables.put(FirstRow, FIRST_PARTITION, FIRST_PARTITION, { interval: beginning, authenticated });
    expect(await fixture.audit.verify({})).toMatchObject({
      findings: [],
      entriesWithoutCode: 2,
      authenticatedFrom: null,
    });
    expect((await fixture.audit.list({}, page())).findings).toBeUndefined();
    expect((await fixture.audit.seal()).falsified).toBeUndefined();
  });
});
