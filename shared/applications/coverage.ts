import type { ListFailure } from "../platform/runs/discovery-runs.ts";
import { isOver } from "../platform/runs/run-store.ts";
import type { Tables } from "../platform/storage/tables.ts";
import { Applications, byNameRange, RUNS, type RunRecord, Runs } from "./application.ts";
import { numberOfApplications } from "./query.ts";

/** How many of the known applications the last ended discovery read. */
export interface ApplicationCoverage {
  total: number;
  read: number;
  /** Lists that the last discovery could not read. */
  failures: ListFailure[];
  /** Whether a discovery has ended within the retention of runs. */
  isDiscovered: boolean;
}

/**
 * First key after all runs. The key of the row that names the run in progress starts with a lower-case letter, so it is later.
 */
const AFTER_RUNS = "a";
/** The newest run may be in progress. The one before it has ended. */
const NEWEST_RUNS = 2;

/**
 * Reads the result of the last ended discovery. Costs two requests. While service principals can't be read, one more for each
 * 1,000 applications, because the kinds are counted.
 */
export async function readCoverage(tables: Tables): Promise<ApplicationCoverage> {
  const [run, total] = await Promise.all([lastEndedRun(tables), numberOfApplications(tables)]);
  if (!run) return { total, read: 0, failures: [], isDiscovered: false };
  const { failures } = run;
  const unreadLists = new Set(failures.map(({ list }) => list));
  if (unreadLists.size === 0) return { total, read: total, failures, isDiscovered: true };
  // `servicePrincipals` is the only list whose failure leaves the others current.
  const isOnlyPartly = unreadLists.size === 1 && unreadLists.has("servicePrincipals");
  const read = isOnlyPartly ? await countKind(tables, "application") : 0;
  return { total, read, failures, isDiscovered: true };
}

async function lastEndedRun(tables: Tables): Promise<RunRecord | undefined> {
  const range = { partitionKey: RUNS, before: AFTER_RUNS, pageSize: NEWEST_RUNS, onCorrupt: "leaveOut" as const };
  for await (const runs of tables.pages(Runs, range)) {
    const ended = runs.find(isOver);
    if (ended) return ended;
  }
  return undefined;
}

async function countKind(tables: Tables, kind: "application" | "servicePrincipal"): Promise<number> {
  let count = 0;
  for await (const rows of tables.pages(Applications, { ...byNameRange, select: ["kind"] }))
    count += rows.filter((row) => row.kind === kind).length;
  return count;
}
