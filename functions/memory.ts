import { PerformanceObserver } from "node:perf_hooks";
import { getHeapSpaceStatistics, setFlagsFromString } from "node:v8";

/**
 * Limit of the space for new objects: half of V8's default. With V8's initial 2 MB, garbage collection takes a tenth of a
 * scan's time.
 */
const MOST_NEW_SPACE_BYTES = 32 * 1024 * 1024;
/** Below this size of surviving objects, old space may double. A scanning service has about 45 MB. */
const SMALL_OLD_SPACE_BYTES = 64 * 1024 * 1024;

/**
 * The smallest instances have 512 MB for the host and the app, but V8 sizes its heap by the memory of the machine. These flags
 * make V8 collect earlier once much has survived: old space then grows by only 50 %. V8 reads the limit of new space only when
 * a process starts, which the platform does, but reads both growth factors before each collection, so they are set again after
 * each collection. Measured in BENCHMARKS.md. Imported first, because a heap that has grown does not shrink.
 */
function setHeapFlags(): void {
  const spaces = new Map(getHeapSpaceStatistics().map((space) => [space.space_name, space]));
  const newSpaceMayGrow = (spaces.get("new_space")?.space_size ?? 0) < MOST_NEW_SPACE_BYTES;
  const isSmall = (spaces.get("old_space")?.space_used_size ?? 0) <= SMALL_OLD_SPACE_BYTES;
  setFlagsFromString(`--semi-space-growth-factor=${newSpaceMayGrow ? 2 : 1}`);
  setFlagsFromString(`--heap-growing-percent=${isSmall ? 100 : 50}`);
}

setHeapFlags();
new PerformanceObserver(setHeapFlags).observe({ entryTypes: ["gc"] });
