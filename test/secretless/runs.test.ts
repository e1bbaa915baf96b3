import { TableClient } from "@azure/data-tables";
import { secretValueOf } from "simulated-cloud/company/applications.ts";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import type { RunRecord } from "../../shared/rotation/secretless-run.ts";
import { BOSS } from "../rotation/world.ts";
import { IS_CAMPAIGN, SEED } from "../support/sampling.ts";
import type { Steps } from "../support/simulated-crash.ts";
import { drawCompany } from "./drawn-company.ts";
import { openRunWorld, type Workload } from "./run-world.ts";

/**
 * Runs that replace client secrets, for 20 applications of the drawn company of 60, with deaths at every step. A workload of each
 * application signs in at every write: no sign-in may fail. The campaign `secretless` crashes at each call.
 */

const SCENARIOS = [
  "webApp",
  "functionApp",
  "containerApp",
  "apiManagement",
  "cluster",
  "manualConnection",
  "automaticConnection",
  "variableGroup",
  "githubEnvironment",
  "githubRepository",
];
const { company, expected } = drawCompany(20_261_128);
/** Two applications of each of ten scenarios. */
const DRAWN = SCENARIOS.flatMap((scenario) => expected.filter((one) => one.scenario === scenario).slice(0, 2));
const IDLE_DAYS = 7;

let worlds: Awaited<ReturnType<typeof openRunWorld>>;
beforeAll(async () => {
  worlds = await openRunWorld(company, DRAWN);
}, 300_000);
afterAll(() => worlds?.stop());
afterEach(() => {
  worlds.control.clearFaults();
  worlds.clearMessages();
});

const requestOf = ({ keyId, replacements }: Workload) => ({ keyId, idleDays: IDLE_DAYS, replacements });
const workloadOf = (scenario: string, index = 0): Workload =>
  worlds.workloads.filter((one) => one.scenario === scenario)[index]!;

/** Accepts the blind spots once the run watches, and delivers until it ends. */
async function finish(runId: string, steps?: Steps): Promise<RunRecord> {
  const first = await worlds.run(runId, { ...(steps && { steps }), until: ({ watch }) => watch !== undefined });
  if (first.watch === undefined || first.status !== "running") return first;
  const codes = first.watch.blindSpots.map(({ code }) => code);
  await worlds.start().confirm(runId, codes, BOSS);
  return await worlds.run(runId, steps ? { steps } : {});
}

function expectReplaced({ appId, keyId, name }: Workload, run: RunRecord): void {
  const { control } = worlds;
  expect([name, run.status, run.failure]).toEqual([name, "completed", undefined]);
  expect(control.directory.secrets(appId).find((one) => one.keyId === keyId)?.removedAt).toBeDefined();
  const names = control.directory.federatedCredentials(appId).map((one) => one.name);
  expect(new Set(names).size).toBe(names.length);
  expect(names.length).toBe(run.credentials.length);
  expect([...worlds.lost]).toEqual([]);
  expect(JSON.stringify([worlds.events, run])).not.toContain(secretValueOf(name, "current"));
}

test("a wrong subject or audience is refused before anything is changed", { timeout: 300_000 }, async () => {
  const runs = worlds.start();
  const site = workloadOf("webApp");
  const consumer = site.consumers[0]!.id;
  const replace = (rest: object) => ({ ...requestOf(site), replacements: [{ ...site.replacements[0]!, ...rest }] });
  const refused = async (rest: object) =>
    await runs.start(site.appId, replace(rest), BOSS).catch((error) => error.code);
  expect(await refused({ audience: "api://other" })).toBe("invalidRequest");
  expect(await refused({ issuer: "https://evil.example/v2.0" })).toBe("invalidRequest");
  expect(await refused({ subject: "<principal ID of the managed identity>" })).toBe("invalidRequest");
  expect(await refused({ subject: undefined })).toBe("valueRequired");
  expect(await refused({ consumer: "/subscriptions/other" })).toBe("invalidRequest");
  worlds.shown.set(consumer, { subjects: ["11111111-1111-4111-8111-111111111111"] });
  expect(await refused({})).toBe("conflict");
  worlds.shown.delete(consumer);
  expect(worlds.control.directory.federatedCredentials(site.appId)).toEqual([]);

  // The identity of the site was changed after the plan.
  const { runId } = await runs.start(site.appId, requestOf(site), BOSS);
  worlds.shown.set(consumer, { subjects: [] });
  const failed = await worlds.run(runId);
  worlds.shown.delete(consumer);
  expect([failed.status, failed.failure?.code]).toEqual(["failed", "claimsDiffer"]);
  expect(worlds.control.directory.federatedCredentials(site.appId)).toEqual([]);
  expect([...worlds.lost]).toEqual([]);
});

test("a token of the workload proves the credential, and one with other claims is rejected", {
  timeout: 300_000,
}, async () => {
  const runs = worlds.start();
  const workload = workloadOf("githubEnvironment");
  const { runId } = await runs.start(workload.appId, requestOf(workload), BOSS);
  const added = await worlds.run(runId, { until: ({ watch }) => watch !== undefined });
  expect(added.credentials.map(({ state, proof }) => [state, proof])).toEqual([["added", "notProvable"]]);
  expect(added.watch!.blindSpots.map(({ code }) => code)).toContain(`notProven:${workload.consumers[0]!.id}`);
  const { claims } = workload;
  const prove = async (rest: object) =>
    await runs.prove(runId, worlds.control.workloadToken({ ...claims!, ...rest }), BOSS).catch((error) => error.code);
  expect(await prove({ subject: `${claims!.subject}X` })).toBe("conflict");
  expect(await prove({ audience: "api://other" })).toBe("conflict");
  expect(await prove({ issuer: "https://token.actions.githubusercontent.com/" })).toBe("conflict");
  expect(await runs.prove(runId, "no.token", BOSS).catch((error) => error.code)).toBe("invalidRequest");
  const token = worlds.control.workloadToken(claims!);
  const forged = `${token.slice(0, -8)}AAAAAAAA`;
  expect(await runs.prove(runId, forged, BOSS).catch((error) => error.code)).toBe("conflict");
  const proven = await runs.prove(runId, token, BOSS);
  expect(proven.credentials[0]!.proof).toBe("exchanged");
  expect(JSON.stringify([worlds.events, proven, worlds.world.log])).not.toContain(token);
});

test("the secret stays while it is used, and until a person accepts the blind spots", {
  timeout: 300_000,
}, async () => {
  const runs = worlds.start();
  const workload = workloadOf("githubRepository");
  const { runId } = await runs.start(workload.appId, requestOf(workload), BOSS);
  const watching = await worlds.run(runId, { until: ({ watch }) => watch !== undefined });
  const codes = watching.watch!.blindSpots.map(({ code }) => code);
  expect(await runs.confirm(runId, codes.slice(1), BOSS).catch((error) => error.members)).toEqual({
    blindSpots: codes.slice(0, 1),
  });
  const days = async (count: number) => {
    const until = worlds.world.clock.now().getTime() + count * 86_400_000;
    return await worlds.run(runId, { until: () => worlds.world.clock.now().getTime() >= until });
  };
  const idle = await days(IDLE_DAYS + 2);
  expect([idle.status, idle.watch!.idleDays >= IDLE_DAYS]).toEqual(["running", true]);
  // A sign-in with the secret restarts the wait.
  workload.lastUsedMs = worlds.world.clock.now().getTime();
  await runs.confirm(runId, codes, BOSS);
  const used = await days(IDLE_DAYS - 1);
  expect([used.status, used.removingSince]).toEqual(["running", undefined]);
  expectReplaced(workload, await worlds.run(runId));
});

test("a rollback undoes each step, and asks before it takes a credential that is in use", {
  timeout: 600_000,
}, async () => {
  for (const scenario of ["automaticConnection", "cluster"]) {
    const workload = workloadOf(scenario);
    const runs = worlds.start();
    const { runId } = await runs.start(workload.appId, requestOf(workload), BOSS);
    const before = worlds.control.directory.federatedCredentials(workload.appId).length;
    await worlds.run(runId, { until: ({ watch }) => watch !== undefined });
    expect(await runs.rollback(runId, false, BOSS).catch((error) => error.code)).toBe("conflict");
    workload.switched = false;
    await runs.rollback(runId, true, BOSS);
    const row = await worlds.run(runId);
    expect([scenario, row.status]).toEqual([scenario, "rolledBack"]);
    expect(await runs.rollback(runId, true, BOSS).catch((error) => error.code)).toBe("conflict");
    const own = worlds.control.directory
      .federatedCredentials(workload.appId)
      .filter(({ name }) => /^secretless-/.test(name));
    expect([before, own]).toEqual([before, []]);
    expect([...worlds.lost]).toEqual([]);
  }
});

test("a run whose row was changed in the tables does nothing", { timeout: 300_000 }, async () => {
  const workload = workloadOf("functionApp");
  const runs = worlds.start();
  const { runId } = await runs.start(workload.appId, requestOf(workload), BOSS);
  const client = TableClient.fromConnectionString(worlds.connectionString, "Rotations", {
    allowInsecureConnection: true,
  });
  const row = await findRow(client, runId);
  const original = { ...row };
  const credentials = JSON.parse(String(row.credentials_json)) as { subject: string }[];
  credentials[0]!.subject = "22222222-2222-4222-8222-222222222222";
  await client.updateEntity({ ...row, credentials_json: JSON.stringify(credentials) } as never, "Replace");
  await expect(worlds.start().work(runId, "request")).rejects.toThrow();
  expect(worlds.control.directory.federatedCredentials(workload.appId)).toEqual([]);
  await client.updateEntity(original as never, "Replace");
  await runs.rollback(runId, false, BOSS);
  expect((await worlds.run(runId)).status).toBe("rolledBack");
});

async function findRow(
  client: TableClient,
  runId: string,
): Promise<Record<string, unknown> & { partitionKey: string; rowKey: string }> {
  for await (const row of client.listEntities<Record<string, unknown>>())
    if (row.partitionKey === "secretless" && row.runId === runId)
      return row as Record<string, unknown> & { partitionKey: string; rowKey: string };
  throw new Error(`No row of the run ${runId}`);
}

/** Number of calls between crashes. The campaign crashes at each call of each application. */
const CALLS_BETWEEN_CRASHES = IS_CAMPAIGN ? 1 : 23;

test("a run of each application ends after crashes at sampled calls, and no sign-in is lost", {
  timeout: 14_400_000,
}, async () => {
  const left = worlds.workloads.filter(({ appId, keyId }) =>
    worlds.control.directory.secrets(appId).some((one) => one.keyId === keyId && one.removedAt === undefined),
  );
  let crashes = 0;
  for (const [index, workload] of left.entries()) {
    const { runId } = await unfinishedOrNew(workload);
    // Each delivery gets its own worker. In the sample, a worker crashes at every 23rd call; in the campaign at each call once.
    let callNumber = 1 + ((SEED + index) % CALLS_BETWEEN_CRASHES);
    for (;;) {
      const steps: Steps = { taken: 0, crashAt: callNumber, when: (SEED + callNumber) % 2 === 0 ? "before" : "after" };
      const row = await finish(runId, steps);
      if (steps.dead) crashes++;
      if (row.status === "completed") {
        expectReplaced(workload, row);
        break;
      }
      expect([workload.scenario, row.status, row.failure]).toEqual([workload.scenario, "running", undefined]);
      callNumber += CALLS_BETWEEN_CRASHES;
    }
  }
  expect(crashes).toBeGreaterThan(0);
  expect(left.length).toBeGreaterThan(15);
});

async function unfinishedOrNew(workload: Workload): Promise<{ runId: string }> {
  const runs = worlds.start();
  const unfinished = (await runs.list(workload.appId)).find(({ endedAt }) => endedAt === undefined);
  return unfinished ?? (await runs.start(workload.appId, requestOf(workload), BOSS));
}
