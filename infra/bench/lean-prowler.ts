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
 * Prowler is installed with `python3 -m venv .local/bench-prowler && .local/bench-prowler/bin/pip install uv==0.13.9`, then
 * `.local/bench-prowler/bin/uv pip install -p .local/bench-prowler --exclude-newer 2026-11-25 prowler==5.46.0`. This takes half
 * a minute and 1.4 GB.
 */
const PYTHON = path.resolve(import.meta.dirname, "../../.local/bench-prowler/bin/python");
const LIMIT_MS = 300_000;

/**
 * `seconds`: from its first call until its reports are written. `checkedSeconds`: until its last check. `wholeSeconds`:
 * including its start.
 */
interface ProwlerRun {
  version: string;
  seconds: number;
  processorMs: number;
  checkedSeconds: number;
  findings: number;
  wholeSeconds: number;
  calls: number;
}

/**
 * Measures Prowler with no delay of calls and with `slow`, and the service's `scan` without a delay. Must be the last
 * measurement of a cloud, because it changes the company. Returns undefined if Prowler is not installed.
 */
export async function withProwler(
  service: Service,
  slow: Fault,
  scan: () => Promise<{ samples: { seconds: number }[] }>,
) {
  if (!existsSync(PYTHON)) return undefined;
  const { control } = service.cloud;
  control.clearFaults();
  const { samples } = await scan();
  splitSubscriptions(control);
  const fast = await run(service);
  control.addFault(slow);
  return { full: samples[0]!.seconds, fast, slow: await run(service) };
}

/**
 * Distributes the vaults to subscriptions of three. Each of Prowler's ten workers holds a vault while it waits for another
 * worker to read the policies of its keys. In a subscription with ten vaults that have keys, Prowler therefore never ends. With
 * three vaults it is fastest.
 */
function splitSubscriptions(control: Control): void {
  const vaults = MEASURED_COMPANY.subscriptions.flatMap((one) => one.vaults ?? []);
  for (const { id } of control.subscriptions()) control.removeSubscription(id);
  for (let at = 0; at < vaults.length; at += 3) {
    control.putSubscription({ name: `Part ${at / 3}`, vaults: vaults.slice(at, at + 3) });
  }
}

async function run({ cloud }: Service): Promise<ProwlerRun> {
  const file = path.resolve(import.meta.dirname, "lean-prowler.py");
  const env = { ...process.env, ...cloud.environment, NODE_OPTIONS: "", PYTHONDONTWRITEBYTECODE: "" };
  cloud.control.resetCounts();
  const started = Date.now();
  const { stdout } = await promisify(execFile)(PYTHON, [file], { env, timeout: LIMIT_MS });
  const wholeSeconds = (Date.now() - started) / 1000;
  return { ...JSON.parse(stdout), wholeSeconds, calls: cloud.control.counts().total! };
}

export function prowlerFigures(
  at: Awaited<ReturnType<typeof withProwler>>,
  ours: { full: number; first: number },
): Figure[] {
  if (!at) {
    const comparedWith = "there is no `.local/bench-prowler`, see `infra/bench/lean-prowler.ts`";
    return [{ what: "Prowler with its checks of Key Vault", value: "not measured", comparedWith }];
  }
  const what = `Prowler ${at.slow.version} with its checks of Key Vault`;
  const describeRun = (run: ProwlerRun) =>
    `${run.seconds.toFixed(1)} s, ${(run.processorMs / 1000).toFixed(1)} s of processor time`;
  const parts = (run: ProwlerRun) =>
    `from its first of ${run.calls} calls to its reports of ${run.findings} findings; ${run.checkedSeconds.toFixed(1)} s to its last check, ${run.wholeSeconds.toFixed(1)} s with its start`;
  const times = (seconds: number) => (at.slow.seconds / seconds).toFixed(1);
  const atLeast = (seconds: number, limit: number) => ({
    text: `≥ ${limit}`,
    holds: at.slow.seconds / seconds >= limit,
  });
  return [
    {
      what,
      value: `${describeRun(at.slow)}; an unchanged full scan is ${times(ours.full)} times faster`,
      comparedWith: parts(at.slow),
      bound: atLeast(ours.full, 9),
    },
    {
      what,
      value: `a first full scan is ${times(ours.first)} times faster`,
      comparedWith: "the same",
      bound: atLeast(ours.first, 6.5),
    },
    {
      what: `${what}, no time added to calls`,
      value: `${describeRun(at.fast)}; an unchanged full scan ${at.full.toFixed(2)} s`,
      comparedWith: parts(at.fast),
    },
  ];
}
