import { randomBytes } from "node:crypto";
import { afterAll, beforeAll, expect, test } from "vitest";
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
  by,
  event,
  exportAll,
  type Fixture,
  makeKey,
  openFixture,
  page,
  publicKeys,
  settableClock,
} from "./support.ts";

/**
 * Each case manipulates one or more rows, like an attacker with the account's key. Verification must report what and where, the
 * service and offline, and sealing, exports and lists must continue. Every case gets a copy of one sealed log.
 */

type Table = "AuditEntries" | "AuditIndex" | "AuditDigests";
type Columns = Record<string, string | number | Uint8Array | undefined>;

const value = z.union([z.string(), z.number()]).optional();
const bytes = z.union([z.instanceof(Uint8Array), z.string()]).optional();
/** Any row of a table, with any content. */
const ROWS: Record<Table, Entity<Columns>> = {
  AuditEntries: entity("AuditEntries", z.object({ entry: value })),
  AuditIndex: entity("AuditIndex", z.object({ id: value, entry: value })),
  AuditDigests: entity("AuditDigests", z.object({ digest: value, interval: value, record: value, hashes: bytes })),
};

const DAY = "2026-11-21";
const at = (time: string) => `${DAY}T${time}Z`;
/** Start of the retained part of the log: everything before was purged. */
const KEPT = at("10:20");
const NEXT = at("11:10");
const PARTITIONS: [Table, string[]][] = [
  ["AuditEntries", [DAY]],
  ["AuditIndex", ["entries"]],
  ["AuditDigests", ["digests", "manifests", "first", "purges", "keys"]],
];

interface Copy {
  fixture: Fixture;
  audit: Audit;
  get(table: Table, partition: string, row: string): Promise<Columns>;
  put(table: Table, partition: string, row: string, columns: Columns): Promise<void>;
  change(table: Table, partition: string, row: string, change: (columns: Columns) => Columns): Promise<void>;
  remove(table: Table, partition: string, row: string): Promise<void>;
  keys(table: Table, partition: string): Promise<string[]>;
  /** Returns the row keys of the entries of an interval. */
  entries(time: string): Promise<string[]>;
}

interface Case {
  name: string;
  tamper(copy: Copy): Promise<void>;
  /** Findings as `kind interval`; those that only the service can detect (index and marks) are in brackets. */
  found: string[];
}

const cases: Case[] = [];
const tampering = (name: string, tamper: Case["tamper"], ...found: string[]) => cases.push({ name, tamper, found });

const unknownKey = signingKey({ kid: "evil", key: new Uint8Array(randomBytes(32)) });
const forged = (change: Partial<Digest> = {}, signer = unknownKey): string =>
  signStatement(
    "audit-digest",
    {
      number: 8,
      interval: NEXT,
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

tampering(
  "an entry's text changed",
  async ({ change, entries }) => {
    const [key] = await entries("10:40");
    await change("AuditEntries", DAY, key!, ({ entry }) => ({
      entry: String(entry).replace('"success"', '"failure"'),
    }));
  },
  "entryChanged 10:40",
);
tampering(
  "an entry deleted",
  async ({ remove, entries }) => {
    await remove("AuditEntries", DAY, (await entries("10:40"))[0]!);
  },
  "entryRemoved 10:40",
);
tampering(
  "an entry inserted",
  async ({ get, put, entries }) => {
    const [key] = await entries("10:40");
    const { entry } = await get("AuditEntries", DAY, key!);
    const id = `${key!.slice(6, -4)}0000`;
    await put("AuditEntries", DAY, `10:40|${id}`, { entry: String(entry).replace(key!.slice(6), id) });
  },
  "entryInserted 10:40",
);
tampering(
  "an entry inserted into an interval that was sealed empty",
  async ({ get, put, entries }) => {
    const { entry } = await get("AuditEntries", DAY, (await entries("10:40"))[0]!);
    const id = "01M7YRRT80N8G1C0BA1J86DWCA";
    await put("AuditEntries", DAY, `10:30|${id}`, { entry: String(entry) });
  },
  "entryInserted 10:30",
);
tampering(
  "a row of no entry inserted",
  ({ put }) => put("AuditEntries", DAY, "10:40|zzz", { entry: "{}" }),
  "entryInserted 10:40",
);
tampering(
  "a row of no interval inserted",
  ({ put }) => put("AuditEntries", DAY, "10:45", { entry: "{}" }),
  "entryInserted 10:40",
);
tampering(
  "a column of another type",
  async ({ put, entries }) => {
    await put("AuditEntries", DAY, (await entries("10:40"))[0]!, { entry: 7 });
  },
  "entryChanged 10:40",
);
tampering(
  "a column gone",
  async ({ put, entries }) => {
    await put("AuditEntries", DAY, (await entries("10:50"))[0]!, {});
  },
  "entryChanged 10:50",
);
tampering(
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
tampering(
  "an entry moved to another interval",
  async ({ get, put, remove, entries }) => {
    const [key] = await entries("10:40");
    await put("AuditEntries", DAY, `10:50${key!.slice(5)}`, await get("AuditEntries", DAY, key!));
    await remove("AuditEntries", DAY, key!);
  },
  "entryRemoved 10:40",
  "entryInserted 10:50",
);
tampering(
  "all entries deleted",
  async ({ remove, keys }) => {
    for (const key of await keys("AuditEntries", DAY)) if (!key.startsWith("~")) await remove("AuditEntries", DAY, key);
  },
  "entryRemoved 10:20",
  "entryRemoved 10:20",
  "entryRemoved 10:40",
  "entryRemoved 10:50",
);
tampering(
  "an entry inserted before the log begins",
  async ({ get, put, entries }) => {
    const { entry } = await get("AuditEntries", DAY, (await entries("10:40"))[0]!);
    await put("AuditEntries", DAY, "08:00|01M7YRRT80N8G1C0BA1J86DWCA", { entry });
  },
  "entryInserted 08:00",
);
tampering(
  "an entry inserted in the far future",
  async ({ get, put, entries }) => {
    const { entry } = await get("AuditEntries", DAY, (await entries("10:40"))[0]!);
    const future = Date.parse("2099-01-01T00:00:00Z");
    const key = `all|${position("01M7YRRT80N8G1C0BA1J86DWCA", future)}`;
    await put("AuditEntries", "2099-01-01", "00:00|01M7YRRT80N8G1C0BA1J86DWCA", { entry });
    await put("AuditIndex", "entries", key, { id: "01M7YRRT80N8G1C0BA1J86DWCA" });
  },
  "entryInserted 2099-01-01T00:00Z",
);

// --- marks

tampering(
  "a sealed interval's birth taken back",
  ({ remove }) => remove("AuditEntries", DAY, "~born|10:40"),
  "[markChanged 10:40]",
);
tampering(
  "a sealed interval opened again",
  ({ put }) => put("AuditEntries", DAY, "~open|10:40", {}),
  "[markChanged 10:40]",
);
tampering(
  "an empty sealed interval's birth taken back",
  ({ remove }) => remove("AuditEntries", DAY, "~born|10:30"),
  "[markChanged 10:30]",
);
tampering("a future interval closed", ({ put }) => put("AuditEntries", DAY, "~born|23:00", {}), "markChanged 23:00");
tampering("the current interval closed", ({ remove }) => remove("AuditEntries", DAY, "~open|11:20"));
tampering(
  "all marks deleted",
  async ({ remove, keys }) => {
    for (const key of await keys("AuditEntries", DAY)) if (key.startsWith("~")) await remove("AuditEntries", DAY, key);
  },
  ...["10:20", "10:30", "10:40", "10:50", "11:00"].map((time) => `[markChanged ${time}]`),
);

// --- index

for (const [number, filter] of [
  [0, "of everything"],
  [1, "of an actor"],
  [2, "of an event type"],
  [3, "of both"],
] as const) {
  tampering(
    `an entry hidden from the list ${filter}`,
    async ({ fixture, get, remove, entries }) => {
      const { entry } = await get("AuditEntries", DAY, (await entries("10:40"))[0]!);
      await fixture.audit.append(by("somebody"));
      await remove("AuditIndex", "entries", indexKeys(JSON.parse(String(entry)))[number]!);
    },
    "[indexEntryMissing 10:40]",
  );
}
tampering(
  "an entry in the list that is not in the log",
  async ({ put }) => {
    const key = position("01M7YRRT80N8G1C0BA1J86DWCA", Date.parse("2026-11-21T10:45:00Z"));
    await put("AuditIndex", "entries", `all|${key}`, { id: "01M7YRRT80N8G1C0BA1J86DWCA" });
  },
  "[indexEntryInserted 10:40]",
);
tampering(
  "a row of the list that names another entry",
  async ({ get, change, entries }) => {
    const [key] = await entries("10:40");
    const { entry } = await get("AuditEntries", DAY, key!);
    await change("AuditIndex", "entries", indexKeys(JSON.parse(String(entry)))[0]!, () => ({
      id: "01M7YRRT80N8G1C0BA1J86DWCA",
    }));
  },
  "[indexEntryMissing 10:40]",
);
tampering(
  "a row of the list of another type",
  async ({ get, change, entries }) => {
    const { entry } = await get("AuditEntries", DAY, (await entries("10:40"))[0]!);
    await change("AuditIndex", "entries", indexKeys(JSON.parse(String(entry)))[0]!, () => ({ id: 7 }));
  },
  "[indexEntryMissing 10:40]",
);
tampering(
  "the whole list deleted",
  async ({ remove, keys }) => {
    for (const key of await keys("AuditIndex", "entries")) await remove("AuditIndex", "entries", key);
  },
  "[indexEntryMissing 10:20]",
  "[indexEntryMissing 10:20]",
  "[indexEntryMissing 10:40]",
  "[indexEntryMissing 10:50]",
);
tampering(
  "a row of the list from before the log begins",
  async ({ put }) => {
    const key = position("01M7YRRT80N8G1C0BA1J86DWCA", Date.parse("2019-01-01T00:00:00Z"));
    await put("AuditIndex", "entries", `all|${key}`, { id: "01M7YRRT80N8G1C0BA1J86DWCA" });
  },
  "entryInserted 2019-01-01T00:00Z",
);

// --- digests

tampering(
  "a digest's signature changed",
  ({ change }) =>
    change("AuditDigests", "digests", at("10:40"), ({ digest }) => ({ digest: `${String(digest).slice(0, -4)}AAAA` })),
  "digestChanged 10:40",
  "chainBroken 10:50",
);
tampering(
  "a digest's content changed",
  ({ change }) =>
    change("AuditDigests", "digests", at("10:40"), ({ digest }) => {
      const [header, payload, signature] = String(digest).split(".");
      const claims = { ...JSON.parse(Buffer.from(payload!, "base64url").toString()), entries: 0 };
      return { digest: `${header}.${Buffer.from(JSON.stringify(claims)).toString("base64url")}.${signature}` };
    }),
  "digestChanged 10:40",
  "chainBroken 10:50",
);
tampering(
  "a digest signed with an unknown key",
  ({ put }) => put("AuditDigests", "digests", at("10:40"), { digest: forged({ interval: at("10:40"), number: 5 }) }),
  "digestUnverifiable 10:40",
  "chainBroken 10:50",
);
tampering(
  "a digest signed with another key of a trusted name",
  ({ put }) =>
    put("AuditDigests", "digests", at("10:40"), {
      digest: forged({ interval: at("10:40"), number: 5 }, { ...unknownKey, kid: "k2" }),
    }),
  "digestChanged 10:40",
  "chainBroken 10:50",
);
tampering(
  "a digest deleted from the middle",
  ({ remove }) => remove("AuditDigests", "digests", at("10:40")),
  "digestMissing 10:40",
);
tampering(
  "the first digest that is kept deleted",
  ({ remove }) => remove("AuditDigests", "digests", KEPT),
  "digestMissing 10:20",
);
tampering(
  "the newest digest deleted",
  ({ remove }) => remove("AuditDigests", "digests", at("11:00")),
  "digestsCut 11:00",
);
tampering(
  "the newest two digests deleted with their entries",
  async ({ remove, entries }) => {
    for (const key of await entries("10:50")) await remove("AuditEntries", DAY, key);
    for (const time of ["10:50", "11:00"]) {
      await remove("AuditDigests", "digests", at(time));
      if (time === "10:50") await remove("AuditDigests", "manifests", `${at(time)}|000000`);
    }
  },
  "digestsCut 11:00",
);
tampering(
  "all digests deleted",
  async ({ remove, keys }) => {
    for (const key of await keys("AuditDigests", "digests")) await remove("AuditDigests", "digests", key);
  },
  "digestsCut 11:00",
);
tampering(
  "a digest in another one's place",
  async ({ get, put }) => {
    await put("AuditDigests", "digests", at("10:40"), await get("AuditDigests", "digests", at("10:30")));
  },
  "digestChanged 10:40",
  "chainBroken 10:50",
);
tampering(
  "two digests exchanged",
  async ({ get, put }) => {
    const [a, b] = [
      await get("AuditDigests", "digests", at("10:30")),
      await get("AuditDigests", "digests", at("10:40")),
    ];
    await put("AuditDigests", "digests", at("10:30"), b);
    await put("AuditDigests", "digests", at("10:40"), a);
  },
  "digestChanged 10:30",
  "digestChanged 10:40",
  "chainBroken 10:50",
);
tampering(
  "a digest's column of another type",
  ({ put }) => put("AuditDigests", "digests", at("10:40"), { digest: 7 }),
  "digestChanged 10:40",
  "chainBroken 10:50",
);
tampering(
  "a digest's column gone",
  ({ put }) => put("AuditDigests", "digests", at("10:40"), {}),
  "digestChanged 10:40",
  "chainBroken 10:50",
);
tampering(
  "a row of no interval among the digests",
  ({ put }) => put("AuditDigests", "digests", at("10:45"), { digest: "x" }),
  "digestInserted",
);
tampering(
  "a digest of 2099 with an unknown key",
  ({ put }) =>
    put("AuditDigests", "digests", "2099-01-01T00:00Z", {
      digest: forged({ interval: "2099-01-01T00:00Z", number: 9 }),
    }),
  "digestInserted 2099-01-01T00:00Z",
);
tampering(
  "a genuine digest copied to 2099",
  async ({ get, put }) => {
    await put("AuditDigests", "digests", "2099-01-01T00:00Z", await get("AuditDigests", "digests", at("11:00")));
  },
  "digestInserted 2099-01-01T00:00Z",
);
tampering(
  "a digest from before the log begins",
  ({ put }) =>
    put("AuditDigests", "digests", "2020-01-01T00:00Z", {
      digest: forged({ interval: "2020-01-01T00:00Z", number: 1 }),
    }),
  "digestInserted 2020-01-01T00:00Z",
);
tampering(
  "a row that sorts before all digests",
  ({ put }) => put("AuditDigests", "digests", "!", { digest: 7 }),
  "digestInserted",
);

// --- rows in the place of the next digest, which sealing replaces

for (const [name, columns] of [
  ["an unknown key", { digest: forged() }],
  [
    "an unknown key and the number 2^53-1",
    { digest: forged({ number: Number.MAX_SAFE_INTEGER, total: Number.MAX_SAFE_INTEGER }) },
  ],
  ["a number that is none", { digest: forged({ number: Number.NaN }) }],
  ["text that is no digest", { digest: "x" }],
  ["a column of another type", { digest: 7 }],
  ["no column", {}],
] as [string, Columns][]) {
  tampering(
    `the next digest's place taken, with ${name}`,
    ({ put }) => put("AuditDigests", "digests", NEXT, columns),
    "digestInserted 11:10",
  );
}
tampering(
  "the next digest's place taken, with the newest one",
  async ({ get, put }) => {
    await put("AuditDigests", "digests", NEXT, await get("AuditDigests", "digests", at("11:00")));
  },
  "digestInserted 11:10",
);

// --- the head row of an earlier version

tampering(
  "a head of 2099 with an unknown key",
  ({ put }) =>
    put("AuditDigests", "digests", "~head", { digest: forged({ interval: "2099-01-01T00:00Z", number: 9 }) }),
  "digestInserted",
);
tampering(
  "a head with the number 2^53-1",
  ({ put }) => put("AuditDigests", "digests", "~head", { digest: forged({ number: Number.MAX_SAFE_INTEGER }) }),
  "digestInserted",
);
tampering(
  "a head of another type",
  ({ put }) => put("AuditDigests", "digests", "~head", { digest: 7 }),
  "digestInserted",
);
tampering("a head that names an older digest", async ({ get, put }) => {
  await put("AuditDigests", "digests", "~head", await get("AuditDigests", "digests", at("10:30")));
});

// --- fingerprints

tampering(
  "a fingerprint changed",
  ({ change }) =>
    change("AuditDigests", "manifests", `${at("10:40")}|000000`, ({ hashes }) => {
      const changed = Buffer.from(hashes as Uint8Array);
      changed[40]! ^= 1;
      return { hashes: changed };
    }),
  "fingerprintsChanged 10:40",
);
tampering(
  "fingerprints deleted",
  ({ remove }) => remove("AuditDigests", "manifests", `${at("10:40")}|000000`),
  "fingerprintsChanged 10:40",
);
tampering(
  "fingerprints added to a part",
  async ({ get, put }) => {
    await put(
      "AuditDigests",
      "manifests",
      `${at("10:40")}|000001`,
      await get("AuditDigests", "manifests", `${at("10:40")}|000000`),
    );
  },
  "fingerprintsChanged 10:40",
);
tampering(
  "fingerprints of another type",
  ({ put }) => put("AuditDigests", "manifests", `${at("10:40")}|000000`, { hashes: "x" }),
  "fingerprintsChanged 10:40",
);
tampering(
  "fingerprints and entry changed together",
  async ({ change, entries }) => {
    const [key] = await entries("10:40");
    await change("AuditEntries", DAY, key!, ({ entry }) => ({
      entry: String(entry).replace('"success"', '"failure"'),
    }));
    await change("AuditDigests", "manifests", `${at("10:40")}|000000`, ({ hashes }) => {
      const changed = Buffer.from(hashes as Uint8Array);
      changed[40]! ^= 1;
      return { hashes: changed };
    });
  },
  "fingerprintsChanged 10:40",
  "entryChanged 10:40",
);
tampering(
  "fingerprints of 2099",
  ({ put }) => put("AuditDigests", "manifests", "2099-01-01T00:00Z|000000", { hashes: new Uint8Array(58) }),
  "fingerprintsChanged",
);
tampering(
  "fingerprints of no interval",
  ({ put }) => put("AuditDigests", "manifests", "!", { hashes: new Uint8Array(58) }),
  "fingerprintsChanged",
);

// --- the row with the first interval

for (const [name, columns] of [
  ["moved ahead of the newest digest", { interval: NEXT }],
  ["of 2099", { interval: "2099-01-01T00:00Z" }],
  ["of 1970", { interval: "1970-01-01T00:00Z" }],
  ["no interval", { interval: "x" }],
  ["of another type", { interval: 7 }],
  ["empty", {}],
] as [string, Columns][]) {
  tampering(
    `the first interval ${name}`,
    ({ put }) => put("AuditDigests", "first", "first", columns),
    "beginningChanged 10:00",
  );
}
tampering(
  "the first interval deleted",
  ({ remove }) => remove("AuditDigests", "first", "first"),
  "beginningChanged 10:00",
);
tampering(
  "another row beside the first interval",
  ({ put }) => put("AuditDigests", "first", "second", { interval: NEXT }),
  "beginningChanged 10:00",
);

// --- purge records

tampering(
  "a purge record's signature changed",
  ({ change }) =>
    change("AuditDigests", "purges", KEPT, ({ record }) => ({ record: `${String(record).slice(0, -4)}AAAA` })),
  "purgeRecordChanged 10:20",
  "digestMissing 10:00",
  "[markChanged 10:00]",
  "[markChanged 10:10]",
);
tampering(
  "a purge record deleted",
  ({ remove }) => remove("AuditDigests", "purges", KEPT),
  "digestMissing 10:00",
  "[markChanged 10:00]",
  "[markChanged 10:10]",
);
tampering(
  "a purge record inserted",
  ({ put }) => put("AuditDigests", "purges", at("10:40"), { record: "e30.e30.AA" }),
  "purgeRecordChanged 10:40",
);
tampering(
  "a purge record copied to a later interval",
  async ({ get, put }) => {
    await put("AuditDigests", "purges", at("10:40"), await get("AuditDigests", "purges", KEPT));
  },
  "purgeRecordChanged 10:40",
);
tampering(
  "a purge record of another type",
  ({ put }) => put("AuditDigests", "purges", at("10:40"), { record: 7 }),
  "purgeRecordChanged 10:40",
);

// --- records of older keys

tampering(
  "the voucher of an older key deleted",
  ({ remove }) => remove("AuditDigests", "keys", "k2|k1"),
  "digestUnverifiable 10:20",
  "digestUnverifiable 10:30",
);
tampering(
  "the voucher of an older key changed",
  ({ change }) =>
    change("AuditDigests", "keys", "k2|k1", ({ record }) => ({ record: `${String(record).slice(0, -4)}AAAA` })),
  "keyRecordChanged",
  "digestUnverifiable 10:20",
  "digestUnverifiable 10:30",
);
tampering(
  "a voucher that a stranger signed",
  ({ put }) =>
    put("AuditDigests", "keys", "k2|evil", {
      record: signStatement("audit-key", { kid: "evil", publicKey: "x" }, unknownKey),
    }),
  "keyRecordChanged",
);
tampering(
  "a voucher of another type",
  ({ put }) => put("AuditDigests", "keys", "k2|evil", { record: 7 }),
  "keyRecordChanged",
);

// --- the anchor in the key vault, and all rows at once

tampering(
  "the anchor unreadable",
  async ({ fixture }) => {
    fixture.anchor.digest = "unreadable";
  },
  "anchorChanged",
);
tampering(
  "the anchor of another log",
  async ({ fixture }) => {
    fixture.anchor.digest = { ...remembered(fixture), hash: "x" };
  },
  "digestsCut 11:00",
);
tampering(
  "the anchor of a log that began elsewhere",
  async ({ fixture }) => {
    fixture.anchor.digest = { ...remembered(fixture), beginning: { interval: "2025-01-01T00:00Z", hash: null } };
  },
  "beginningChanged 2025-01-01T00:00Z",
);
tampering(
  "everything deleted",
  async ({ remove, keys }) => {
    for (const [table, partitions] of PARTITIONS)
      for (const partition of partitions)
        for (const key of await keys(table, partition)) await remove(table, partition, key);
  },
  "digestsCut 11:00",
  "beginningChanged 10:00",
);

const remembered = ({ anchor }: Fixture) => anchor.digest as Exclude<typeof anchor.digest, undefined | "unreadable">;

// --- execution

let azurite: TestStorage;
let template: { fixture: Fixture; rows: { table: Table; partition: string; row: string; columns: Columns }[] };
const [k1, k2] = [makeKey("k1"), makeKey("k2")];

beforeAll(async () => {
  azurite = await openStorage(["template", ...cases.map((_, index) => `case${index}`)]);
  const fixture = openFixture(azurite.connectionString("template"), { minimumRetentionDays: 0 });
  const [first, second] = [fixture.instance({ keys: [k1] }), fixture.instance({ keys: [k2, k1] })];
  const enter = async (time: string, actor: string) => {
    fixture.clock.set(at(time));
    await first.append(by(actor));
  };
  await enter("10:00", "purged");
  await enter("10:21", "ada");
  await enter("10:22", "bob");
  fixture.clock.set(at("10:43"));
  await first.seal();
  await enter("10:45", "ada");
  fixture.clock.set(at("10:55"));
  await first.refused(event({ type: "access.refused", outcome: "refused" }));
  fixture.clock.set(at("11:12"));
  await second.seal();
  // A purge of the next day, whose own audit entries would disturb the comparison.
  const clock = settableClock("2026-11-22T10:25:00Z");
  const trust = createTrust(fixture.tables, [k2]);
  const nothing = { append: async () => {}, minimumRetentionDays: 1 };
  await purgeSealed({ tables: fixture.tables, clock, trust, ...nothing }, 1, { actor: "admin", requestId: "req-9" });
  const rows = [];
  for (const [table, partitions] of PARTITIONS) {
    for (const partition of partitions) {
      for await (const found of fixture.tables.pages(ROWS[table], { partitionKey: partition })) {
        for (const { partitionKey, rowKey, etag, ...columns } of found)
          rows.push({ table, partition, row: rowKey, columns });
      }
    }
  }
  template = { fixture, rows };
});
afterAll(() => azurite.stop());

async function copyOf(index: number): Promise<Copy> {
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
    const found: string[] = [];
    for await (const rows of fixture.tables.pages(ROWS[table], { partitionKey: partition, select: [] }))
      found.push(...rows.map(({ rowKey }) => rowKey));
    return found;
  };
  const get = async (table: Table, partition: string, row: string) => {
    const { partitionKey, rowKey, etag, ...columns } = (await fixture.tables.get(ROWS[table], partition, row))!;
    return columns as Columns;
  };
  const put_ = async (table: Table, partition: string, row: string, columns: Columns) =>
    void (await fixture.tables.put(ROWS[table], partition, row, columns));
  return {
    fixture,
    audit: fixture.instance({ keys: [k2] }),
    get,
    put: put_,
    change: async (table, partition, row, change) =>
      put_(table, partition, row, change(await get(table, partition, row))),
    remove: async (table, partition, row) => void (await fixture.tables.remove(ROWS[table], partition, row)),
    keys,
    entries: async (time) => (await keys("AuditEntries", DAY)).filter((key) => key.startsWith(time)),
  };
}

const brief = ({ kind, interval }: Finding): string =>
  `${kind}${interval === undefined ? "" : ` ${interval.replace(`${DAY}T`, "").replace(/^(\d\d:\d\d)Z$/, "$1")}`}`;

async function offline(audit: Audit): Promise<string[]> {
  const files = (await exportAll(audit)).map((part) => JSON.parse(part));
  return (await verifyExport(files, publicKeys(k2))).findings.map(brief);
}

test("the log is intact before the manipulation", async () => {
  const { audit } = await copyOf(0);
  expect((await audit.verify({})).findings).toEqual([]);
  expect(await offline(audit)).toEqual([]);
  expect(cases.length).toBeGreaterThanOrEqual(60);
});

/** Cases after which sealing and lists are tested, too; in a campaign, all cases. */
const goingOn = new Set(sampled([...cases.keys()], 30));

for (const [index, { name, tamper, found }] of cases.entries()) {
  test(name, async () => {
    const copy = await copyOf(index);
    const { fixture, audit } = copy;
    await tamper(copy);

    const online = await audit.verify({});
    expect(online.findings.map(brief).sort()).toEqual(found.map((text) => text.replace(/^\[|\]$/g, "")).sort());
    expect(online.intact).toBe(found.length === 0);
    expect((await offline(audit)).sort()).toEqual(found.filter((text) => !text.startsWith("[")).sort());

    // The service continues to work.
    if (!goingOn.has(index)) return;
    await audit.list({}, page());
    await audit.append(by("after"));
    fixture.clock.set("2026-11-21T11:52:00Z");
    const sealed = await audit.seal();
    expect(sealed.sealed).toBeGreaterThan(0);
    const after = await audit.verify({});
    expect(after.lastDigest?.interval).toBe(at("11:40"));
    expect(after.intact).toBe(found.length === 0);
    expect((await audit.list({ actor: "after" }, page())).items).toHaveLength(1);
  });
}
