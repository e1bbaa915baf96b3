import { randomBytes } from "node:crypto";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import * as z from "zod";
import type { Audit } from "../../shared/audit/audit.ts";
import type { Digest } from "../../shared/audit/chain/digest.ts";
import type { Finding } from "../../shared/audit/chain/findings.ts";
import { signingKey, signStatement } from "../../shared/audit/chain/signing.ts";
import { createTrust } from "../../shared/audit/chain/trust.ts";
import { purgeSealed } from "../../shared/audit/purge/purge.ts";
import { indexKeys, position } from "../../shared/audit/rows.ts";
import { verifyExport } from "../../shared/audit/verify/verify-export.ts";
import { type Entity, entity } from "../../shared/platform/storage/entity.ts";
import { put } from "../../shared/platform/storage/tables.ts";
import { sampled } from "../support/sampling.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import {
  event,
  eventBy,
  exportAll,
  type Fixture,
  makeKey,
  openFixture,
  page,
  publicKeys,
  settableClock,
} from "./support.ts";

/**
 * Tests that verification of the audit log detects changes of its rows. Each case changes rows directly in storage, like an
 * attacker with the account's key. Then the test compares the findings of the service and of the offline check of an export
 * with the expected ones. For a sample of the cases it also checks that sealing and lists continue to work.
 *
 * The log is divided into ten-minute intervals. After an interval is over, a job seals it: the job stores a fingerprint (id and
 * hash) of each entry, and a signed digest of these fingerprints. Each digest names the previous one, so the digests form a
 * chain. The anchor is a copy of the newest digest in a key vault, which the attacker can't change.
 *
 * Every case gets its own copy of one log, with intervals sealed from 10:00 to 11:00; those before 10:20 were purged. Digests up
 * to 10:30 are signed with key `k1`, later ones with `k2`. Only `k2` is configured, and it vouches for `k1`.
 */

type Table = "AuditEntries" | "AuditIndex" | "AuditDigests";
type Columns = Record<string, string | number | Uint8Array | undefined>;

const textColumn = z.union([z.string(), z.number()]).optional();
const bytesColumn = z.union([z.instanceof(Uint8Array), z.string()]).optional();
/** Schemas that accept rows with columns of a wrong type, or without columns, because an attacker can write such rows. */
const ROWS: Record<Table, Entity<Columns>> = {
  AuditEntries: entity("AuditEntries", z.object({ entry: textColumn, link: textColumn, mac: textColumn })),
  AuditIndex: entity("AuditIndex", z.object({ id: textColumn, entry: textColumn })),
  AuditDigests: entity(
    "AuditDigests",
    z.object({
      digest: textColumn,
      interval: textColumn,
      authenticated: textColumn,
      record: textColumn,
      hashes: bytesColumn,
    }),
  ),
};

const DAY = "2026-11-21";
/** Returns the name of the interval that starts at a time: `2026-11-21T10:40Z`. */
const intervalAt = (time: string) => `${DAY}T${time}Z`;
/** The first interval that was not purged. */
const FIRST_RETAINED = intervalAt("10:20");
/** The interval after the newest digest: sealing continues here. */
const NEXT_TO_SEAL = intervalAt("11:10");
/** A ULID that no entry of the log has. */
const FORGED_ID = "01M7YRRT80N8G1C0BA1J86DWCA";

/**
 * Row keys of an interval's two marks. The first entry of an interval inserts both. Sealing deletes the open mark, after which
 * no entry can be added. The born mark stays, so that the interval can't be created a second time.
 */
const bornMark = (time: string) => `~born|${time}`;
const openMark = (time: string) => `~open|${time}`;

/** Returns the row key of a row of fingerprints. An interval with more than 1,000 entries has several, numbered from 0. */
const fingerprintRow = (interval: string, number = 0) => `${interval}|${String(number).padStart(6, "0")}`;
/** Size of one fingerprint: an id of 26 characters and a hash of 32 bytes. */
const FINGERPRINT_BYTES = 58;
/** A byte within the hash of the first fingerprint of a row. */
const HASH_BYTE = 40;

const PARTITIONS: [Table, string[]][] = [
  ["AuditEntries", [DAY]],
  ["AuditIndex", ["entries"]],
  ["AuditDigests", ["digests", "manifests", "first", "purges", "keys"]],
];

/** A case's copy of the log, with functions that read and write single rows. */
interface LogCopy {
  fixture: Fixture;
  audit: Audit;
  get(table: Table, partition: string, row: string): Promise<Columns>;
  put(table: Table, partition: string, row: string, columns: Columns): Promise<void>;
  change(table: Table, partition: string, row: string, change: (columns: Columns) => Columns): Promise<void>;
  /** Removes a row. @throws if the row does not exist. */
  remove(table: Table, partition: string, row: string): Promise<void>;
  /** Returns the row keys of all rows of a partition. */
  keys(table: Table, partition: string): Promise<string[]>;
  /** Returns the row keys of the entries of the interval that starts at a time: `10:40|<id>`. */
  entries(time: string): Promise<string[]>;
}

interface Case {
  name: string;
  tamper(copy: LogCopy): Promise<void>;
  /**
   * Expected findings as `kind interval`. Brackets mark those that only the service detects, because an export contains
   * neither the index nor the marks. For rows before the log's beginning or in the future, an export lists the service's findings.
   */
  expected: string[];
}

const cases: Case[] = [];
const addCase = (name: string, tamper: Case["tamper"], ...expected: string[]) => cases.push({ name, tamper, expected });

/** A key that the service does not trust. */
const unknownKey = signingKey({ kid: "evil", key: new Uint8Array(randomBytes(32)) });
/** Returns a digest that continues the chain in form, signed with an unknown key unless another one is given. */
const forgedDigest = (change: Partial<Digest> = {}, signer = unknownKey): string =>
  signStatement(
    "audit-digest",
    {
      number: 8,
      interval: NEXT_TO_SEAL,
      minutes: 10,
      entries: 0,
      total: 9,
      manifest: "x",
      previous: null,
      sealedAt: "2026-11-21T11:21:00.000Z",
      ...change,
    },
    signer,
  );

// --- entries

addCase(
  "an entry's text changed",
  async ({ change, entries }) => {
    const [key] = await entries("10:40");
    await change("AuditEntries", DAY, key!, ({ entry }) => ({
      entry: String(entry).replace('"success"', '"failure"'),
    }));
  },
  "entryChanged 10:40",
);
addCase(
  "an entry deleted",
  async ({ remove, entries }) => {
    await remove("AuditEntries", DAY, (await entries("10:40"))[0]!);
  },
  "entryRemoved 10:40",
);
addCase(
  "an entry inserted",
  async ({ get, put, entries }) => {
    // The row key is "10:40|<entry id>".
    const [key] = await entries("10:40");
    const { entry } = await get("AuditEntries", DAY, key!);
    const id = `${key!.slice(6, -4)}0000`;
    await put("AuditEntries", DAY, `10:40|${id}`, { entry: String(entry).replace(key!.slice(6), id) });
  },
  "entryInserted 10:40",
);
addCase(
  "an entry inserted into an interval that was sealed empty",
  async ({ get, put, entries }) => {
    const { entry } = await get("AuditEntries", DAY, (await entries("10:40"))[0]!);
    const id = FORGED_ID;
    await put("AuditEntries", DAY, `10:30|${id}`, { entry: String(entry) });
  },
  "entryInserted 10:30",
);
addCase(
  "a row with a malformed id inserted",
  ({ put }) => put("AuditEntries", DAY, "10:40|zzz", { entry: "{}" }),
  "entryInserted 10:40",
);
addCase(
  "a row whose key is not that of an interval inserted",
  ({ put }) => put("AuditEntries", DAY, "10:45", { entry: "{}" }),
  "entryInserted 10:40",
);
addCase(
  "an entry's column with a value of another type",
  async ({ put, entries }) => {
    await put("AuditEntries", DAY, (await entries("10:40"))[0]!, { entry: 7 });
  },
  "entryChanged 10:40",
);
addCase(
  "an entry without its column",
  async ({ put, entries }) => {
    await put("AuditEntries", DAY, (await entries("10:50"))[0]!, {});
  },
  "entryChanged 10:50",
);
addCase(
  "two entries' texts exchanged",
  async ({ get, put, entries }) => {
    const [a, b] = await entries("10:20");
    const [left, right] = [await get("AuditEntries", DAY, a!), await get("AuditEntries", DAY, b!)];
    await put("AuditEntries", DAY, a!, right);
    await put("AuditEntries", DAY, b!, left);
  },
  "entryChanged 10:20",
  "entryChanged 10:20",
);
addCase(
  "an entry moved to another interval",
  async ({ get, put, remove, entries }) => {
    const [key] = await entries("10:40");
    await put("AuditEntries", DAY, `10:50${key!.slice(5)}`, await get("AuditEntries", DAY, key!));
    await remove("AuditEntries", DAY, key!);
  },
  "entryRemoved 10:40",
  "entryInserted 10:50",
);
addCase(
  "all entries deleted",
  async ({ remove, keys }) => {
    for (const key of await keys("AuditEntries", DAY)) if (!key.startsWith("~")) await remove("AuditEntries", DAY, key);
  },
  "entryRemoved 10:20",
  "entryRemoved 10:20",
  "entryRemoved 10:40",
  "entryRemoved 10:50",
);
addCase(
  "an entry inserted before the log begins",
  async ({ get, put, entries }) => {
    const { entry } = await get("AuditEntries", DAY, (await entries("10:40"))[0]!);
    await put("AuditEntries", DAY, `08:00|${FORGED_ID}`, { entry });
  },
  "entryInserted 08:00",
);
addCase(
  "an entry inserted in the far future",
  async ({ get, put, entries }) => {
    const { entry } = await get("AuditEntries", DAY, (await entries("10:40"))[0]!);
    const future = Date.parse("2099-01-01T00:00:00Z");
    const key = `all|${position(FORGED_ID, future)}`;
    await put("AuditEntries", "2099-01-01", `00:00|${FORGED_ID}`, { entry });
    await put("AuditIndex", "entries", key, { id: FORGED_ID });
  },
  "entryInserted 2099-01-01T00:00Z",
);

// --- marks: rows that say whether entries can be added to an interval

addCase(
  "the born mark of a sealed interval deleted",
  ({ remove }) => remove("AuditEntries", DAY, bornMark("10:40")),
  "[markChanged 10:40]",
);
addCase(
  "an open mark added to a sealed interval",
  ({ put }) => put("AuditEntries", DAY, openMark("10:40"), {}),
  "[markChanged 10:40]",
);
addCase(
  "the born mark of a sealed interval without entries deleted",
  ({ remove }) => remove("AuditEntries", DAY, bornMark("10:30")),
  "[markChanged 10:30]",
);
addCase(
  "a born mark without an open mark added to a future interval",
  ({ put }) => put("AuditEntries", DAY, bornMark("23:00"), {}),
  "markChanged 23:00",
);
addCase("the open mark of the current interval deleted, which the next entry restores", async (copy) => {
  const { audit, remove, entries, keys } = copy;
  await audit.append(eventBy("before"));
  await remove("AuditEntries", DAY, openMark("11:10"));
  await audit.append(eventBy("after"));
  expect(await entries("11:10")).toHaveLength(2);
  expect(await keys("AuditEntries", DAY)).toContain(openMark("11:10"));
});
addCase(
  "all marks deleted",
  async ({ remove, keys }) => {
    for (const key of await keys("AuditEntries", DAY)) if (key.startsWith("~")) await remove("AuditEntries", DAY, key);
  },
  ...["10:20", "10:30", "10:40", "10:50", "11:00"].map((time) => `[markChanged ${time}]`),
);

// --- index: rows that order the entries for lists, one per filter (all, actor, event type, both)

for (const [number, filter] of [
  [0, "without a filter"],
  [1, "by actor"],
  [2, "by event type"],
  [3, "by actor and event type"],
] as const) {
  addCase(
    `an index row of the list ${filter} deleted`,
    async ({ audit, get, remove, entries }) => {
      const { entry } = await get("AuditEntries", DAY, (await entries("10:40"))[0]!);
      await audit.append(eventBy("somebody"));
      await remove("AuditIndex", "entries", indexKeys(JSON.parse(String(entry)))[number]!);
    },
    "[indexEntryMissing 10:40]",
  );
}
addCase(
  "an index row added for an entry that does not exist",
  async ({ put }) => {
    const key = position(FORGED_ID, Date.parse("2026-11-21T10:45:00Z"));
    await put("AuditIndex", "entries", `all|${key}`, { id: FORGED_ID });
  },
  "[indexEntryInserted 10:40]",
);
addCase(
  "an index row that names another entry",
  async ({ get, change, entries }) => {
    const [key] = await entries("10:40");
    const { entry } = await get("AuditEntries", DAY, key!);
    await change("AuditIndex", "entries", indexKeys(JSON.parse(String(entry)))[0]!, () => ({
      id: FORGED_ID,
    }));
  },
  "[indexEntryMissing 10:40]",
);
addCase(
  "an index row whose id has another type",
  async ({ get, change, entries }) => {
    const { entry } = await get("AuditEntries", DAY, (await entries("10:40"))[0]!);
    await change("AuditIndex", "entries", indexKeys(JSON.parse(String(entry)))[0]!, () => ({ id: 7 }));
  },
  "[indexEntryMissing 10:40]",
);
addCase(
  "the whole index deleted",
  async ({ remove, keys }) => {
    for (const key of await keys("AuditIndex", "entries")) await remove("AuditIndex", "entries", key);
  },
  "[indexEntryMissing 10:20]",
  "[indexEntryMissing 10:20]",
  "[indexEntryMissing 10:40]",
  "[indexEntryMissing 10:50]",
);
addCase(
  "an index row from before the log begins",
  async ({ put }) => {
    const key = position(FORGED_ID, Date.parse("2019-01-01T00:00:00Z"));
    await put("AuditIndex", "entries", `all|${key}`, { id: FORGED_ID });
  },
  "entryInserted 2019-01-01T00:00Z",
);

// --- digests: signed statements that form a chain

addCase(
  "a digest's signature changed",
  ({ change }) =>
    change("AuditDigests", "digests", intervalAt("10:40"), ({ digest }) => ({
      digest: `${String(digest).slice(0, -4)}AAAA`,
    })),
  "digestChanged 10:40",
  "chainBroken 10:50",
);
addCase(
  "a digest's content changed",
  ({ change }) =>
    change("AuditDigests", "digests", intervalAt("10:40"), ({ digest }) => {
      const [header, payload, signature] = String(digest).split(".");
      const claims = { ...JSON.parse(Buffer.from(payload!, "base64url").toString()), entries: 0 };
      return { digest: `${header}.${Buffer.from(JSON.stringify(claims)).toString("base64url")}.${signature}` };
    }),
  "digestChanged 10:40",
  "chainBroken 10:50",
);
addCase(
  "a digest signed with an unknown key",
  ({ put }) =>
    put("AuditDigests", "digests", intervalAt("10:40"), {
      digest: forgedDigest({ interval: intervalAt("10:40"), number: 5 }),
    }),
  "digestUnverifiable 10:40",
  "chainBroken 10:50",
);
addCase(
  "a digest signed with another key of a trusted name",
  ({ put }) =>
    put("AuditDigests", "digests", intervalAt("10:40"), {
      digest: forgedDigest({ interval: intervalAt("10:40"), number: 5 }, { ...unknownKey, kid: "k2" }),
    }),
  "digestChanged 10:40",
  "chainBroken 10:50",
);
addCase(
  "a digest deleted from the middle",
  ({ remove }) => remove("AuditDigests", "digests", intervalAt("10:40")),
  "digestMissing 10:40",
);
addCase(
  "the oldest retained digest deleted",
  ({ remove }) => remove("AuditDigests", "digests", FIRST_RETAINED),
  "digestMissing 10:20",
);
addCase(
  "the newest digest deleted",
  ({ remove }) => remove("AuditDigests", "digests", intervalAt("11:00")),
  "digestsCut 11:00",
);
addCase(
  "the newest two digests deleted with their entries",
  async ({ remove, entries }) => {
    for (const key of await entries("10:50")) await remove("AuditEntries", DAY, key);
    for (const time of ["10:50", "11:00"]) {
      await remove("AuditDigests", "digests", intervalAt(time));
      if (time === "10:50") await remove("AuditDigests", "manifests", fingerprintRow(intervalAt(time)));
    }
  },
  "digestsCut 11:00",
  "[indexEntryInserted 10:50]",
);
addCase(
  "all digests deleted",
  async ({ remove, keys }) => {
    for (const key of await keys("AuditDigests", "digests")) await remove("AuditDigests", "digests", key);
  },
  "digestsCut 11:00",
  // Without a digest, only the key with which an entry was written could tell that it is unchanged: `k1`, which is not configured any more.
  ...["10:20", "10:20", "10:40", "10:50"].map((time) => `entryChanged ${time}`),
);
addCase(
  "a digest overwritten with another one",
  async ({ get, put }) => {
    await put(
      "AuditDigests",
      "digests",
      intervalAt("10:40"),
      await get("AuditDigests", "digests", intervalAt("10:30")),
    );
  },
  "digestChanged 10:40",
  "chainBroken 10:50",
);
addCase(
  "two digests exchanged",
  async ({ get, put }) => {
    const [a, b] = [
      await get("AuditDigests", "digests", intervalAt("10:30")),
      await get("AuditDigests", "digests", intervalAt("10:40")),
    ];
    await put("AuditDigests", "digests", intervalAt("10:30"), b);
    await put("AuditDigests", "digests", intervalAt("10:40"), a);
  },
  "digestChanged 10:30",
  "digestChanged 10:40",
  "chainBroken 10:50",
);
addCase(
  "a digest's column with a value of another type",
  ({ put }) => put("AuditDigests", "digests", intervalAt("10:40"), { digest: 7 }),
  "digestChanged 10:40",
  "chainBroken 10:50",
);
addCase(
  "a digest without its column",
  ({ put }) => put("AuditDigests", "digests", intervalAt("10:40"), {}),
  "digestChanged 10:40",
  "chainBroken 10:50",
);
addCase(
  "a row among the digests whose key is not an interval",
  ({ put }) => put("AuditDigests", "digests", intervalAt("10:45"), { digest: "x" }),
  "digestInserted",
);
addCase(
  "a digest of 2099 signed with an unknown key",
  ({ put }) =>
    put("AuditDigests", "digests", "2099-01-01T00:00Z", {
      digest: forgedDigest({ interval: "2099-01-01T00:00Z", number: 9 }),
    }),
  "digestInserted 2099-01-01T00:00Z",
);
addCase(
  "a genuine digest copied to 2099",
  async ({ get, put }) => {
    await put(
      "AuditDigests",
      "digests",
      "2099-01-01T00:00Z",
      await get("AuditDigests", "digests", intervalAt("11:00")),
    );
  },
  "digestInserted 2099-01-01T00:00Z",
);
addCase(
  "a digest from before the log begins",
  ({ put }) =>
    put("AuditDigests", "digests", "2020-01-01T00:00Z", {
      digest: forgedDigest({ interval: "2020-01-01T00:00Z", number: 1 }),
    }),
  "digestInserted 2020-01-01T00:00Z",
);
addCase(
  "a row that sorts before all digests",
  ({ put }) => put("AuditDigests", "digests", "!", { digest: 7 }),
  "digestInserted",
);

// --- rows under the key of the next digest, which sealing replaces

for (const [name, columns] of [
  ["a digest signed with an unknown key", { digest: forgedDigest() }],
  [
    "a digest signed with an unknown key, number 2^53-1",
    { digest: forgedDigest({ number: Number.MAX_SAFE_INTEGER, total: Number.MAX_SAFE_INTEGER }) },
  ],
  ["a digest whose number is not a number", { digest: forgedDigest({ number: Number.NaN }) }],
  ["text that is not a digest", { digest: "x" }],
  ["a value of another type", { digest: 7 }],
  ["a row without a value", {}],
] as [string, Columns][]) {
  addCase(
    `a row under the key of the next digest: ${name}`,
    ({ put }) => put("AuditDigests", "digests", NEXT_TO_SEAL, columns),
    "digestInserted 11:10",
  );
}
addCase(
  "a row under the key of the next digest: a copy of the newest one",
  async ({ get, put }) => {
    await put("AuditDigests", "digests", NEXT_TO_SEAL, await get("AuditDigests", "digests", intervalAt("11:00")));
  },
  "digestInserted 11:10",
);

// --- the head row, in which an earlier version stored the newest digest a second time

addCase(
  "a head row with a digest of 2099, signed with an unknown key",
  ({ put }) =>
    put("AuditDigests", "digests", "~head", { digest: forgedDigest({ interval: "2099-01-01T00:00Z", number: 9 }) }),
  "digestInserted",
);
addCase(
  "a head row with the number 2^53-1",
  ({ put }) => put("AuditDigests", "digests", "~head", { digest: forgedDigest({ number: Number.MAX_SAFE_INTEGER }) }),
  "digestInserted",
);
addCase(
  "a head row with a value of another type",
  ({ put }) => put("AuditDigests", "digests", "~head", { digest: 7 }),
  "digestInserted",
);
addCase("a head row with an older digest", async ({ get, put }) => {
  await put("AuditDigests", "digests", "~head", await get("AuditDigests", "digests", intervalAt("10:30")));
});

// --- fingerprints: ids and hashes of the entries with which an interval was sealed

addCase(
  "a fingerprint changed",
  ({ change }) =>
    change("AuditDigests", "manifests", fingerprintRow(intervalAt("10:40")), ({ hashes }) => {
      const changed = Buffer.from(hashes as Uint8Array);
      changed[HASH_BYTE]! ^= 1;
      return { hashes: changed };
    }),
  "fingerprintsChanged 10:40",
);
addCase(
  "fingerprints deleted",
  ({ remove }) => remove("AuditDigests", "manifests", fingerprintRow(intervalAt("10:40"))),
  "fingerprintsChanged 10:40",
);
addCase(
  "a second row of fingerprints added to an interval",
  async ({ get, put }) => {
    await put(
      "AuditDigests",
      "manifests",
      fingerprintRow(intervalAt("10:40"), 1),
      await get("AuditDigests", "manifests", fingerprintRow(intervalAt("10:40"))),
    );
  },
  "fingerprintsChanged 10:40",
);
addCase(
  "fingerprints with a value of another type",
  ({ put }) => put("AuditDigests", "manifests", fingerprintRow(intervalAt("10:40")), { hashes: "x" }),
  "fingerprintsChanged 10:40",
);
addCase(
  "fingerprints and entry changed together",
  async ({ change, entries }) => {
    const [key] = await entries("10:40");
    await change("AuditEntries", DAY, key!, ({ entry }) => ({
      entry: String(entry).replace('"success"', '"failure"'),
    }));
    await change("AuditDigests", "manifests", fingerprintRow(intervalAt("10:40")), ({ hashes }) => {
      const changed = Buffer.from(hashes as Uint8Array);
      changed[HASH_BYTE]! ^= 1;
      return { hashes: changed };
    });
  },
  "fingerprintsChanged 10:40",
  "entryChanged 10:40",
);
addCase(
  "fingerprints of 2099",
  ({ put }) =>
    put("AuditDigests", "manifests", fingerprintRow("2099-01-01T00:00Z"), {
      hashes: new Uint8Array(FINGERPRINT_BYTES),
    }),
  "fingerprintsChanged",
);
addCase(
  "fingerprints under a key that is not an interval",
  ({ put }) => put("AuditDigests", "manifests", "!", { hashes: new Uint8Array(FINGERPRINT_BYTES) }),
  "fingerprintsChanged",
);

// --- the row that names the first interval of the log

for (const [name, columns] of [
  ["later than the newest digest", { interval: NEXT_TO_SEAL }],
  ["of 2099", { interval: "2099-01-01T00:00Z" }],
  ["of 1970", { interval: "1970-01-01T00:00Z" }],
  ["not an interval", { interval: "x" }],
  ["with a value of another type", { interval: 7 }],
  ["without a value", {}],
] as [string, Columns][]) {
  addCase(
    `the row of the first interval: ${name}`,
    ({ put }) => put("AuditDigests", "first", "first", columns),
    "beginningChanged 10:00",
  );
}
addCase(
  "the row of the first interval deleted",
  ({ remove }) => remove("AuditDigests", "first", "first"),
  "beginningChanged 10:00",
);
addCase(
  "another row next to the first interval",
  ({ put }) => put("AuditDigests", "first", "second", { interval: NEXT_TO_SEAL }),
  "beginningChanged 10:00",
);

// --- purge records: signed statements about deleted intervals, stored under the first interval that was not deleted

addCase(
  "a purge record's signature changed",
  ({ change }) =>
    change("AuditDigests", "purges", FIRST_RETAINED, ({ record }) => ({
      record: `${String(record).slice(0, -4)}AAAA`,
    })),
  "purgeRecordChanged 10:20",
  "digestMissing 10:00",
  "[markChanged 10:00]",
  "[markChanged 10:10]",
);
addCase(
  "a purge record deleted",
  ({ remove }) => remove("AuditDigests", "purges", FIRST_RETAINED),
  "digestMissing 10:00",
  "[markChanged 10:00]",
  "[markChanged 10:10]",
);
addCase(
  "a purge record inserted",
  ({ put }) => put("AuditDigests", "purges", intervalAt("10:40"), { record: "e30.e30.AA" }),
  "purgeRecordChanged 10:40",
);
addCase(
  "a purge record copied to a later interval",
  async ({ get, put }) => {
    await put("AuditDigests", "purges", intervalAt("10:40"), await get("AuditDigests", "purges", FIRST_RETAINED));
  },
  "purgeRecordChanged 10:40",
);
addCase(
  "a purge record with a value of another type",
  ({ put }) => put("AuditDigests", "purges", intervalAt("10:40"), { record: 7 }),
  "purgeRecordChanged 10:40",
);

// --- key records: the signing key vouches for the public key that signed earlier digests

addCase(
  "the record of an older key deleted",
  ({ remove }) => remove("AuditDigests", "keys", "k2|k1"),
  "digestUnverifiable 10:20",
  "digestUnverifiable 10:30",
);
addCase(
  "the record of an older key changed",
  ({ change }) =>
    change("AuditDigests", "keys", "k2|k1", ({ record }) => ({ record: `${String(record).slice(0, -4)}AAAA` })),
  "keyRecordChanged",
  "digestUnverifiable 10:20",
  "digestUnverifiable 10:30",
);
addCase(
  "a key record that an unknown key signed",
  ({ put }) =>
    put("AuditDigests", "keys", "k2|evil", {
      record: signStatement("audit-key", { kid: "evil", publicKey: "x" }, unknownKey),
    }),
  "keyRecordChanged",
);
addCase(
  "a key record with a value of another type",
  ({ put }) => put("AuditDigests", "keys", "k2|evil", { record: 7 }),
  "keyRecordChanged",
);

// --- the anchor in the key vault, and all rows at once

addCase(
  "an unreadable anchor",
  async ({ fixture }) => {
    fixture.anchor.digest = "unreadable";
  },
  "anchorChanged",
);
addCase(
  "the anchor of another log",
  async ({ fixture }) => {
    fixture.anchor.digest = { ...storedAnchor(fixture), hash: "x" };
  },
  "digestsCut 11:00",
);
addCase(
  "the anchor of a log that began elsewhere",
  async ({ fixture }) => {
    fixture.anchor.digest = { ...storedAnchor(fixture), beginning: { interval: "2025-01-01T00:00Z", hash: null } };
  },
  "beginningChanged 2025-01-01T00:00Z",
);
addCase(
  "all rows of all tables deleted",
  async ({ remove, keys }) => {
    for (const [table, partitions] of PARTITIONS)
      for (const partition of partitions)
        for (const key of await keys(table, partition)) await remove(table, partition, key);
  },
  "digestsCut 11:00",
  "beginningChanged 10:00",
);

/** Returns the digest that the anchor contains. */
const storedAnchor = ({ anchor }: Fixture) => anchor.digest as Exclude<typeof anchor.digest, undefined | "unreadable">;

// --- execution

let azurite: TestStorage;
/** The log that every case copies: its fixture, and all rows of its tables. */
let template: { fixture: Fixture; rows: { table: Table; partition: string; row: string; columns: Columns }[] };
/** `k2` replaced `k1` as the signing key while the log of the template was written. */
const [k1, k2] = [makeKey("k1"), makeKey("k2")];

beforeAll(async () => {
  azurite = await openStorage(["template", ...cases.map((_, index) => `case${index}`)]);
  const fixture = openFixture(azurite.connectionString("template"), { minimumRetentionDays: 0 });
  const [withOldKey, withBothKeys] = [fixture.instance({ keys: [k1] }), fixture.instance({ keys: [k2, k1] })];
  const appendAt = async (time: string, actor: string) => {
    fixture.clock.set(intervalAt(time));
    await withOldKey.append(eventBy(actor));
  };
  await appendAt("10:00", "purged");
  await appendAt("10:21", "ada");
  await appendAt("10:22", "bob");
  fixture.clock.set(intervalAt("10:43"));
  await withOldKey.seal();
  await appendAt("10:45", "ada");
  fixture.clock.set(intervalAt("10:55"));
  await withOldKey.refused(event({ type: "access.refused", outcome: "refused" }));
  fixture.clock.set(intervalAt("11:12"));
  await withBothKeys.seal();
  // Purges the intervals before 10:20, as on the next day. `append` does nothing, because audit entries of the purge would add
  // another interval to the log.
  const clock = settableClock("2026-11-22T10:25:00Z");
  const trust = createTrust(fixture.tables, [k2]);
  const unrecorded = { append: async () => {}, minimumRetentionDays: 1 };
  await purgeSealed({ tables: fixture.tables, clock, trust, ...unrecorded }, 1, { actor: "admin", requestId: "req-9" });
  const rows = [];
  for (const [table, partitions] of PARTITIONS) {
    for (const partition of partitions) {
      for await (const page of fixture.tables.pages(ROWS[table], { partitionKey: partition })) {
        for (const { partitionKey, rowKey, etag, ...columns } of page)
          rows.push({ table, partition, row: rowKey, columns });
      }
    }
  }
  template = { fixture, rows };
});
afterAll(() => azurite.stop());

/** Writes the template's rows to the account of a case. */
async function createLogCopy(index: number): Promise<LogCopy> {
  const fixture = openFixture(azurite.connectionString(`case${index}`), {
    minimumRetentionDays: 0,
    start: "2026-11-21T11:15:00Z",
  });
  fixture.anchor.digest = template.fixture.anchor.digest;
  for (const [table, partitions] of PARTITIONS) {
    for (const partition of partitions) {
      const rows = template.rows.filter((row) => row.table === table && row.partition === partition);
      await fixture.tables.write(
        table,
        partition,
        rows.map(({ row, columns }) => put(ROWS[table], row, columns)),
      );
    }
  }
  const keys = async (table: Table, partition: string) => {
    const rowKeys: string[] = [];
    for await (const rows of fixture.tables.pages(ROWS[table], { partitionKey: partition, select: [] }))
      rowKeys.push(...rows.map(({ rowKey }) => rowKey));
    return rowKeys;
  };
  const get = async (table: Table, partition: string, row: string) => {
    const { partitionKey, rowKey, etag, ...columns } = (await fixture.tables.get(ROWS[table], partition, row))!;
    return columns as Columns;
  };
  const putRow = async (table: Table, partition: string, row: string, columns: Columns) =>
    void (await fixture.tables.put(ROWS[table], partition, row, columns));
  return {
    fixture,
    audit: fixture.instance({ keys: [k2] }),
    get,
    put: putRow,
    change: async (table, partition, row, change) =>
      putRow(table, partition, row, change(await get(table, partition, row))),
    remove: async (table, partition, row) => {
      const existed = await fixture.tables.remove(ROWS[table], partition, row);
      if (!existed) throw new Error(`The log has no row ${row} in ${table}, so the case changes nothing.`);
    },
    keys,
    entries: async (time) => (await keys("AuditEntries", DAY)).filter((key) => key.startsWith(time)),
  };
}

/** Returns a finding as `kind interval`, the interval without its date if that is the day of the log. */
const findingText = ({ kind, interval }: Finding): string =>
  `${kind}${interval === undefined ? "" : ` ${interval.replace(`${DAY}T`, "").replace(/^(\d\d:\d\d)Z$/, "$1")}`}`;

/** Returns the findings of the offline check of a complete export. Only `k2` is given as trusted. */
async function verifyOffline(audit: Audit): Promise<string[]> {
  const files = (await exportAll(audit)).map((part) => JSON.parse(part));
  return (await verifyExport(files, publicKeys(k2))).findings.map(findingText);
}

test("the template of all cases has no findings", async () => {
  const { audit } = await createLogCopy(0);
  expect((await audit.verify({})).findings).toEqual([]);
  expect(await verifyOffline(audit)).toEqual([]);
  expect(cases.length).toBeGreaterThanOrEqual(60);
});

/** Cases for which the test also checks that sealing and lists continue: 30 of them, or all if the tests run as a campaign. */
const casesToContinue = new Set(sampled([...cases.keys()], 30));

describe("verification reports the expected findings after this change:", () => {
  for (const [index, { name, tamper, expected }] of cases.entries()) {
    test(name, async () => {
      const copy = await createLogCopy(index);
      const { fixture, audit } = copy;
      await tamper(copy);

      const online = await audit.verify({});
      const withoutBrackets = expected.map((text) => text.replace(/^\[|\]$/g, ""));
      expect(online.findings.map(findingText).sort()).toEqual(withoutBrackets.sort());
      expect(online.intact).toBe(expected.length === 0);
      expect((await verifyOffline(audit)).sort()).toEqual(expected.filter((text) => !text.startsWith("[")).sort());

      if (!casesToContinue.has(index)) return;
      await audit.list({}, page());
      await audit.append(eventBy("later"));
      fixture.clock.set("2026-11-21T11:52:00Z");
      const { sealed } = await audit.seal();
      expect(sealed).toBeGreaterThan(0);
      const afterSealing = await audit.verify({});
      expect(afterSealing.lastDigest?.interval).toBe(intervalAt("11:40"));
      expect(afterSealing.intact).toBe(expected.length === 0);
      expect((await audit.list({ actor: "later" }, page())).items).toHaveLength(1);
    });
  }
});
