import { readFileSync } from "node:fs";
import path from "node:path";
import { TableClient } from "@azure/data-tables";
import { afterAll, beforeAll, expect, test } from "vitest";
import { publicKeyFrom } from "../../shared/audit/chain/signing.ts";
import { DigestRow } from "../../shared/audit/rows.ts";
import { verifyExport } from "../../shared/audit/verify/verify-export.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import { by, exportAll, type Fixture, openFixture, page } from "./support.ts";

/**
 * A recording of the version of commit d7e4a4b: 24 entries within 100 minutes, with rejected requests, sealed up to 11:30 with
 * two keys; a JSON export, and the anchor. Two entries are not sealed yet.
 */
const written = JSON.parse(readFileSync(path.join(import.meta.dirname, "../fixtures/audit-d7e4a4b.json"), "utf8")) as {
  now: string;
  keys: { kid: string; publicKey: string; seed: string }[];
  anchor: { number: number; interval: string; hash: string };
  export: { entries: { id: string }[]; statement: string };
  rows: { table: string; partitionKey: string; rowKey: string; columns: Record<string, string | { base64: string }> }[];
};
const trusted = new Map(written.keys.map(({ kid, publicKey }) => [kid, publicKeyFrom(publicKey)]));
const [newestKey] = [...trusted].slice(0, 1);
const keys = written.keys.map(({ kid, seed }) => ({ kid, key: new Uint8Array(Buffer.from(seed, "base64")) }));

let azurite: TestStorage;
beforeAll(async () => {
  azurite = await openStorage(["upgraded", "adopted", "written"]);
});
afterAll(() => azurite.stop());

/** The store of the earlier version. */
async function upgraded(account: string): Promise<Fixture> {
  const connection = azurite.connectionString(account);
  for (const [table, rows] of Map.groupBy(written.rows, (row) => row.table)) {
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
  const fixture = openFixture(connection, { start: written.now });
  fixture.anchor.digest = written.anchor;
  return { ...fixture, keys, audit: fixture.instance({ keys }) };
}

const verifiedOffline = async (fixture: Fixture) =>
  await verifyExport(
    (await exportAll(fixture.audit)).map((part) => JSON.parse(part)),
    new Map([newestKey!]),
  );

test("an old log verifies unchanged, by the service and offline, and its lists show every entry", async () => {
  const fixture = await upgraded("upgraded");
  const online = await fixture.audit.verify({});
  expect(online.findings).toEqual([]);
  expect(online).toMatchObject({ intact: true, digests: 9, entries: 22, beginning: "2026-11-20T10:00:00.000Z" });
  expect(await verifiedOffline(fixture)).toMatchObject({ verdict: "intact", findings: [], digests: 9, unsealed: 2 });
  const { items, findings } = await fixture.audit.list({}, page());
  expect(findings).toBeUndefined();
  expect(items.map(({ id }) => id).reverse()).toEqual(written.export.entries.map(({ id }) => id));
  expect(items.filter(({ count }) => count === 3)).toHaveLength(4);
});

test("its beginning is taken once from the anchor and the oldest signed digest, and that is recorded", async () => {
  const fixture = await upgraded("adopted");
  const adopted = async () => (await fixture.audit.list({ eventType: "audit.beginningAdopted" }, page())).items;
  fixture.clock.set("2026-11-20T11:40:59Z");
  expect(await fixture.audit.seal()).toMatchObject({ sealed: 0 });
  expect(await adopted()).toEqual([]);
  for (const now of ["2026-11-20T12:01:00Z", "2026-11-20T12:31:00Z"]) {
    fixture.clock.set(now);
    expect(await fixture.audit.seal()).toMatchObject({ configured: true, sealed: 3, more: false });
  }
  const oldest = { interval: "2026-11-20T10:00Z", hash: expect.stringMatching(/^[\w-]{43}$/) };
  expect(await adopted()).toMatchObject([
    {
      actor: "system",
      details: { beginning: oldest, newestDigest: written.anchor, anchor: "matches" },
    },
  ]);
  expect(fixture.anchor.digest).toMatchObject({ number: 15, beginning: oldest });
  expect(await fixture.audit.verify({})).toMatchObject({ intact: true, digests: 15, findings: [] });
  expect(await verifiedOffline(fixture)).toMatchObject({ verdict: "intact", findings: [], digests: 15 });

  // From now on every digest contains the log's beginning, even if the oldest digests are purged.
  await fixture.tables.remove(DigestRow, "digests", "2026-11-20T10:00Z");
  expect((await fixture.audit.verify({})).findings).toMatchObject([
    { kind: "digestMissing", interval: "2026-11-20T10:00Z" },
  ]);
});

test("an export of the earlier version verifies offline, and a changed one does not", async () => {
  expect(await verifyExport([written.export], trusted)).toMatchObject({
    verdict: "intact",
    findings: [],
    entries: 24,
    digests: 9,
    unsealed: 2,
  });
  const altered = structuredClone(written.export);
  altered.entries.splice(3, 1);
  expect((await verifyExport([altered], trusted)).findings.map(({ kind }) => kind)).toEqual([
    "exportChanged",
    "entryRemoved",
  ]);
});

test("an instance that wrote to the log before the upgrade continues in the same interval after it", async () => {
  const fixture = await upgraded("written");
  await fixture.audit.append(by("after"));
  fixture.clock.set("2026-11-20T12:02:00Z");
  await fixture.audit.seal();
  expect(await fixture.audit.verify({})).toMatchObject({ intact: true, entries: 25 });
});
