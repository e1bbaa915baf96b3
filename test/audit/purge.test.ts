import { afterAll, beforeAll, expect, test } from "vitest";
import { sha256 } from "../../shared/audit/canonical.ts";
import { Digest } from "../../shared/audit/chain/digest.ts";
import { claimsOf, signingKey, signStatement } from "../../shared/audit/chain/signing.ts";
import { intervalFrom, intervalName } from "../../shared/audit/interval.ts";
import { DigestRow, EntryRow, IndexRow, ManifestRow } from "../../shared/audit/rows.ts";
import { verifyExport } from "../../shared/audit/verify/verify-export.ts";
import type { Entity } from "../../shared/platform/storage/entity.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import { AnyRow, by, exportAll, openRoom, page, publicKeys, type Room } from "./support.ts";

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
async function oldRoom(): Promise<Room> {
  const room = openRoom(azurite.connectionString(accounts[used++]!), { minimumRetentionDays: 1 });
  for (let index = 0; index < 3; index++) {
    await room.audit.append(by(`old-${index}`));
    room.clock.addMinutes(10);
  }
  room.clock.set(new Date(room.clock.now().getTime() + 2 * DAY + 3_600_000).toISOString());
  let more = true;
  while (more) ({ more } = await room.audit.seal());
  await room.audit.append(by("new"));
  return room;
}

async function count(room: Room, e: Entity<unknown>, partitionKey: string): Promise<number> {
  let rows = 0;
  for await (const found of room.tables.pages(e, { partitionKey, before: "~" })) rows += found.length;
  return rows;
}

test("entries older than the retention are removed, the rest verifies, and the purge is reported", async () => {
  const room = await oldRoom();
  const before = await room.audit.statistics();
  expect(before).toMatchObject({ entries: 3, keptFrom: "2026-11-21T10:00:00.000Z" });
  const result = await room.audit.purge(2, caller);
  expect(result).toMatchObject({ entries: 3, retentionDays: 2, more: false, stoppedAt: null });
  expect(result.digests).toBeGreaterThanOrEqual(3);

  const verified = await room.audit.verify({});
  expect(verified).toMatchObject({ intact: true, findings: [], checkedFrom: result.purgedTo });
  expect(verified.purges).toMatchObject([
    { entries: 3, actor: "admin", requestId: "req-9", from: "2026-11-21T10:00Z" },
  ]);
  expect(
    (await room.audit.list({}, page())).items.map(({ actor, eventType, outcome }) => [actor, eventType, outcome]),
  ).toEqual([
    ["admin", "audit.purged", "success"],
    ["admin", "audit.purged", "intent"],
    ["new", "settings.changed", "success"],
  ]);
  expect(await room.audit.statistics()).toMatchObject({ entries: 0, keptFrom: result.purgedTo });
  expect(await count(room, AnyRow, "2026-11-21")).toBe(0);
  expect(await count(room, ManifestRow, "manifests")).toBe(0);
  expect(await count(room, IndexRow, "entries")).toBe(12);

  const parts = (await exportAll(room.audit)).map((part) => JSON.parse(part));
  expect(await verifyExport(parts, publicKeys(...room.keys))).toMatchObject({ intact: true, purges: [{ entries: 3 }] });
});

test("no entry younger than the minimum is removed, whatever retention is requested", async () => {
  const room = openRoom(azurite.connectionString(accounts[used++]!));
  await room.audit.append(by("ada"));
  room.clock.set("2026-11-25T10:00:00Z");
  await room.audit.seal();
  expect(await room.audit.purge(1, caller)).toMatchObject({
    entries: 0,
    digests: 0,
    retentionDays: 90,
    purgedTo: null,
  });
  expect((await room.audit.list({}, page())).items).toHaveLength(1);
});

test("an interrupted purge is completed by the next one", async () => {
  const room = await oldRoom();
  const kept = await room.tables.get(DigestRow, "digests", "2026-11-21T10:00Z");
  const [id] = (await room.audit.list({ actor: "old-0" }, page())).items.map((entry) => entry.id);
  const entry = await room.tables.get(EntryRow, "2026-11-21", `10:00|${id}`);
  await room.audit.purge(2, caller);
  // As if the purge had crashed before the first interval.
  await room.tables.put(DigestRow, "digests", "2026-11-21T10:00Z", kept!);
  await room.tables.put(EntryRow, "2026-11-21", `10:00|${id}`, entry!);
  expect((await room.audit.verify({})).findings).toEqual([]);
  expect(await room.audit.purge(2, caller)).toMatchObject({ entries: 0, digests: 0 });
  expect(await count(room, AnyRow, "2026-11-21")).toBe(0);
  expect(await room.tables.get(DigestRow, "digests", "2026-11-21T10:00Z")).toBeUndefined();
});

test("another purge continues where the last one ended, and both are reported", async () => {
  const room = await oldRoom();
  const first = await room.audit.purge(2, caller);
  room.clock.set(new Date(room.clock.now().getTime() + 2 * DAY).toISOString());
  await room.audit.seal();
  const second = await room.audit.purge(2, { ...caller, actor: "system" });
  expect(second.digests).toBe(2 * 144);
  const verified = await room.audit.verify({});
  expect(verified).toMatchObject({ intact: true, checkedFrom: second.purgedTo });
  expect(verified.purges.map(({ from, actor }) => [from, actor])).toEqual([
    ["2026-11-21T10:00Z", "admin"],
    [intervalName(Date.parse(first.purgedTo!)), "system"],
  ]);
});

test("a call has a limit, the next one continues, and the response says that there is more", async () => {
  const room = await oldRoom();
  for (const interval of ["2026-11-21T10:00Z", "2026-11-21T10:10Z"]) {
    const stored = (await room.tables.get(DigestRow, "digests", interval))!;
    const digest = { ...claimsOf(Digest, stored.digest)!, entries: 60_000 };
    await room.tables.replace(DigestRow, {
      ...stored,
      digest: signStatement("audit-digest", digest, signingKey(room.keys[0]!)),
    });
  }
  const first = { digests: 1, entries: 60_000, more: true, purgedTo: "2026-11-21T10:10:00.000Z", stoppedAt: null };
  expect(await room.audit.purge(2, caller)).toMatchObject(first);
  expect(await room.audit.purge(2, caller)).toMatchObject({ more: false, stoppedAt: null });
});

test("an interval whose digest is not genuine is kept, with all later ones", async () => {
  const room = await oldRoom();
  const second = "2026-11-21T10:10Z";
  const stored = (await room.tables.get(DigestRow, "digests", second))!;
  await room.tables.replace(DigestRow, { ...stored, digest: `${stored.digest.slice(0, -4)}AAAA` });
  expect(await room.audit.purge(2, caller)).toMatchObject({
    entries: 1,
    digests: 1,
    stoppedAt: new Date(intervalFrom(second)).toISOString(),
  });
  expect(await count(room, AnyRow, "2026-11-21")).toBe(2);
});

test("without signing keys nothing is purged, and the response says why", async () => {
  const room = openRoom(azurite.connectionString(accounts[used++]!));
  const audit = room.instance({ keys: [] });
  await expect(audit.purge(2, caller)).rejects.toMatchObject({ status: 409, message: /AUDIT_SIGNING_KEYS/ });
});

test("a purged digest that the key vault still stores is not reported as missing", async () => {
  const room = await oldRoom();
  const purged = (await room.tables.get(DigestRow, "digests", "2026-11-21T10:10Z"))!;
  await room.audit.purge(2, caller);
  room.anchor.digest = { number: 2, interval: "2026-11-21T10:10Z", hash: sha256(purged.digest) };
  const verified = await room.audit.verify({});
  expect(verified.anchor).toMatchObject({ state: "matches", number: 2 });
  expect(verified.findings).toEqual([]);
});

test("a log whose digests were all purged continues with the next number and the same beginning", async () => {
  const room = await oldRoom();
  const newest = (await room.audit.verify({})).lastDigest!;
  room.clock.set("2026-11-27T10:00:00Z");
  let more = true;
  while (more) ({ more } = await room.audit.purge(2, caller));
  expect(await count(room, DigestRow, "digests")).toBe(0);
  expect(await room.audit.seal()).toMatchObject({ configured: true, more: false });
  const first = await room.audit.verify({ end: new Date(intervalFrom(newest.interval) + 20 * 60_000) });
  expect(first).toMatchObject({ intact: true, beginning: "2026-11-21T10:00:00.000Z", digests: 1 });
  expect(first.lastDigest!.number).toBe(newest.number + 1);
});
