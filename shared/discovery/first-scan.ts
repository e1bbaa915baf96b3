import { Problem } from "../platform/http/problem.ts";
import type { Clock, Logger, Randomness } from "../platform/runtime.ts";
import { isConflict, undefinedIfChanged } from "../platform/storage/conflict.ts";
import type { Row } from "../platform/storage/entity.ts";
import type { Tables } from "../platform/storage/tables.ts";
import { SECOND_MS } from "../platform/time.ts";
import type { Discovery } from "./discovery.ts";
import { FIRST, type FirstScan, FirstScans, SCAN_LIST, Scans } from "./scan.ts";

/** Age from which a claim without a scan is abandoned: an instance starts the scan right after its claim, so its instance crashed. */
const ABANDONED_MS = 30 * SECOND_MS;

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
 * Returns a function that starts a full scan if no scan was ever started in this store, once for all instances. Call it every
 * minute: a claim that carries the scan's id is inserted first, and a later call starts the scan of an abandoned claim under the
 * same id, which only one can do. The scan watch completes a scan that has its row. After that, this process makes no more
 * requests.
 */
export function createFirstScan(deps: FirstScanDeps): (requestId: string) => Promise<void> {
  const { tables, discovery, clock, randomness, log } = deps;
  let isSettled = !deps.enabled;

  async function hasScans(): Promise<boolean> {
    const range = { partitionKey: SCAN_LIST, pageSize: 1, select: ["scanId" as const] };
    for await (const rows of tables.pages(Scans, range)) return rows.length > 0;
    return false;
  }

  /** Returns undefined if another instance was faster. */
  async function claim(): Promise<Row<FirstScan> | undefined> {
    const scanId = randomness.ulid(clock.now());
    try {
      return await tables.insert(FirstScans, FIRST, FIRST, { scanId, started: false });
    } catch (error) {
      if (isConflict(error)) return undefined;
      throw error;
    }
  }

  /** Returns true once the store has a scan. Returns false while another scan is being started, which may still be lost. */
  async function start({ scanId }: FirstScan, requestId: string): Promise<boolean> {
    if (await hasScans()) return true;
    try {
      await discovery.start({ mode: "full" }, { actor: "system", requestId }, "schedule", scanId);
      log.info("Starting the first scan: no scan exists", { scanId });
      return true;
    } catch (error) {
      if (error instanceof Problem && error.code === "scanRunning") return false;
      throw error;
    }
  }

  return async function startFirstScan(requestId) {
    if (isSettled) return;
    const found = await tables.getWithAge(FirstScans, FIRST, FIRST);
    const claimed = found?.row ?? (await claim());
    if (!claimed) return;
    if (!claimed.started) {
      if (found && found.ageMs < ABANDONED_MS) return;
      if (!(await start(claimed, requestId))) return;
      await undefinedIfChanged(tables.replace(FirstScans, { ...claimed, started: true }));
    }
    isSettled = true;
  };
}
