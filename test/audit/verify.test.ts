import { generateKeyPairSync, sign } from "node:crypto";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { canonicalJson } from "../../shared/audit/canonical.ts";
import { createTrust } from "../../shared/audit/chain/trust.ts";
import { INTERVAL_MS, intervalFrom } from "../../shared/audit/interval.ts";
import {
  DigestRow,
  EntryRow,
  entryKey,
  HEAD,
  INDEX_PARTITION,
  IndexRow,
  instantOf,
  LAST_ROWS,
  LastRow,
  ManifestRow,
  RecordRow,
} from "../../shared/audit/rows.ts";
import { verifyLog } from "../../shared/audit/verify/verify.ts";
import { verifyExport } from "../../shared/audit/verify/verify-export.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import { AnyRow, eventBy, exportAll, type Fixture, makeKey, openFixture, page, publicKeys, START } from "./support.ts";

/**
 * Tests of verification of the audit log. The log is divided into ten-minute intervals. After an interval is over, sealing
 * stores a fingerprint (id and hash) of each entry, and a signed digest of these fingerprints. Each digest names the previous
 * one. Verification runs in the service, and offline with an export. The tests change rows directly in storage and compare the
 * findings of both.
 */

/** Storage accounts: each fixture takes the next unused one. */
const accounts = Array.from({ length: 46 }, (_, index) => `verify${index}`);
let azurite: TestStorage;
let usedAccounts = 0;
beforeAll(async () => {
  azurite = await openStorage(accounts);
});
afterAll(() => azurite.stop());

const DAY = "2026-11-21";
const FIRST = "2026-11-21T10:00Z";
const LAST = "2026-11-21T10:50Z";
/** Returns the row key of an entry: `10:40|<id>`. */
const entryKeyOf = (interval: string, id: string) => entryKey(intervalFrom(interval), id);

/** Returns a log with entries at 10:00, 10:01, 10:20 and 10:50, all sealed: digests 1 to 6, of which 2, 4 and 5 have no entries. */
async function sealedFixture(): Promise<Fixture> {
  const fixture = openFixture(azurite.connectionString(accounts[usedAccounts++]!));
  for (const instant of ["10:00:00", "10:01:00", "10:20:00", "10:50:00"]) {
    fixture.clock.set(`2026-11-21T${instant}Z`);
    await fixture.audit.append(eventBy(`at-${instant}`));
  }
  fixture.clock.set("2026-11-21T11:02:00Z");
  expect(await fixture.audit.seal()).toMatchObject({ sealed: 6, more: false });
  return fixture;
}

/** Returns the ids of the stored entries of an interval, in order. */
async function entryIds(fixture: Fixture, interval: string): Promise<string[]> {
  const keys: string[] = [];
  const [from, before] = [entryKeyOf(interval, ""), entryKey(intervalFrom(interval) + INTERVAL_MS, "")];
  for await (const rows of fixture.tables.pages(AnyRow, { partitionKey: DAY, from, before })) {
    keys.push(...rows.map(({ rowKey }) => rowKey.slice("10:40|".length)));
  }
  return keys;
}

/** Returns the findings of the service and of the offline check of a complete export, in a form that can be compared. */
async function findingsOf(fixture: Fixture) {
  const online = await fixture.audit.verify({});
  const parts = await exportAll(fixture.audit);
  const offline = await verifyExport(
    parts.map((part) => JSON.parse(part)),
    publicKeys(...fixture.keys),
  );
  const comparable = (list: typeof online.findings) =>
    list.map(({ kind, interval, entryId, digestNumber }) => ({
      kind,
      interval,
      ...(entryId ? { entryId } : {}),
      ...(digestNumber ? { digestNumber } : {}),
    }));
  // Without findings of kinds such as indexEntryMissing and markChanged: an export contains neither the index nor the marks (rows
  // that say whether entries can be added to an interval).
  const detectableOffline = online.findings.filter(({ kind }) => !/^(index|mark)/.test(kind));
  return { online: comparable(detectableOffline), offline: comparable(offline.findings) };
}

/** A finding without its text. */
interface Comparable {
  kind: string;
  interval?: string | undefined;
  entryId?: unknown;
  digestNumber?: number;
}

/** Expects these findings from the service and from the offline check, in any order. */
async function expectFindings(fixture: Fixture, expected: Comparable[]) {
  const { online, offline } = await findingsOf(fixture);
  const sorted = (list: Comparable[]) => list.toSorted((a, b) => (orderOf(a) < orderOf(b) ? -1 : 1));
  const orderOf = ({ kind, interval, entryId }: Comparable) =>
    `${kind}|${interval}|${typeof entryId === "string" ? entryId : ""}`;
  expect(sorted(online)).toEqual(sorted(expected));
  expect(sorted(offline)).toEqual(sorted(expected));
}

test("an unchanged log is intact, and entries that are not sealed yet are reported as unsealed", async () => {
  const fixture = await sealedFixture();
  await fixture.audit.append(eventBy("later"));
  expect(await fixture.audit.verify({})).toMatchObject({
    intact: true,
    sealing: "configured",
    checkedFrom: "2026-11-21T10:00:00.000Z",
    checkedTo: "2026-11-21T11:00:00.000Z",
    digests: 6,
    entries: 4,
    findings: [],
    unsealedFrom: "2026-11-21T11:00:00.000Z",
    anchor: { state: "matches", number: 6 },
    nextCursor: null,
  });
  const [part] = await exportAll(fixture.audit);
  expect(await verifyExport([JSON.parse(part!)], publicKeys(...fixture.keys))).toMatchObject({
    intact: true,
    entries: 5,
    digests: 6,
    sealedFrom: "2026-11-21T10:00Z",
    sealedUpTo: "2026-11-21T10:50Z",
    unsealed: 1,
  });
});

test("repeated and concurrent sealing creates one digest per interval", async () => {
  const fixture = await sealedFixture();
  expect(await fixture.audit.seal()).toMatchObject({ sealed: 0, more: false });
  fixture.clock.set("2026-11-22T10:00:00Z");
  await Promise.all([fixture.audit.seal(), fixture.instance().seal(), fixture.instance().seal()]);
  await fixture.audit.seal();
  // 24 hours have 144 intervals. The last one, from 09:50, is sealed a minute after its end.
  expect(await fixture.audit.verify({})).toMatchObject({ intact: true, digests: 143, findings: [] });
});

test("verification in parts checks every digest once and reports each finding once", async () => {
  const fixture = await sealedFixture();
  const middle = "2026-11-21T10:20Z";
  await fixture.tables.remove(EntryRow, DAY, entryKeyOf(middle, (await entryIds(fixture, middle))[0]!));
  const trust = createTrust(fixture.tables, fixture.keys);
  for (const limits of [
    { entries: 1, intervals: 100 },
    { entries: 100, intervals: 2 },
    { entries: 100, intervals: 1 },
  ]) {
    let cursor: string | undefined;
    const sum = { digests: 0, entries: 0, findings: [] as object[], parts: 0 };
    do {
      const part = await verifyLog({ ...fixture, trust }, { cursor }, limits);
      sum.digests += part.digests;
      sum.entries += part.entries;
      sum.findings.push(...part.findings);
      sum.parts += 1;
      cursor = part.nextCursor ?? undefined;
    } while (cursor !== undefined);
    expect(sum).toMatchObject({ digests: 6, entries: 3, findings: [{ kind: "entryRemoved", interval: middle }] });
    expect(sum.parts).toBeGreaterThan(1);
  }
  await expect(fixture.audit.verify({ cursor: "e30" })).rejects.toMatchObject({ code: "invalidCursor" });
});

test("only the intervals that overlap the requested period are checked", async () => {
  const fixture = await sealedFixture();
  const [, id] = await entryIds(fixture, FIRST);
  await fixture.tables.remove(EntryRow, DAY, entryKeyOf(FIRST, id!));
  const later = { start: new Date("2026-11-21T10:10:00Z"), end: new Date("2026-11-21T10:30:00Z") };
  expect(await fixture.audit.verify(later)).toMatchObject({ intact: true, digests: 2, entries: 1 });
  const earlier = { end: new Date("2026-11-21T10:05:00Z") };
  expect(await fixture.audit.verify(earlier)).toMatchObject({ intact: false, digests: 1, entries: 1 });
});

describe("verification names the interval and the id of an entry row that was changed:", () => {
  for (const [name, interval, number] of [
    ["first", FIRST, 1],
    ["last", LAST, 6],
  ] as const) {
    test(`an entry changed in the ${name} interval`, async () => {
      const fixture = await sealedFixture();
      const [id] = await entryIds(fixture, interval);
      const row = (await fixture.tables.get(EntryRow, DAY, entryKeyOf(interval, id!)))!;
      await fixture.tables.put(EntryRow, DAY, entryKeyOf(interval, id!), {
        entry: row.entry.replace('"success"', '"failure"'),
      });
      await expectFindings(fixture, [{ kind: "entryChanged", interval, entryId: id, digestNumber: number }]);
    });

    test(`an entry removed from the ${name} interval`, async () => {
      const fixture = await sealedFixture();
      const [id] = await entryIds(fixture, interval);
      await fixture.tables.remove(EntryRow, DAY, entryKeyOf(interval, id!));
      await expectFindings(fixture, [{ kind: "entryRemoved", interval, entryId: id, digestNumber: number }]);
    });

    test(`an entry inserted into the ${name} interval`, async () => {
      const fixture = await sealedFixture();
      const [id] = await entryIds(fixture, interval);
      const forged = `${id!.slice(0, -4)}0000`;
      const row = (await fixture.tables.get(EntryRow, DAY, entryKeyOf(interval, id!)))!;
      await fixture.tables.put(EntryRow, DAY, entryKeyOf(interval, forged), { entry: row.entry.replace(id!, forged) });
      await expectFindings(fixture, [{ kind: "entryInserted", interval, entryId: forged, digestNumber: number }]);
    });
  }

  test("an entry inserted into an interval that was sealed without entries", async () => {
    const fixture = await sealedFixture();
    const [id] = await entryIds(fixture, FIRST);
    const row = (await fixture.tables.get(EntryRow, DAY, entryKeyOf(FIRST, id!)))!;
    const empty = "2026-11-21T10:10Z";
    await fixture.tables.put(EntryRow, DAY, entryKeyOf(empty, id!), row);
    expect((await findingsOf(fixture)).online).toEqual([
      { kind: "entryInserted", interval: empty, entryId: id, digestNumber: 2 },
    ]);
  });

  for (const [rowKey, interval, entryId, digestNumber] of [
    ["10:00|zzz", FIRST, "zzz", 1],
    ["10:15", "2026-11-21T10:10Z", "10:15", 2],
    ["10:5", "2026-11-21T10:40Z", "10:5", 5],
  ] as const) {
    test(`a row that is not an entry: ${rowKey}`, async () => {
      const fixture = await sealedFixture();
      await fixture.tables.put(EntryRow, DAY, rowKey, { entry: "{}" });
      expect((await findingsOf(fixture)).online).toEqual([{ kind: "entryInserted", interval, entryId, digestNumber }]);
    });
  }

  test("a row whose column has another type", async () => {
    const fixture = await sealedFixture();
    const [id] = await entryIds(fixture, LAST);
    await fixture.tables.put(AnyRow, DAY, entryKeyOf(LAST, id!), { entry: 7 });
    const [first] = (await findingsOf(fixture)).online;
    expect(first).toEqual({ kind: "entryChanged", interval: LAST, entryId: id, digestNumber: 6 });
  });
});

describe("verification finds changed rows of sealing and purging:", () => {
  test("fingerprints changed together with their entry", async () => {
    const fixture = await sealedFixture();
    const [id] = await entryIds(fixture, LAST);
    const row = (await fixture.tables.get(EntryRow, DAY, entryKeyOf(LAST, id!)))!;
    await fixture.tables.put(EntryRow, DAY, entryKeyOf(LAST, id!), { entry: row.entry.replace("at-", "xx-") });
    const manifest = (await fixture.tables.get(ManifestRow, "manifests", `${LAST}|000000`))!;
    manifest.hashes[40]! ^= 1; // a byte of the first hash, which follows the 26 characters of the first id
    await fixture.tables.replace(ManifestRow, manifest);
    expect((await findingsOf(fixture)).online).toEqual([
      { kind: "fingerprintsChanged", interval: LAST, digestNumber: 6 },
      { kind: "entryChanged", interval: LAST, digestNumber: 6, entryId: id },
    ]);
  });

  test("a digest signed with another key under the name of the trusted one", async () => {
    const fixture = await sealedFixture();
    const stored = (await fixture.tables.get(DigestRow, "digests", FIRST))!;
    const [header, payload] = stored.digest.split(".");
    const { privateKey } = generateKeyPairSync("ed25519");
    const forged = sign(null, Buffer.from(`${header}.${payload}`), privateKey).toString("base64url");
    await fixture.tables.replace(DigestRow, { ...stored, digest: `${header}.${payload}.${forged}` });
    await expectFindings(fixture, [
      { kind: "digestChanged", interval: FIRST },
      { kind: "chainBroken", interval: "2026-11-21T10:10Z", digestNumber: 2 },
    ]);
  });

  test("a digest and its entries removed from the middle", async () => {
    const fixture = await sealedFixture();
    const middle = "2026-11-21T10:20Z";
    const [id] = await entryIds(fixture, middle);
    await fixture.tables.remove(EntryRow, DAY, entryKeyOf(middle, id!));
    await fixture.tables.remove(DigestRow, "digests", middle);
    await expectFindings(fixture, [{ kind: "digestMissing", interval: middle }]);
  });

  test("the first digests and entries removed without a purge", async () => {
    const fixture = await sealedFixture();
    for (const id of await entryIds(fixture, FIRST)) await fixture.tables.remove(EntryRow, DAY, entryKeyOf(FIRST, id));
    await fixture.tables.remove(DigestRow, "digests", FIRST);
    await expectFindings(fixture, [{ kind: "digestMissing", interval: FIRST }]);
  });

  test("a purge record without a valid signature", async () => {
    const fixture = await sealedFixture();
    await fixture.tables.put(RecordRow, "purges", "2026-11-21T10:20Z", { record: "e30.e30.AA" });
    await fixture.tables.remove(DigestRow, "digests", FIRST);
    expect((await findingsOf(fixture)).online).toEqual([
      { kind: "purgeRecordChanged", interval: "2026-11-21T10:20Z" },
      { kind: "digestMissing", interval: FIRST },
    ]);
  });
});

/**
 * Removes the last `count` digests with their entries. To hide that, names the newest remaining digest in the head row, in which
 * an earlier version stored the newest digest a second time.
 */
async function removeLastDigests(fixture: Fixture, count: number) {
  const intervals: string[] = [];
  for await (const rows of fixture.tables.pages(DigestRow, { partitionKey: "digests", before: "~" })) {
    intervals.push(...rows.map(({ rowKey }) => rowKey));
  }
  for (const interval of intervals.slice(-count)) {
    for (const id of await entryIds(fixture, interval))
      await fixture.tables.remove(EntryRow, DAY, entryKeyOf(interval, id));
    await fixture.tables.remove(DigestRow, "digests", interval);
    await fixture.tables.remove(ManifestRow, "manifests", `${interval}|000000`);
  }
  const newest = await fixture.tables.get(DigestRow, "digests", intervals.at(-count - 1)!);
  await fixture.tables.put(DigestRow, "digests", HEAD, { digest: newest!.digest });
}

describe("removing the last digests with their entries", () => {
  test("is found if the key vault stores the newest digest", async () => {
    const fixture = await sealedFixture();
    await removeLastDigests(fixture, 3);
    // The row of the last entry of the writer still names the newest entry.
    const removed = { kind: "entryRemoved", interval: LAST, entryId: expect.any(String) };
    await expectFindings(fixture, [{ kind: "digestsCut", interval: LAST, digestNumber: 6 }, removed]);
    expect((await fixture.audit.verify({})).anchor.state).toBe("differs");
  });

  test("is still found after sealing continued", async () => {
    const fixture = await sealedFixture();
    await removeLastDigests(fixture, 3);
    fixture.clock.set("2026-11-21T12:02:00Z");
    expect(await fixture.audit.seal()).toMatchObject({ lost: { number: 6 } });
    fixture.clock.set("2026-11-21T12:32:00Z");
    expect(await fixture.audit.seal()).toMatchObject({ sealed: 3 });
    // The first digest after the removed ones continues their numbers and records the loss.
    await expectFindings(fixture, [
      { kind: "digestsCut", interval: "2026-11-21T10:30Z", digestNumber: 7 },
      { kind: "entryRemoved", interval: LAST, entryId: expect.any(String), digestNumber: 9 },
    ]);
  });

  test("is not found without a key vault, and the response says that none is configured", async () => {
    const fixture = await sealedFixture();
    await removeLastDigests(fixture, 3);
    const withoutKeyVault = fixture.instance({ anchor: undefined });
    expect((await withoutKeyVault.verify({})).findings).toMatchObject([{ kind: "entryRemoved", interval: LAST }]);
    // Someone who also removes the index rows, and the rows of the last entries of each writer, leaves no trace in the tables.
    const removed = { partitionKey: INDEX_PARTITION, from: "", before: "~" };
    for await (const rows of fixture.tables.pages(IndexRow, removed)) {
      for (const { rowKey } of rows)
        if (instantOf(rowKey.slice(-26)) >= Date.parse("2026-11-21T10:30Z"))
          await fixture.tables.remove(IndexRow, INDEX_PARTITION, rowKey);
    }
    for await (const rows of fixture.tables.pages(LastRow, { partitionKey: DAY, ...LAST_ROWS }))
      for (const { rowKey } of rows) await fixture.tables.remove(LastRow, DAY, rowKey);
    expect(await withoutKeyVault.verify({})).toMatchObject({ intact: true, anchor: { state: "notConfigured" } });
  });
});

test("the next run stores the newest digest if the key vault failed after sealing", async () => {
  const fixture = openFixture(azurite.connectionString(accounts[usedAccounts++]!));
  await fixture.audit.append(eventBy("ada"));
  fixture.clock.addMinutes(12);
  const down = { read: async () => undefined, write: () => Promise.reject(new Error("the vault is down")) };
  await expect(fixture.instance({ anchor: down }).seal()).rejects.toThrow("the vault is down");
  expect(fixture.anchor.digest).toBeUndefined();
  expect(await fixture.audit.seal()).toMatchObject({ sealed: 0 });
  expect(fixture.anchor.digest).toMatchObject({ number: 1, interval: FIRST });
  expect(await fixture.audit.verify({})).toMatchObject({ intact: true, digests: 1 });
});

test("sealing continues after the newest digest, whatever the head row of an earlier version names", async () => {
  const fixture = await sealedFixture();
  const first = await fixture.tables.get(DigestRow, "digests", FIRST);
  await fixture.tables.put(DigestRow, "digests", HEAD, { digest: first!.digest });
  fixture.clock.set("2026-11-21T11:12:00Z");
  expect(await fixture.audit.seal()).toMatchObject({ sealed: 1 });
  await expectFindings(fixture, []);
});

test("signatures of an old key stay valid after its removal if the next key sealed while both were configured", async () => {
  const fixture = await sealedFixture();
  const second = makeKey("k2");
  const third = makeKey("k3");
  for (const keys of [[second, ...fixture.keys], [third, second], [third]]) {
    fixture.clock.addMinutes(10);
    await fixture.instance({ keys }).seal();
  }
  const audit = fixture.instance({ keys: [third] });
  expect(await audit.verify({})).toMatchObject({ intact: true, digests: 9 });
  const [part] = await exportAll(audit);
  expect((await verifyExport([JSON.parse(part!)], publicKeys(third))).findings).toEqual([]);
});

for (const kid of ["k1", "k9"]) {
  test(`if all keys are replaced at once by a key named ${kid}, sealing continues and reports the previous digest as unverifiable`, async () => {
    const fixture = await sealedFixture();
    const newKey = makeKey(kid);
    const replaced = fixture.instance({ keys: [newKey], anchor: undefined });
    fixture.clock.set("2026-11-21T11:22:00Z");
    expect(await replaced.seal()).toMatchObject({ sealed: 2 });
    const { findings, lastDigest } = await replaced.verify({});
    expect(lastDigest).toMatchObject({ number: 8, kid });
    expect(findings.filter(({ interval }) => interval === "2026-11-21T11:00Z")).toMatchObject([
      { kind: "digestUnverifiable", digestNumber: 7 },
    ]);
    // Two keys of one name can't be configured together.
    if (kid !== "k9") return;
    // With both keys, all digests are valid. Only the problem that the new key recorded when it sealed is reported.
    const withBothKeys = fixture.instance({ keys: [newKey, ...fixture.keys], anchor: undefined });
    expect(await withBothKeys.verify({})).toMatchObject({
      digests: 8,
      lastDigest: { number: 8, kid: "k9" },
      findings: [{ kind: "digestUnverifiable", interval: "2026-11-21T11:00Z", digestNumber: 7 }],
    });
    // With the old key alone, the digests that it signed are valid, and those of the new key are reported.
    const withOldKey = fixture.instance({ keys: [...fixture.keys], anchor: undefined });
    const { digests, findings: ofNewKey } = await withOldKey.verify({});
    expect(digests).toBe(6);
    expect(ofNewKey.map(({ kind, interval: start }) => `${kind} ${start}`)).toEqual([
      "digestInserted 2026-11-21T11:00Z",
      "digestInserted 2026-11-21T11:10Z",
      "entryChanged 2026-11-21T11:20Z", // the entry about the adopted beginning, whose code is made with the new key
    ]);
  });
}

test("an export signed with a key that no trusted key vouches for is reported as changed", async () => {
  const fixture = await sealedFixture();
  const unknownKey = makeKey("evil");
  // Sealing with both keys stores a statement in which the unknown key vouches for the trusted one, but none the other way round.
  await fixture.instance({ keys: [unknownKey, ...fixture.keys] }).seal();
  const [part] = await exportAll(fixture.instance({ keys: [unknownKey] }));
  const result = await verifyExport([JSON.parse(part!)], publicKeys(...fixture.keys));
  expect(result.findings[0]).toMatchObject({ kind: "exportChanged" });
});

test("a log without sealed entries has no findings, and the verdict of its export is `nothingSealed`", async () => {
  const fixture = openFixture(azurite.connectionString(accounts[usedAccounts++]!));
  for (const entries of [0, 1]) {
    if (entries > 0) await fixture.audit.append(eventBy("ada"));
    expect(await fixture.audit.verify({})).toMatchObject({
      findings: [],
      digests: 0,
      checkedFrom: null,
      beginning: null,
    });
    const files = (await exportAll(fixture.audit)).map((part) => JSON.parse(part));
    const offline = await verifyExport(files, publicKeys(...fixture.keys));
    expect(offline).toMatchObject({ verdict: "nothingSealed", intact: false, findings: [], unsealed: entries });
    expect(offline.notes.join()).toContain("Nothing was sealed at the time of the export");
  }
});

test("without signing keys nothing is sealed, and the responses say that no key is configured", async () => {
  const fixture = openFixture(azurite.connectionString(accounts[usedAccounts++]!));
  const audit = fixture.instance({ keys: [] });
  await audit.append(eventBy("ada"));
  fixture.clock.set("2026-11-21T12:00:00Z");
  expect(await audit.seal()).toEqual({ configured: false, sealed: 0, more: false });
  expect(await audit.verify({})).toMatchObject({ sealing: "notConfigured", digests: 0, unsealedFrom: START });
});

test("sealing writes the index rows that a crashed writer did not write", async () => {
  const fixture = openFixture(azurite.connectionString(accounts[usedAccounts++]!));
  await fixture.audit.append(eventBy("ada"));
  const [stored] = (await fixture.audit.list({}, page())).items;
  const unindexed = { ...stored!, id: `${stored!.id.slice(0, -4)}0000`, actor: "bob" };
  await fixture.tables.insert(EntryRow, DAY, entryKeyOf(FIRST, unindexed.id), {
    entry: canonicalJson(unindexed),
    mac: createTrust(fixture.tables, fixture.keys).authentication.sign!({
      partitionKey: DAY,
      rowKey: entryKeyOf(FIRST, unindexed.id),
      text: canonicalJson(unindexed),
      link: undefined,
    }),
  });
  expect((await fixture.audit.list({ actor: "bob" }, page())).items).toEqual([]);
  fixture.clock.addMinutes(12);
  await fixture.audit.seal();
  expect((await fixture.audit.list({ actor: "bob" }, page())).items).toEqual([unindexed]);
  expect((await fixture.audit.list({}, page())).items).toHaveLength(2);
});

test("the offline check reports an export that was changed afterwards", async () => {
  const fixture = await sealedFixture();
  const [text] = await exportAll(fixture.audit);
  const keys = publicKeys(...fixture.keys);
  const findingsAfter = async (change: (file: { entries: { actor: string }[]; statement: string | null }) => void) => {
    const file = JSON.parse(text!);
    change(file);
    return (await verifyExport([file], keys)).findings.map(({ kind }) => kind);
  };
  expect(await findingsAfter(() => {})).toEqual([]);
  expect(await findingsAfter((file) => (file.entries[0]!.actor = "eve"))).toEqual(["exportChanged", "entryChanged"]);
  expect(await findingsAfter((file) => file.entries.pop())).toEqual(["exportChanged", "entryRemoved"]);
  expect(await findingsAfter((file) => (file.statement = null))).toEqual(["exportChanged"]);
});
