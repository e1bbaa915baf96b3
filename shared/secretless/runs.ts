import { decodeJwt } from "jose";
import * as z from "zod";
import type { Audit } from "../audit/audit.ts";
import { audited } from "../audit/audited.ts";
import type { ExchangeOutcome, ProveExchange } from "../platform/azure/sign-in-proof.ts";
import type { Caller } from "../platform/http/endpoint.ts";
import { notFound, Problem, retryLater } from "../platform/http/problem.ts";
import { repeatOnConflict } from "../platform/storage/conflict.ts";
import type { Row } from "../platform/storage/entity.ts";
import type { Queues } from "../platform/storage/queues.ts";
import { rotationUnfinished, throwAsProblem } from "../rotation/problems.ts";
import { isOver, type RunRecord } from "../rotation/secretless-run.ts";
import type { RunDependencies } from "./run-context.ts";
import { planRun, type RunPlan, type RunRequest, requireRoom } from "./run-plan.ts";
import { createRunRows, unfinishedRun } from "./run-rows.ts";
import { createRunRunner, startRollback } from "./run-runner.ts";
import { claimProblem, unconfirmedOf } from "./run-steps.ts";

/**
 * Runs that replace a client secret of an application by federated credentials, and then remove the secret. A run that started under a
 * license continues without one.
 */
export interface SecretlessRuns {
  /**
   * Returns what a run would do, without any change.
   *
   * @throws {Problem} notFound, conflict, valueRequired or invalidRequest: see `planRun`; unavailable.
   */
  plan(appId: string, request: RunRequest): Promise<RunDraft>;
  /**
   * Starts a run. Queue messages and a timer continue it.
   *
   * @throws {Problem} as `plan`; conflict if another run or rotation of the application has not ended, or the plan differs from
   * `request.plan`.
   */
  start(appId: string, request: RunRequest, caller: Caller): Promise<RunRecord>;
  /** @throws {Problem} notFound */
  get(runId: string): Promise<RunRecord>;
  /** Returns the newest runs, at most 100. */
  list(appId: string | undefined): Promise<RunRecord[]>;
  /**
   * Exchanges a token of a workload for one of the application, and stores that it worked. The token is neither stored nor logged.
   *
   * @throws {Problem} conflict if no credential of the run has its issuer, subject and audience, or Microsoft Entra rejects it;
   * unavailable while Microsoft Entra gives no clear answer, or does not know the credential yet.
   */
  prove(runId: string, assertion: string, caller: Caller): Promise<RunRecord>;
  /**
   * Stores that a person accepts blind spots. The secret is removed once it is idle.
   *
   * @param codes - All codes of the blind spots that the person has seen.
   * @throws {Problem} conflict if the run does not watch, or has a blind spot that is not among them.
   */
  confirm(runId: string, codes: readonly string[], caller: Caller): Promise<RunRecord>;
  /** Continues a run that needs attention. @throws {Problem} conflict if it needs none. */
  retry(runId: string, caller: Caller): Promise<RunRecord>;
  /**
   * Starts the rollback of all changes.
   *
   * @param force - Also once the workloads could switch. A workload that did can no longer sign in then.
   * @throws {Problem} conflict if the run has ended, removes the secret, or workloads could switch and it is not forced.
   */
  rollback(runId: string, force: boolean, caller: Caller): Promise<RunRecord>;
  /** Runs the due step of a run. Handler of the queue. */
  work(runId: string, requestId: string): Promise<void>;
  /** Handler of the timer. Continues all due runs. */
  continueDue(): Promise<void>;
  /** Handler of the poison queue. */
  giveUp(runId: string): Promise<void>;
}

/** A run that is not stored, with what a person does. */
export type RunDraft = Omit<RunRecord, "writeId"> & Pick<RunPlan, "byPerson">;

/** Seconds after which a proof can be repeated. */
const RETRY_SECONDS = 30;
const text = z.string().min(1).max(600);
const TokenClaims = z.object({ iss: text, sub: text, aud: z.union([text, z.array(text).length(1)]) });

/** Maximum number of runs in a list. */
const MAX_LISTED = 100;

export function createSecretlessRuns(
  deps: Omit<RunDependencies, "rows" | "audit"> & {
    audit: Pick<Audit, "append">;
    queues: Queues;
    exchange: ProveExchange;
  },
): SecretlessRuns {
  const { audit, clock, randomness, graph } = deps;
  const rows = createRunRows(deps);
  const runDeps: RunDependencies = { ...deps, rows };
  const runner = createRunRunner(runDeps, deps.queues);

  async function requireRun(runId: string): Promise<Row<RunRecord>> {
    const row = await rows.get(runId.toUpperCase());
    if (row === undefined) throw notFound(`The run ${runId.slice(0, 64)}`);
    return row;
  }

  async function draft(appId: string, request: RunRequest, caller: Caller): Promise<RunDraft> {
    const report = await deps.report(appId);
    const plan = planRun(report, request, deps.parseConnection);
    if (request.plan !== undefined && request.plan !== plan.plan)
      throw new Problem("conflict", "The plan has changed since you read it. Send the request with dryRun again.");
    const unfinished = await rows.unfinishedOf(report.appId);
    if (unfinished !== undefined) throw unfinishedRun(unfinished);
    const rotationId = await deps.rotationOf(report.appId);
    if (rotationId !== undefined) throw rotationUnfinished(rotationId);
    const existing = await graph.federatedCredentials(report.objectId).catch(throwAsProblem);
    requireRoom(existing, plan);
    const now = clock.now();
    const runId = randomness.ulid(now);
    const credentials: RunRecord["credentials"] = [];
    for (const [index, credential] of plan.credentials.entries()) {
      let isVerified = false;
      if (credential.state === "planned")
        for (const consumer of plan.consumers.filter(({ id }) => credential.consumers.includes(id))) {
          const claims = await deps.claimsOf(consumer).catch(throwAsProblem);
          const problem = claimProblem(credential, claims, consumer.name);
          if (problem !== undefined) throw new Problem("conflict", `Nothing was changed. ${problem}`);
          isVerified = claims.subjects !== undefined;
        }
      const name = credential.state === "byDevops" ? "" : `secretless-${runId.toLowerCase()}-${index}`;
      credentials.push({ ...credential, name, isVerified });
    }
    const { byPerson, consumers, connections } = plan;
    return {
      runId,
      appId: report.appId,
      objectId: report.objectId,
      tenantId: report.tenantId,
      appName: report.displayName,
      keyId: request.keyId,
      idleDays: request.idleDays,
      status: "running",
      plan: plan.plan,
      consumers,
      credentials,
      connections,
      byPerson,
      steps: (["check", "add", "prove", "convert", "watch", "remove"] as const).map((name) => ({
        name,
        status: "waiting",
        attempts: 0,
      })),
      notes: [],
      requestedBy: caller.actor,
      requestId: caller.requestId,
      createdAt: now.toISOString(),
      dueAt: now.toISOString(),
      failures: 0,
    };
  }

  /** Stores a person's decision and schedules the next step. */
  async function decide(
    type: `secretless.${string}`,
    runId: string,
    caller: Caller,
    details: Record<string, unknown>,
    change: (row: Row<RunRecord>) => Partial<RunRecord>,
  ): Promise<RunRecord> {
    const { appId, keyId } = await requireRun(runId);
    const target = { type: "secretlessRun", id: runId.toUpperCase() };
    const saved = await audited(audit, { type, caller, target, details: { appId, keyId, ...details } }, () =>
      repeatOnConflict(async () => {
        const row = await requireRun(runId);
        return await rows.save(row, { ...row, dueAt: clock.now().toISOString(), ...change(row) });
      }),
    );
    await runner.scheduleNext(saved);
    return saved;
  }

  return {
    plan: (appId, request) => draft(appId, request, { actor: "nobody", requestId: "" }),

    async start(appId, request, caller) {
      const { byPerson: _, ...record } = await draft(appId, request, caller);
      const { runId, keyId, idleDays, plan, credentials } = record;
      const named = credentials.map(({ issuer, subject, audience }) => ({ issuer, subject, audience }));
      const event = {
        type: "secretless.started",
        caller,
        target: { type: "secretlessRun", id: runId },
        details: { appId: record.appId, keyId, idleDays, plan, credentials: named },
      };
      await audited(audit, event, () => rows.insert(record));
      await runner.scheduleNext(record);
      return await requireRun(runId);
    },

    get: requireRun,

    async list(appId) {
      const found: RunRecord[] = [];
      for await (const page of rows.list()) {
        found.push(...page.filter((one) => appId === undefined || one.appId === appId));
        if (found.length >= MAX_LISTED) break;
      }
      return found.slice(0, MAX_LISTED);
    },

    async prove(runId, assertion, caller) {
      const run = await requireRun(runId);
      if (isOver(run.status)) throw conflict("This run has ended.");
      const claims = claimsIn(assertion);
      const credential = run.credentials.find(
        ({ name, issuer, subject }) => name !== "" && issuer === claims.iss && subject === claims.sub,
      );
      if (credential === undefined || credential.audience !== claims.aud)
        throw conflict(
          `Nothing was changed. The token has the issuer ${claims.iss}, the subject ${claims.sub} and the audience ${claims.aud}. No federated credential of this run has these values.`,
        );
      if (credential.state !== "added" && credential.state !== "existing")
        throw conflict("The federated credential has not been added yet. Try again in a minute.");
      const target = { type: "secretlessRun", id: run.runId };
      const details = { appId: run.appId, keyId: run.keyId, issuer: claims.iss, subject: claims.sub };
      return await audited(audit, { type: "secretless.proven", caller, target, details }, async () => {
        requireAccepted(await deps.exchange(run.appId, assertion, run.tenantId));
        const proven = { proof: "exchanged" as const, provenAt: clock.now().toISOString(), isVerified: true };
        return await repeatOnConflict(async () => {
          const row = await requireRun(runId);
          const credentials = row.credentials.map((one) =>
            one.name === credential.name ? { ...one, ...proven } : one,
          );
          return await rows.save(row, { ...row, credentials });
        });
      });
    },

    confirm: (runId, codes, caller) =>
      decide("secretless.confirmed", runId, caller, { codes }, (row) => {
        if (row.watch === undefined || row.status !== "running" || row.removingSince !== undefined)
          throw conflict("The run does not watch the sign-ins now.");
        const confirmed = { by: caller.actor, at: clock.now().toISOString(), codes: [...codes] };
        const missing = unconfirmedOf({ ...row, confirmed });
        if (missing.length === 0) return { confirmed };
        throw new Problem(
          "conflict",
          `Nothing was changed. Accept these too, or find out: ${missing.map(({ code }) => code).join(", ")}.`,
          { members: { blindSpots: missing.map(({ code }) => code) } },
        );
      }),

    retry: (runId, caller) =>
      decide("secretless.retried", runId, caller, {}, (row) => {
        if (row.status !== "needsAttention") throw conflict("This run does not need attention.");
        return { status: row.resume ?? "running", resume: undefined, failure: undefined, failures: 0 };
      }),

    rollback: (runId, force, caller) =>
      decide("secretless.rolledBack", runId, caller, { force }, (row) => {
        if (isOver(row.status)) throw conflict("This run has ended.");
        if (row.removingSince !== undefined)
          throw conflict("The secret is being removed, so this run can no longer be rolled back.");
        if (row.status === "rollingBack" || row.resume === "rollingBack")
          throw conflict("This run is rolling back already.");
        if (mayHaveSwitched(row) && !force)
          throw conflict(
            "Workloads may already sign in with the federated credentials, and can't after the rollback. Switch them back to the secret, then send force: true.",
          );
        const rollback = { by: caller.actor, at: clock.now().toISOString(), force };
        // A worker that runs a step starts the rollback when the step ends.
        return { rollback, ...(row.working === undefined && startRollback(row)) };
      }),

    work: (runId, requestId) => runner.runDueStep(runId, requestId),

    async continueDue() {
      for await (const runIds of rows.unfinished()) for (const runId of runIds) await runner.sendDue(runId);
    },

    giveUp: (runId) => runner.giveUp(runId),
  };
}

const conflict = (detail: string): Problem => new Problem("conflict", detail);

/** Returns whether a workload can sign in without the secret, by what the rollback takes away. */
const mayHaveSwitched = ({ watch, credentials, connections }: RunRecord): boolean =>
  watch !== undefined ||
  credentials.some(({ state }) => state === "added") ||
  connections.some(({ state }) => state === "converting" || state === "converted");

/** Returns the claims of a token, without verifying it: Microsoft Entra does. @throws {Problem} invalidRequest */
function claimsIn(assertion: string): { iss: string; sub: string; aud: string } {
  const parsed = TokenClaims.safeParse(decoded(assertion));
  if (!parsed.success)
    throw new Problem(
      "invalidRequest",
      "Correct this and send the request again: assertion: must be a JSON Web Token with the claims iss, sub and one aud.",
    );
  const { iss, sub, aud } = parsed.data;
  return { iss, sub, aud: typeof aud === "string" ? aud : aud[0]! };
}

function decoded(assertion: string): unknown {
  try {
    return decodeJwt(assertion);
  } catch {
    return undefined; // Not a token.
  }
}

function requireAccepted(outcome: ExchangeOutcome): void {
  switch (outcome.kind) {
    case "accepted":
      return;
    case "rejected":
      throw conflict(`Microsoft Entra rejects the token (AADSTS${outcome.code}). Send one that has not expired.`);
    case "notTrusted":
      throw retryLater("unavailable", "Microsoft Entra does not know the federated credential yet.", RETRY_SECONDS);
    case "unclear":
      throw retryLater("unavailable", "Microsoft Entra gave no clear answer.", RETRY_SECONDS);
  }
}
