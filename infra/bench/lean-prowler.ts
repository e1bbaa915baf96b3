import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import path from "node:path";
import { promisify } from "node:util";
import type { Control } from "simulated-cloud/control.ts";
import type { Fault } from "simulated-cloud/faults.ts";
import { MEASURED_COMPANY } from "../../test/support/measured-company.ts";
import type { Service } from "../../test/support/service.ts";
import type { Figure } from "./section.ts";

/**
 * Python with Prowler, an open-source security scanner. Install it with
 * `python3 -m venv .local/bench-prowler && .local/bench-prowler/bin/pip install uv==0.13.9`, then
 * `.local/bench-prowler/bin/uv pip install -p .local/bench-prowler --exclude-newer 2026-11-25 prowler==5.46.0`. This takes half
 * a minute and 1.4 GB.
 */
const PYTHON = path.resolve(import.meta.dirname, "../../.local/bench-prowler/bin/python");
const TIMEOUT_MS = 300_000;

/** Measurements of one run of Prowler. */
interface ProwlerRun {
  version: string;
  /** Seconds from Prowler's first call until its reports are written. */
  seconds: number;
  processorMs: number;
  /** Seconds from Prowler's first call until its last check. */
  checkedSeconds: number;
  findings: number;
  /** Seconds from the start of the process until its end. */
  wholeSeconds: number;
  calls: number;
}

/**
 * Part of the benchmark `lean`: runs Prowler once without added latency and once with the latency fault, and the service's full
 * scan once without added latency. Must be the last measurement on a simulated cloud, because it rearranges the subscriptions.
 * Returns undefined if Prowler is not installed.
 */
export async function measureProwler(
  service: Service,
  latency: Fault,
  scan: () => Promise<{ samples: { seconds: number }[] }>,
) {
  if (!existsSync(PYTHON)) return undefined;
  const { control } = service.cloud;
  control.clearFaults();
  const { samples } = await scan();
  splitSubscriptions(control);
  const withoutLatency = await runProwler(service);
  control.addFault(latency);
  return { scanSeconds: samples[0]!.seconds, withoutLatency, withLatency: await runProwler(service) };
}

/**
 * Distributes the vaults to subscriptions of three. Each of Prowler's ten workers keeps a vault while it waits for another
 * worker to read the policies of the vault's keys. With ten such vaults in a subscription all workers wait for each other, so
 * Prowler never ends. Prowler is fastest with three vaults per subscription.
 */
function splitSubscriptions(control: Control): void {
  const vaults = MEASURED_COMPANY.subscriptions.flatMap((subscription) => subscription.vaults ?? []);
  for (const { id } of control.subscriptions()) control.removeSubscription(id);
  for (let start = 0; start < vaults.length; start += 3) {
    control.putSubscription({ name: `Part ${start / 3}`, vaults: vaults.slice(start, start + 3) });
  }
}

async function runProwler({ cloud }: Service): Promise<ProwlerRun> {
  const file = path.resolve(import.meta.dirname, "lean-prowler.py");
  const env = { ...process.env, ...cloud.environment, NODE_OPTIONS: "", PYTHONDONTWRITEBYTECODE: "" };
  cloud.control.resetCounts();
  const started = Date.now();
  const { stdout } = await promisify(execFile)(PYTHON, [file], { env, timeout: TIMEOUT_MS });
  const wholeSeconds = (Date.now() - started) / 1000;
  return { ...JSON.parse(stdout), wholeSeconds, calls: cloud.control.counts().total! };
}

/**
 * Returns the rows of the table that compare Prowler with the service.
 *
 * @param serviceSeconds - Durations of an unchanged and of a first full scan by the service, with latency.
 */
export function prowlerFigures(
  prowler: Awaited<ReturnType<typeof measureProwler>>,
  serviceSeconds: { full: number; first: number },
): Figure[] {
  if (!prowler) {
    const comparedWith = "there is no `.local/bench-prowler`, see `infra/bench/lean-prowler.ts`";
    return [{ what: "Prowler with its checks of Key Vault", value: "not measured", comparedWith }];
  }
  const what = `Prowler ${prowler.withLatency.version} with its checks of Key Vault`;
  const describeRun = (run: ProwlerRun) =>
    `${run.seconds.toFixed(1)} s, ${(run.processorMs / 1000).toFixed(1)} s of processor time`;
  const describeParts = (run: ProwlerRun) =>
    `from its first of ${run.calls} calls to its reports of ${run.findings} findings; ${run.checkedSeconds.toFixed(1)} s to its last check, ${run.wholeSeconds.toFixed(1)} s with its start`;
  const speedup = (seconds: number) => (prowler.withLatency.seconds / seconds).toFixed(1);
  const atLeast = (seconds: number, limit: number) => ({
    text: `≥ ${limit}`,
    holds: prowler.withLatency.seconds / seconds >= limit,
  });
  return [
    {
      what,
      value: `${describeRun(prowler.withLatency)}; an unchanged full scan is ${speedup(serviceSeconds.full)} times faster`,
      comparedWith: describeParts(prowler.withLatency),
      bound: atLeast(serviceSeconds.full, 10),
    },
    {
      what,
      value: `a first full scan is ${speedup(serviceSeconds.first)} times faster`,
      comparedWith: "the same",
      bound: atLeast(serviceSeconds.first, 4.2),
    },
    {
      what: `${what}, no time added to calls`,
      value: `${describeRun(prowler.withoutLatency)}; an unchanged full scan ${prowler.scanSeconds.toFixed(2)} s`,
      comparedWith: describeParts(prowler.withoutLatency),
    },
  ];
}
