import { setFlagsFromString } from "node:v8";

/**
 * The smallest instances have 512 MB, the platform's host included, and V8 sizes its heap by the machine it sees: it would
 * rather take memory than collect. These two make it collect sooner, for a little more processor time: old space may grow
 * by half of what survived, and the space for new objects keeps its first size. Measured in BENCHMARKS.md.
 * Imported where the rooms begin, since what has grown does not shrink.
 */
setFlagsFromString("--heap-growing-percent=50");
setFlagsFromString("--semi-space-growth-factor=1");
