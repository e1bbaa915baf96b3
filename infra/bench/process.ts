/** Loaded modules, memory and processor time of the functions process (app and host). */
export interface ProcessFigures {
  /** URLs of the app's files loaded so far. */
  modules: string[];
  /** Bytes: current resident memory, and its peak since the start. */
  memory: { rss: number; peak: number };
  /** Processor time since the start of the process, in milliseconds. */
  processorMs: number;
}

/** Returns the figures of a functions process. The simulated host serves them to tests and benchmarks. */
export async function processFigures(url: string): Promise<ProcessFigures> {
  return (await (await fetch(`${url}/__host/modules`)).json()) as ProcessFigures;
}

/** Returns the result of `work`, and the processor time in milliseconds that the functions process used in the meantime. */
export async function withProcessorTime<T>(url: string, work: () => Promise<T>): Promise<{ result: T; ms: number }> {
  const msBefore = (await processFigures(url)).processorMs;
  const result = await work();
  return { result, ms: (await processFigures(url)).processorMs - msBefore };
}

/**
 * Returns the environment of the functions process as on an instance with 512 MB. It sets the heap limit that V8 derives from
 * that memory (half of it), and the templates' settings for the C library. Without the limit, V8 collects garbage by the memory
 * of the machine that runs the benchmark.
 */
export const smallInstance = (environment: Record<string, string>): Record<string, string> => ({
  NODE_OPTIONS: `${environment.NODE_OPTIONS ?? ""} --max-old-space-size=256`,
  MALLOC_ARENA_MAX: "2",
  MALLOC_TRIM_THRESHOLD_: "131072",
});
