import { afterAll, beforeAll, expect, test } from "vitest";
import { sha256 } from "../../shared/audit/canonical.ts";
import { Digest } from "../../shared/audit/chain/digest.ts";
import { claimsOf, signingKey, signStatement } from "../../shared/audit/chain/signing.ts";
import { intervalFrom, intervalName } from "../../shared/audit/interval.ts";
import { DigestRow, EntryRow, IndexRow, LAST_ROWS, LastRow, ManifestRow } from "../../shared/audit/rows.ts";
import { verifyExport } from "../../shared/audit/verify/verify-export.ts";
import type { Entity } from "../../shared/platform/storage/entity.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import { AnyRow, eventBy, exportAll, type Fixture, openFixture, page, publicKeys } from "./support.ts";

/**
 * Tests of purging: the deletion of sealed audit entries that are older than the retention. The log is divided into ten-minute
 * intervals. Each sealed interval has a digest, a signed hash of its entries. A purge deletes entries and digests and leaves a
 * signed record, so that verification can tell it from tampering.
 */

/** Storage accounts: each fixture takes the next unused one. */
const accounts = Array.from({ length: 18 }, (_, index) => `purge${index}`);
let azurite: TestStorage;
let usedAccounts = 0;
beforeAll(async () => {
  azurite = await openStorage(accounts);
});
afterAll(() => azurite.stop());

const caller = { actor: "admin", requestId: "req-9" };
/** Number of digests of a day: one per ten minutes. */
const DIGESTS_PER_DAY = 144;
/** Each entry has one index row per filter: none, actor, event type, both. */
const INDEX_ROWS_PER_ENTRY = 4;
const DAY_MS = 86_400_000;
const HOUR_MS = 3_600_000;

/**
 * Creates a log with three entries, at 10:00, 10:10 and 10:20 on 2026-11-21. Its clock is two days and an hour later, when all
 * completed intervals are sealed and one new entry is written.
 */
async function createLogWithOldEntries(): Promise<Fixture> {
  const fixture = openFixture(azurite.connectionString(accounts[usedAccounts++]!), { minimumRetentionDays: 1 });
  for (let index = 0; index < 3; index++) {
    await fixture.audit.append(eventBy(`old-${index}`));
    fixture.clock.addMinutes(10);
  }
  fixture.clock.set(new Date(fixture.clock.now().getTime() + 2 * DAY_MS + HOUR_MS).toISOString());
  let more = true;
  while (more) ({ more } = await fixture.audit.seal());
  await fixture.audit.append(eventBy("new"));
  return fixture;
}

/** Counts the rows of a partition, without those about intervals and sequences of entries, whose keys begin with `~`. */
async function countRows(fixture: Fixture, e: Entity<unknown>, partitionKey: string): Promise<number> {
  let count = 0;
  for await (const rows of fixture.tables.pages(e, { partitionKey, before: "~" })) count += rows.length;
  return count;
}

test("a purge removes the entries older than the retention, and verification reports the purge instead of findings", async () => {
  const fixture = await createLogWithOldEntries();
  // Statistics count sealed entries. The entry `new` is not sealed yet.
  const statistics = await fixture.audit.statistics();
  expect(statistics).toMatchObject({ entries: 3, keptFrom: "2026-11-21T10:00:00.000Z" });
  const result = await fixture.audit.purge(2, caller);
  expect(result).toMatchObject({ entries: 3, retentionDays: 2, more: false, stoppedAt: null });
  expect(result.digests).toBeGreaterThanOrEqual(3);

  const verified = await fixture.audit.verify({});
  expect(verified).toMatchObject({ intact: true, findings: [], checkedFrom: result.purgedTo });
  expect(verified.purges).toMatchObject([
    { entries: 3, actor: "admin", requestId: "req-9", from: "2026-11-21T10:00Z" },
  ]);
  expect(
    (await fixture.audit.list({}, page())).items.map(({ actor, eventType, outcome }) => [actor, eventType, outcome]),
  ).toEqual([
    ["admin", "audit.purged", "success"],
    ["admin", "audit.purged", "intent"],
    ["new", "settings.changed", "success"],
  ]);
  // The three entries that remain (`new` and those of the purge) are not sealed yet.
  expect(await fixture.audit.statistics()).toMatchObject({ entries: 0, keptFrom: result.purgedTo });
  expect(await countRows(fixture, AnyRow, "2026-11-21")).toBe(0);
  expect(await countRows(fixture, ManifestRow, "manifests")).toBe(0);
  expect(await countRows(fixture, IndexRow, "entries")).toBe(3 * INDEX_ROWS_PER_ENTRY);

  const parts = (await exportAll(fixture.audit)).map((part) => JSON.parse(part));
  expect(await verifyExport(parts, publicKeys(...fixture.keys))).toMatchObject({
    intact: true,
    purges: [{ entries: 3 }],
  });
});

test("a requested retention below the configured minimum of 90 days is raised to the minimum", async () => {
  const fixture = openFixture(azurite.connectionString(accounts[usedAccounts++]!));
  await fixture.audit.append(eventBy("ada"));
  fixture.clock.set("2026-11-25T10:00:00Z");
  await fixture.audit.seal();
  expect(await fixture.audit.purge(1, caller)).toMatchObject({
    entries: 0,
    digests: 0,
    retentionDays: 90,
    purgedTo: null,
  });
  expect((await fixture.audit.list({}, page())).items).toHaveLength(1);
});

test("a purge deletes the rows that an interrupted purge left", async () => {
  const fixture = await createLogWithOldEntries();
  const digestRow = await fixture.tables.get(DigestRow, "digests", "2026-11-21T10:00Z");
  const [id] = (await fixture.audit.list({ actor: "old-0" }, page())).items.map((entry) => entry.id);
  const entry = await fixture.tables.get(EntryRow, "2026-11-21", `10:00|${id}`);
  await fixture.audit.purge(2, caller);
  // Restores rows of the first interval, as if the purge had crashed before it deleted them.
  await fixture.tables.put(DigestRow, "digests", "2026-11-21T10:00Z", digestRow!);
  await fixture.tables.put(EntryRow, "2026-11-21", `10:00|${id}`, entry!);
  expect((await fixture.audit.verify({})).findings).toEqual([]);
  expect(await fixture.audit.purge(2, caller)).toMatchObject({ entries: 0, digests: 0 });
  expect(await countRows(fixture, AnyRow, "2026-11-21")).toBe(0);
  expect(await fixture.tables.get(DigestRow, "digests", "2026-11-21T10:00Z")).toBeUndefined();
});

test("a second purge starts at the end of the first one, and verification reports both", async () => {
  const fixture = await createLogWithOldEntries();
  const first = await fixture.audit.purge(2, caller);
  fixture.clock.set(new Date(fixture.clock.now().getTime() + 2 * DAY_MS).toISOString());
  await fixture.audit.seal();
  const second = await fixture.audit.purge(2, { ...caller, actor: "system" });
  expect(second.digests).toBe(2 * DIGESTS_PER_DAY);
  const verified = await fixture.audit.verify({});
  expect(verified).toMatchObject({ intact: true, checkedFrom: second.purgedTo });
  expect(verified.purges.map(({ from, actor }) => [from, actor])).toEqual([
    ["2026-11-21T10:00Z", "admin"],
    [intervalName(Date.parse(first.purgedTo!)), "system"],
  ]);
  // The row that names the last entry of a sequence is removed with its day, too.
  for await (const rows of fixture.tables.pages(LastRow, { partitionKey: "2026-11-21", ...LAST_ROWS }))
    expect(rows).toEqual([]);
});

test("a purge of more than 100,000 entries stops at an interval, and the next call continues", async () => {
  const fixture = await createLogWithOldEntries();
  for (const interval of ["2026-11-21T10:00Z", "2026-11-21T10:10Z"]) {
    const stored = (await fixture.tables.get(DigestRow, "digests", interval))!;
    // Two intervals of 60,000 entries each exceed the limit of one call.
    const digest = { ...claimsOf(Digest, stored.digest)!, entries: 60_000 };
    await fixture.tables.replace(DigestRow, {
      ...stored,
      digest: signStatement("audit-digest", digest, signingKey(fixture.keys[0]!)),
    });
  }
  const firstResult = {
    digests: 1,
    entries: 60_000,
    more: true,
    purgedTo: "2026-11-21T10:10:00.000Z",
    stoppedAt: null,
  };
  expect(await fixture.audit.purge(2, caller)).toMatchObject(firstResult);
  expect(await fixture.audit.purge(2, caller)).toMatchObject({ more: false, stoppedAt: null });
});

test("a purge stops before an interval whose digest has an invalid signature", async () => {
  const fixture = await createLogWithOldEntries();
  const second = "2026-11-21T10:10Z";
  const stored = (await fixture.tables.get(DigestRow, "digests", second))!;
  await fixture.tables.replace(DigestRow, { ...stored, digest: `${stored.digest.slice(0, -4)}AAAA` });
  expect(await fixture.audit.purge(2, caller)).toMatchObject({
    entries: 1,
    digests: 1,
    stoppedAt: new Date(intervalFrom(second)).toISOString(),
  });
  expect(await countRows(fixture, AnyRow, "2026-11-21")).toBe(2); // the entries of 10:10 and 10:20 remain
});

test("a purge without signing keys is rejected, and the error names AUDIT_SIGNING_KEYS", async () => {
  const fixture = openFixture(azurite.connectionString(accounts[usedAccounts++]!));
  const audit = fixture.instance({ keys: [] });
  await expect(audit.purge(2, caller)).rejects.toMatchObject({ status: 409, message: /AUDIT_SIGNING_KEYS/ });
});

test("verification accepts an anchor that names a purged digest", async () => {
  const fixture = await createLogWithOldEntries();
  const purged = (await fixture.tables.get(DigestRow, "digests", "2026-11-21T10:10Z"))!;
  await fixture.audit.purge(2, caller);
  // The anchor, a copy of the newest digest in the key vault, still names the second digest, which the purge removed.
  fixture.anchor.digest = { number: 2, interval: "2026-11-21T10:10Z", hash: sha256(purged.digest) };
  const verified = await fixture.audit.verify({});
  expect(verified.anchor).toMatchObject({ state: "matches", number: 2 });
  expect(verified.findings).toEqual([]);
});

test("after a purge of all digests, sealing continues with the next number", async () => {
  const fixture = await createLogWithOldEntries();
  const newest = (await fixture.audit.verify({})).lastDigest!;
  fixture.clock.set("2026-11-27T10:00:00Z");
  let more = true;
  while (more) ({ more } = await fixture.audit.purge(2, caller));
  expect(await countRows(fixture, DigestRow, "digests")).toBe(0);
  expect(await fixture.audit.seal()).toMatchObject({ configured: true, more: false });
  // Verifies up to the end of the interval after the newest purged one: only its digest.
  const verified = await fixture.audit.verify({ end: new Date(intervalFrom(newest.interval) + 20 * 60_000) });
  expect(verified).toMatchObject({ intact: true, beginning: "2026-11-21T10:00:00.000Z", digests: 1 });
  expect(verified.lastDigest!.number).toBe(newest.number + 1);
});
