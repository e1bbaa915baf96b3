import { afterAll, beforeAll, expect, test } from "vitest";
import { RUN_STEPS, type RunRecord } from "../../shared/rotation/secretless-run.ts";
import { BOSS } from "../rotation/world.ts";
import { IS_CAMPAIGN, LONG_MS, sampled } from "../support/sampling.ts";
import type { Steps } from "../support/simulated-crash.ts";
import { drawCompany } from "./drawn-company.ts";
import { openRunWorld, type Workload } from "./run-world.ts";

/**
 * Crashes of workers in runs that replace client secrets: at each call to the tables, the queue, the audit log, Microsoft Graph and
 * Azure DevOps, before it took effect and after. Each case has an application of its own, whose workload signs in at every write: no
 * sign-in may fail. `npm test` runs a sample, and the campaign `secretless` each case.
 */

/** How a run ends, by scenario of its consumer. Together they run every step. */
const RUNS = [
  { scenario: "automaticConnection", ends: "completed" },
  { scenario: "automaticConnection", ends: "rolledBack" },
  { scenario: "manualConnection", ends: "completed" },
] as const;
type Kind = (typeof RUNS)[number];
const COPIES = IS_CAMPAIGN ? 400 : 40;
const names = [...new Set(RUNS.map(({ scenario }) => scenario))];
const { company, expected } = drawCompany(20_261_128, { names, copies: COPIES });

let worlds: Awaited<ReturnType<typeof openRunWorld>>;
beforeAll(async () => {
  worlds = await openRunWorld(company, expected);
}, 300_000);
afterAll(() => worlds?.stop());

/** Runs a run to its end. `steps` counts the calls of its worker, or crashes it. */
async function runOnce({ scenario, ends }: Kind, steps: Steps): Promise<{ workload: Workload; row: RunRecord }> {
  const workload = worlds.workloads.find((one) => one.scenario === scenario && !used.has(one))!;
  used.add(workload);
  worlds.clearMessages();
  const { appId, keyId, replacements } = workload;
  const { runId } = await worlds.start().start(appId, { keyId, idleDays: 1, replacements }, BOSS);
  const { watch } = await worlds.run(runId, { steps, until: (row) => row.watch !== undefined });
  if (ends === "rolledBack") await worlds.start().rollback(runId, true, BOSS);
  else {
    const codes = watch!.blindSpots.map(({ code }) => code);
    await worlds.start().confirm(runId, codes, BOSS);
  }
  return { workload, row: await worlds.run(runId, { steps }) };
}
const used = new Set<Workload>();

test.each(RUNS)(
  "a run of $scenario that is $ends survives a crash at each call",
  { timeout: LONG_MS * 4 },
  async (kind) => {
    const counted: Steps = { taken: 0 };
    const { row } = await runOnce(kind, counted);
    const ran = row.steps.filter(({ status }) => status === "done").map(({ name }) => name);
    const forward = RUN_STEPS.slice(0, kind.ends === "completed" ? 6 : 4);
    expect(ran).toEqual(kind.ends === "completed" ? forward : [...forward, "revert", "takeBack"]);
    const cases = Array.from({ length: counted.taken }, (_, index) => index + 1).flatMap((crashAt) =>
      (["before", "after"] as const).map((when) => ({ crashAt, when })),
    );
    for (const { crashAt, when } of sampled(cases, 12)) {
      const steps: Steps = { taken: 0, crashAt, when };
      const { workload, row } = await runOnce(kind, steps);
      const { directory } = worlds.control;
      const isRemoved = directory
        .secrets(workload.appId)
        .some(({ keyId, removedAt }) => keyId === workload.keyId && removedAt !== undefined);
      const credentials = directory.federatedCredentials(workload.appId).length;
      const isDone = kind.ends === "completed";
      expect({ crashAt, when, crashed: steps.dead, status: row.status, isRemoved, lost: [...worlds.lost] }).toEqual({
        crashAt,
        when,
        crashed: true,
        status: kind.ends,
        isRemoved: isDone,
        lost: [],
      });
      if (isDone) expect(credentials).toBe(1);
    }
  },
);
