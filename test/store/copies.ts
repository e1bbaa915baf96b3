import { mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { TableServiceClient } from "@azure/data-tables";
import { createHeldDeliveries } from "../../shared/alerts/held-deliveries.ts";
import { createHistory } from "../../shared/alerts/history.ts";
import type { AuditEvent } from "../../shared/audit/event.ts";
import { type Clock, systemClock } from "../../shared/platform/runtime.ts";
import type { RowKeys } from "../../shared/platform/storage/signing.ts";
import { createTables, type Tables } from "../../shared/platform/storage/tables.ts";
import { createWholeTables, type TypedRow, type WholeTables } from "../../shared/platform/storage/whole-tables.ts";
import { copyStore, type Manifest } from "../../shared/store/copy.ts";
import { restoreStore } from "../../shared/store/restore.ts";

/** Copies of a storage account in tests, and their restores, as `npm run store` makes them. */

export const newFolder = () => path.join(mkdtempSync(path.join(tmpdir(), "copy-")), "copy");

/**
 * Opens the tables of an account. Sends no requests to read tables that don't exist, because most tables are missing in a
 * test. No one else may create tables meanwhile.
 */
export async function openExistingTables(connectionString: string): Promise<WholeTables> {
  const existing = new Set<string>();
  const options = { allowInsecureConnection: true };
  for await (const { name } of TableServiceClient.fromConnectionString(connectionString, options).listTables())
    existing.add(name!);
  const tables = createWholeTables({ connectionString });
  const noRows = async function* (): AsyncGenerator<TypedRow, void> {};
  return {
    ...tables,
    rows: (table) => (existing.has(table) ? tables.rows(table) : noRows()),
    keys: (table) => (existing.has(table) ? tables.keys(table) : noRows()),
    write: (table, rows) =>
      tables.write(
        table,
        (async function* () {
          for await (const row of rows) {
            existing.add(table);
            yield row;
          }
        })(),
      ),
  };
}

export const copyAccount = (
  connectionString: string,
  folder: string,
  {
    report = () => {},
    clock = systemClock,
    tables = createWholeTables({ connectionString }),
  }: { report?: (line: string) => unknown; clock?: Clock; tables?: WholeTables } = {},
): Promise<Manifest> => copyStore({ tables, clock, account: "test", version: "1" }, folder, report);

interface RestoreOptions {
  replace?: boolean;
  clock?: Clock;
  /** Keys of signed rows, as in a service with its own key vault. */
  keys?: RowKeys;
  /** Records the audit entry of the restore. */
  append?: (event: AuditEvent) => Promise<void>;
  /** The restore crashes before it writes this table, or "readBack": before it reads the tables back. */
  crashAt?: string;
  /** Default: all tables of the account. */
  wholeTables?: WholeTables;
}

export function restoreAccount(connectionString: string, folder: string, options: RestoreOptions = {}) {
  const { replace = true, clock = systemClock, keys, append = async () => {}, crashAt = "" } = options;
  const tables = createTables({ connectionString }, { keys });
  const history = createHistory(tables);
  const audit = { append };
  const held = createHeldDeliveries({ tables, history, audit, clock, queues: { send: async () => {} } });
  const { wholeTables = createWholeTables({ connectionString }) } = options;
  const crashing: WholeTables = {
    ...wholeTables,
    write: async (table, rows) => {
      if (table === crashAt) throw new Error("Crash");
      await wholeTables.write(table, rows);
    },
    rows: (table) => {
      if (crashAt === "readBack") throw new Error("Crash");
      return wholeTables.rows(table);
    },
  };
  const caller = { actor: "system", requestId: "restore" };
  return restoreStore(
    { wholeTables: crashing, tables, held, audit, clock },
    { folder, replace, caller, startedBy: "maria" },
    () => {},
  );
}

const WRITES = new Set(["insert", "put", "replace", "remove", "modify", "transaction", "write"]);

/** Wraps tables. `afterWrite` runs after each write, before its caller continues. */
export const withHookAfterWrites = (tables: Tables, afterWrite: () => Promise<void>): Tables =>
  new Proxy(tables, {
    get(target, name, receiver) {
      const method: unknown = Reflect.get(target, name, receiver);
      if (typeof method !== "function" || !WRITES.has(String(name))) return method;
      return async (...args: unknown[]) => {
        const result: unknown = await method.apply(target, args);
        await afterWrite();
        return result;
      };
    },
  });
