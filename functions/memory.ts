import { PerformanceObserver } from "node:perf_hooks";
import { getHeapSpaceStatistics, setFlagsFromString } from "node:v8";

/**
 * The smallest instances have 512 MB, the platform's host included, and V8 sizes its heap by the machine it sees: it would
 * rather take memory than collect. These make it collect sooner, for a little more processor time: old space may grow
 * by half of what survived, and the space for new objects grows to 16 MB, a quarter of what V8 would let it have. With the
 * two it begins with, collecting is a tenth of a scan's processor time and more. Measured in BENCHMARKS.md.
 * Imported where the rooms begin, since what has grown does not shrink.
 */
setFlagsFromString("--heap-growing-percent=50");
growNewSpaceBy(1);

const MOST_NEW_SPACE_BYTES = 16 * 1024 * 1024;

/** V8 reads the bound of this space only when a process starts, and that is not ours to start; how it grows it reads each time. */
new PerformanceObserver(() => {
  const newSpace = getHeapSpaceStatistics().find(({ space_name }) => space_name === "new_space");
  growNewSpaceBy(newSpace && newSpace.space_size < MOST_NEW_SPACE_BYTES ? 2 : 1);
}).observe({ entryTypes: ["gc"] });

function growNewSpaceBy(factor: number): void {
  setFlagsFromString(`--semi-space-growth-factor=${factor}`);
}
