import { sourceOf } from "../inventory/asset.ts";
import type { VaultRecord } from "../inventory/vault.ts";
import { VaultBusy } from "../inventory/vault-claim.ts";
import { isServiceVault } from "../platform/azure/service-key-vault.ts";
import type { Config } from "../platform/config/config.ts";
import { startHeartbeat } from "../platform/runs/heartbeat.ts";
import type { Logger } from "../platform/runtime.ts";
import { isConflict, repeatOnConflict, undefinedIfChanged } from "../platform/storage/conflict.ts";
import type { Row } from "../platform/storage/entity.ts";
import type { Queues } from "../platform/storage/queues.ts";
import { merge, type Tables } from "../platform/storage/tables.ts";
import { recordMetric } from "../platform/telemetry.ts";
import { SECOND_MS } from "../platform/time.ts";
import type { Settings } from "../settings/settings.ts";
import type { ActiveScanList } from "./active-scans.ts";
import {
  BURST_MS,
  LONGEST_RESCAN_MS,
  mergeRequests,
  RESCAN_QUEUE,
  RESCANS,
  type RescanRecord,
  type RescanRequest,
  RescanRows,
  rescanKey,
  SPACING_MS,
  subscriptionsOf,
} from "./rescan-rows.ts";
import { type RescanVaultDeps, rescanVault } from "./rescan-vault.ts";
import type { VaultEvent, VaultHint } from "./vault-event.ts";

/** Interval at which a worker renews its re-scan, and the age from which it has crashed: three missed heartbeats. */
const RENEWAL_MS = 20 * SECOND_MS;
const SILENT_MS = 60 * SECOND_MS;
/** Tolerated difference between the clocks of storage's queues and tables. */
const EARLY_MS = 2 * SECOND_MS;
/**
 * Time after which an unstarted re-scan has lost its message or waits for a free worker. Longer than the longest polling
 * interval of the queue.
 */
const LATE_MS = 10 * SECOND_MS;
/** Interval at which the workers of scans check for re-scans that wait for a free worker. */
const CHECK_INTERVAL_MS = 5 * SECOND_MS;
/** Re-scans read at a time to choose a waiting one. */
const CANDIDATES = 100;

/** Re-scans single vaults after events, between scans. A re-scan never starts a scan and never prevents one. */
export interface Rescans {
  /**
   * Requests a re-scan of the event's vault, if the vault is in scope. Of many events only the first writes, and one more
   * during a re-scan. Only the vault and the time of an event are stored.
   *
   * @param delivery - 1 for the message's first delivery. A later delivery follows a process that may have crashed before it
   * sent the re-scan's message.
   */
  note(event: VaultEvent, delivery: number): Promise<void>;
  /**
   * Runs the requested re-scan of a vault if it is due and a worker is free. Otherwise the next worker that becomes free runs
   * it.
   */
  rescan(vaultName: string, requestId: string): Promise<void>;
  /** Gives up a re-scan whose message failed five times. The vault's next event or the next scan reads the vault. */
  failed(vaultName: string): Promise<void>;
  /** Runs one re-scan that waits for a free worker. The workers of scans call it between two vaults. */
  between(requestId: string): Promise<void>;
  /** Sends the message of a waiting re-scan. A scan's worker without further vaults calls it. At most one request. */
  workerFreed(): Promise<void>;
  /** Sends the message of a re-scan that waits for a free worker. One request if none waits. */
  wakeNextRescan(): Promise<void>;
  /** Sends lost messages again, every minute. One request if no re-scan is requested. */
  watch(): Promise<void>;
}

export interface RescansDeps extends RescanVaultDeps {
  tables: Tables;
  queues: Queues;
  settings: Pick<Settings, "values">;
  active: ActiveScanList;
  config: Pick<Config, "SERVICE_KEY_VAULT_URL">;
  /** Called after a re-scan that changed something. */
  changed: () => Promise<void>;
  log: Logger;
}

export function createRescans(deps: RescansDeps): Rescans {
  const { tables, queues, active, clock, randomness, log } = deps;

  const read = (vaultName: string) => tables.get(RescanRows, RESCANS, rescanKey(vaultName));
  const wake = (vaultName: string, waitMs = 0) =>
    queues.send(RESCAN_QUEUE, { vaultName }, { delaySeconds: Math.max(0, Math.ceil(waitMs / SECOND_MS)) });
  const after = (milliseconds: number, from = clock.now().getTime()) => new Date(from + milliseconds).toISOString();
  const waitOf = ({ dueAt }: Pick<RescanRecord, "dueAt">) => Date.parse(dueAt) - clock.now().getTime();

  async function note({ hint }: VaultEvent, delivery: number): Promise<void> {
    const outcome = hint ? await repeatOnConflict(() => requestRescan(hint, delivery)) : "ignored";
    recordMetric("vault.events", 1, { outcome });
    log.debug("An event was received", { outcome, vault: outcome === "ignored" ? undefined : hint?.vaultName });
  }

  async function requestRescan(hint: VaultHint, delivery: number): Promise<"wanted" | "joined" | "ignored"> {
    const mine: RescanRequest = { at: clock.now().toISOString(), fromVault: hint.about !== "resource" };
    const described: RescanRequest = { ...mine, vaultId: hint.vaultId };
    const row = await read(hint.vaultName);
    if (row) {
      const isKnownPlace = hint.about === "assets" && row.subscriptionId === hint.subscriptionId;
      const request = isKnownPlace ? mine : described;
      const part = row.worker === undefined ? "want" : "again";
      const next = mergeRequests(row[part], request)!;
      if (next !== row[part]) await tables.replace(RescanRows, { ...row, [part]: next });
      if (delivery > 1 && row.worker === undefined) await wake(row.vaultName, waitOf(row));
      return "joined";
    }
    if (isServiceVault(deps.config, hint.vaultName)) return "ignored";
    const known = await deps.writer.find(hint.vaultName);
    if (known ? sourceOf(known) !== "keyVault" : hint.about !== "resource") return "ignored";
    if (!(await deps.watched(hint.subscriptionId))) return "ignored";
    const waitMs = Math.max(BURST_MS, waitAfterRead(known));
    await tables.insert(RescanRows, RESCANS, rescanKey(hint.vaultName), {
      vaultName: hint.vaultName,
      subscriptionId: known?.subscriptionId.toLowerCase() ?? hint.subscriptionId,
      want: hint.about === "assets" && isAt(known, hint) ? mine : described,
      dueAt: after(waitMs),
      failures: 0,
    });
    await wake(hint.vaultName, waitMs);
    return "wanted";
  }

  /** Returns the milliseconds until a vault may be re-scanned that a scan or a re-scan has just read. */
  function waitAfterRead(known: VaultRecord | undefined): number {
    const failedAt = Object.values(known?.failures ?? {}).map(({ at }) => at);
    const readAt = [...Object.values(known?.listedAt ?? {}), ...failedAt].sort().at(-1);
    const waitMs = readAt === undefined ? 0 : Date.parse(readAt) + SPACING_MS - clock.now().getTime();
    return Math.min(SPACING_MS, waitMs);
  }

  async function rescan(vaultName: string, requestId: string): Promise<void> {
    const found = await tables.getWithAge(RescanRows, RESCANS, rescanKey(vaultName));
    if (!found || (found.row.worker !== undefined && found.ageMs < SILENT_MS)) return;
    const { row } = found;
    const waitMs = row.worker === undefined ? waitOf(row) : 0;
    if (waitMs > EARLY_MS) return await wake(vaultName, waitMs);
    const { discoveryMaxWorkers } = await deps.settings.values();
    let wasFree = true;
    try {
      wasFree = await withWorker(row, discoveryMaxWorkers, requestId);
    } finally {
      // Also after a failed re-scan: its own message is redelivered, but nothing else wakes the waiting re-scans.
      if (wasFree) await wakeNextRescan();
    }
    // Without a free worker, no message is sent: it would add one more with each message of the watch. Instead, a re-scan that
    // ends, a scan that ends, and a scan's worker without further vaults wake a waiting re-scan. A scan's worker also runs one
    // between two vaults.
  }

  async function wakeNextRescan(): Promise<void> {
    const next = await waiting();
    if (next) await wake(next.vaultName);
  }

  /** Runs a re-scan in a free worker's place. Returns false if no worker is free. */
  async function withWorker(row: Row<RescanRecord>, limit: number, requestId: string): Promise<boolean> {
    const worker = randomness.ulid(clock.now());
    const { subscriptionId } = row;
    const otherSubscriptionIds = subscriptionsOf(mergeRequests(row.want, row.again)!);
    if (!(await active.enterRescan({ worker, subscriptionId, otherSubscriptionIds }, limit))) return false;
    // If a renewal fails, another worker may re-scan the vault too. Only one of them can write it.
    const renewals = startHeartbeat(RENEWAL_MS, () => Promise.all([renew(row), active.renewRescan(worker)]));
    try {
      await runRescan(row, worker, requestId);
    } finally {
      await renewals.stop();
      await active.leaveRescan(worker);
    }
    return true;
  }

  /** Claims the re-scan for the worker, runs it, and ends or requeues it. */
  async function runRescan(row: Row<RescanRecord>, worker: string, requestId: string): Promise<void> {
    const want = mergeRequests(row.want, row.again)!;
    const started = { ...row, want, again: undefined, worker, begunAt: clock.now().toISOString() };
    // Another worker was faster, or an event arrived at this moment.
    if (!(await undefinedIfChanged(tables.replace(RescanRows, started)))) return await wake(row.vaultName, SECOND_MS);
    const options = { owner: `look/${worker}`, requestId, signal: AbortSignal.timeout(LONGEST_RESCAN_MS) };
    try {
      if (await rescanVault(started, options, deps)) await deps.changed();
    } catch (error) {
      const isBusy = error instanceof VaultBusy;
      await requeue(row.vaultName, worker, isBusy ? { waitMs: error.waitMs } : { failures: row.failures + 1 });
      if (!isBusy) throw error;
      return await wake(row.vaultName, error.waitMs);
    }
    await end(row.vaultName, worker);
  }

  /** Uses a merge, so that concurrent writes of events are kept. */
  const renew = ({ rowKey, vaultName }: Row<RescanRecord>) =>
    tables.transaction(RescanRows.table, RESCANS, [merge(RescanRows, rowKey, { vaultName })]);

  /** Ends the re-scan, or schedules another one if events arrived since it started. */
  async function end(vaultName: string, worker: string): Promise<void> {
    const left = await releaseRow(vaultName, worker, (row) => {
      if (!row.again) return undefined;
      return { want: row.again, dueAt: after(SPACING_MS, Date.parse(row.begunAt!)), failures: 0 };
    });
    if (left) await wake(vaultName, Math.max(SECOND_MS, waitOf(left)));
  }

  async function requeue(
    vaultName: string,
    worker: string,
    { waitMs = 0, failures }: { waitMs?: number; failures?: number },
  ): Promise<void> {
    await releaseRow(vaultName, worker, (row) => ({
      want: mergeRequests(row.want, row.again)!,
      dueAt: after(waitMs),
      failures: failures ?? row.failures,
    }));
  }

  /**
   * Releases the row if it still belongs to the worker: replaces it by the result of `of`, or removes it. Returns the rest to
   * do.
   */
  async function releaseRow(
    vaultName: string,
    worker: string,
    of: (row: RescanRecord) => Pick<RescanRecord, "want" | "dueAt" | "failures"> | undefined,
  ): Promise<RescanRecord | undefined> {
    return await repeatOnConflict(async () => {
      const row = await read(vaultName);
      if (row?.worker !== worker) return undefined;
      const rest = of(row);
      if (!rest) {
        await tables.remove(RescanRows, RESCANS, row.rowKey, row.etag);
        return undefined;
      }
      return await tables.replace(RescanRows, {
        ...row,
        ...rest,
        worker: undefined,
        begunAt: undefined,
        again: undefined,
      });
    });
  }

  async function failed(vaultName: string): Promise<void> {
    const found = await tables.getWithAge(RescanRows, RESCANS, rescanKey(vaultName));
    if (!found || (found.row.worker !== undefined && found.ageMs < SILENT_MS)) return;
    try {
      await tables.remove(RescanRows, RESCANS, found.row.rowKey, found.row.etag);
    } catch (error) {
      if (!isConflict(error)) throw error; // An event arrived, or a worker started.
    }
  }

  /**
   * Returns a random due re-scan without a worker, or undefined. Failed re-scans are excluded, because their own message or
   * that of the watch retries them. One request for 100 re-scans.
   */
  async function waiting(): Promise<Row<RescanRecord> | undefined> {
    for await (const rows of tables.pages(RescanRows, { partitionKey: RESCANS, pageSize: CANDIDATES })) {
      const due = rows.filter((row) => row.worker === undefined && row.failures === 0 && waitOf(row) <= EARLY_MS);
      if (due.length > 0) return due[Math.floor(randomness.number() * due.length)];
    }
    return undefined;
  }

  let checkedAt = clock.now().getTime();
  /** Returns true every 5 seconds for one worker of this process. The watch starts re-scans that are missed in between. */
  function isCheckDue(): boolean {
    const now = clock.now().getTime();
    if (now - checkedAt < CHECK_INTERVAL_MS) return false;
    checkedAt = now;
    return true;
  }

  async function workerFreed(): Promise<void> {
    if (isCheckDue()) await wakeNextRescan();
  }

  async function between(requestId: string): Promise<void> {
    if (!isCheckDue()) return;
    const row = await waiting();
    if (!row) return;
    try {
      await withWorker(row, Number.POSITIVE_INFINITY, requestId);
    } catch (error) {
      // The row records the failure, and its own message or that of the watch retries it. The scan must not fail with it.
      log.warn("Re-scan of a vault failed", { vault: row.vaultName, reason: error instanceof Error ? error.name : "" });
    }
  }

  async function watch(): Promise<void> {
    let sent = 0;
    for await (const rows of tables.pages(RescanRows, { partitionKey: RESCANS })) {
      const { discoveryMaxWorkers } = await deps.settings.values();
      for (const row of rows) {
        if (row.worker === undefined ? waitOf(row) > -LATE_MS : !(await isLost(row))) continue;
        // A re-scan that ends wakes the next one.
        if (sent++ >= discoveryMaxWorkers) return;
        await wake(row.vaultName);
      }
    }
  }

  /** Returns whether the worker of a re-scan has crashed. Queries storage only if the re-scan started long enough ago. */
  async function isLost({ rowKey, begunAt }: Row<RescanRecord>): Promise<boolean> {
    if (clock.now().getTime() - Date.parse(begunAt!) < SILENT_MS) return false;
    const found = await tables.getWithAge(RescanRows, RESCANS, rowKey);
    return found !== undefined && found.ageMs >= SILENT_MS;
  }

  return { note, rescan, failed, between, workerFreed, wakeNextRescan, watch };
}

/** Returns whether the vault's ID in the inventory is that of the event. */
const isAt = (known: Pick<VaultRecord, "id"> | undefined, { vaultId }: VaultHint): boolean =>
  known?.id.toLowerCase() === vaultId.toLowerCase();
