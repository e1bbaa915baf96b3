import { deflateRawSync, inflateRawSync } from "node:zlib";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { ASSET_CHECKS } from "../../shared/compliance/checks/all.ts";
import { detailsKey, findingsKey, STATE, vaultStateKey } from "../../shared/compliance/compliance-rows.ts";
import { unpackDetails, unpackFindings } from "../../shared/compliance/packed-results.ts";
import { ASSET_TYPES, type AssetRecord, Assets, type AssetType, contentHash } from "../../shared/inventory/asset.ts";
import { expiryKey, indexKeys, nameKey, partitions } from "../../shared/inventory/asset-keys.ts";
import { VAULTS as VAULTS_PARTITION, Vaults, vaultInSubscriptionKey } from "../../shared/inventory/vault.ts";
import { withoutKeys } from "../../shared/platform/storage/entity.ts";
import { DAY_SECONDS } from "../../shared/platform/time.ts";
import { vaultRecord, writeVault } from "../inventory/write-assets.ts";
import { Service } from "../support/service.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import { rowKeysOf } from "../support/users.ts";
import {
  columnsOf,
  companyOf,
  differences,
  openReconciliation,
  type ReconciliationFixture,
  SUBSCRIPTIONS,
  snapshot,
} from "./reconciliation-fixture.ts";

/**
 * Tests that the reconciliation finds and repairs faults in stored rows. The tests write wrong rows directly into storage,
 * after a scan wrote right ones, and run the reconciliation. A walk compares all rows once, in many short runs.
 *
 * Every asset has several rows: in the partition of its vault, of its subscription and of all assets, in each one by name and
 * one by expiry. The row by name in the vault's partition is the original (called the asset's own row). The others are copies.
 */

/** Vaults in whose copies of asset rows faults are planted. The vaults below are for one special fault each. */
const COPIED = Array.from({ length: 12 }, (_, index) => `kv-copied-${index}`);
/** Vaults in whose assets' own rows faults are planted, one vault for each kind of fault. */
const OWN = ["missing", "extra", "stale", "tampered", "unreadable"].map((kind) => `kv-own-${kind}`);
const VAULTS = [...COPIED, ...OWN, "kv-packed", "kv-lost", "kv-renamed"];
const KINDS = ["missing", "extra", "stale", "unreadable"] as const;
const NAMES: Record<AssetType, string[]> = {
  secret: ["password", "token", "forever"],
  key: ["signing", "wrapping"],
  certificate: ["tls", "internal"],
};

let service: Service;
let fixture: ReconciliationFixture;
/** All rows before faults are planted. */
let intactRows: Map<string, string>;
/** Descriptions of the planted faults. */
const plantedFaults: string[] = [];
/** Rows of assets with planted faults, as `<partition> <row key>`, like audit entries of repairs name them. */
const plantedRows: string[] = [];
/** Types whose first asset lost its own row in the vault `kv-own-missing`, as `!<type>!`. */
const typesWithRemovedRow: string[] = [];
/** Number of runs of the walk that repaired the faults. */
let runs: number;

const subscriptionOf = (vault: string): string => SUBSCRIPTIONS[VAULTS.indexOf(vault) % 2]!;

/** Returns an asset from its own row. */
async function assetOf(vault: string, type: AssetType, name: string): Promise<AssetRecord> {
  const row = await fixture.tables.get(Assets, partitions.vault(vault), nameKey(type, name, vault));
  return withoutKeys(row!);
}

/** Returns the asset with changed members and the matching hash. */
function changed(asset: AssetRecord, change: Partial<AssetRecord>): AssetRecord {
  const { content: _content, firstSeenAt, ...facts } = { ...asset, ...change };
  return { ...facts, firstSeenAt, content: contentHash(facts) };
}

const putAsset = (partition: string, key: string, asset: AssetRecord) =>
  fixture.tables.put(Assets, partition, key, asset);
const deleteRow = (table: string, partition: string, key: string) => fixture.raw(table).deleteEntity(partition, key);

/** Replaces a row with one that does not match its schema. */
const makeUnreadable = (table: string, partition: string, key: string, columns: object = { name: 7, tags_json: "{" }) =>
  fixture.raw(table).upsertEntity({ partitionKey: partition, rowKey: key, ...columns }, "Replace");

/**
 * Plants every kind of fault in the copies of asset rows: in each partition, by name and by expiry, for every type. A copy is
 * deleted (`missing`), added (`extra`), replaced by an older state (`stale`) or made `unreadable`.
 */
async function plantCopies(): Promise<void> {
  // Another asset for each fault, so that the repair of one does not repair the next.
  const pool = Object.fromEntries(
    ASSET_TYPES.map((type) => [type, NAMES[type].flatMap((name) => COPIED.map((vault) => ({ vault, name })))]),
  ) as Record<AssetType, { vault: string; name: string }[]>;
  let faultNumber = 0;
  for (const scope of ["all", "subscription", "vault"] as const) {
    for (const type of ASSET_TYPES) {
      for (const index of ["name", "expiry"] as const) {
        if (scope === "vault" && index === "name") continue; // the assets' own rows: see plantOwnRows
        for (const kind of KINDS) {
          const { vault, name } = pool[type].shift()!;
          faultNumber++;
          const asset = await assetOf(vault, type, name);
          const partition =
            scope === "all"
              ? partitions.all
              : scope === "subscription"
                ? partitions.subscription(subscriptionOf(vault))
                : partitions.vault(vault);
          // A certificate that is renewed has two rows instead of the one by expiry.
          const keys = index === "name" ? [nameKey(type, name, vault)] : indexKeys(asset, vault);
          const existingKey = keys[faultNumber % keys.length]!;
          // A row that a late write left: of a removed asset, or with an earlier expiry of an existing one (Unix seconds).
          const extraKey =
            index === "name"
              ? nameKey(type, `gone-${faultNumber}`, vault)
              : expiryKey(type, 1_700_000_000 + faultNumber, name, vault);
          const key = kind === "extra" ? extraKey : existingKey;
          if (kind === "missing") await deleteRow("Assets", partition, key);
          if (kind === "extra") await putAsset(partition, key, asset);
          if (kind === "stale") await putAsset(partition, key, changed(asset, { enabled: false, listing: "older" }));
          if (kind === "unreadable") await makeUnreadable("Assets", partition, key);
          plantedFaults.push(`${kind} ${partition} ${key}`);
          plantedRows.push(`${partition} ${key}`);
        }
      }
    }
  }
}

/** Plants faults in the assets' own rows, and in the packed list of expiry dates in a vault's row. */
async function plantOwnRows(): Promise<void> {
  for (const type of ASSET_TYPES) {
    const name = NAMES[type][0]!;
    for (const [kind, vault] of OWN.map((vault) => [vault.slice("kv-own-".length), vault] as const)) {
      const partition = partitions.vault(vault);
      const asset = await assetOf(vault, type, name);
      const key = nameKey(type, name, vault);
      if (kind === "missing") {
        await deleteRow("Assets", partition, key);
        // A certificate that is renewed has two rows instead of the one by expiry.
        const indexes = type === "certificate" ? ["-renewed", "-late", ""] : [""];
        typesWithRemovedRow.push(...indexes.map((index) => `!${type}${index}!`));
      }
      if (kind === "extra") {
        const deletedAsset = changed(asset, { name: "gone", listing: "older" });
        await putAsset(partition, nameKey(type, "gone", vault), deletedAsset);
        await putAsset(partition, expiryKey(type, deletedAsset.expiresOn, "gone", vault), deletedAsset);
      }
      if (kind === "stale") {
        const older = changed(asset, { expiresOn: (asset.expiresOn ?? 1_800_000_000) - DAY_SECONDS, listing: "older" });
        await putAsset(partition, key, older);
      }
      if (kind === "tampered") await putAsset(partition, key, { ...asset, tags: { owner: "mallory" } });
      if (kind === "unreadable") await makeUnreadable("Assets", partition, key);
      plantedFaults.push(`${kind} own ${partition} ${key}`);
    }
    const column = `${type}Expiries`;
    for (const key of ["n!kv-packed", `s!${subscriptionOf("kv-packed")}!kv-packed`]) {
      const row = await fixture.raw("Vaults").getEntity("vaults", key);
      const columns = { ...columnsOf(row), [column]: new Uint8Array(Uint32Array.of(1, 2, 3).buffer) };
      await fixture.raw("Vaults").upsertEntity({ ...columns, partitionKey: "vaults", rowKey: key }, "Replace");
    }
    plantedFaults.push(`packed expiries of ${type} in kv-packed`);
  }
}

/** Plants rows of vaults and subscriptions that the inventory does not have, rows in a wrong partition, and invalid keys. */
async function plantUnknownRows(): Promise<void> {
  const asset = await assetOf(COPIED[0]!, "secret", "password");
  const rows: [string, string, AssetRecord][] = [];
  const add = (partition: string, vault: string) => {
    // Another asset for each row, so that the repair of one does not repair the next.
    for (const index of ["name", "expiry"]) {
      const name = `unknown-${rows.length}`;
      const { expiresOn } = asset;
      const key = index === "name" ? nameKey("secret", name, vault) : expiryKey("secret", expiresOn, name, vault);
      rows.push([partition, key, changed(asset, { name, vaultName: vault })]);
    }
  };
  add(partitions.all, "kv-ghost");
  add(partitions.subscription(SUBSCRIPTIONS[0]), "kv-ghost");
  add(partitions.vault("kv-ghost"), "kv-ghost");
  add("sub:99999999-9999-4999-8999-999999999999", COPIED[0]!);
  add(partitions.subscription(SUBSCRIPTIONS[1]), COPIED[0]!);
  rows.push([partitions.all, "n!nonsense", asset], [partitions.all, "e!secret!soon!password!kv-copied-0", asset]);
  for (const [partition, key, row] of rows) {
    await putAsset(partition, key, row);
    plantedFaults.push(`extra ${partition} ${key}`);
    plantedRows.push(`${partition} ${key}`);
  }
}

/** Plants faults in rows of vaults. Each vault has its own row (`n!`) and a copy under its subscription (`s!`). */
async function plantVaultRows(): Promise<void> {
  const copyKey = (vault: string) => `s!${subscriptionOf(vault)}!${vault}`;
  const read = async (key: string) => columnsOf(await fixture.raw("Vaults").getEntity("vaults", key));
  await deleteRow("Vaults", "vaults", copyKey("kv-copied-1"));
  const stale = { ...(await read(copyKey("kv-copied-2"))), location: "elsewhere" };
  await fixture
    .raw("Vaults")
    .upsertEntity({ ...stale, partitionKey: "vaults", rowKey: copyKey("kv-copied-2") }, "Replace");
  const row = await read(copyKey("kv-copied-3"));
  const keyInOtherSubscription = `s!${subscriptionOf("kv-copied-2")}!kv-copied-3`;
  await fixture
    .raw("Vaults")
    .upsertEntity({ ...row, partitionKey: "vaults", rowKey: keyInOtherSubscription }, "Replace");
  await makeUnreadable("Vaults", "vaults", copyKey("kv-copied-4"));
  await makeUnreadable("Vaults", "vaults", "n!kv-lost");
  plantedFaults.push("missing copy", "stale copy", "extra copy", "unreadable copy", "unreadable vault");
}

/** Packs a value like the results of compliance checks are stored. */
const packed = (value: unknown): Uint8Array => new Uint8Array(deflateRawSync(JSON.stringify(value)));

/**
 * Plants faults in the compliance results of vaults. A vault has a row of its results, rows of details (the checks that each
 * asset passed and failed), and rows of findings (the assets that failed a check).
 */
async function plantResults(): Promise<void> {
  const table = fixture.raw("Compliance");
  const read = async (key: string) => columnsOf(await table.getEntity(STATE, key));
  const write = (key: string, columns: object) =>
    table.upsertEntity({ ...columns, partitionKey: STATE, rowKey: key } as never, "Replace");
  const resultsKey = (vault: number) => vaultStateKey(COPIED[vault]!);
  const details = (vault: number, chunk = 0) => detailsKey(COPIED[vault]!, chunk);
  // A check that a secret without an expiry fails in every vault.
  const failing = (await failedChecksOf(COPIED[0]!))[0]!;
  const findings = (vault: number, chunk = 0) => findingsKey(failing, COPIED[vault]!, chunk);

  await deleteRow("Compliance", STATE, details(0));
  const storedAssets = unpackDetails((await table.getEntity(STATE, details(1))).assets as Uint8Array).assets;
  const fewer = storedAssets.slice(1).map(({ type, name, passed }) => [type, name, passed, [], 0]);
  await write(details(1), { assets: packed(fewer) });
  await write(details(2, 1), { assets: packed(fewer) });
  await write(resultsKey(3), {
    ...(await read(resultsKey(3))),
    tallies: new Uint8Array(Uint32Array.of(101, 3, 4).buffer),
  });
  await deleteRow("Compliance", STATE, findings(4));
  const items = unpackFindings((await table.getEntity(STATE, findings(5))).items as Uint8Array);
  await write(findings(5), { items: packed([...items, ["gone", 1_700_000_000, "It never expires."]]) });
  await write(findings(6, 1), { items: packed(items) });
  await write(resultsKey(7), { ...(await read(resultsKey(7))), dueAt: 1_700_000_000 });
  await deleteRow("Compliance", STATE, resultsKey(8));
  await makeUnreadable("Compliance", STATE, resultsKey(9));
  await makeUnreadable("Compliance", STATE, details(10), { assets: "text" });
  await write(details(11), { assets: new Uint8Array([1, 2, 3]) });
  await renameEvaluated("kv-renamed", "password", "passwort");
  await write(vaultStateKey("kv-phantom"), { ...(await read(resultsKey(2))), name: "kv-phantom" });
  await write(detailsKey("kv-phantom-b", 0), { assets: packed(fewer) });
  await write(findingsKey(failing, "kv-phantom-c", 0), { items: packed(items) });
  plantedFaults.push(
    "details missing",
    "details stale",
    "details extra",
    "tallies",
    "finding missing",
    "finding stale",
  );
  plantedFaults.push("finding extra", "due time", "results missing", "results unreadable", "details unreadable");
  plantedFaults.push(
    "details garbage",
    "phantom's results",
    "phantom's details",
    "phantom's findings",
    "another asset's results",
  );
}

/** Renames an asset in all results of a vault, so that they agree with one another but not with the vault's assets. */
async function renameEvaluated(vault: string, name: string, other: string): Promise<void> {
  const table = fixture.raw("Compliance");
  const keys = [detailsKey(vault, 0), ...(await failedChecksOf(vault)).map((check) => findingsKey(check, vault, 0))];
  for (const rowKey of keys) {
    const row = await table.getEntity(STATE, rowKey);
    const column = row.assets ? "assets" : "items";
    const text = inflateRawSync(row[column] as Uint8Array).toString();
    const renamed = deflateRawSync(text.replace(`"${name}"`, `"${other}"`));
    await table.updateEntity({ partitionKey: STATE, rowKey, [column]: renamed }, "Merge");
  }
  const { assets, facts } = await table.getEntity(STATE, detailsKey(vault, 0));
  const { hash } = unpackDetails(assets as Uint8Array, facts as Uint8Array | undefined);
  const own = { partitionKey: STATE, rowKey: vaultStateKey(vault), details_json: JSON.stringify([hash]) };
  await table.updateEntity(own, "Merge");
}

/** Returns the checks that assets of a vault failed. */
async function failedChecksOf(vault: string) {
  const keys: string[] = [];
  for await (const { rowKey } of fixture.raw("Compliance").listEntities())
    if (rowKey!.startsWith("1!") && rowKey!.includes(`!${vault}!`)) keys.push(rowKey!);
  return ASSET_CHECKS.filter((check) => keys.includes(findingsKey(check, vault, 0)));
}

beforeAll(async () => {
  service = await Service.start({ company: companyOf(VAULTS) });
  const scan = await service.scan({ mode: "full" });
  expect(scan.status).toBe("completed");
  fixture = openReconciliation(
    service.azurite.connectionString(),
    // Each run is one step of 60 rows, so that a walk needs many runs.
    { runMs: 0, rowsPerStep: 60, pauseMs: 1 },
    0,
    await rowKeysOf(service),
  );
  intactRows = await snapshot(fixture);
}, 600_000);
afterAll(() => service?.stop());

describe("the reconciliation", () => {
  test("finds no fault in the rows that a scan wrote", async () => {
    await fixture.walk();
    const { newest } = await fixture.reconciliation.status();
    // `left`: vaults that were skipped. `awaiting`: wrong rows that only the next scan repairs. `mended`: repairs by kind of
    // fault.
    expect(newest).toMatchObject({ vaults: VAULTS.length, left: [], leftTotal: 0, awaiting: 0 });
    expect(Object.values(newest!.mended)).toEqual([0, 0, 0, 0, 0, 0]);
    // The seven assets of a vault have two rows each in its partition, and further rows in the other partitions.
    expect(newest!.rows).toBeGreaterThan(VAULTS.length * 7 * 2);
    expect(fixture.events).toEqual([]);
    expect(differences(intactRows, await snapshot(fixture))).toEqual([]);
  }, 600_000);

  test("repairs all planted faults in two walks with a scan between them", async () => {
    await plantCopies();
    await plantOwnRows();
    await plantUnknownRows();
    await plantVaultRows();
    await plantResults();
    expect(plantedFaults.length).toBeGreaterThanOrEqual(100);
    expect(new Set(plantedFaults).size).toBe(plantedFaults.length);

    runs = await fixture.walk();
    const firstWalk = (await fixture.reconciliation.status()).newest!;
    expect(firstWalk.left).toEqual([]);
    const scan = await service.scan({ mode: "delta" });
    expect(scan.status).toBe("completed");
    await fixture.walk();
    const secondWalk = (await fixture.reconciliation.status()).newest!;

    const repairs = [firstWalk, secondWalk]
      .flatMap(({ mended }) => Object.values(mended))
      .reduce((sum, count) => sum + count, 0);
    const recordedRows = new Set(
      fixture.events.flatMap(({ details }) => (details?.rows as string[] | undefined) ?? []),
    );
    expect(plantedRows.filter((row) => !recordedRows.has(row))).toEqual([]);
    // Rows `c!` list the changes that scans found, so the scan added some.
    const remaining = differences(intactRows, await snapshot(fixture)).filter((line) => !line.startsWith("Vaults c!"));
    expect(remaining.filter((line) => !isOfRemovedRow(line))).toEqual([]);
    expect(repairs, JSON.stringify([firstWalk, secondWalk])).toBeGreaterThanOrEqual(plantedFaults.length);
  }, 600_000);

  test("continued at its stored position in more than ten runs", () => {
    expect(runs).toBeGreaterThan(10);
  });

  test("recorded as many successes as intents in the audit log", () => {
    const outcomes = fixture.events.map(({ type, outcome, target }) => `${type} ${outcome} ${target?.id}`);
    const intents = outcomes.filter((line) => line.includes(" intent "));
    expect(outcomes.filter((line) => line.includes(" success ")).length).toBe(intents.length);
    expect(new Set(fixture.events.map(({ type }) => type))).toEqual(new Set(["inventory.mended", "compliance.mended"]));
  });

  test("finds no fault in the walk after these repairs", async () => {
    const eventsBefore = fixture.events.length;
    await fixture.walk();
    expect(Object.values((await fixture.reconciliation.status()).newest!.mended)).toEqual([0, 0, 0, 0, 0, 0]);
    expect(fixture.events.length).toBe(eventsBefore);
  }, 600_000);
});

describe("the copy of a vault's row under its subscription", () => {
  let storage: TestStorage;
  beforeAll(async () => {
    storage = await openStorage(["empty", "written"]);
  });
  afterAll(() => storage.stop());
  const record = vaultRecord("kv-last", SUBSCRIPTIONS[0]);
  const key = vaultInSubscriptionKey(record.subscriptionId, record.name);

  test("is removed if the inventory has no vaults", async () => {
    const { tables, reconciliation, walk } = openReconciliation(storage.connectionString("empty"));
    await tables.put(Vaults, VAULTS_PARTITION, key, record);
    await walk();
    expect(await tables.get(Vaults, VAULTS_PARTITION, key)).toBeUndefined();
    expect((await reconciliation.status()).newest).toMatchObject({ vaults: 0, mended: { extra: 1 }, left: [] });
  });

  test("is checked again if its vault is written during the check", async () => {
    const { tables, writer, reconciliation, walk, events } = openReconciliation(storage.connectionString("written"));
    await writeVault(writer, record, []);
    await tables.remove(Vaults, VAULTS_PARTITION, key);
    const { get } = tables;
    // The second read of the copy is the check. A write of the vault, which restores the copy, happens right after that read.
    let reads = 0;
    Object.assign(tables, {
      get: async (...args: Parameters<typeof get>) => {
        const row = await get(...args);
        if (args[2] === key && ++reads === 2)
          await writer.writeVaultOnly(await writer.readForUpdate(record.name), record);
        return row;
      },
    });
    await walk();
    expect([reads, events]).toEqual([3, []]);
    expect((await reconciliation.status()).newest).toMatchObject({ mended: { missing: 0 }, left: [] });
  });
});

/** Returns whether a difference is the new `firstSeenAt` of an asset whose own row was removed: the next scan adds it again. */
const isOfRemovedRow = (line: string): boolean =>
  line.startsWith("Assets ") &&
  typesWithRemovedRow.some((type) => line.includes(type)) &&
  line.includes("kv-own-missing:");
