import { TableClient, type TableEntityResult } from "@azure/data-tables";
import type { Company } from "simulated-cloud/company/company.ts";
import type { AuditEvent } from "../../shared/audit/audit.ts";
import { repairWholeIndex } from "../../shared/audit/index-repair.ts";
import { createCompliance } from "../../shared/compliance/compliance.ts";
import { unpackDetails, unpackFindings } from "../../shared/compliance/packed-results.ts";
import { createActiveScans } from "../../shared/discovery/active-scans.ts";
import { createInventoryWriter, type InventoryWriter } from "../../shared/inventory/write.ts";
import type { Caller } from "../../shared/platform/http/endpoint.ts";
import { type Randomness, systemRandomness } from "../../shared/platform/runtime.ts";
import { createStoreClock } from "../../shared/platform/storage/clock.ts";
import { createQueues } from "../../shared/platform/storage/queues.ts";
import type { RowKeys } from "../../shared/platform/storage/signing.ts";
import { createTables, type StorageCorrupt, type Tables } from "../../shared/platform/storage/tables.ts";
import { DAY_MS } from "../../shared/platform/time.ts";
import {
  createReconciliation,
  type Reconciliation,
  type ReconciliationDeps,
} from "../../shared/reconciliation/reconciliation.ts";
import { DEFINITIONS, SETTING_KEYS, type SettingValues } from "../../shared/settings/definitions.ts";
import { createUnreadableRows } from "../../shared/unreadable-rows/unreadable-rows.ts";

/**
 * Set-up of the reconciliation's tests. The reconciliation is a job that compares stored rows with one another in steps and
 * repairs differences. One pass over all rows is a walk.
 */

export const SUBSCRIPTIONS = ["11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"] as const;

/**
 * Returns a simulated company with the named vaults, in two subscriptions in turn. Each vault has three secrets, two keys and
 * two certificates, some of which fail compliance checks.
 */
export const companyOf = (vaults: readonly string[]): Company => ({
  subscriptions: SUBSCRIPTIONS.map((id, subscription) => ({
    name: `Subscription ${subscription}`,
    id,
    vaults: vaults
      .filter((_, index) => index % SUBSCRIPTIONS.length === subscription)
      .map((name, index) => ({
        name,
        secrets: [
          { name: "password", expiresInDays: 20 + index, contentType: "text/plain" },
          { name: "token", expiresInDays: 200 + index, tags: { owner: "team" } },
          { name: "forever" },
        ],
        keys: [{ name: "signing", expiresInDays: 300 + index }, { name: "wrapping" }],
        certificates: [
          { name: "tls", validityMonths: 12 },
          { name: "internal", validityMonths: 24 },
        ],
      })),
  })),
});

export interface ReconciliationFixture {
  readonly tables: Tables;
  readonly writer: InventoryWriter;
  readonly reconciliation: Reconciliation;
  /** Audit entries of repairs, oldest first. */
  readonly events: AuditEvent[];
  /** Messages about the rows that could not be read. */
  readonly reported: string[];
  /** Completes the walk in progress. If none is, moves the clock and completes the next one. Returns the number of runs. */
  walk(): Promise<number>;
  /** Moves the reconciliation's clock forward. */
  addTime(milliseconds: number): void;
  /** Returns a client that reads and writes rows of a table without their schema. */
  raw(table: string): TableClient;
}

/**
 * Creates the reconciliation of a storage account, with the same parts as in the service.
 *
 * @param limits - Duration of a run, rows of a step, pause between attempts. `runMs` 0 makes each run one step.
 * @param keys - Keys of signed rows. Without them, the walk reads none.
 * @param stepMs - Milliseconds by which the reconciliation's clock moves each time it is read, to simulate slow work.
 */
export function openReconciliation(
  connectionString: string,
  limits: ReconciliationDeps["limits"] = { runMs: 60_000, rowsPerStep: 50_000, pauseMs: 1 },
  stepMs = 0,
  keys?: RowKeys,
): ReconciliationFixture {
  const storeClock = createStoreClock();
  const reported: string[] = [];
  const onUnreadable = async (rows: readonly StorageCorrupt[]) => {
    reported.push(...rows.map(({ message }) => message));
  };
  const tables = createTables({ connectionString }, { clock: storeClock, keys, onUnreadable });
  const events: AuditEvent[] = [];
  const append = async (event: AuditEvent) => void events.push(event);
  const log = { debug() {}, info() {}, warn() {}, error() {} };
  const values = Object.fromEntries(SETTING_KEYS.map((key) => [key, DEFINITIONS[key].default])) as unknown;
  const settings = { values: async () => values as SettingValues };
  const randomness: Randomness = systemRandomness();
  const audit = {
    append,
    // Repairs the stored index, and records that with the other repairs.
    repairIndex: (caller: Caller, details: Record<string, unknown>) =>
      repairWholeIndex({ tables, clock: storeClock, audit: { append } }, caller, details),
  };
  const queues = createQueues({ connectionString });
  const compliance = createCompliance({
    tables,
    queues,
    settings,
    audit: audit as never,
    licensed: async () => true,
    clock: storeClock,
    randomness,
    log,
  });
  const writer = createInventoryWriter({ tables });
  let clockOffsetMs = 0;
  const reconciliation = createReconciliation({
    writer,
    compliance,
    // Vaults without a row of their own are not in the cloud.
    rescans: { requestForLostVault: async () => "gone" },
    tables,
    audit,
    activeScans: createActiveScans({ tables, clock: storeClock, audit }),
    unreadableRows: createUnreadableRows({ tables, audit, clock: storeClock, randomness, log }),
    hasSignedRows: keys !== undefined,
    settings,
    // `walk` moves this clock so that each walk starts days after the previous one.
    clock: {
      now() {
        clockOffsetMs += stepMs;
        return new Date(storeClock.now().getTime() + clockOffsetMs);
      },
    },
    randomness,
    log,
    ...(limits && { limits }),
  });
  return {
    tables,
    writer,
    reconciliation,
    events,
    reported,
    async walk() {
      const newestWalk = (await reconciliation.status()).newest;
      // A walk is due three days after the start of the previous one.
      if (newestWalk?.finishedAt)
        clockOffsetMs = Date.parse(newestWalk.startedAt) + 4 * DAY_MS - storeClock.now().getTime();
      const finishedWalkId = newestWalk?.finishedAt && newestWalk.walkId;
      for (let run = 1; ; run++) {
        await reconciliation.run("request");
        const { newest } = await reconciliation.status();
        if (newest?.finishedAt && newest.walkId !== finishedWalkId) return run;
        if (run > 500) throw new Error(`The walk does not end: ${JSON.stringify(newest)}`);
      }
    },
    addTime: (milliseconds) => {
      clockOffsetMs += milliseconds;
    },
    raw: (table) => TableClient.fromConnectionString(connectionString, table, { allowInsecureConnection: true }),
  };
}

/**
 * Returns the rows of the inventory and of compliance as text by table, partition and row key, without columns that every scan
 * or evaluation rewrites, such as times.
 *
 * Row keys begin with the kind of row. Assets: `n!` by name, `e!` by expiry. Compliance: `1!` failed assets of a check, `5!`
 * results of a vault, `6!` results of its assets.
 */
export async function snapshot(fixture: ReconciliationFixture): Promise<Map<string, string>> {
  const rows = new Map<string, string>();
  for await (const row of fixture.raw("Assets").listEntities()) {
    if (/^[ne]!/.test(row.rowKey!))
      rows.set(`Assets ${row.partitionKey} ${row.rowKey}`, JSON.stringify(columnsOf(row)));
  }
  for await (const row of fixture.raw("Vaults").listEntities()) {
    const { name, subscriptionId, listings_json, contents_json, pending } = row as Record<string, unknown>;
    const expiries = ["certificateExpiries", "keyExpiries", "secretExpiries"].map((column) => bytesOf(row, column));
    const value = { name, subscriptionId, listings_json, contents_json, pending, expiries };
    rows.set(`Vaults ${row.rowKey}`, JSON.stringify(value));
  }
  for await (const row of fixture.raw("Compliance").listEntities()) {
    const key = row.rowKey!;
    if (key.startsWith("6!") && !key.includes("!!")) {
      const assets = unpackDetails(row.assets as Uint8Array).assets;
      const shown = assets.map(({ type, name, passed, failed }) => [
        type,
        name,
        passed,
        failed.map(({ code }) => code),
      ]);
      rows.set(`Compliance ${key}`, JSON.stringify(shown));
    } else if (key.startsWith("1!")) {
      rows.set(`Compliance ${key}`, JSON.stringify(unpackFindings(row.items as Uint8Array).map(([name]) => name)));
    } else if (key.startsWith("5!")) {
      const { name, subscriptionId, gone, rbac, dueAt } = row as Record<string, unknown>;
      const value = { name, subscriptionId, gone, rbac, dueAt, tallies: bytesOf(row, "tallies") };
      rows.set(`Compliance ${key}`, JSON.stringify(value));
    }
  }
  return rows;
}

/** Returns a binary column in hexadecimal. */
export const bytesOf = (row: object, column: string): string =>
  Buffer.from(((row as Record<string, unknown>)[column] as Uint8Array | undefined) ?? []).toString("hex");

/** Returns a stored row's columns in writable form. */
export function columnsOf(row: TableEntityResult<object>): Record<string, unknown> {
  const { etag: _e, timestamp: _t, partitionKey: _p, rowKey: _r, ...columns } = row as Record<string, unknown>;
  return Object.fromEntries(Object.entries(columns).filter(([name]) => !name.startsWith("odata")));
}

/** Returns the differences between two snapshots as readable lines. */
export function differences(before: Map<string, string>, after: Map<string, string>): string[] {
  const lines: string[] = [];
  for (const key of new Set([...before.keys(), ...after.keys()])) {
    if (before.get(key) !== after.get(key)) lines.push(`${key}: ${before.get(key)} -> ${after.get(key)}`);
  }
  return lines.sort();
}
