import { ASSET_CHECKS } from "../../shared/compliance/checks/all.ts";
import { createCompliance } from "../../shared/compliance/compliance.ts";
import { TABLE as COMPLIANCE, STATE, VaultStates, vaultStateKey } from "../../shared/compliance/compliance-rows.ts";
import { packTallies } from "../../shared/compliance/packed-results.ts";
import { renewTotals as renewResults } from "../../shared/compliance/renew-totals.ts";
import { ASSET_TYPES, type AssetRecord, Assets } from "../../shared/inventory/asset.ts";
import { indexKeys, nameKey, partitions } from "../../shared/inventory/asset-keys.ts";
import { packExpiries } from "../../shared/inventory/expiries.ts";
import { countOwners } from "../../shared/inventory/owners.ts";
import { packPlanned } from "../../shared/inventory/planned-certificates.ts";
import { createAssetQueries } from "../../shared/inventory/query.ts";
import { renewTotals } from "../../shared/inventory/renew-totals.ts";
import {
  expiriesColumn,
  VAULTS,
  type VaultRecord,
  Vaults,
  vaultInSubscriptionKey,
  vaultKey,
} from "../../shared/inventory/vault.ts";
import { createTables, type Operation, put, type Tables } from "../../shared/platform/storage/tables.ts";
import { DAY_SECONDS } from "../../shared/platform/time.ts";
import { assetRecord, START, vaultRecord } from "../../test/inventory/write-assets.ts";
import { startTableProxy } from "../../test/support/table-proxy.ts";
import { startAzurite } from "../local/azurite.ts";
import { atMost, type Figure, median, ratio, type Section } from "./section.ts";

/** Two inventory sizes, in assets. `BENCH_ASSETS=1000,20000` measures other sizes. */
const SIZES = (process.env.BENCH_ASSETS ?? "1000,100000").split(",").map(Number);
/** Number of assets in each vault. A fifth of them are keys and certificates. */
const ASSETS_PER_VAULT = 100;
const SUBSCRIPTIONS = 8;
/** Period over which expiry dates are distributed. A tenth of them is in the past. */
const SPREAD_DAYS = 800;
/** Number of times that each query is measured. */
const RUNS = 20;
/** Maximum ratio of the cost of a query with 100,000 assets to its cost with 1,000. */
const MAX_RATIO = 1.3;

/** Time of the queries, and the days before expiry at which an asset becomes critical or gets a warning. */
const STATUS_CONTEXT = { now: START, criticalDays: 7, warningDays: 30 };
const PAGE = { limit: 100, offset: 0, cursor: undefined };

interface Cost {
  /** Median of the processor time of one query in this process, in milliseconds. */
  ms: number;
  bytes: number;
  requests: number;
}

/**
 * Benchmark `reads`: measures the processor time and bytes of queries over inventories of two sizes. Shows that the cost of a
 * query does not grow with the inventory.
 */
export async function reads(): Promise<Section> {
  const costs: Map<string, Cost>[] = [];
  for (const size of SIZES) costs.push(await costsAt(size));
  const [small, large] = costs as [Map<string, Cost>, Map<string, Cost>];
  const figures = [...small].flatMap(([what, few]): Figure[] => {
    const many = large.get(what)!;
    const isBounded = !UNBOUNDED.has(what);
    const figure = (measure: string, smallCost: number, largeCost: number, unit: string): Figure => ({
      what: `${what}: ${measure}`,
      value: `${smallCost.toFixed(1)} and ${largeCost.toFixed(1)} ${unit}`,
      comparedWith: `${ratio(largeCost, smallCost)} times`,
      ...(isBounded ? { bound: atMost(largeCost / smallCost, MAX_RATIO, " times") } : {}),
    });
    return [
      figure("processor time", few.ms, many.ms, "ms"),
      figure("bytes read", few.bytes / 1000, many.bytes / 1000, `kB, in ${many.requests} requests`),
    ];
  });
  return {
    title: "Queries by size of the inventory",
    how: `${SIZES.join(" and ")} assets in vaults of ${ASSETS_PER_VAULT}. The module alone in one process without the host, each question ${RUNS} times. Bytes are those of table answers.`,
    figures,
  };
}

/**
 * Queries without a bound. One reads a single vault, whose size does not change. One reads a value of each vault. One fills its
 * page only in the larger inventory.
 */
const UNBOUNDED: ReadonlySet<string> = new Set(["assets of one vault", "metrics of assets", "assets with a warning"]);

async function costsAt(size: number): Promise<Map<string, Cost>> {
  const azurite = await startAzurite();
  const proxy = await startTableProxy(azurite.connectionString());
  try {
    const tables = createTables({ connectionString: azurite.connectionString() });
    await writeInventory(tables, size);
    // Compute the stored totals that the queries read instead of all rows: of the inventory, and of the compliance results.
    await renewTotals(tables, STATUS_CONTEXT);
    await renewResults(tables);
    const costs = new Map<string, Cost>();
    const proxied = createTables({ connectionString: proxy.connectionString });
    // Processor time is measured without the proxy, bytes and requests with it.
    const [directQueries, proxiedQueries] = [queriesOf(tables), queriesOf(proxied)];
    for (const [what, runQuery] of directQueries) {
      await runQuery(); // Warm-up.
      const times: number[] = [];
      for (let run = 0; run < RUNS; run++) {
        const usageBefore = process.cpuUsage();
        await runQuery();
        const { user, system } = process.cpuUsage(usageBefore);
        times.push((user + system) / 1000);
      }
      proxy.requests.length = 0;
      await proxiedQueries.get(what)!();
      const bytes = proxy.requests.reduce((sum, { answered }) => sum + answered, 0);
      costs.set(what, { ms: median(times), bytes, requests: proxy.requests.length });
    }
    return costs;
  } finally {
    await proxy.stop();
    await azurite.stop();
  }
}

/** Returns the measured queries by name. */
function queriesOf(tables: Tables): Map<string, () => Promise<unknown>> {
  const queries = createAssetQueries({ tables, ownerTag: "owner", licensed: async () => false });
  const compliance = createCompliance({
    tables,
    licensed: async () => false,
    clock: { now: () => new Date(START) },
  } as never);
  const list = (filter: Parameters<typeof queries.list>[0]) => () => queries.list(filter, PAGE, STATUS_CONTEXT);
  return new Map<string, () => Promise<unknown>>([
    ["assets", list({})],
    ["assets of a type", list({ type: "secret" })],
    ["assets with a status", list({ status: "healthy" })],
    ["assets with a warning", list({ status: "warning" })],
    ["assets of one vault", list({ vault: "kv-00001" })],
    ["metrics of assets", () => queries.figures(STATUS_CONTEXT)],
    ["summary", () => queries.summary({ since: new Date(START) }, STATUS_CONTEXT)],
    ["score", () => compliance.score()],
  ]);
}

/** Writes the rows that scans and evaluations write, but only into the partitions that the queries read. */
async function writeInventory(tables: Tables, size: number): Promise<void> {
  const vaults: VaultRecord[] = [];
  const byVault = Array.from({ length: size / ASSETS_PER_VAULT }, (_, vaultIndex) => assetsOf(vaultIndex));
  for (const { vault } of byVault) vaults.push(vault);
  await tables.write(Assets.table, partitions.all, assetRows(byVault.flatMap(({ assets }) => assets)));
  await tables.write(Vaults.table, VAULTS, vaultRows(vaults));
  await tables.write(COMPLIANCE, STATE, vaults.map(stateRow));
  // The query for the assets of one vault reads only this vault, `kv-00001`.
  const queried = byVault[1]!;
  await tables.write(Assets.table, partitions.vault(queried.vault.name), assetRows(queried.assets));
}

/** Returns a vault and its assets. */
function assetsOf(vaultIndex: number): { vault: VaultRecord; assets: AssetRecord[] } {
  const subscription = `${String(vaultIndex % SUBSCRIPTIONS).padStart(8, "0")}-1111-4111-8111-111111111111`;
  const vault = vaultRecord(`kv-${String(vaultIndex).padStart(5, "0")}`, subscription);
  const assets = Array.from({ length: ASSETS_PER_VAULT }, (_, index) => {
    // Of ten assets, one has the first type of `ASSET_TYPES`, one the second, and eight the third.
    const type = ASSET_TYPES[index % 5 === 0 ? (index % 10 === 0 ? 0 : 1) : 2]!;
    // Multiples of the golden ratio modulo 1 are distributed evenly for every size, and are the same in each run.
    const share = (vaultIndex * ASSETS_PER_VAULT + index) * 0.618034;
    const expiresOn = START / 1000 + Math.floor(((share % 1) - 0.1) * SPREAD_DAYS * DAY_SECONDS);
    return assetRecord(vault, type, `name-${index}-of-${vaultIndex}`, {
      ...(index % 10 < 8 ? { expiresOn } : {}),
      version: "0123456789abcdef0123456789abcdef",
      createdOn: START / 1000,
      updatedOn: START / 1000,
      tags: { owner: `team-${index % 20}@contoso.com`, environment: "production" },
      listing: "0123456789abcdef012345",
      ...(type === "certificate" && expiresOn > START / 1000 ? { renewal: planOf(expiresOn, vaultIndex) } : {}),
    });
  });
  const listed = new Date(START - vaultIndex * 100).toISOString();
  for (const type of ASSET_TYPES) {
    const ofType = assets.filter((asset) => asset.type === type);
    vault[expiriesColumn(type)] = packExpiries(ofType.map(({ expiresOn }) => expiresOn));
    vault.listedAt[type] = listed;
    if (type === "certificate") vault.certificateRenewals = packPlanned(ofType);
    vault.owners = { ...vault.owners, [type]: countOwners(ofType, "owner") };
  }
  return { vault, assets };
}

/** Returns the renewal plan of a certificate. Only those of two vaults are late, in every inventory. */
function planOf(expiresOn: number, vaultIndex: number): NonNullable<AssetRecord["renewal"]> {
  const now = START / 1000;
  // Expiries within a day would otherwise be late.
  const inTime = Math.min(Math.max(now + DAY_SECONDS, expiresOn - 30 * DAY_SECONDS), expiresOn - 1);
  const windowEnd = vaultIndex < 2 ? now - DAY_SECONDS : inTime;
  return { renewedBy: "acmebot", source: "tags", windowStart: windowEnd, windowEnd, attentionAt: windowEnd + 1 };
}

function* assetRows(assets: readonly AssetRecord[]): Generator<Operation> {
  for (const asset of assets) {
    const { type, name, vaultName } = asset;
    yield put(Assets, nameKey(type, name, vaultName), asset);
    for (const key of indexKeys(asset, vaultName)) yield put(Assets, key, asset);
  }
}

function* vaultRows(vaults: readonly VaultRecord[]): Generator<Operation> {
  for (const vault of vaults) {
    yield put(Vaults, vaultKey(vault.name), vault);
    yield put(Vaults, vaultInSubscriptionKey(vault.subscriptionId, vault.name), vault);
  }
}

/** Returns the row with a vault's compliance results. */
function stateRow({ name, subscriptionId }: VaultRecord): Operation {
  const evaluatedAt = new Date(START).toISOString();
  const failures = [{ code: 1, since: START / 1000, evidence: "The vault can be reached from every network." }];
  return put(VaultStates, vaultStateKey(name), {
    name,
    subscriptionId,
    tallies: packTallies(new Map(ASSET_CHECKS.map(({ code }) => [code, { passed: 15, failed: 5 }]))),
    failures,
    exemptions: [],
    rbac: true,
    details: ["0123456789abcdef012345"],
    createdAt: evaluatedAt,
    evaluatedAt,
    gone: false,
  });
}
