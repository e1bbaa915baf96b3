import { Problem } from "../platform/http/problem.ts";
import type { Clock, Logger, Randomness } from "../platform/runtime.ts";
import { isConflict, undefinedIfChanged } from "../platform/storage/conflict.ts";
import type { Row } from "../platform/storage/entity.ts";
import type { Tables } from "../platform/storage/tables.ts";
import { SECOND_MS } from "../platform/time.ts";
import type { Discovery } from "./discovery.ts";
import { FIRST, type FirstScan, FirstScans, SCAN_LIST, Scans } from "./scan.ts";

/**
 * The first scan of a new installation, which starts without a request. Each instance tries to insert the same row, the claim.
 * The instance that inserted it starts the scan.
 */

/** An instance starts the scan right after its claim. If there is no scan after this time, the instance has crashed. */
const CLAIM_TIMEOUT_MS = 30 * SECOND_MS;

export interface FirstScanDeps {
  tables: Tables;
  discovery: Pick<Discovery, "start">;
  /** False if `FIRST_SCAN` is `off`. */
  enabled: boolean;
  clock: Clock;
  randomness: Randomness;
  log: Logger;
}

/**
 * Returns a function that starts a full scan if this storage has never had a scan. A timer calls it every minute on each
 * instance. The function first inserts a claim: a row with the ID of the scan to start. If the claim's instance crashes, a
 * later call starts the scan under the same ID, so that only one instance can. Once there is a scan, the function sends no
 * further requests in this process.
 */
export function createFirstScan(deps: FirstScanDeps): (requestId: string) => Promise<void> {
  const { tables, discovery, clock, randomness, log } = deps;
  let isDone = !deps.enabled;

  async function hasScans(): Promise<boolean> {
    const range = { partitionKey: SCAN_LIST, pageSize: 1, select: [] };
    for await (const rows of tables.pages(Scans, range)) return rows.length > 0;
    return false;
  }

  /** Inserts the claim. Returns undefined if another instance inserted it first. */
  async function claim(): Promise<Row<FirstScan> | undefined> {
    const scanId = randomness.ulid(clock.now());
    try {
      return await tables.insert(FirstScans, FIRST, FIRST, { scanId, started: false });
    } catch (error) {
      if (isConflict(error)) return undefined;
      throw error;
    }
  }

  /**
   * Starts the scan if there is none. Returns false while another scan is being created, because its creation may still fail.
   */
  async function start({ scanId }: FirstScan, requestId: string): Promise<boolean> {
    if (await hasScans()) return true;
    try {
      await discovery.start({ mode: "full" }, { actor: "system", requestId }, "schedule", scanId);
      log.info("The first scan was started, because no scan exists", { scanId });
      return true;
    } catch (error) {
      if (error instanceof Problem && error.code === "scanRunning") return false;
      throw error;
    }
  }

  return async function startFirstScan(requestId) {
    if (isDone) return;
    const stored = await tables.getWithAge(FirstScans, FIRST, FIRST);
    const claimed = stored?.row ?? (await claim());
    if (!claimed) return;
    if (!claimed.started) {
      if (stored && stored.ageMs < CLAIM_TIMEOUT_MS) return;
      if (!(await start(claimed, requestId))) return;
      await undefinedIfChanged(tables.replace(FirstScans, { ...claimed, started: true }));
    }
    isDone = true;
  };
}
