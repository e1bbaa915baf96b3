import { afterAll, beforeAll, expect, test } from "vitest";
import { sha256 } from "../../shared/audit/canonical.ts";
import { Digest } from "../../shared/audit/chain/digest.ts";
import { claimsOf, signingKey, signStatement } from "../../shared/audit/chain/signing.ts";
import { intervalFrom, intervalName } from "../../shared/audit/interval.ts";
import { DigestRow, EntryRow, IndexRow, ManifestRow } from "../../shared/audit/rows.ts";
import { verifyExport } from "../../shared/audit/verify/verify-export.ts";
import type { Entity } from "../../shared/platform/storage/entity.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import { AnyRow, by, exportAll, type Fixture, openFixture, page, publicKeys } from "./support.ts";

const accounts = Array.from({ length: 18 }, (_, index) => `purge${index}`);
let azurite: TestStorage;
let used = 0;
beforeAll(async () => {
  azurite = await openStorage(accounts);
});
afterAll(() => azurite.stop());

const caller = { actor: "admin", requestId: "req-9" };
const DAY = 86_400_000;

/** Three entries on the first day, ten minutes apart, all sealed. Then the time is two days and an hour later. */
async function oldFixture(): Promise<Fixture> {
  const fixture = openFixture(azurite.connectionString(accounts[used++]!), { minimumRetentionDays: 1 });
  for (let index = 0; index < 3; index++) {
    await fixture.audit.append(by(`old-${index}`));
    fixture.clock.addMinutes(10);
  }
  fixture.clock.set(new Date(fixture.clock.now().getTime() + 2 * DAY + 3_600_000).toISOString());
  let more = true;
  while (more) ({ more } = await fixture.audit.seal());
  await fixture.audit.append(by("new"));
  return fixture;
}

async function count(fixture: Fixture, e: Entity<unknown>, partitionKey: string): Promise<number> {
  let rows = 0;
  for await (const found of fixture.tables.pages(e, { partitionKey, before: "~" })) rows += found.length;
  return rows;
}

test("entries older than the retention are removed, the rest verifies, and the purge is reported", async () => {
  const fixture = await oldFixture();
  const before = await fixture.audit.statistics();
  expect(before).toMatchObject({ entries: 3, keptFrom: "2026-11-21T10:00:00.000Z" });
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
  expect(await fixture.audit.statistics()).toMatchObject({ entries: 0, keptFrom: result.purgedTo });
  expect(await count(fixture, AnyRow, "2026-11-21")).toBe(0);
  expect(await count(fixture, ManifestRow, "manifests")).toBe(0);
  expect(await count(fixture, IndexRow, "entries")).toBe(12);

  const parts = (await exportAll(fixture.audit)).map((part) => JSON.parse(part));
  expect(await verifyExport(parts, publicKeys(...fixture.keys))).toMatchObject({
    intact: true,
    purges: [{ entries: 3 }],
  });
});

test("no entry younger than the minimum is removed, whatever retention is requested", async () => {
  const fixture = openFixture(azurite.connectionString(accounts[used++]!));
  await fixture.audit.append(by("ada"));
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

test("an interrupted purge is completed by the next one", async () => {
  const fixture = await oldFixture();
  const kept = await fixture.tables.get(DigestRow, "digests", "2026-11-21T10:00Z");
  const [id] = (await fixture.audit.list({ actor: "old-0" }, page())).items.map((entry) => entry.id);
  const entry = await fixture.tables.get(EntryRow, "2026-11-21", `10:00|${id}`);
  await fixture.audit.purge(2, caller);
  // As if the purge had crashed before the first interval.
  await fixture.tables.put(DigestRow, "digests", "2026-11-21T10:00Z", kept!);
  await fixture.tables.put(EntryRow, "2026-11-21", `10:00|${id}`, entry!);
  expect((await fixture.audit.verify({})).findings).toEqual([]);
  expect(await fixture.audit.purge(2, caller)).toMatchObject({ entries: 0, digests: 0 });
  expect(await count(fixture, AnyRow, "2026-11-21")).toBe(0);
  expect(await fixture.tables.get(DigestRow, "digests", "2026-11-21T10:00Z")).toBeUndefined();
});

test("another purge continues where the last one ended, and both are reported", async () => {
  const fixture = await oldFixture();
  const first = await fixture.audit.purge(2, caller);
  fixture.clock.set(new Date(fixture.clock.now().getTime() + 2 * DAY).toISOString());
  await fixture.audit.seal();
  const second = await fixture.audit.purge(2, { ...caller, actor: "system" });
  expect(second.digests).toBe(2 * 144);
  const verified = await fixture.audit.verify({});
  expect(verified).toMatchObject({ intact: true, checkedFrom: second.purgedTo });
  expect(verified.purges.map(({ from, actor }) => [from, actor])).toEqual([
    ["2026-11-21T10:00Z", "admin"],
    [intervalName(Date.parse(first.purgedTo!)), "system"],
  ]);
});

test("a call has a limit, the next one continues, and the response says that there is more", async () => {
  const fixture = await oldFixture();
  for (const interval of ["2026-11-21T10:00Z", "2026-11-21T10:10Z"]) {
    const stored = (await fixture.tables.get(DigestRow, "digests", interval))!;
    const digest = { ...claimsOf(Digest, stored.digest)!, entries: 60_000 };
    await fixture.tables.replace(DigestRow, {
      ...stored,
      digest: signStatement("audit-digest", digest, signingKey(fixture.keys[0]!)),
    });
  }
  const first = { digests: 1, entries: 60_000, more: true, purgedTo: "2026-11-21T10:10:00.000Z", stoppedAt: null };
  expect(await fixture.audit.purge(2, caller)).toMatchObject(first);
  expect(await fixture.audit.purge(2, caller)).toMatchObject({ more: false, stoppedAt: null });
});

test("an interval whose digest is not genuine is kept, with all later ones", async () => {
  const fixture = await oldFixture();
  const second = "2026-11-21T10:10Z";
  const stored = (await fixture.tables.get(DigestRow, "digests", second))!;
  await fixture.tables.replace(DigestRow, { ...stored, digest: `${stored.digest.slice(0, -4)}AAAA` });
  expect(await fixture.audit.purge(2, caller)).toMatchObject({
    entries: 1,
    digests: 1,
    stoppedAt: new Date(intervalFrom(second)).toISOString(),
  });
  expect(await count(fixture, AnyRow, "2026-11-21")).toBe(2);
});

test("without signing keys nothing is purged, and the response says why", async () => {
  const fixture = openFixture(azurite.connectionString(accounts[used++]!));
  const audit = fixture.instance({ keys: [] });
  await expect(audit.purge(2, caller)).rejects.toMatchObject({ status: 409, message: /AUDIT_SIGNING_KEYS/ });
});

test("a purged digest that the key vault still stores is not reported as missing", async () => {
  const fixture = await oldFixture();
  const purged = (await fixture.tables.get(DigestRow, "digests", "2026-11-21T10:10Z"))!;
  await fixture.audit.purge(2, caller);
  fixture.anchor.digest = { number: 2, interval: "2026-11-21T10:10Z", hash: sha256(purged.digest) };
  const verified = await fixture.audit.verify({});
  expect(verified.anchor).toMatchObject({ state: "matches", number: 2 });
  expect(verified.findings).toEqual([]);
});

test("a log whose digests were all purged continues with the next number and the same beginning", async () => {
  const fixture = await oldFixture();
  const newest = (await fixture.audit.verify({})).lastDigest!;
  fixture.clock.set("2026-11-27T10:00:00Z");
  let more = true;
  while (more) ({ more } = await fixture.audit.purge(2, caller));
  expect(await count(fixture, DigestRow, "digests")).toBe(0);
  expect(await fixture.audit.seal()).toMatchObject({ configured: true, more: false });
  const first = await fixture.audit.verify({ end: new Date(intervalFrom(newest.interval) + 20 * 60_000) });
  expect(first).toMatchObject({ intact: true, beginning: "2026-11-21T10:00:00.000Z", digests: 1 });
  expect(first.lastDigest!.number).toBe(newest.number + 1);
});
