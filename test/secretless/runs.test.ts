import { TableClient } from "@azure/data-tables";
import { secretValueOf } from "simulated-cloud/company/applications.ts";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { DAY_MS } from "../../shared/platform/time.ts";
import type { RunRecord } from "../../shared/rotation/secretless-run.ts";
import { BOSS } from "../rotation/world.ts";
import { SEED } from "../support/sampling.ts";
import type { Steps } from "../support/simulated-crash.ts";
import { drawCompany } from "./drawn-company.ts";
import { openRunWorld, type Workload } from "./run-world.ts";

/**
 * Runs that replace client secrets, for 20 applications of the drawn company of 60, with deaths at every step. A workload of each
 * application signs in at every write: no sign-in may fail.
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
  worlds.hooks.beforeGraph = async () => {};
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

/** Starts a run, and accepts its blind spots once it watches. */
async function startConfirmed(workload: Workload): Promise<string> {
  const { runId } = await worlds.start().start(workload.appId, requestOf(workload), BOSS);
  const { watch } = await worlds.run(runId, { until: (row) => row.watch !== undefined });
  await worlds.start().confirm(
    runId,
    watch!.blindSpots.map(({ code }) => code),
    BOSS,
  );
  return runId;
}

const isKept = ({ appId, keyId }: Workload): boolean =>
  worlds.control.directory.secrets(appId).some((one) => one.keyId === keyId && one.removedAt === undefined);

test("a rollback that was accepted while the removal was checked wins over it", { timeout: 300_000 }, async () => {
  const workload = workloadOf("cluster", 1);
  const runId = await startConfirmed(workload);
  let asked = 0;
  worlds.hooks.beforeGraph = async (method) => {
    const { steps } = await worlds.start().get(runId);
    if (method !== "federatedCredentials" || steps.find(({ name }) => name === "remove")?.status !== "running") return;
    if (asked++ > 0) return;
    workload.switched = false;
    await worlds.start().rollback(runId, true, BOSS);
  };
  const row = await worlds.run(runId);
  expect([asked > 0, row.status, isKept(workload), row.removingSince]).toEqual([true, "rolledBack", true, undefined]);
  expect(worlds.control.directory.federatedCredentials(workload.appId)).toEqual([]);
  expect([...worlds.lost]).toEqual([]);
});

test("a removal that failed is checked again before the next one, and can be rolled back", {
  timeout: 300_000,
}, async () => {
  const workload = workloadOf("containerApp", 1);
  const runId = await startConfirmed(workload);
  worlds.control.addFault({ match: { operation: "graph.removePassword" }, action: { kind: "deny" } });
  const failed = await worlds.run(runId);
  expect([failed.status, failed.failure?.code, failed.removingSince]).toEqual([
    "needsAttention",
    "accessDenied",
    undefined,
  ]);
  worlds.control.clearFaults();
  worlds.world.advanceClock(20 * DAY_MS);
  // A workload has gone back to the secret.
  workload.lastUsedMs = worlds.world.clock.now().getTime();
  await worlds.start().retry(runId, BOSS);
  const until = worlds.world.clock.now().getTime() + DAY_MS;
  const retried = await worlds.run(runId, { until: () => worlds.world.clock.now().getTime() >= until });
  expect([retried.status, isKept(workload), retried.watch!.idleDays < IDLE_DAYS]).toEqual(["running", true, true]);
  workload.switched = false;
  await worlds.start().rollback(runId, true, BOSS);
  expect((await worlds.run(runId)).status).toBe("rolledBack");
  expect([...worlds.lost]).toEqual([]);
});

test("a removal whose answer was lost is checked again, and then the run ends", { timeout: 300_000 }, async () => {
  const workload = workloadOf("containerApp");
  const runId = await startConfirmed(workload);
  // The worker gives up before the request arrives.
  const action = { kind: "fail", status: 500 } as const;
  worlds.control.addFault({ match: { operation: "graph.removePassword" }, action, times: 20 });
  const asked = await worlds.run(runId, { until: ({ removingSince }) => removingSince !== undefined });
  expect([asked.status, isKept(workload)]).toEqual(["running", true]);
  expect(
    await worlds
      .start()
      .rollback(runId, true, BOSS)
      .catch((error) => error.code),
  ).toBe("conflict");
  worlds.control.clearFaults();
  worlds.world.advanceClock(20 * DAY_MS);
  workload.lastUsedMs = worlds.world.clock.now().getTime();
  const until = worlds.world.clock.now().getTime() + DAY_MS;
  const checked = await worlds.run(runId, { until: () => worlds.world.clock.now().getTime() >= until });
  expect([checked.status, isKept(workload), checked.removingSince]).toEqual(["running", true, undefined]);
  expectReplaced(workload, await worlds.run(runId));
});

test("a run ends with one note if someone else removed the secret", { timeout: 300_000 }, async () => {
  const workload = workloadOf("functionApp", 1);
  const runId = await startConfirmed(workload);
  worlds.control.directory.removeSecret(workload.appId, workload.keyId);
  const row = await worlds.run(runId);
  expect([row.status, row.notes]).toEqual(["completed", ["The client secret was removed by someone else."]]);
  expect([...worlds.lost]).toEqual([]);
});

test("messages of a run that waits do not multiply, and its rollback asks once a credential was added", {
  timeout: 300_000,
}, async () => {
  const workload = workloadOf("manualConnection", 1);
  workload.isLeft = true;
  const { runId } = await worlds.start().start(workload.appId, requestOf(workload), BOSS);
  let messages = 0;
  for (let tick = 0; tick < 40; tick++) messages = await worlds.tick();
  const waiting = await worlds.start().get(runId);
  expect(waiting.connections.map(({ state }) => state)).toEqual(["waiting"]);
  expect(messages).toBe(1);
  expect(waiting.watch).toBeUndefined();
  expect(
    await worlds
      .start()
      .rollback(runId, false, BOSS)
      .catch((error) => error.code),
  ).toBe("conflict");
  await worlds.start().rollback(runId, true, BOSS);
  expect((await worlds.run(runId)).status).toBe("rolledBack");
  workload.isLeft = false;
  expect([...worlds.lost]).toEqual([]);
});

test("a run of each application ends after one crash, and no sign-in is lost", {
  timeout: 14_400_000,
}, async () => {
  const left = worlds.workloads.filter(isKept);
  let crashes = 0;
  for (const [index, workload] of left.entries()) {
    const { runId } = await unfinishedOrNew(workload);
    const crashAt = 1 + ((SEED + 5 * index) % 60);
    const steps: Steps = { taken: 0, crashAt, when: index % 2 === 0 ? "before" : "after" };
    expectReplaced(workload, await finish(runId, steps));
    if (steps.dead) crashes++;
  }
  expect(crashes).toBeGreaterThan(0);
  expect(left.length).toBeGreaterThan(13);
});

test("old runs are purged with the rotations, and an unfinished one stays", { timeout: 300_000 }, async () => {
  const { world } = worlds;
  const workload = worlds.workloads[0]!;
  const { keyId } = worlds.control.directory.addSecret(workload.appId, { name: "next", expiresInDays: 30_000 });
  Object.assign(workload, { keyId, switched: true });
  const { runId } = await worlds.start().start(workload.appId, requestOf(workload), BOSS);
  expect((await worlds.start().list(undefined)).length).toBeGreaterThan(1);
  const before = new Date(world.clock.now().getTime() + DAY_MS);
  await world.start().store().purge({ retentionDays: 1, before }, BOSS);
  expect((await worlds.start().list(undefined)).map((one) => one.runId)).toEqual([runId]);
});

async function unfinishedOrNew(workload: Workload): Promise<{ runId: string }> {
  const runs = worlds.start();
  const unfinished = (await runs.list(workload.appId)).find(({ endedAt }) => endedAt === undefined);
  return unfinished ?? (await runs.start(workload.appId, requestOf(workload), BOSS));
}
