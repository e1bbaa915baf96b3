import { sourceOf } from "../inventory/asset.ts";
import { VaultBusy } from "../inventory/claim.ts";
import type { VaultRecord } from "../inventory/vault.ts";
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
import type { ActiveScanList } from "./active.ts";
import {
  joined,
  LONGEST_LOOK_MS,
  LOOK_QUEUE,
  LOOKS,
  type LookRecord,
  LookRows,
  lookKey,
  SETTLE_MS,
  SPACING_MS,
  subscriptionsOf,
  type Want,
} from "./look.ts";
import { type LookAtVaultDeps, lookAtVault } from "./look-at-vault.ts";
import type { VaultEvent, VaultHint } from "./vault-event.ts";

/** How often a worker says that it lives; it is dead when that did not come three times. */
const RENEWAL_MS = 20 * SECOND_MS;
const SILENT_MS = 60 * SECOND_MS;
/** Clocks of storage's queues and tables may differ by so much. */
const EARLY_MS = 2 * SECOND_MS;
/**
 * A look that should have begun so long ago has lost its message, or waits for a free worker: longer than the queue is
 * polled at the rarest.
 */
const LATE_MS = 10 * SECOND_MS;
/** How often the workers of scans see whether a look waits that found no free worker. */
const BETWEEN_MS = 5 * SECOND_MS;
/** Looks that are read at a time to choose one that waits. */
const CANDIDATES = 100;

/** Looks at single vaults between scans, after events. No scan is begun by them and none is refused. */
export interface Looks {
  /**
   * Notes that a vault should be looked at, if it is one that is watched. Of many events only the first writes, and one
   * more during a look. Nothing of an event is kept but that there was one.
   *
   * @param delivery - 1 for the message's first delivery. A later one follows a process that may have died before it sent
   * the look's message.
   */
  note(event: VaultEvent, delivery: number): Promise<void>;
  /**
   * Does the look that a vault's row wants, when it is due and there is a free worker; without one it is done by whoever
   * gets free first.
   */
  look(vaultName: string, requestId: string): Promise<void>;
  /** Gives up a look whose message failed for good; the vault's next event, or the next scan, looks again. */
  failed(vaultName: string): Promise<void>;
  /** For the worker of a scan, between two vaults: does one look that waits for a free worker, in the place of a vault. */
  between(requestId: string): Promise<void>;
  /** For the worker of a scan without a vault left: wakes a look that waits for a free worker. One request at the most. */
  workerFreed(): Promise<void>;
  /** Wakes a look that waits for a free worker. One request where none does. */
  wakeWaiting(): Promise<void>;
  /** Sends the messages again that were lost, each minute. One request where no look is wanted. */
  watch(): Promise<void>;
}

export interface LooksDeps extends LookAtVaultDeps {
  tables: Tables;
  queues: Queues;
  settings: Pick<Settings, "values">;
  active: ActiveScanList;
  config: Pick<Config, "SERVICE_KEY_VAULT_URL">;
  /** Run after a look that changed something. */
  changed: () => Promise<void>;
  log: Logger;
}

export function createLooks(deps: LooksDeps): Looks {
  const { tables, queues, active, clock, randomness, log } = deps;

  const read = (vaultName: string) => tables.get(LookRows, LOOKS, lookKey(vaultName));
  const wake = (vaultName: string, waitMs = 0) =>
    queues.send(LOOK_QUEUE, { vaultName }, { delaySeconds: Math.max(0, Math.ceil(waitMs / SECOND_MS)) });
  const after = (milliseconds: number, from = clock.now().getTime()) => new Date(from + milliseconds).toISOString();
  const waitOf = ({ dueAt }: Pick<LookRecord, "dueAt">) => Date.parse(dueAt) - clock.now().getTime();

  async function note({ hint }: VaultEvent, delivery: number): Promise<void> {
    const outcome = hint ? await repeatOnConflict(() => want(hint, delivery)) : "ignored";
    recordMetric("vault.events", 1, { outcome });
    log.debug("An event was received", { outcome, vault: outcome === "ignored" ? undefined : hint?.vaultName });
  }

  async function want(hint: VaultHint, delivery: number): Promise<"wanted" | "joined" | "ignored"> {
    const mine: Want = { at: clock.now().toISOString(), fromVault: hint.about !== "resource" };
    const described: Want = { ...mine, vaultId: hint.vaultId };
    const row = await read(hint.vaultName);
    if (row) {
      const isThere = hint.about === "assets" && row.subscriptionId === hint.subscriptionId;
      const heard = isThere ? mine : described;
      const part = row.worker === undefined ? "want" : "again";
      const next = joined(row[part], heard)!;
      if (next !== row[part]) await tables.replace(LookRows, { ...row, [part]: next });
      if (delivery > 1 && row.worker === undefined) await wake(row.vaultName, waitOf(row));
      return "joined";
    }
    if (isServiceVault(deps.config, hint.vaultName)) return "ignored";
    const known = await deps.writer.find(hint.vaultName);
    if (known ? sourceOf(known) !== "keyVault" : hint.about !== "resource") return "ignored";
    if (!(await deps.watched(hint.subscriptionId))) return "ignored";
    const waitMs = Math.max(SETTLE_MS, spacing(known));
    await tables.insert(LookRows, LOOKS, lookKey(hint.vaultName), {
      vaultName: hint.vaultName,
      subscriptionId: known?.subscriptionId.toLowerCase() ?? hint.subscriptionId,
      want: hint.about === "assets" && isAt(known, hint) ? mine : described,
      dueAt: after(waitMs),
      failures: 0,
    });
    await wake(hint.vaultName, waitMs);
    return "wanted";
  }

  /** Milliseconds until a vault may be looked at that a scan or a look has read just now. */
  function spacing(known: VaultRecord | undefined): number {
    const failedAt = Object.values(known?.failures ?? {}).map(({ at }) => at);
    const readAt = [...Object.values(known?.listedAt ?? {}), ...failedAt].sort().at(-1);
    const waitMs = readAt === undefined ? 0 : Date.parse(readAt) + SPACING_MS - clock.now().getTime();
    return Math.min(SPACING_MS, waitMs);
  }

  async function look(vaultName: string, requestId: string): Promise<void> {
    const found = await tables.getWithAge(LookRows, LOOKS, lookKey(vaultName));
    if (!found || (found.row.worker !== undefined && found.ageMs < SILENT_MS)) return;
    const { row } = found;
    const waitMs = row.worker === undefined ? waitOf(row) : 0;
    if (waitMs > EARLY_MS) return await wake(vaultName, waitMs);
    const { discoveryMaxWorkers } = await deps.settings.values();
    let wasFree = true;
    try {
      wasFree = await withWorker(row, discoveryMaxWorkers, requestId);
    } finally {
      // After a look that failed, too: its own message comes again, but nothing else wakes those behind it.
      if (wasFree) await wakeWaiting();
    }
    // Else nobody is free, and whoever gets free wakes it: a look that ends, a scan that ends, and a scan's worker without a
    // vault left. Between two vaults that one does it itself. A message that waited as well would be one more with each that
    // the watch sends.
  }

  async function wakeWaiting(): Promise<void> {
    const next = await waiting();
    if (next) await wake(next.vaultName);
  }

  /** False when there is no free worker for it. */
  async function withWorker(row: Row<LookRecord>, limit: number, requestId: string): Promise<boolean> {
    const worker = randomness.ulid(clock.now());
    const { subscriptionId } = row;
    const otherSubscriptionIds = subscriptionsOf(joined(row.want, row.again)!);
    if (!(await active.enterLook({ worker, subscriptionId, otherSubscriptionIds }, limit))) return false;
    // At the worst another worker looks too, and one of them is refused to write.
    const renewals = startHeartbeat(RENEWAL_MS, () => Promise.all([renew(row), active.renewLook(worker)]));
    try {
      await held(row, worker, requestId);
    } finally {
      await renewals.stop();
      await active.leaveLook(worker);
    }
    return true;
  }

  /** Makes the look this worker's, does it, and ends it or puts it back. */
  async function held(row: Row<LookRecord>, worker: string, requestId: string): Promise<void> {
    const want = joined(row.want, row.again)!;
    const begun = { ...row, want, again: undefined, worker, begunAt: clock.now().toISOString() };
    // Another worker was faster, or an event came in this moment.
    if (!(await undefinedIfChanged(tables.replace(LookRows, begun)))) return await wake(row.vaultName, SECOND_MS);
    const options = { owner: `look/${worker}`, requestId, signal: AbortSignal.timeout(LONGEST_LOOK_MS) };
    try {
      if (await lookAtVault(begun, options, deps)) await deps.changed();
    } catch (error) {
      const isBusy = error instanceof VaultBusy;
      await putBack(row.vaultName, worker, isBusy ? { waitMs: error.waitMs } : { failures: row.failures + 1 });
      if (!isBusy) throw error;
      return await wake(row.vaultName, error.waitMs);
    }
    await end(row.vaultName, worker);
  }

  /** A merge, so that what events write meanwhile stands. */
  const renew = ({ rowKey, vaultName }: Row<LookRecord>) =>
    tables.transaction(LookRows.table, LOOKS, [merge(LookRows, rowKey, { vaultName })]);

  /** The look is over, unless an event came since it began: then another one is due. */
  async function end(vaultName: string, worker: string): Promise<void> {
    const left = await letGo(vaultName, worker, (row) => {
      if (!row.again) return undefined;
      return { want: row.again, dueAt: after(SPACING_MS, Date.parse(row.begunAt!)), failures: 0 };
    });
    if (left) await wake(vaultName, Math.max(SECOND_MS, waitOf(left)));
  }

  async function putBack(
    vaultName: string,
    worker: string,
    { waitMs = 0, failures }: { waitMs?: number; failures?: number },
  ): Promise<void> {
    await letGo(vaultName, worker, (row) => ({
      want: joined(row.want, row.again)!,
      dueAt: after(waitMs),
      failures: failures ?? row.failures,
    }));
  }

  /** Takes the worker out of the row, or the row away, if it is still that worker's. Answers what is left to do. */
  async function letGo(
    vaultName: string,
    worker: string,
    of: (row: LookRecord) => Pick<LookRecord, "want" | "dueAt" | "failures"> | undefined,
  ): Promise<LookRecord | undefined> {
    return await repeatOnConflict(async () => {
      const row = await read(vaultName);
      if (row?.worker !== worker) return undefined;
      const rest = of(row);
      if (!rest) {
        await tables.remove(LookRows, LOOKS, row.rowKey, row.etag);
        return undefined;
      }
      return await tables.replace(LookRows, {
        ...row,
        ...rest,
        worker: undefined,
        begunAt: undefined,
        again: undefined,
      });
    });
  }

  async function failed(vaultName: string): Promise<void> {
    const found = await tables.getWithAge(LookRows, LOOKS, lookKey(vaultName));
    if (!found || (found.row.worker !== undefined && found.ageMs < SILENT_MS)) return;
    try {
      await tables.remove(LookRows, LOOKS, found.row.rowKey, found.row.etag);
    } catch (error) {
      if (!isConflict(error)) throw error; // An event came, or a worker begins.
    }
  }

  /**
   * One of the looks that are due and in nobody's hands; undefined where there is none. None that failed: its own message, or
   * the watch's, tries that again. One request for 100 looks.
   */
  async function waiting(): Promise<Row<LookRecord> | undefined> {
    for await (const rows of tables.pages(LookRows, { partitionKey: LOOKS, pageSize: CANDIDATES })) {
      const due = rows.filter((row) => row.worker === undefined && row.failures === 0 && waitOf(row) <= EARLY_MS);
      if (due.length > 0) return due[Math.floor(randomness.number() * due.length)];
    }
    return undefined;
  }

  let seenAt = clock.now().getTime();
  /** The workers of scans in this process ask in turns. What comes to wait in between is left to the watch, at the worst. */
  function isTimeToSee(): boolean {
    const now = clock.now().getTime();
    if (now - seenAt < BETWEEN_MS) return false;
    seenAt = now;
    return true;
  }

  async function workerFreed(): Promise<void> {
    if (isTimeToSee()) await wakeWaiting();
  }

  async function between(requestId: string): Promise<void> {
    if (!isTimeToSee()) return;
    const row = await waiting();
    if (!row) return;
    try {
      await withWorker(row, Number.POSITIVE_INFINITY, requestId);
    } catch (error) {
      // Its row says that it failed: its own message, or the watch's, tries again. The scan does not fail with it.
      log.warn("Re-scan of a vault failed", { vault: row.vaultName, reason: error instanceof Error ? error.name : "" });
    }
  }

  async function watch(): Promise<void> {
    let sent = 0;
    for await (const rows of tables.pages(LookRows, { partitionKey: LOOKS })) {
      const { discoveryMaxWorkers } = await deps.settings.values();
      for (const row of rows) {
        if (row.worker === undefined ? waitOf(row) > -LATE_MS : !(await isLost(row))) continue;
        // Whoever ends a look wakes the next.
        if (sent++ >= discoveryMaxWorkers) return;
        await wake(row.vaultName);
      }
    }
  }

  /** Whether the worker of a look is dead. Asked of storage only where it began long enough ago. */
  async function isLost({ rowKey, begunAt }: Row<LookRecord>): Promise<boolean> {
    if (clock.now().getTime() - Date.parse(begunAt!) < SILENT_MS) return false;
    const found = await tables.getWithAge(LookRows, LOOKS, rowKey);
    return found !== undefined && found.ageMs >= SILENT_MS;
  }

  return { note, look, failed, between, workerFreed, wakeWaiting, watch };
}

/** Whether the inventory has the vault where the event says it is. */
const isAt = (known: Pick<VaultRecord, "id"> | undefined, { vaultId }: VaultHint): boolean =>
  known?.id.toLowerCase() === vaultId.toLowerCase();
