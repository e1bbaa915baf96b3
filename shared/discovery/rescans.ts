/**
 * Re-scans: an event of a vault leads to a read of that vault alone. Each vault with requested events has a row
 * (rescan-rows.ts) and a queue message. Queue handlers, timers and the workers of scans call this module.
 */
import { sourceOf } from "../inventory/asset.ts";
import type { VaultRecord } from "../inventory/vault.ts";
import { VaultBusy } from "../inventory/vault-claim.ts";
import { isServiceVault } from "../platform/azure/service-key-vault.ts";
import type { Config } from "../platform/config/config.ts";
import { startHeartbeat } from "../platform/runs/heartbeat.ts";
import type { Clock, Logger } from "../platform/runtime.ts";
import { isConflict, repeatOnConflict, undefinedIfChanged } from "../platform/storage/conflict.ts";
import type { Row } from "../platform/storage/entity.ts";
import type { Queues } from "../platform/storage/queues.ts";
import { merge, type Tables } from "../platform/storage/tables.ts";
import { recordMetric } from "../platform/telemetry.ts";
import { SECOND_MS } from "../platform/time.ts";
import type { Settings } from "../settings/settings.ts";
import type { ActiveScanList } from "./active-scans.ts";
import { releaseRescan } from "./release-rescan.ts";
import {
  EVENT_DELAY_MS,
  MAX_RESCAN_MS,
  MIN_RESCAN_INTERVAL_MS,
  mergeRequests,
  RESCAN_QUEUE,
  RESCANS,
  type RescanRecord,
  type RescanRequest,
  RescanRows,
  rescanKey,
  subscriptionsOf,
} from "./rescan-rows.ts";
import { type RescanVaultDeps, rescanVault } from "./rescan-vault.ts";
import type { VaultEvent, VaultHint } from "./vault-event.ts";
import { createVaultFinder } from "./vault-finder.ts";

/** Interval at which a worker renews its re-scan's row. A worker counts as crashed after three missed renewals. */
const RENEWAL_MS = 20 * SECOND_MS;
const RESCAN_LEASE_MS = 60 * SECOND_MS;
/** Tolerated difference between the clocks of queues and tables: a re-scan may start this much before it is due. */
const CLOCK_TOLERANCE_MS = 2 * SECOND_MS;
/**
 * If a due re-scan has not started after this time, its message is lost or it waits for a free worker. Longer than the queue's
 * longest polling interval.
 */
const OVERDUE_AFTER_MS = 10 * SECOND_MS;
/** Interval at which the workers of scans check for re-scans that wait for a free worker. */
const CHECK_INTERVAL_MS = 5 * SECOND_MS;
/** Number of rows that are read at a time to choose a waiting re-scan. */
const RESCANS_PER_PAGE = 100;

/**
 * State of a vault that the inventory has lost. `requested`: a re-scan was requested. `waiting`: one was requested before.
 * `gone`: no watched subscription has the vault any more. `outOfScope`: none of the vault's subscriptions is watched.
 */
export type LostVault = "requested" | "waiting" | "gone" | "outOfScope";

/** Re-scans single vaults after events, between scans. A re-scan never starts a scan and never prevents one. */
export interface Rescans {
  /**
   * Requests a re-scan of the event's vault, if the vault is in scope. In a burst of events only the first one writes a row,
   * and one more if a re-scan is running. Only the vault and the time of an event are stored.
   *
   * @param delivery - 1 for the message's first delivery. A later delivery follows a process that may have crashed before it
   * sent the re-scan's message.
   */
  requestForEvent(event: VaultEvent, delivery: number): Promise<void>;
  /**
   * Requests a re-scan of a vault that the inventory has lost: rows of its assets exist, but the vault's own row does not.
   *
   * @param vaultIds - The resource IDs that these rows name.
   * @throws {CloudFailure} when it can't be read whether the vault exists.
   */
  requestForLostVault(vaultName: string, vaultIds: readonly string[]): Promise<LostVault>;
  /**
   * Requests a re-scan of a vault of the inventory, because this service has written one of its secrets. Has the same effect as
   * an event of that vault, because the events of a vault may not be delivered to this service.
   */
  requestForChange(vaultName: string): Promise<void>;
  /**
   * Runs the requested re-scan of a vault if it is due and a worker is free. Otherwise the next worker that becomes free runs
   * it.
   */
  rescan(vaultName: string, requestId: string): Promise<void>;
  /** Removes a re-scan whose message failed five times. The vault's next event or the next scan reads the vault. */
  failed(vaultName: string): Promise<void>;
  /** Runs one re-scan that waits for a free worker. The workers of scans call it between two vaults. */
  runWaitingRescan(requestId: string): Promise<void>;
  /**
   * Sends the message of a waiting re-scan. A scan's worker without further vaults calls this. At most one request to the
   * tables.
   */
  onWorkerFreed(): Promise<void>;
  /** Sends the message of a re-scan that waits for a free worker, if any. */
  wakeNextRescan(): Promise<void>;
  /**
   * Sends the messages of overdue re-scans and of crashed workers again. A timer calls this every minute. One request if no
   * re-scan is requested.
   */
  watch(): Promise<void>;
}

export interface RescansDeps extends RescanVaultDeps {
  tables: Tables;
  queues: Queues;
  settings: Pick<Settings, "values">;
  active: ActiveScanList;
  config: Pick<Config, "SERVICE_KEY_VAULT_URL">;
  /** Called after a re-scan that changed something. */
  onInventoryChanged: () => Promise<void>;
  log: Logger;
}

export function createRescans(deps: RescansDeps): Rescans {
  const { tables, queues, active, clock, randomness, log } = deps;

  const findVault = createVaultFinder(deps);
  const readRow = (vaultName: string) => tables.get(RescanRows, RESCANS, rescanKey(vaultName));
  const sendMessage = (vaultName: string, waitMs = 0) =>
    queues.send(RESCAN_QUEUE, { vaultName }, { delaySeconds: Math.max(0, Math.ceil(waitMs / SECOND_MS)) });
  const instantAfter = (milliseconds: number, from = clock.now().getTime()) =>
    new Date(from + milliseconds).toISOString();
  const msUntilDue = (row: Pick<RescanRecord, "dueAt">) => msUntil(row.dueAt, clock);

  /** Outcomes: `wanted` wrote the vault's row, `joined` found a row and added the event, `ignored` requests no re-scan. */
  async function requestForEvent({ hint }: VaultEvent, delivery: number): Promise<void> {
    const outcome = hint ? await repeatOnConflict(() => requestRescan(hint, delivery)) : "ignored";
    recordMetric("vault.events", 1, { outcome });
    log.debug("An event was received", { outcome, vault: outcome === "ignored" ? undefined : hint?.vaultName });
  }

  async function requestRescan(hint: VaultHint, delivery: number): Promise<"wanted" | "joined" | "ignored"> {
    // `about`: `assets` or `vault` if the vault sent the event about its objects or itself, `resource` for an event of the
    // resource manager. Without an ID, the re-scan uses the stored description of the vault. With an ID, it reads it again.
    const requestWithoutId: RescanRequest = { at: clock.now().toISOString(), fromVault: hint.about !== "resource" };
    const requestWithId: RescanRequest = { ...requestWithoutId, vaultId: hint.vaultId };
    const row = await readRow(hint.vaultName);
    if (row) {
      const isDescriptionCurrent = hint.about === "assets" && row.subscriptionId === hint.subscriptionId;
      const request = isDescriptionCurrent ? requestWithoutId : requestWithId;
      // `want`: the events that the waiting re-scan covers. `again`: events that arrive while the re-scan runs.
      const part = row.worker === undefined ? "want" : "again";
      const next = mergeRequests(row[part], request)!;
      if (next !== row[part]) await tables.replace(RescanRows, { ...row, [part]: next });
      if (delivery > 1 && row.worker === undefined) await sendMessage(row.vaultName, msUntilDue(row));
      return "joined";
    }
    if (isServiceVault(deps.config, hint.vaultName)) return "ignored";
    const storedVault = await deps.writer.find(hint.vaultName);
    // For a vault that the inventory does not have, only events of the resource manager count.
    if (storedVault ? sourceOf(storedVault) !== "keyVault" : hint.about !== "resource") return "ignored";
    if (!(await deps.watched(hint.subscriptionId))) return "ignored";
    const waitMs = Math.max(EVENT_DELAY_MS, waitAfterRead(storedVault, clock));
    await tables.insert(RescanRows, RESCANS, rescanKey(hint.vaultName), {
      vaultName: hint.vaultName,
      subscriptionId: storedVault?.subscriptionId.toLowerCase() ?? hint.subscriptionId,
      want: hint.about === "assets" && hasSameId(storedVault, hint) ? requestWithoutId : requestWithId,
      dueAt: instantAfter(waitMs),
      failures: 0,
    });
    await sendMessage(hint.vaultName, waitMs);
    return "wanted";
  }

  async function requestForLostVault(vaultName: string, vaultIds: readonly string[]): Promise<LostVault> {
    if (await readRow(vaultName)) return "waiting";
    const at = clock.now().toISOString();
    const vault = await findVault(vaultName, vaultIds);
    if (typeof vault === "string") return vault;
    const subscriptionId = vault.subscriptionId.toLowerCase();
    const want: RescanRequest = { at, vaultId: vault.id, fromVault: false };
    const row = { vaultName: vault.name, subscriptionId, want, dueAt: at, failures: 0 };
    try {
      await tables.insert(RescanRows, RESCANS, rescanKey(vaultName), row);
    } catch (error) {
      if (!isConflict(error)) throw error;
      return "waiting"; // An event requested the re-scan meanwhile.
    }
    await sendMessage(vault.name);
    return "requested";
  }

  async function requestForChange(vaultName: string): Promise<void> {
    const vault = await deps.writer.find(vaultName);
    if (!vault) return;
    const { id: vaultId, name, subscriptionId } = vault;
    const hint = { vaultId, vaultName: name, subscriptionId: subscriptionId.toLowerCase(), about: "assets" as const };
    await repeatOnConflict(() => requestRescan(hint, 1));
  }

  async function rescan(vaultName: string, requestId: string): Promise<void> {
    const stored = await tables.getWithAge(RescanRows, RESCANS, rescanKey(vaultName));
    // The re-scan has ended, or its worker is active.
    if (!stored || (stored.row.worker !== undefined && stored.ageMs < RESCAN_LEASE_MS)) return;
    const { row } = stored;
    const waitMs = row.worker === undefined ? msUntilDue(row) : 0;
    if (waitMs > CLOCK_TOLERANCE_MS) return await sendMessage(vaultName, waitMs);
    const { discoveryMaxWorkers } = await deps.settings.values();
    let wasWorkerFree = true;
    try {
      wasWorkerFree = await withWorker(row, discoveryMaxWorkers, requestId);
    } finally {
      // Also after a failed re-scan. Its own message is redelivered, but waiting re-scans get no other message.
      if (wasWorkerFree) await wakeNextRescan();
    }
    // Without a free worker, no message is sent here: `watch` also sends one, so messages would multiply. A waiting re-scan gets
    // a message when another re-scan or a scan ends, or when a scan's worker has no further vault. A scan's worker also runs a
    // waiting re-scan between two vaults.
  }

  async function wakeNextRescan(): Promise<void> {
    const next = await findWaitingRescan(deps);
    if (next) await sendMessage(next.vaultName);
  }

  /** Occupies a free worker and runs the re-scan. Returns false if no worker is free. */
  async function withWorker(row: Row<RescanRecord>, limit: number, requestId: string): Promise<boolean> {
    const worker = randomness.ulid(clock.now());
    const { subscriptionId } = row;
    const otherSubscriptionIds = subscriptionsOf(mergeRequests(row.want, row.again)!);
    if (!(await active.enterRescan({ worker, subscriptionId, otherSubscriptionIds }, limit))) return false;
    // After failed renewals another worker may re-scan the vault at the same time. Only one of them can write it: a write fails
    // if the ETag of the vault's fence row changed since the read.
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
    // The row changed: another worker started the re-scan, or an event arrived.
    if (!(await undefinedIfChanged(tables.replace(RescanRows, started))))
      return await sendMessage(row.vaultName, SECOND_MS);
    const options = { workerId: `look/${worker}`, requestId, signal: AbortSignal.timeout(MAX_RESCAN_MS) };
    try {
      if (await rescanVault(started, options, deps)) await deps.onInventoryChanged();
    } catch (error) {
      const isBusy = error instanceof VaultBusy;
      await requeue(row.vaultName, worker, isBusy ? { waitMs: error.waitMs } : { failures: row.failures + 1 });
      if (!isBusy) throw error;
      // Throwing would count as a failed delivery.
      return await sendMessage(row.vaultName, error.waitMs);
    }
    await end(row.vaultName, worker);
  }

  /** Renews the row's age. A merge without changes does not overwrite events that are written at the same time. */
  const renew = ({ rowKey, vaultName }: Row<RescanRecord>) =>
    tables.transaction(RescanRows.table, RESCANS, [merge(RescanRows, rowKey, { vaultName })]);

  /** Ends the re-scan, or schedules another one if events arrived since it started. */
  async function end(vaultName: string, worker: string): Promise<void> {
    const remaining = await releaseRescan(tables, vaultName, worker, (row) => {
      if (!row.again) return undefined;
      return { want: row.again, dueAt: instantAfter(MIN_RESCAN_INTERVAL_MS, Date.parse(row.begunAt!)), failures: 0 };
    });
    if (remaining) await sendMessage(vaultName, Math.max(SECOND_MS, msUntilDue(remaining)));
  }

  async function requeue(
    vaultName: string,
    worker: string,
    { waitMs = 0, failures }: { waitMs?: number; failures?: number },
  ): Promise<void> {
    await releaseRescan(tables, vaultName, worker, (row) => ({
      want: mergeRequests(row.want, row.again)!,
      dueAt: instantAfter(waitMs),
      failures: failures ?? row.failures,
    }));
  }

  async function failed(vaultName: string): Promise<void> {
    const stored = await tables.getWithAge(RescanRows, RESCANS, rescanKey(vaultName));
    if (!stored || (stored.row.worker !== undefined && stored.ageMs < RESCAN_LEASE_MS)) return;
    try {
      await tables.remove(RescanRows, RESCANS, stored.row.rowKey, stored.row.etag);
    } catch (error) {
      if (!isConflict(error)) throw error; // An event arrived, or a worker started.
    }
  }

  let checkedAt = clock.now().getTime();
  /** Returns true at most every 5 seconds in this process. `watch` finds waiting re-scans that no worker found. */
  function isCheckDue(): boolean {
    const now = clock.now().getTime();
    if (now - checkedAt < CHECK_INTERVAL_MS) return false;
    checkedAt = now;
    return true;
  }

  async function onWorkerFreed(): Promise<void> {
    if (isCheckDue()) await wakeNextRescan();
  }

  async function runWaitingRescan(requestId: string): Promise<void> {
    if (!isCheckDue()) return;
    const row = await findWaitingRescan(deps);
    if (!row) return;
    try {
      // Without a limit: the caller is a scan's worker between two vaults, so the re-scan occupies no further worker.
      await withWorker(row, Number.POSITIVE_INFINITY, requestId);
    } catch (error) {
      // The row records the failure, and a message of the re-scan or of `watch` retries it. The scan must not fail with it.
      log.warn("Re-scan of a vault failed", { vault: row.vaultName, reason: error instanceof Error ? error.name : "" });
    }
  }

  async function watch(): Promise<void> {
    let sent = 0;
    for await (const rows of tables.pages(RescanRows, { partitionKey: RESCANS })) {
      const { discoveryMaxWorkers } = await deps.settings.values();
      for (const row of rows) {
        if (row.worker === undefined ? msUntilDue(row) > -OVERDUE_AFTER_MS : !(await hasWorkerCrashed(row))) continue;
        // More messages than workers are not needed: a re-scan that ends sends the message of the next one.
        if (sent++ >= discoveryMaxWorkers) return;
        await sendMessage(row.vaultName);
      }
    }
  }

  /** Returns whether the worker of a re-scan has crashed. Queries storage only if the re-scan started long enough ago. */
  async function hasWorkerCrashed({ rowKey, begunAt }: Row<RescanRecord>): Promise<boolean> {
    if (clock.now().getTime() - Date.parse(begunAt!) < RESCAN_LEASE_MS) return false;
    const stored = await tables.getWithAge(RescanRows, RESCANS, rowKey);
    return stored !== undefined && stored.ageMs >= RESCAN_LEASE_MS;
  }

  return {
    requestForEvent,
    requestForLostVault,
    requestForChange,
    rescan,
    failed,
    runWaitingRescan,
    onWorkerFreed,
    wakeNextRescan,
    watch,
  };
}

/** Returns whether the vault's ID in the inventory is that of the event. */
const hasSameId = (storedVault: Pick<VaultRecord, "id"> | undefined, { vaultId }: VaultHint): boolean =>
  storedVault?.id.toLowerCase() === vaultId.toLowerCase();

const msUntil = (instant: string, clock: Clock): number => Date.parse(instant) - clock.now().getTime();

/**
 * Returns the milliseconds until the vault may be re-scanned: 30 seconds after its last read. Negative if that time has passed.
 */
function waitAfterRead(storedVault: VaultRecord | undefined, clock: Clock): number {
  const failedAt = Object.values(storedVault?.failures ?? {}).map(({ at }) => at);
  const readAt = [...Object.values(storedVault?.listedAt ?? {}), ...failedAt].sort().at(-1);
  // Not longer, even if the time of the read is ahead of this clock.
  return readAt === undefined ? 0 : Math.min(MIN_RESCAN_INTERVAL_MS, msUntil(readAt, clock) + MIN_RESCAN_INTERVAL_MS);
}

/**
 * Returns a random due re-scan without a worker, or undefined. Re-scans that failed are excluded, because their own message or a
 * message of `watch` retries them. One request per 100 re-scans.
 */
async function findWaitingRescan({
  tables,
  clock,
  randomness,
}: Pick<RescansDeps, "tables" | "clock" | "randomness">): Promise<Row<RescanRecord> | undefined> {
  for await (const rows of tables.pages(RescanRows, { partitionKey: RESCANS, pageSize: RESCANS_PER_PAGE })) {
    const due = rows.filter(
      (row) => row.worker === undefined && row.failures === 0 && msUntil(row.dueAt, clock) <= CLOCK_TOLERANCE_MS,
    );
    if (due.length > 0) return due[Math.floor(randomness.number() * due.length)];
  }
  return undefined;
}
