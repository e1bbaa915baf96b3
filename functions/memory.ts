import { PerformanceObserver } from "node:perf_hooks";
import { getHeapSpaceStatistics, setFlagsFromString } from "node:v8";

/** What new objects get: half of what V8 would let them have. With the two MB it begins with, collecting is a tenth of a scan. */
const MOST_NEW_SPACE_BYTES = 32 * 1024 * 1024;
/** While so much or less has survived, old space may double. A service that scans has some 45 MB: its code and what is under way. */
const SMALL_OLD_SPACE_BYTES = 64 * 1024 * 1024;

/**
 * The smallest instances have 512 MB, the platform's host included, and V8 sizes its heap by the machine it sees: it would
 * rather take memory than collect. These make it collect sooner where much has survived: there old space may grow by half.
 * V8 reads the bound of the space for new objects only when a process starts, and that is not ours to start; how both grow
 * it reads each time, so this looks after each collection. Measured in BENCHMARKS.md.
 * Imported where the rooms begin, since what has grown does not shrink.
 */
function bound(): void {
  const spaces = new Map(getHeapSpaceStatistics().map((space) => [space.space_name, space]));
  const newSpaceMayGrow = (spaces.get("new_space")?.space_size ?? 0) < MOST_NEW_SPACE_BYTES;
  const isSmall = (spaces.get("old_space")?.space_used_size ?? 0) <= SMALL_OLD_SPACE_BYTES;
  setFlagsFromString(`--semi-space-growth-factor=${newSpaceMayGrow ? 2 : 1}`);
  setFlagsFromString(`--heap-growing-percent=${isSmall ? 100 : 50}`);
}

bound();
new PerformanceObserver(bound).observe({ entryTypes: ["gc"] });
