import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { repairWholeIndex } from "../../shared/audit/index-repair.ts";
import { indexKeys } from "../../shared/audit/rows.ts";
import { ACTIVE } from "../../shared/discovery/scan.ts";
import { PendingWrites, pendingPrefix, VAULTS } from "../../shared/inventory/vault.ts";
import { withoutKeys } from "../../shared/platform/storage/entity.ts";
import { pack } from "../../shared/platform/storage/packed-members.ts";
import type { RowKeys } from "../../shared/platform/storage/signing.ts";
import { RowChanged, RowExists, type Tables } from "../../shared/platform/storage/tables.ts";
import { DAY_MS, MINUTE_MS } from "../../shared/platform/time.ts";
import {
  findPointerFaults,
  type PointedRecords,
  ROTATION_POINTERS,
  SYNC_POINTERS,
} from "../../shared/reconciliation/pointers.ts";
import { POLICIES, Policies } from "../../shared/rotation/policy.ts";
import { ROTATIONS, type RotationRecord } from "../../shared/rotation/rotation.ts";
import { createRotationRows, recordKey as rotationKey } from "../../shared/rotation/rows.ts";
import { keyOfTarget, removalOperations } from "../../shared/sync/indexes.ts";
import {
  Configurations,
  DueRows,
  dueKey,
  Records,
  References,
  recordKey,
  SYNC,
  type SyncRecord,
  sourceKey,
} from "../../shared/sync/record.ts";
import { createScanFixture, firstThousand, type ScanFixture } from "../discovery/scan-fixture.ts";
import { vaultRecord, writeVault } from "../inventory/write-assets.ts";
import { type MovedStorage, startMovedStorage } from "../support/moved-storage.ts";
import { columnsOf, openReconciliation, type ReconciliationFixture } from "./reconciliation-fixture.ts";

/**
 * Tests of the walk's checks outside of the inventory. The tests delete rows of each kind, make them unreadable, or invent rows,
 * one after the other. One walk then restores rows that follow from other rows, and reports signed rows.
 *
 * A walk is one pass of the reconciliation, which compares all stored rows with each other. A pointer is a row whose key
 * contains a value of a record, such as its target or its due time, and that names the record. Row keys of pointers: of
 * rotations `d|` due time and `u|` unfinished rotation of an application; of sync records `d|` due time, `s|` source and `t|`
 * target.
 */

const KEY = new Uint8Array(32).fill(9);
const keys: RowKeys = {
  current: async () => ({ name: "k1", key: KEY }),
  named: async (name) => (name === "k1" ? KEY : undefined),
};
const APP = "aaaaaaaa-0000-4000-8000-000000000001";

let storage: MovedStorage;
let scans: ScanFixture;
let fixture: ReconciliationFixture;
/** IDs of audit entries: of an interval that is sealed, and of one that is not. */
let [sealedId, unsealedId] = ["", ""];
let rotationId: string;
const syncRecord: SyncRecord = {
  recordId: "01KAAAAAAAAAAAAAAAAAAAAAAA",
  sourceVault: "kv-source",
  sourceSecret: "password",
  targetProvider: "azure",
  targetService: "keyVault",
  targetName: "kv-target/password",
  scheduleHours: 24,
  enabled: true,
  onDrift: "overwrite",
  adopt: false,
  state: "inSync",
  targetOwned: true,
  failedRuns: 0,
  nextRunAt: "2026-12-24T10:00:00.000Z",
  requests: 0,
  createdAt: "2026-11-21T10:00:00.000Z",
  createdBy: "admin",
  updatedAt: "2026-11-21T10:00:00.000Z",
  updatedBy: "admin",
};

beforeAll(async () => {
  storage = await startMovedStorage(["walked"]);
  const connection = storage.azurite.connectionString("walked");
  scans = createScanFixture(connection);
  fixture = openReconciliation(connection, undefined, 0, keys);
  // `|`, `!` and `%` are escaped in row keys.
  const entry = (type: string) =>
    scans.audit.append({ type, caller: { actor: "eve|!%", requestId: "r" }, outcome: "success" });
  const idOf = async (type: string) => (await scans.auditEntriesOf(type))[0]!.id;
  await entry("test.early");
  sealedId = await idOf("test.early");
  await storage.move(2 * DAY_MS);
  await scans.syncClock();
  await scans.audit.seal();
  await entry("test.late");
  unsealedId = await idOf("test.late");
  await scans.startAndPlan();
  rotationId = "01KCCCCCCCCCCCCCCCCCCCCCCC";
  await plantRotation(rotationId, APP);
  await plantSyncRecord(syncRecord);
  await storage.move(2 * MINUTE_MS);
  await fixture.walk();
}, 120_000);
afterAll(() => storage?.stop());

const openRotationRows = () =>
  createRotationRows({
    tables: fixture.tables,
    clock: scans.clock,
    randomness: { ulid: () => "01KBBBBBBBBBBBBBBBBBBBBBBB" } as never,
  });

async function plantRotation(id: string, appId: string): Promise<void> {
  const now = new Date(scans.clock.now());
  const rotation: Omit<RotationRecord, "writeId"> = {
    rotationId: id,
    appId,
    objectId: APP,
    appName: "Payments",
    oldKeyId: APP,
    status: "creating",
    automatic: false,
    requestedBy: "admin",
    createdAt: now.toISOString(),
    needsConfirmation: false,
    expiryDays: 90,
    overlapDays: 7,
    updateKeyVaults: true,
    knownKeyIds: [],
    attempts: [],
    publications: [],
    notUpdated: [],
    notes: [],
    coverage: [],
    reasons: [],
    steps: [],
    dueAt: new Date(now.getTime() + DAY_MS).toISOString(),
    failures: 0,
    requestId: "request",
  };
  await openRotationRows().insert(rotation, false);
}

async function plantSyncRecord(record: SyncRecord): Promise<void> {
  const { tables } = fixture;
  const { recordId } = record;
  await tables.put(Records, SYNC, recordKey(recordId), record);
  await tables.put(DueRows, SYNC, dueKey(record.nextRunAt!, recordId), {});
  for (const key of [sourceKey(record), keyOfTarget(record)]) await tables.put(References, SYNC, key, { recordId });
}

const newestWalk = async () => (await fixture.reconciliation.status()).newest!;
const eventTypes = () => fixture.events.splice(0).map(({ type, outcome }) => `${type} ${outcome}`);
const readRaw = async (table: string, partitionKey: string, rowKey: string) =>
  columnsOf(await fixture.raw(table).getEntity(partitionKey, rowKey));

/** A row that follows from other rows. */
interface DerivedRow {
  table: string;
  partitionKey: string;
  rowKey: string;
  /** Columns that no version of the service writes. */
  garbage: object;
  event: string;
}

async function derivedRows(): Promise<DerivedRow[]> {
  const indexRows = async (id: string) => {
    const entry = (await scans.audit.list({}, firstThousand)).items.find((one) => one.id === id)!;
    return indexKeys(entry).map((rowKey) => ({
      table: "AuditIndex",
      partitionKey: "entries",
      rowKey,
      garbage: { id: 7 },
      event: "audit.indexMended",
    }));
  };
  const pointer = { event: "storage.mended" };
  const rotation = { table: "Rotations", partitionKey: ROTATIONS, garbage: { rotationId: 7 }, ...pointer };
  const sync = { table: "Sync", partitionKey: SYNC, garbage: { recordId: 7, sentAt: 7 }, ...pointer };
  const keysOf = async (table: string, prefix: string) => {
    const found: string[] = [];
    for await (const { rowKey } of fixture.raw(table).listEntities())
      if (rowKey!.startsWith(prefix)) found.push(rowKey!);
    return found;
  };
  const [rotationDue, unfinished] = [await keysOf("Rotations", "d|"), await keysOf("Rotations", "u|")];
  expect([rotationDue.length, unfinished.length]).toEqual([1, 1]);
  return [
    { table: "Scans", partitionKey: ACTIVE, rowKey: ACTIVE, garbage: { scans_json: "[{}]" }, event: "scans.mended" },
    ...(await indexRows(sealedId)),
    ...(await indexRows(unsealedId)),
    ...[...rotationDue, ...unfinished].map((rowKey) => ({ ...rotation, rowKey })),
    ...[dueKey(syncRecord.nextRunAt!, syncRecord.recordId), sourceKey(syncRecord), keyOfTarget(syncRecord)].map(
      (rowKey) => ({ ...sync, rowKey }),
    ),
  ];
}

test("a walk finds no fault in the rows that the service wrote", async () => {
  fixture.events.splice(0);
  await fixture.walk();
  expect(fixture.events).toEqual([]);
  expect(fixture.reported).toEqual([]);
  const { mended, leftTotal, unverified, unreadable } = await newestWalk();
  expect([Object.values(mended), leftTotal, unverified, unreadable]).toEqual([[0, 0, 0, 0, 0, 0], 0, 0, 0]);
});

describe("one walk rebuilds", () => {
  test.each(["deleted", "unreadable"])(
    "each row that follows from others and is %s",
    async (fault) => {
      const rows = await derivedRows();
      // The list of active scans, four index rows of each audit entry, and the pointers of the rotation and of the sync record.
      expect(rows.length).toBe(1 + 4 + 4 + 2 + 3);
      for (const { table, partitionKey, rowKey, garbage, event } of rows) {
        const where = `${table} ${rowKey}`;
        const before = await readRaw(table, partitionKey, rowKey);
        if (fault === "deleted") await fixture.raw(table).deleteEntity(partitionKey, rowKey);
        else await fixture.raw(table).upsertEntity({ partitionKey, rowKey, ...garbage }, "Replace");
        await fixture.walk();
        // The rebuilt list of active scans lets the next end of a scan look for re-scans that wait.
        const comparable = table === "Scans" ? { ...before, looksWait: expect.anything() } : before;
        expect(await readRaw(table, partitionKey, rowKey), where).toEqual(comparable);
        expect(eventTypes(), where).toEqual([`${event} intent`, `${event} success`]);
        const { mended } = await newestWalk();
        expect(mended.missing + mended.unreadable, where).toBe(1);
      }
      await fixture.walk();
      expect(eventTypes()).toEqual([]);
    },
    300_000,
  );

  test("a pointer that names another record", async () => {
    const [, unfinished] = (await derivedRows()).filter(({ table }) => table === "Rotations");
    const { table, partitionKey, rowKey } = unfinished!;
    const before = await readRaw(table, partitionKey, rowKey);
    const other = { partitionKey, rowKey, rotationId: "01KDDDDDDDDDDDDDDDDDDDDDDD" };
    await fixture.raw(table).upsertEntity(other, "Replace");
    await fixture.walk();
    expect(await readRaw(table, partitionKey, rowKey)).toEqual(before);
    expect((await newestWalk()).mended.stale).toBe(1);
    fixture.events.splice(0);
  });
});

describe("one walk removes", () => {
  test("invented rows of the audit index, of a sealed interval, of an unsealed one and without a valid key", async () => {
    const { items } = await scans.audit.list({}, firstThousand);
    const invented: string[] = ["all|nonsense"];
    for (const id of [sealedId, unsealedId]) {
      const entry = items.find((one) => one.id === id)!;
      // The first ten characters of an ID are its time, so the invented entry lies in the same interval.
      const other = { ...entry, id: `${id.slice(0, 10)}ABCDEFGHJKMNPQRS`, actor: "mallory" };
      for (const rowKey of indexKeys(other)) {
        invented.push(rowKey);
        await fixture.raw("AuditIndex").upsertEntity({ partitionKey: "entries", rowKey, id: other.id }, "Replace");
      }
    }
    await fixture.raw("AuditIndex").upsertEntity({ partitionKey: "entries", rowKey: invented[0]!, id: "x" }, "Replace");
    await fixture.walk();
    expect((await newestWalk()).mended).toMatchObject({ missing: 0, extra: invented.length });
    const left = new Set<string>();
    for await (const { rowKey } of fixture.raw("AuditIndex").listEntities()) left.add(rowKey!);
    expect(invented.filter((key) => left.has(key))).toEqual([]);
    const [intent] = fixture.events.splice(0);
    expect(intent).toMatchObject({ type: "audit.indexMended", details: { extra: invented.length } });
    expect((intent!.details as { rows: string[] }).rows.sort()).toEqual(invented.sort());
  });

  test("due rows and pointers without a record, and keeps those of a record that can't be read", async () => {
    const { tables, raw } = fixture;
    const ghost = "01KEEEEEEEEEEEEEEEEEEEEEEE";
    await tables.put(DueRows, SYNC, dueKey("2026-11-24T10:00:00.000Z", ghost), {});
    await tables.put(References, SYNC, `s|kv-ghost|password|${ghost}`, { recordId: ghost });
    const row = await raw("Rotations").getEntity(ROTATIONS, rotationKey(rotationId));
    const [due] = (await derivedRows()).filter(({ table }) => table === "Rotations");
    // The changed row does not match its signature.
    await raw("Rotations").updateEntity({ partitionKey: ROTATIONS, rowKey: row.rowKey!, status: "failed" }, "Merge");
    await fixture.walk();
    const { mended, unverified } = await newestWalk();
    expect([mended.extra, unverified]).toEqual([2, 1]);
    expect(await tables.get(DueRows, SYNC, dueKey("2026-11-24T10:00:00.000Z", ghost))).toBeUndefined();
    expect(await readRaw("Rotations", ROTATIONS, due!.rowKey)).toMatchObject({ rotationId });
    await raw("Rotations").upsertEntity({ ...columnsOf(row), partitionKey: ROTATIONS, rowKey: row.rowKey! }, "Replace");
    fixture.events.splice(0);
  });

  test("announced writes of vaults that do not exist", async () => {
    const { tables, writer } = fixture;
    await writeVault(writer, vaultRecord("kv-there"), []);
    for (const vault of ["kv-there", "kv-gone"])
      await tables.put(PendingWrites, VAULTS, `${pendingPrefix(vault)}000`, { entries: pack([]) });
    await fixture.walk();
    expect(await tables.get(PendingWrites, VAULTS, `${pendingPrefix("kv-gone")}000`)).toBeUndefined();
    expect(await tables.get(PendingWrites, VAULTS, `${pendingPrefix("kv-there")}000`)).toBeDefined();
    expect((await newestWalk()).mended.extra).toBe(1);
    fixture.events.splice(0);
  });
});

describe("a pointer that was written after the walk read it is not overwritten", () => {
  const key = () => keyOfTarget(syncRecord);
  /** Returns what the row contains after a worker writes it between the walk's read and its repair. */
  async function afterLateRepair(garbage: object) {
    const { tables, raw } = fixture;
    await raw("Sync").upsertEntity({ partitionKey: SYNC, rowKey: key(), ...garbage }, "Replace");
    const { faults } = await findPointerFaults(tables, SYNC_POINTERS);
    expect(faults.map((fault) => fault.key)).toEqual([key()]);
    await tables.put(References, SYNC, key(), { recordId: "written" });
    const repair = tables.transaction(References.table, SYNC, [faults[0]!.repair]);
    await expect(repair).rejects.toBeInstanceOf(RowChanged);
    return (await tables.get(References, SYNC, key()))!.recordId;
  }

  test.each([
    ["unreadable", { recordId: 7 }],
    ["stale", { recordId: "01KDDDDDDDDDDDDDDDDDDDDDDD" }],
  ])("%s", async (_, garbage) => {
    expect(await afterLateRepair(garbage)).toBe("written");
    await fixture.tables.put(References, SYNC, key(), { recordId: syncRecord.recordId });
  });

  test("missing", async () => {
    const { tables } = fixture;
    await tables.remove(References, SYNC, key());
    const { faults } = await findPointerFaults(tables, SYNC_POINTERS);
    await tables.put(References, SYNC, key(), { recordId: "written" });
    const repair = tables.transaction(References.table, SYNC, [faults[0]!.repair]);
    await expect(repair).rejects.toBeInstanceOf(RowExists);
    await tables.put(References, SYNC, key(), { recordId: syncRecord.recordId });
  });
});

test("signed rows that another program changed are counted, and neither used nor removed", async () => {
  const { tables, raw } = fixture;
  const policy = {
    appId: APP,
    appName: "Payments",
    automatic: true,
    overlapDays: 7,
    updateKeyVaults: true,
    targets: [],
    updatedAt: "2026-11-21T10:00:00.000Z",
    updatedBy: "admin",
  };
  const at = "2026-11-21T10:00:00.000Z";
  const configuration = {
    provider: "azure",
    settings: {},
    secretsSet: [],
    revision: "1",
    createdAt: at,
    checkedAt: at,
    updatedAt: at,
    updatedBy: "admin",
  };
  await tables.put(Policies, POLICIES, APP, policy);
  await tables.put(Configurations, SYNC, "p|azure", configuration);
  await fixture.walk();
  expect((await newestWalk()).unverified).toBe(0);
  await raw("RotationPolicies").updateEntity({ partitionKey: POLICIES, rowKey: APP, overlapDays: 1 }, "Merge");
  await raw("Sync").updateEntity({ partitionKey: SYNC, rowKey: "p|azure", revision: "2" }, "Merge");
  await raw("Sync").updateEntity(
    { partitionKey: SYNC, rowKey: recordKey(syncRecord.recordId), sourceVault: "kv-x" },
    "Merge",
  );
  await fixture.walk();
  const { mended, unverified } = await newestWalk();
  expect([Object.values(mended), unverified]).toEqual([[0, 0, 0, 0, 0, 0], 3]);
  expect(await readRaw("Sync", SYNC, "p|azure")).toMatchObject({ revision: "2" });
  expect(fixture.events).toEqual([]);
});

describe("a pointer is right if its record was replaced while the walk read", () => {
  /** Returns the wrong pointers that a walk finds if the records change after it read them, before it reads the pointers. */
  async function faultsAfterChange<T>(records: PointedRecords<T>, change: () => Promise<void>) {
    const { tables } = fixture;
    let changing: Promise<void> | undefined;
    async function* pages(...[entity, range]: Parameters<Tables["pages"]>) {
      if ((entity as unknown) !== records.entity) {
        changing ??= change();
        await changing;
      }
      yield* tables.pages(entity, range);
    }
    return (await findPointerFaults({ ...tables, pages } as Tables, records)).faults;
  }

  test("by the next rotation of the same application", async () => {
    const [ended, next, app] = ["01KFFFFFFFFFFFFFFFFFFFFFFF", "01KGGGGGGGGGGGGGGGGGGGGGGG", `${APP.slice(0, -1)}2`];
    await plantRotation(ended, app);
    const faults = await faultsAfterChange(ROTATION_POINTERS, async () => {
      const rows = openRotationRows();
      const row = (await rows.get(ended))!;
      await rows.save(row, { ...withoutKeys(row), status: "completed" });
      await plantRotation(next, app);
    });
    expect(faults).toEqual([]);
  });

  test("by another sync record of the same target", async () => {
    const { tables } = fixture;
    const deleted = { ...syncRecord, recordId: "01KFFFFFFFFFFFFFFFFFFFFFFF", targetName: "kv-target/other" };
    await plantSyncRecord(deleted);
    const faults = await faultsAfterChange(SYNC_POINTERS, async () => {
      const row = (await tables.get(Records, SYNC, recordKey(deleted.recordId)))!;
      await tables.transaction(Records.table, SYNC, removalOperations(row));
      await plantSyncRecord({ ...deleted, recordId: "01KGGGGGGGGGGGGGGGGGGGGGGG" });
    });
    expect(faults).toEqual([]);
  });
});

test("a worker whose clock is days behind removes no index row of newer audit entries", async () => {
  const clock = { now: () => new Date(Number(scans.clock.now()) - 3 * DAY_MS) };
  const audit = { append: async () => {} };
  const { missing, extra } = await repairWholeIndex(
    { tables: fixture.tables, clock, audit },
    { actor: "system", requestId: "r" },
    {},
  );
  expect([missing, extra]).toEqual([0, 0]);
});
