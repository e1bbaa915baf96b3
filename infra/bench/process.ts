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
