import { deflateRawSync, inflateRawSync } from "node:zlib";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { ASSET_CHECKS } from "../../shared/compliance/checks/all.ts";
import { detailsKey, findingsKey, STATE, vaultStateKey } from "../../shared/compliance/compliance-rows.ts";
import { unpackDetails, unpackFindings } from "../../shared/compliance/packed-results.ts";
import { ASSET_TYPES, type AssetRecord, Assets, type AssetType, contentOf } from "../../shared/inventory/asset.ts";
import { expiryKey, nameKey, partitions } from "../../shared/inventory/asset-keys.ts";
import { VAULTS as VAULTS_PARTITION, Vaults, vaultInSubscriptionKey } from "../../shared/inventory/vault.ts";
import { withoutKeys } from "../../shared/platform/storage/entity.ts";
import { DAY_SECONDS } from "../../shared/platform/time.ts";
import { vaultRecord, writeVault } from "../inventory/write-assets.ts";
import { Service } from "../support/service.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import {
  columnsOf,
  companyOf,
  differences,
  openReconciliation,
  type ReconciliationFixture,
  SUBSCRIPTIONS,
  snapshot,
} from "./reconciliation-fixture.ts";

const COPIED = Array.from({ length: 12 }, (_, at) => `kv-copied-${at}`);
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
let whole: Map<string, string>;
/** A planted fault, in words. */
const planted: string[] = [];
/** Planted index rows, in the form of the audit log. */
const plantedRows: string[] = [];
/** Assets whose own row was removed. A scan sees them for the first time again. */
const seenAnew: string[] = [];
let runs: number;

const subscriptionOf = (vault: string): string => SUBSCRIPTIONS[VAULTS.indexOf(vault) % 2]!;

async function assetOf(vault: string, type: AssetType, name: string): Promise<AssetRecord> {
  const row = await fixture.tables.get(Assets, partitions.vault(vault), nameKey(type, name, vault));
  return withoutKeys(row!);
}

/** Returns the asset with other data and their hash. */
function changed(asset: AssetRecord, facts: Partial<AssetRecord>): AssetRecord {
  const { content: _c, firstSeenAt, ...rest } = { ...asset, ...facts };
  return { ...rest, firstSeenAt, content: contentOf(rest) };
}

const put = (partition: string, key: string, asset: AssetRecord) => fixture.tables.put(Assets, partition, key, asset);
const drop = (table: string, partition: string, key: string) => fixture.raw(table).deleteEntity(partition, key);

/** Columns that no asset has, under a key that one may have. */
const spoil = (table: string, partition: string, key: string, columns: object = { name: 7, tags_json: "{" }) =>
  fixture.raw(table).upsertEntity({ partitionKey: partition, rowKey: key, ...columns }, "Replace");

/** Plants every kind of fault in every copy, by name and by expiry, for every type, each in another asset. */
async function plantRows(): Promise<void> {
  // Another asset for each fault, so that the repair of one does not repair the next.
  const pool = Object.fromEntries(
    ASSET_TYPES.map((type) => [type, NAMES[type].flatMap((name) => COPIED.map((vault) => ({ vault, name })))]),
  ) as Record<AssetType, { vault: string; name: string }[]>;
  let next = 0;
  for (const where of ["all", "sub", "vault"] as const) {
    for (const type of ASSET_TYPES) {
      for (const index of ["name", "expiry"] as const) {
        if (where === "vault" && index === "name") continue; // The rows from which all others follow: plantOwn
        for (const kind of KINDS) {
          const { vault, name } = pool[type].shift()!;
          next++;
          const asset = await assetOf(vault, type, name);
          const partition =
            where === "all"
              ? partitions.all
              : where === "sub"
                ? partitions.subscription(subscriptionOf(vault))
                : partitions.vault(vault);
          const right = index === "name" ? nameKey(type, name, vault) : expiryKey(type, asset.expiresOn, name, vault);
          // Rows left by a late write: a removed asset, or another expiry of an existing one.
          const left =
            index === "name"
              ? nameKey(type, `gone-${next}`, vault)
              : expiryKey(type, 1_700_000_000 + next, name, vault);
          const key = kind === "extra" ? left : right;
          if (kind === "missing") await drop("Assets", partition, key);
          if (kind === "extra") await put(partition, key, asset);
          if (kind === "stale") await put(partition, key, changed(asset, { enabled: false, listing: "older" }));
          if (kind === "unreadable") await spoil("Assets", partition, key);
          planted.push(`${kind} ${partition} ${key}`);
          plantedRows.push(`${partition} ${key}`);
        }
      }
    }
  }
}

/** Plants faults in the rows from which all copies follow. */
async function plantOwn(): Promise<void> {
  for (const type of ASSET_TYPES) {
    const name = NAMES[type][0]!;
    for (const [kind, vault] of OWN.map((vault) => [vault.slice("kv-own-".length), vault] as const)) {
      const partition = partitions.vault(vault);
      const asset = await assetOf(vault, type, name);
      const key = nameKey(type, name, vault);
      if (kind === "missing") {
        await drop("Assets", partition, key);
        seenAnew.push(`!${type}!`);
      }
      if (kind === "extra") {
        const gone = changed(asset, { name: "gone", listing: "older" });
        await put(partition, nameKey(type, "gone", vault), gone);
        await put(partition, expiryKey(type, gone.expiresOn, "gone", vault), gone);
      }
      if (kind === "stale") {
        const older = changed(asset, { expiresOn: (asset.expiresOn ?? 1_800_000_000) - DAY_SECONDS, listing: "older" });
        await put(partition, key, older);
      }
      if (kind === "tampered") await put(partition, key, { ...asset, tags: { owner: "mallory" } });
      if (kind === "unreadable") await spoil("Assets", partition, key);
      planted.push(`${kind} own ${partition} ${key}`);
    }
    const column = `${type}Expiries`;
    for (const key of ["n!kv-packed", `s!${subscriptionOf("kv-packed")}!kv-packed`]) {
      const row = await fixture.raw("Vaults").getEntity("vaults", key);
      const columns = { ...columnsOf(row), [column]: new Uint8Array(Uint32Array.of(1, 2, 3).buffer) };
      await fixture.raw("Vaults").upsertEntity({ ...columns, partitionKey: "vaults", rowKey: key }, "Replace");
    }
    planted.push(`packed expiries of ${type} in kv-packed`);
  }
}

/** Plants rows of vaults and subscriptions that the inventory does not have, and rows in the wrong place. */
async function plantStrangers(): Promise<void> {
  const asset = await assetOf(COPIED[0]!, "secret", "password");
  const rows: [string, string, AssetRecord][] = [];
  const add = (partition: string, vault: string) => {
    // Another asset for each row, so that the repair of one does not repair the next.
    for (const index of ["name", "expiry"]) {
      const name = `stranger-${rows.length}`;
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
    await put(partition, key, row);
    planted.push(`extra ${partition} ${key}`);
    plantedRows.push(`${partition} ${key}`);
  }
}

async function plantVaultRows(): Promise<void> {
  const copy = (vault: string) => `s!${subscriptionOf(vault)}!${vault}`;
  const read = async (key: string) => columnsOf(await fixture.raw("Vaults").getEntity("vaults", key));
  await drop("Vaults", "vaults", copy("kv-copied-1"));
  const stale = { ...(await read(copy("kv-copied-2"))), location: "elsewhere" };
  await fixture
    .raw("Vaults")
    .upsertEntity({ ...stale, partitionKey: "vaults", rowKey: copy("kv-copied-2") }, "Replace");
  const row = await read(copy("kv-copied-3"));
  const elsewhere = `s!${subscriptionOf("kv-copied-2")}!kv-copied-3`;
  await fixture.raw("Vaults").upsertEntity({ ...row, partitionKey: "vaults", rowKey: elsewhere }, "Replace");
  await spoil("Vaults", "vaults", copy("kv-copied-4"));
  await spoil("Vaults", "vaults", "n!kv-lost");
  planted.push("missing copy", "stale copy", "extra copy", "unreadable copy", "unreadable vault");
}

const packed = (value: unknown): Uint8Array => new Uint8Array(deflateRawSync(JSON.stringify(value)));

async function plantResults(): Promise<void> {
  const table = fixture.raw("Compliance");
  const read = async (key: string) => columnsOf(await table.getEntity(STATE, key));
  const write = (key: string, columns: object) =>
    table.upsertEntity({ ...columns, partitionKey: STATE, rowKey: key } as never, "Replace");
  const own = (at: number) => vaultStateKey(COPIED[at]!);
  const details = (at: number, chunk = 0) => detailsKey(COPIED[at]!, chunk);
  // A check that a secret without an expiry fails in every vault.
  const failing = (await findingRowsOf(COPIED[0]!))[0]!;
  const findings = (at: number, chunk = 0) => findingsKey(failing, COPIED[at]!, chunk);

  await drop("Compliance", STATE, details(0));
  const standing = unpackDetails((await table.getEntity(STATE, details(1))).assets as Uint8Array).assets;
  const fewer = standing.slice(1).map(({ type, name, passed }) => [type, name, passed, [], 0]);
  await write(details(1), { assets: packed(fewer) });
  await write(details(2, 1), { assets: packed(fewer) });
  await write(own(3), { ...(await read(own(3))), tallies: new Uint8Array(Uint32Array.of(101, 3, 4).buffer) });
  await drop("Compliance", STATE, findings(4));
  const items = unpackFindings((await table.getEntity(STATE, findings(5))).items as Uint8Array);
  await write(findings(5), { items: packed([...items, ["gone", 1_700_000_000, "It never expires."]]) });
  await write(findings(6, 1), { items: packed(items) });
  await write(own(7), { ...(await read(own(7))), dueAt: 1_700_000_000 });
  await drop("Compliance", STATE, own(8));
  await spoil("Compliance", STATE, own(9));
  await spoil("Compliance", STATE, details(10), { assets: "text" });
  await write(details(11), { assets: new Uint8Array([1, 2, 3]) });
  await renameEvaluated("kv-renamed", "password", "passwort");
  await write(vaultStateKey("kv-phantom"), { ...(await read(own(2))), name: "kv-phantom" });
  await write(detailsKey("kv-phantom-b", 0), { assets: packed(fewer) });
  await write(findingsKey(failing, "kv-phantom-c", 0), { items: packed(items) });
  planted.push("details missing", "details stale", "details extra", "tallies", "finding missing", "finding stale");
  planted.push("finding extra", "due time", "results missing", "results unreadable", "details unreadable");
  planted.push(
    "details garbage",
    "phantom's results",
    "phantom's details",
    "phantom's findings",
    "another asset's results",
  );
}

/** Consistent results of a vault, but for an asset that it does not have. */
async function renameEvaluated(vault: string, name: string, other: string): Promise<void> {
  const table = fixture.raw("Compliance");
  const keys = [detailsKey(vault, 0), ...(await findingRowsOf(vault)).map((check) => findingsKey(check, vault, 0))];
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

async function findingRowsOf(vault: string) {
  const keys: string[] = [];
  for await (const { rowKey } of fixture.raw("Compliance").listEntities())
    if (rowKey!.startsWith("1!") && rowKey!.includes(`!${vault}!`)) keys.push(rowKey!);
  return ASSET_CHECKS.filter((check) => keys.includes(findingsKey(check, vault, 0)));
}

beforeAll(async () => {
  service = await Service.start({ company: companyOf(VAULTS) });
  const scan = await service.scan({ mode: "full" });
  expect(scan.status).toBe("completed");
  fixture = openReconciliation(service.azurite.connectionString(), { runMs: 0, rowsPerStep: 60, pauseMs: 1 });
  whole = await snapshot(fixture);
}, 600_000);
afterAll(() => service?.stop());

describe("the reconciliation", () => {
  test("finds nothing wrong in the rows of a scan", async () => {
    await fixture.walk();
    const { newest } = await fixture.reconciliation.status();
    expect(newest).toMatchObject({ vaults: VAULTS.length, left: [], leftTotal: 0, awaiting: 0 });
    expect(Object.values(newest!.mended)).toEqual([0, 0, 0, 0, 0, 0]);
    expect(newest!.rows).toBeGreaterThan(VAULTS.length * 7 * 2);
    expect(fixture.events).toEqual([]);
    expect(differences(whole, await snapshot(fixture))).toEqual([]);
  }, 600_000);

  test("repairs planted faults of every kind, each recorded in the audit log, with a scan between two walks", async () => {
    await plantRows();
    await plantOwn();
    await plantStrangers();
    await plantVaultRows();
    await plantResults();
    expect(planted.length).toBeGreaterThanOrEqual(100);
    expect(new Set(planted).size).toBe(planted.length);

    runs = await fixture.walk();
    const first = (await fixture.reconciliation.status()).newest!;
    expect(first.left).toEqual([]);
    const scan = await service.scan({ mode: "delta" });
    expect(scan.status).toBe("completed");
    await fixture.walk();
    const second = (await fixture.reconciliation.status()).newest!;

    const total = [first, second]
      .flatMap(({ mended: repaired }) => Object.values(repaired))
      .reduce((sum, count) => sum + count, 0);
    const entered = new Set(fixture.events.flatMap(({ details }) => (details?.rows as string[] | undefined) ?? []));
    expect(plantedRows.filter((row) => !entered.has(row))).toEqual([]);
    // The log of changes contains the changes of the scans in between.
    const unlike = differences(whole, await snapshot(fixture)).filter((line) => !line.startsWith("Vaults c!"));
    expect(unlike.filter((line) => !isSeenAnew(line))).toEqual([]);
    expect(total, JSON.stringify([first, second])).toBeGreaterThanOrEqual(planted.length);
  }, 600_000);

  test("continues at its position: each run was one step", () => {
    expect(runs).toBeGreaterThan(10);
  });

  test("records an intent and an outcome for each repair", () => {
    const outcomes = fixture.events.map(({ type, outcome, target }) => `${type} ${outcome} ${target?.id}`);
    const intents = outcomes.filter((line) => line.includes(" intent "));
    expect(outcomes.filter((line) => line.includes(" success ")).length).toBe(intents.length);
    expect(new Set(fixture.events.map(({ type }) => type))).toEqual(new Set(["inventory.mended", "compliance.mended"]));
  });

  test("finds nothing more", async () => {
    const before = fixture.events.length;
    await fixture.walk();
    expect(Object.values((await fixture.reconciliation.status()).newest!.mended)).toEqual([0, 0, 0, 0, 0, 0]);
    expect(fixture.events.length).toBe(before);
  }, 600_000);
});

describe("a copy of a vault's row", () => {
  let storage: TestStorage;
  beforeAll(async () => {
    storage = await openStorage(["empty", "written"]);
  });
  afterAll(() => storage.stop());
  const record = vaultRecord("kv-last", SUBSCRIPTIONS[0]);
  const key = vaultInSubscriptionKey(record.subscriptionId, record.name);

  test("is removed if no vault is left", async () => {
    const { tables, reconciliation, walk } = openReconciliation(storage.connectionString("empty"));
    await tables.put(Vaults, VAULTS_PARTITION, key, record);
    await walk();
    expect(await tables.get(Vaults, VAULTS_PARTITION, key)).toBeUndefined();
    expect((await reconciliation.status()).newest).toMatchObject({ vaults: 0, mended: { extra: 1 }, left: [] });
  });

  test("is checked again if its vault is written during the check, and nothing is recorded that is no fault", async () => {
    const { tables, writer, reconciliation, walk, events } = openReconciliation(storage.connectionString("written"));
    await writeVault(writer, record, []);
    await tables.remove(Vaults, VAULTS_PARTITION, key);
    const { get } = tables;
    let looks = 0;
    Object.assign(tables, {
      get: async (...of: Parameters<typeof get>) => {
        const found = await get(...of);
        if (of[2] === key && ++looks === 2)
          await writer.writeVaultOnly(await writer.readForUpdate(record.name), record);
        return found;
      },
    });
    await walk();
    expect([looks, events]).toEqual([3, []]);
    expect((await reconciliation.status()).newest).toMatchObject({ mended: { missing: 0 }, left: [] });
  });
});

/** An asset whose own row was lost returns with the time of the scan that found it again. */
const isSeenAnew = (line: string): boolean =>
  line.startsWith("Assets ") && seenAnew.some((type) => line.includes(type)) && line.includes("kv-own-missing:");
