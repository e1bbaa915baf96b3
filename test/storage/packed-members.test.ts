import { randomUUID } from "node:crypto";
import { deflateRawSync } from "node:zlib";
import { TableClient } from "@azure/data-tables";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import * as z from "zod";
import { DELIVERY_ROW, Deliveries, type DeliveryRecord, itemsIn } from "../../shared/alerts/delivery.ts";
import { readVaultSnapshot, VaultVersions } from "../../shared/alerts/vault-changes.ts";
import { NewViolationRows, newViolationsKey, STATE } from "../../shared/compliance/compliance-rows.ts";
import { packNewViolations } from "../../shared/compliance/packed-results.ts";
import { type AssetUseRecord, AssetUses, assetUseKey, readersOf } from "../../shared/dependencies/logs/rows.ts";
import { DEPENDENCIES, packEdges, Resources, resourceKey, unpackEdges } from "../../shared/dependencies/rows.ts";
import { changeOperations, listChanges } from "../../shared/inventory/change-log.ts";
import { PendingWrites, pendingPrefix, VAULTS, Vaults, vaultKey } from "../../shared/inventory/vault.ts";
import { readStoredVault } from "../../shared/inventory/vault-claim.ts";
import { entity } from "../../shared/platform/storage/entity.ts";
import { pack, unpack } from "../../shared/platform/storage/packed-members.ts";
import { createTables, put, StorageCorrupt, type Tables } from "../../shared/platform/storage/tables.ts";
import { readLastScans, recordLastScan } from "../../shared/subscriptions/last-scans.ts";
import { assetRecord, START, vaultRecord } from "../inventory/write-assets.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";

// Packed members are members of rows that are stored as compressed JSON in a binary column. Invalid bytes in such a column must
// cause an error that names the row but does not contain the value.

let azurite: TestStorage;
let tables: Tables;
beforeAll(async () => {
  azurite = await openStorage();
  tables = createTables({ connectionString: azurite.connectionString() });
});
afterAll(() => azurite?.stop());

/** Text in the invalid bytes, which no error message may contain. */
const VALUE = "what-no-message-repeats";
/** Invalid bytes: not created by `pack`, or packed from a value of another shape. */
const GARBAGE: [what: string, bytes: Uint8Array][] = [
  ["text", Buffer.from(VALUE)],
  ["nothing", new Uint8Array()],
  ["deflated text", deflateRawSync(VALUE)],
  ["a packed value of another shape", pack([{ [VALUE]: VALUE }])],
];
/** A value that is larger than any that is written, although its compressed bytes are few. */
const TOO_LARGE: (typeof GARBAGE)[number] = ["65 MiB of spaces", deflateRawSync(Buffer.alloc(65 * 1024 * 1024, " "))];

describe("a packed member", () => {
  const Packed = entity("Packed", z.object({ bytes: z.instanceof(Uint8Array) }));
  const keys = { partitionKey: "p", rowKey: "r", etag: "e" };

  test("is returned unchanged", () => {
    const value = [["a", 1, null]];
    const schema = z.array(z.tuple([z.string(), z.number(), z.null()]));
    expect(unpack(Packed, { ...keys, bytes: pack(value) }, "bytes", schema)).toEqual(value);
  });

  test.for([...GARBAGE, TOO_LARGE])(
    "that is %s is rejected with the name of its row and without its value",
    ([, bytes]) => {
      const read = () => unpack(Packed, { ...keys, bytes }, "bytes", z.array(z.string()));
      expect(read).toThrow(StorageCorrupt);
      expect(read).toThrow(/^Row p \/ r of Packed can't be read: bytes/);
      expect(read).not.toThrow(VALUE);
    },
  );
});

/** A packed member of the service's rows. */
interface PackedMember {
  what: string;
  table: string;
  member: string;
  /** Writes a row, which must be the only one in the table with this member. */
  write: () => Promise<unknown>;
  /** Reads the member as the service does. */
  read: () => Promise<unknown>;
}

const vault = vaultRecord("planted");
const FIRST_PAGE = { limit: 10, offset: 0, cursor: undefined };
const NOW = new Date(START).toISOString();
const WORKSPACE = randomUUID();
const RESOURCE = resourceKey("unit", "resource");
const use: AssetUseRecord = { vaultName: vault.name, type: "secret", name: "read", lastAt: NOW, readers: pack([]) };
const delivery: DeliveryRecord = {
  deliveryId: "01ARZ3NDEKTSV4RRFFQ69G5FAV",
  ruleId: "01ARZ3NDEKTSV4RRFFQ69G5FAV",
  ruleName: "expiring",
  alertType: "expiration",
  deliveryMethod: "email",
  deliveryMode: "immediate",
  test: false,
  requestedBy: "system",
  createdAt: NOW,
  status: "pending",
  parts: [],
  nextAt: NOW,
  revivals: 0,
  newsTotal: 0,
  news: pack([]),
};
const PACKED_MEMBERS: PackedMember[] = [
  {
    what: "the change log",
    table: Vaults.table,
    member: "items",
    write: () => {
      const after = assetRecord(vault, "secret", "added", {});
      const change = { kind: "added" as const, type: "secret" as const, name: "added", before: undefined, after };
      return tables.write(Vaults.table, VAULTS, [...changeOperations(vault, [change], new Date(START)).rows]);
    },
    read: () => listChanges(tables, {}, FIRST_PAGE),
  },
  {
    what: "the pending writes of a crashed worker",
    table: Vaults.table,
    member: "entries",
    write: async () => {
      await tables.put(Vaults, VAULTS, vaultKey(vault.name), { ...vault, pending: true });
      const pendingWrite = pack([["secret", "added", null]]);
      await tables.write(Vaults.table, VAULTS, [
        put(PendingWrites, `${pendingPrefix(vault.name)}000`, { entries: pendingWrite }),
      ]);
    },
    read: () => readStoredVault(tables, vault.name),
  },
  {
    what: "the last scans of subscriptions",
    table: "Subscriptions",
    member: "scans",
    write: () =>
      recordLastScan(tables, {
        scanId: randomUUID(),
        status: "completed",
        finishedAt: NOW,
        subscriptionOutcomes: [{ subscriptionId: vault.subscriptionId, vaults: 1 }],
      } as Parameters<typeof recordLastScan>[1]),
    read: () => readLastScans(tables),
  },
  {
    what: "the snapshot of vaults for alert rules",
    table: "AlertStates",
    member: "versions",
    write: () => readVaultSnapshot(tables, true),
    // The evaluation of the rules replaces versions that can't be read.
    read: () => tables.get(VaultVersions, "vaultVersions", "vaultVersions"),
  },
  {
    what: "the items of a delivery",
    table: Deliveries.table,
    member: "news",
    write: () => tables.put(Deliveries, delivery.deliveryId, DELIVERY_ROW, delivery),
    read: async () => itemsIn((await tables.get(Deliveries, delivery.deliveryId, DELIVERY_ROW))!),
  },
  {
    what: "new violations",
    table: NewViolationRows.table,
    member: "items",
    write: () => {
      const { name, id, subscriptionId } = vault;
      // The code of the check, the name of the asset, the start of the violation, and tags.
      const items = packNewViolations([[1, "added", 1_700_000_000, {}]]);
      const key = newViolationsKey(NOW, name, "write", 0);
      return tables.put(NewViolationRows, STATE, key, { name, vaultId: id, subscriptionId, items });
    },
    // The evaluation of the rules leaves out rows that can't be read.
    read: () => tables.get(NewViolationRows, STATE, newViolationsKey(NOW, vault.name, "write", 0)),
  },
  {
    what: "the readers of an asset",
    table: AssetUses.table,
    member: "readers",
    write: () => tables.put(AssetUses, WORKSPACE, assetUseKey(use), use),
    read: async () => readersOf((await tables.get(AssetUses, WORKSPACE, assetUseKey(use)))!),
  },
  {
    what: "the edges of a resource",
    table: Resources.table,
    member: "edges",
    write: () =>
      tables.put(Resources, DEPENDENCIES, RESOURCE, {
        id: "/subscriptions/s/app",
        hash: "h",
        edges: packEdges(new Map([["e", 1]])),
        count: 1,
      }),
    read: async () => unpackEdges((await tables.get(Resources, DEPENDENCIES, RESOURCE))!),
  },
];

test.for(PACKED_MEMBERS)(
  "garbage in $what throws an error that names the row",
  async ({ table, member, write, read }) => {
    await write();
    await read();
    const directClient = TableClient.fromConnectionString(azurite.connectionString(), table, {
      allowInsecureConnection: true,
    });
    const rows: { partitionKey: string; rowKey: string; [member: string]: unknown }[] = [];
    for await (const row of directClient.listEntities<Record<string, Uint8Array>>())
      if (row[member] !== undefined) rows.push(row as (typeof rows)[number]);
    expect(rows).toHaveLength(1);
    const { partitionKey, rowKey, [member]: validBytes } = rows[0]!;
    for (const [, bytes] of GARBAGE) {
      await directClient.updateEntity({ partitionKey, rowKey, [member]: bytes }, "Merge");
      const error = await read().then(
        () => undefined,
        (reason: unknown) => reason,
      );
      expect(error).toBeInstanceOf(StorageCorrupt);
      expect(error).toMatchObject({ table, partitionKey, rowKey });
      expect(String(error)).toContain(member);
      expect(String(error)).not.toContain(VALUE);
    }
    await directClient.updateEntity({ partitionKey, rowKey, [member]: validBytes }, "Merge");
    await read();
  },
);
