import { randomUUID } from "node:crypto";
import { TableClient } from "@azure/data-tables";
import type { Cloud } from "simulated-cloud/cloud.ts";
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

const log = { debug() {}, info() {}, warn() {}, error() {} };
const settings = Object.fromEntries(
  SETTING_KEYS.map((key) => [key, DEFINITIONS[key].default]),
) as unknown as SettingValues;

/** The modules of one worker that bring a vault from the cloud into the tables. */
export interface Worker {
  tables: Tables;
  writer: InventoryWriter;
  evaluator: Evaluator;
  scan(planned: PlannedVault): Promise<unknown>;
}

/** Creates workers of one simulated cloud. All workers see the same time, so that the same assets lead to the same results. */
export function createWorkers({ config }: { cloud: Cloud; config: Config }) {
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
          { mode: "delta", owner: randomUUID(), signal: AbortSignal.timeout(10 * MINUTE_MS) },
          {
            writer,
            keyVaults,
            resourceManager,
            clock,
            ownerTag: "owner",
            detailRefreshDays: 7,
            prepareChange: evaluator.prepareChange,
          },
        ),
    };
  }

  /** Back-off is off, because vaults are unavailable for a while in these tests. */
  async function plan(tables: Tables, subscriptions: string[]): Promise<PlannedVault[]> {
    const signal = AbortSignal.timeout(10 * MINUTE_MS);
    const watched = async () => ({ all: true, named: [], discovered: [] });
    const deps = { tables, resourceManager, clock, watched, seen: async () => {}, signal };
    return (await planVaults({ mode: "force", subscriptions }, deps)).vaults;
  }

  /** Runs an undisturbed delta scan of these subscriptions. Moves the time to wait for leases. */
  async function delta(connectionString: string, subscriptions: string[], time: MovedClock): Promise<void> {
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

  return { worker, plan, delta };
}

/** Members with times or IDs of writes, in which two inventories of one cloud may differ. */
const WHEN =
  /^(etag|timestamp|partitionKey|rowKey|odata.*|firstSeenAt|listedAt_json|fences_json|describedAt|createdAt|evaluatedAt|evaluationId)$/;

/**
 * Returns every row of assets, vaults and results as text, without fences, logged changes and times. Results contain since when
 * each failure lasts, so that member and the hashes over it are removed.
 */
export async function everyRow(connectionString: string): Promise<Map<string, string>> {
  const found = new Map<string, string>();
  for (const table of ["Assets", "Vaults", "Compliance"]) {
    const client = TableClient.fromConnectionString(connectionString, table, { allowInsecureConnection: true });
    try {
      for await (const row of client.listEntities<Record<string, unknown>>()) {
        const key = row.rowKey!;
        const isFence = table === "Compliance" ? key.endsWith("!!fence") : key.startsWith("f!");
        const isEvent = table === "Compliance" && /^[04]!/.test(key);
        // Logged changes, removal markers and marks for totals depend on the history, not on the state.
        const isChange = table === "Vaults" && /^[cklx]!/.test(key);
        if (!isFence && !isEvent && !isChange) found.set(`${table} ${row.partitionKey} ${key}`, textOf(table, row));
      }
    } catch (error) {
      if ((error as { statusCode?: number }).statusCode !== 404) throw error;
    }
  }
  return found;
}

function textOf(table: string, row: Record<string, unknown>): string {
  const key = String(row.rowKey);
  if (table === "Compliance" && key.startsWith("6!")) {
    const { assets } = unpackDetails(row.assets as Uint8Array);
    return JSON.stringify(assets.map((asset) => ({ ...asset, failed: asset.failed.map(withoutSince) })));
  }
  if (table === "Compliance" && key.startsWith("1!"))
    return JSON.stringify(unpackFindings(row.items as Uint8Array).map(([name, , evidence]) => [name, evidence]));
  // In a vault's own row: when details were read, and whether all at once.
  const ofReading = (name: string) => table === "Vaults" && (name === "details_json" || name === "answers_json");
  const isWhen = (name: string) => WHEN.test(name) || ofReading(name);
  const members = Object.entries(row).filter(([name]) => !isWhen(name));
  return JSON.stringify(
    members
      .map(([name, value]) => {
        if (value instanceof Uint8Array) return [name, Buffer.from(value).toString("base64")];
        if (name === "failures_json" && table === "Compliance")
          return [name, (JSON.parse(String(value)) as { since: number }[]).map(withoutSince)];
        return name === "details_json" ? [name, (JSON.parse(String(value)) as unknown[]).length] : [name, value];
      })
      .sort(([a], [b]) => (String(a) < String(b) ? -1 : 1)),
  );
}

const withoutSince = <T extends { since: number }>({ since: _since, ...rest }: T) => rest;

/** Returns the rows that differ or are only in the first. Empty if both are equal. */
export function differences(found: Map<string, string>, wanted: Map<string, string>): string[] {
  const all = new Set([...found.keys(), ...wanted.keys()]);
  return [...all].sort().flatMap((key) => {
    const [is, should] = [found.get(key), wanted.get(key)];
    if (is === should) return [];
    if (is === undefined) return [`missing: ${key}`];
    if (should === undefined) return [`too many: ${key}`];
    return [`wrong: ${key}\n  is     ${is}\n  should ${should}`];
  });
}
