import pMap from "p-map";
import * as z from "zod";
import type { AssetUse } from "../../compliance/references.ts";
import type { Clock } from "../../platform/runtime.ts";
import type { Row } from "../../platform/storage/entity.ts";
import { pack, unpack } from "../../platform/storage/packed-members.ts";
import type { GetOptions, Tables } from "../../platform/storage/tables.ts";
import { DAY_MS, SECOND_MS } from "../../platform/time.ts";
import type { VaultReads } from "../../rotation/resource-keys/credential-usage.ts";
import { assetOfEdge, Edges, rangeOf, vaultPrefix } from "../rows.ts";
import { latest } from "./merge.ts";
import {
  AssetUses,
  assetUseKey,
  furtherUnusedKey,
  NAMES_PER_ROW,
  ReportedUnused,
  type ReportedUnusedRecord,
  UNUSED,
  under,
  VAULT_USES,
  VaultUses,
  vaultUseKey,
  WORKSPACES,
  WorkspaceRows,
} from "./rows.ts";

/** A log is current if its vault has written to it and it was read within this time. */
const CURRENT_MS = 2 * DAY_MS;

/** A secret of the inventory. Times are Unix seconds. */
export interface KnownSecret {
  name: string;
  enabled: boolean;
  createdOn?: number | undefined;
}

/**
 * Finds secrets that were not read during the number of days of the compliance policy. Uses only logs that were complete for that
 * time.
 */
export interface UnusedSecrets {
  /**
   * Returns for each secret of a vault whether it is unused. Returns none if no log covers the number of days. Leaves out
   * disabled secrets, secrets that are too new, and secrets that this service syncs.
   */
  usesOf(vaultName: string): Promise<AssetUse[]>;
  /** Returns the reads of a vault's secrets. Undefined if no workspace is configured. */
  readsOf(vaultName: string): Promise<VaultReads | undefined>;
  /**
   * Finds secrets that became unused or used since the last call, and requests their compliance evaluation. Checks each vault
   * once a day.
   */
  reportUnused(): Promise<void>;
}

export function createUnusedSecrets(deps: {
  tables: Tables;
  workspaceIds: readonly string[];
  /** Number of days without a read after which the compliance policy counts a secret as unused. */
  days(): Promise<number>;
  secretsOf(vaultName: string): AsyncIterable<readonly KnownSecret[]>;
  /** Requests a compliance evaluation of these assets of a vault (`<type>.<name>`). */
  changed: (vaultName: string, assets: string[]) => Promise<void>;
  clock: Clock;
}): UnusedSecrets {
  const { tables, workspaceIds, clock } = deps;

  /**
   * Returns the longest period of which at least one log has all events of the vault. It ends when the log was last read. Undefined if
   * no log is current.
   */
  async function completePeriod(
    vaultName: string,
    now: Date,
    options: GetOptions = {},
  ): Promise<{ since: string; until: string } | undefined> {
    const current = new Date(now.getTime() - CURRENT_MS).toISOString();
    const periods = await pMap(workspaceIds, async (id) => {
      const [vault, workspace] = await Promise.all([
        tables.get(VaultUses, id, vaultUseKey(vaultName), options),
        tables.get(WorkspaceRows, WORKSPACES, id, options),
      ]);
      const { readFrom, readTo = "" } = workspace ?? {};
      if (!vault || vault.lastAt < current || !readFrom || readTo < current) return [];
      return [{ since: latest(vault.since, readFrom), until: readTo }];
    });
    return periods.flat().sort((a, b) => (a.since < b.since ? -1 : 1))[0];
  }

  /** Returns the last read of each secret, by name in lower case. */
  async function lastReads(vaultName: string, options: GetOptions = {}): Promise<Map<string, string>> {
    const last = new Map<string, string>();
    const prefix = assetUseKey({ vaultName, type: "secret", name: "" });
    for (const id of workspaceIds)
      for await (const rows of tables.pages(AssetUses, {
        ...under(id, prefix),
        select: ["name", "lastAt"],
        ...options,
      }))
        for (const { name, lastAt } of rows) last.set(name.toLowerCase(), latest(last.get(name.toLowerCase()), lastAt));
    return last;
  }

  /** Returns the secrets that this service syncs. Its own reads are not counted. */
  async function findSyncedSecrets(vaultName: string, options: GetOptions = {}): Promise<Set<string>> {
    const syncedSecrets = new Set<string>();
    const range = { ...rangeOf(vaultPrefix(vaultName)), select: ["resource"] as const, ...options };
    for await (const rows of tables.pages(Edges, range))
      for (const { rowKey, resource } of rows)
        if (resource.kind === "syncRecord") syncedSecrets.add(assetOfEdge(rowKey).asset?.toLowerCase() ?? "");
    return syncedSecrets;
  }

  async function usesOf(vaultName: string): Promise<AssetUse[]> {
    const now = clock.now();
    const logStart = (await completePeriod(vaultName, now))?.since;
    const days = await deps.days();
    const policyStart = new Date(now.getTime() - days * DAY_MS).toISOString();
    if (logStart === undefined || logStart > policyStart) return [];
    const [reads, synced] = await Promise.all([lastReads(vaultName), findSyncedSecrets(vaultName)]);
    const uses: AssetUse[] = [];
    for await (const secrets of deps.secretsOf(vaultName))
      for (const { name, enabled, createdOn = 0 } of secrets) {
        const asset = `secret.${name}`;
        if (!enabled || createdOn * SECOND_MS > Date.parse(policyStart) || synced.has(asset.toLowerCase())) continue;
        const read = reads.get(name.toLowerCase());
        const unused = (read ?? logStart) <= policyStart;
        uses.push({
          asset,
          unused,
          evidence: unused ? reasonOf(read, logStart) : `A log shows a read within the last ${days} days.`,
        });
      }
    return uses;
  }

  async function reportVault(
    vaultName: string,
    today: string,
    reportedRows: readonly Row<ReportedUnusedRecord>[],
  ): Promise<void> {
    // Assets (`secret.<name>`), with UNUSED_MARK in front of unused ones: a change of the state also changes the text.
    const reported = new Set(reportedRows.flatMap((row) => unpack(ReportedUnused, row, "assets", z.array(z.string()))));
    const current = new Set((await usesOf(vaultName)).map(({ asset, unused }) => (unused ? UNUSED_MARK : "") + asset));
    const differences = [...current]
      .filter((one) => !reported.has(one))
      .concat([...reported].filter((one) => !current.has(one)));
    const changed = [
      ...new Set(differences.map((one) => (one.startsWith(UNUSED_MARK) ? one.slice(UNUSED_MARK.length) : one))),
    ];
    // Compliance is notified before the row is written: after a crash in between it is notified again.
    if (changed.length > 0) await deps.changed(vaultName, changed);
    const names = [...current].sort();
    // The first row names the number of rows. Further ones of an earlier, longer report stay and are not read.
    const rows = Math.max(1, Math.ceil(names.length / NAMES_PER_ROW));
    // The first row is written last, because it contains the day and the number of rows.
    for (let index = rows - 1; index >= 0; index--) {
      const assets = pack(names.slice(index * NAMES_PER_ROW, (index + 1) * NAMES_PER_ROW));
      const key = furtherUnusedKey(vaultUseKey(vaultName), index);
      await tables.put(ReportedUnused, UNUSED, key, {
        lookedOn: today,
        assets,
        ...(rows > 1 && index === 0 && { rows }),
      });
    }
  }

  return {
    usesOf,

    async readsOf(vaultName) {
      if (workspaceIds.length === 0) return undefined;
      // A row that can't be read may hold the last read of a secret. So no period counts as complete then.
      let isReadable = true;
      const onCorrupt = () => {
        isReadable = false;
      };
      const [period, reads, synced] = await Promise.all([
        completePeriod(vaultName, clock.now(), { onCorrupt }),
        lastReads(vaultName, { onCorrupt }),
        findSyncedSecrets(vaultName, { onCorrupt }),
      ]);
      const { since, until } = (isReadable ? period : undefined) ?? {};
      const names = [...synced].map((asset) => asset.slice("secret.".length));
      return {
        completeSince: since,
        completeUntil: until,
        lastReads: reads,
        synced: new Set(names),
      };
    },

    async reportUnused() {
      const today = clock.now().toISOString().slice(0, 10);
      const reported = new Map<string, Row<ReportedUnusedRecord>>();
      for await (const page of tables.pages(ReportedUnused, { partitionKey: UNUSED }))
        for (const row of page) reported.set(row.rowKey, row);
      const vaults = new Map<string, string>();
      for (const id of workspaceIds)
        for await (const rows of tables.pages(VaultUses, { ...under(id, VAULT_USES), select: ["vaultName"] }))
          for (const { rowKey, vaultName } of rows) vaults.set(rowKey, vaultName);
      for (const [rowKey, vaultName] of vaults) {
        const first = reported.get(rowKey);
        if (first?.lookedOn === today) continue;
        const keys = Array.from({ length: first?.rows ?? 1 }, (_, index) => furtherUnusedKey(rowKey, index));
        await reportVault(
          vaultName,
          today,
          keys.flatMap((key) => reported.get(key) ?? []),
        );
      }
    },
  };
}

/** Prefix that stored names have if the secret was unused. Names of used secrets have none. */
const UNUSED_MARK = "-";

const reasonOf = (read: string | undefined, logStart: string): string =>
  read === undefined
    ? `No log shows a read since ${logStart.slice(0, 10)}, the start of the vault's complete log.`
    : `No log shows a read after ${read.slice(0, 10)}.`;
