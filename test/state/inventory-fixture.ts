import { randomUUID } from "node:crypto";
import { TableClient } from "@azure/data-tables";
import { createRenewalInformation } from "../../shared/certificates/renewal-information.ts";
import { createEvaluator, type Evaluator } from "../../shared/compliance/evaluator.ts";
import { unpackDetails, unpackFindings } from "../../shared/compliance/packed-results.ts";
import { planVaults } from "../../shared/discovery/plan-vaults.ts";
import type { PlannedVault } from "../../shared/discovery/scan.ts";
import { scanVault } from "../../shared/discovery/scan-vault.ts";
import { createInventoryWriter, type InventoryWriter, VaultBusy } from "../../shared/inventory/write.ts";
import { createIdentity } from "../../shared/platform/azure/identity.ts";
import { createKeyVaults } from "../../shared/platform/azure/key-vault.ts";
import { createResourceManager } from "../../shared/platform/azure/resource-manager.ts";
import type { Config } from "../../shared/platform/config/config.ts";
import { createTables, type Tables } from "../../shared/platform/storage/tables.ts";
import { MINUTE_MS } from "../../shared/platform/time.ts";
import { DEFINITIONS, SETTING_KEYS, type SettingValues } from "../../shared/settings/definitions.ts";
import type { MovedClock } from "../support/moved-clock.ts";

// Fixture of tests and campaigns that compare inventories: scans single vaults with several workers, and returns all rows
// without their history.

const log = { debug() {}, info() {}, warn() {}, error() {} };
const settings = Object.fromEntries(
  SETTING_KEYS.map((key) => [key, DEFINITIONS[key].default]),
) as unknown as SettingValues;

/**
 * The modules with which one worker scans a vault: it reads the vault and writes its assets and compliance results to tables.
 */
export interface Worker {
  tables: Tables;
  writer: InventoryWriter;
  evaluator: Evaluator;
  scan(planned: PlannedVault): Promise<unknown>;
}

/** Creates workers of one simulated cloud. All workers see the same time, so that the same assets lead to the same results. */
export function createWorkers({ config }: { config: Config }) {
  const identity = createIdentity(config);
  const keyVaults = createKeyVaults({ config, identity, log });
  const resourceManager = createResourceManager({ config, identity, log });
  const now = new Date();
  const clock = { now: () => now };

  function worker(connectionString: string): Worker {
    const tables = createTables({ connectionString });
    const writer = createInventoryWriter({ tables });
    const evaluator = createEvaluator({ tables, settings: { values: async () => settings }, clock, log });
    return {
      tables,
      writer,
      evaluator,
      scan: (planned) =>
        scanVault(
          planned,
          { mode: "delta", workerId: randomUUID(), signal: AbortSignal.timeout(10 * MINUTE_MS) },
          {
            writer,
            keyVaults,
            resourceManager,
            clock,
            ownerTag: "owner",
            detailRefreshDays: 7,
            renewalInformation: createRenewalInformation({ config: { ARI_DIRECTORIES: [] }, clock }),
            log,
            prepareChange: evaluator.prepareChange,
          },
        ),
    };
  }

  /** Returns the vaults that a scan has to read. Forced, so that vaults with failures are not skipped. */
  async function plan(tables: Tables, subscriptions: string[]): Promise<PlannedVault[]> {
    const signal = AbortSignal.timeout(10 * MINUTE_MS);
    const watched = async () => ({ all: true, named: [], discovered: [] });
    const deps = { tables, resourceManager, clock, watched, onSubscriptionsListed: async () => {}, signal };
    return (await planVaults({ mode: "force", subscriptions }, deps)).vaults;
  }

  /** Runs an undisturbed delta scan of these subscriptions. Moves the clock until the leases of crashed workers expire. */
  async function runDeltaScan(connectionString: string, subscriptions: string[], time: MovedClock): Promise<void> {
    const { tables, scan } = worker(connectionString);
    for (const planned of await plan(tables, subscriptions)) {
      for (let attempt = 1; ; attempt++) {
        try {
          await scan(planned);
          break;
        } catch (error) {
          if (!(error instanceof VaultBusy) || attempt === 5) throw error;
          await time.add(error.waitMs + 1000);
        }
      }
    }
  }

  return { worker, plan, runDeltaScan };
}

/**
 * Matches names of members with keys, times or ids of writes. Two inventories of the same cloud may differ in times and ids.
 */
const IGNORED_MEMBERS =
  /^(etag|timestamp|partitionKey|rowKey|odata.*|firstSeenAt|listedAt_json|fences_json|describedAt|createdAt|evaluatedAt|evaluationId)$/;

/**
 * Returns all rows of assets, vaults and compliance results as text, by table and key, so that two inventories can be compared.
 * Leaves out everything that depends on the history instead of the cloud's state: fences, logged changes, totals, times, and
 * the start of each failure.
 */
export async function readAllRows(connectionString: string): Promise<Map<string, string>> {
  const rows = new Map<string, string>();
  for (const table of ["Assets", "Vaults", "Compliance"]) {
    const client = TableClient.fromConnectionString(connectionString, table, { allowInsecureConnection: true });
    try {
      for await (const row of client.listEntities<Record<string, unknown>>()) {
        const key = row.rowKey!;
        const isFence = table === "Compliance" ? key.endsWith("!!fence") : key.startsWith("f!");
        // Row keys start with a prefix for their kind. `0!`: new violations. `4!`: the last evaluation, thresholds and totals.
        const isComplianceHistory = table === "Compliance" && /^[04]!/.test(key);
        // `c!`: logged changes. `k!`: totals of all vaults. `l!`: markers of outdated totals. `x!`: removed vaults.
        const isVaultHistory = table === "Vaults" && /^[cklx]!/.test(key);
        if (!isFence && !isComplianceHistory && !isVaultHistory)
          rows.set(`${table} ${row.partitionKey} ${key}`, textOf(table, row));
      }
    } catch (error) {
      if ((error as { statusCode?: number }).statusCode !== 404) throw error;
    }
  }
  return rows;
}

/**
 * Returns a row as text without its history. Results have a key prefix for their kind: `6!` details of assets, `1!` findings.
 */
function textOf(table: string, row: Record<string, unknown>): string {
  const key = String(row.rowKey);
  if (table === "Compliance" && key.startsWith("6!")) {
    const { assets } = unpackDetails(row.assets as Uint8Array);
    return JSON.stringify(assets.map((asset) => ({ ...asset, failed: asset.failed.map(withoutSince) })));
  }
  if (table === "Compliance" && key.startsWith("1!"))
    // A finding is `[name, since, evidence, …]`. The start of the failure, `since`, is left out.
    return JSON.stringify(unpackFindings(row.items as Uint8Array).map(([name, , evidence]) => [name, evidence]));
  // In a vault's row, these members contain the times and hashes of the last reads.
  const isReadHistory = (name: string) => table === "Vaults" && (name === "details_json" || name === "answers_json");
  const isHistory = (name: string) => IGNORED_MEMBERS.test(name) || isReadHistory(name);
  const members = Object.entries(row).filter(([name]) => !isHistory(name));
  return JSON.stringify(
    members
      .map(([name, value]) => {
        if (value instanceof Uint8Array) return [name, Buffer.from(value).toString("base64")];
        if (name === "failures_json" && table === "Compliance")
          return [name, (JSON.parse(String(value)) as { since: number }[]).map(withoutSince)];
        // Outside of `Vaults`, only the number of details is compared.
        return name === "details_json" ? [name, (JSON.parse(String(value)) as unknown[]).length] : [name, value];
      })
      .sort(([a], [b]) => (String(a) < String(b) ? -1 : 1)),
  );
}

const withoutSince = <T extends { since: number }>({ since: _since, ...rest }: T) => rest;

/** Returns a line for each row that is missing, superfluous or different. Empty if both inventories are equal. */
export function differences(actual: Map<string, string>, expected: Map<string, string>): string[] {
  const keys = new Set([...actual.keys(), ...expected.keys()]);
  return [...keys].sort().flatMap((key) => {
    const [actualRow, expectedRow] = [actual.get(key), expected.get(key)];
    if (actualRow === expectedRow) return [];
    if (actualRow === undefined) return [`missing: ${key}`];
    if (expectedRow === undefined) return [`superfluous: ${key}`];
    return [`different: ${key}\n  actual   ${actualRow}\n  expected ${expectedRow}`];
  });
}
