import * as z from "zod";
import { entity } from "../platform/storage/entity.ts";
import { keyText } from "../platform/storage/keys.ts";
import type { Tables } from "../platform/storage/tables.ts";
import { newestFirst } from "../platform/ulid.ts";

/**
 * Records of runs that replace a client secret by federated credentials. A run adds the credentials, converts service connections,
 * waits until nobody signs in with the secret anymore, and removes the secret. The steps are in shared/secretless.
 */

/**
 * Statuses of a run. `running` and `rollingBack`: its steps continue in the background. `needsAttention`: it waits for a person.
 * `failed`: a step failed for good before a workload could switch, and all changes were undone. `rolledBack`: a person ended it, and
 * all changes were undone.
 */
export const RUN_STATUSES = ["running", "rollingBack", "needsAttention", "completed", "failed", "rolledBack"] as const;
export type RunStatus = (typeof RUN_STATUSES)[number];
export const isOver = (status: RunStatus): boolean => ["completed", "failed", "rolledBack"].includes(status);

/**
 * Steps of a run, in order. `check` compares the plan with the report and the directory. `add` adds the federated credentials, `prove`
 * says which of them can be proven, `convert` converts service connections, `watch` waits until the secret is idle, `remove` removes
 * it. Only a rollback runs `revert` (connections) and `takeBack` (federated credentials).
 */
export const RUN_STEPS = ["check", "add", "prove", "convert", "watch", "remove", "revert", "takeBack"] as const;
export type RunStep = (typeof RUN_STEPS)[number];
export const FORWARD_STEPS: readonly RunStep[] = ["check", "add", "prove", "convert", "watch", "remove"];
export const ROLLBACK_STEPS: readonly RunStep[] = ["revert", "takeBack"];

const Failure = z.object({ code: z.string(), message: z.string(), remedy: z.string() });
export type RunFailure = z.infer<typeof Failure>;

const Step = z.object({
  name: z.enum(RUN_STEPS),
  status: z.enum(["waiting", "running", "done", "failed", "skipped"]),
  startedAt: z.string().optional(),
  finishedAt: z.string().optional(),
  /** Number of times the step was started. */
  attempts: z.int(),
  failure: Failure.optional(),
});
export type StepRecord = z.infer<typeof Step>;

/**
 * Results of the proof of a federated credential. `exchanged`: a token of the workload was exchanged for one of the application.
 * `connection`: Azure DevOps signed in with it. `notProvable`: the service has no token of the workload.
 */
export const PROOFS = ["exchanged", "connection", "notProvable"] as const;

/**
 * A federated credential of the plan. `asked` is stored before the request and stays if the response is lost. `added`: by this run.
 * `existing`: the application had it before. `byDevops`: Azure DevOps adds it when it converts the connection, and its issuer and
 * subject are unknown until then. `removed`: by the rollback. `kept`: a converted connection uses it, so the rollback leaves it.
 */
export const CREDENTIAL_STATES = ["planned", "asked", "added", "existing", "byDevops", "removed", "kept"] as const;

const Credential = z.object({
  /** Unique within the application. It contains the ID of the run. Empty for `byDevops`. */
  name: z.string(),
  issuer: z.string(),
  subject: z.string(),
  audience: z.string(),
  /** IDs of the consumers that use it. */
  consumers: z.array(z.string()),
  state: z.enum(CREDENTIAL_STATES),
  askedAt: z.string().optional(),
  /** Whether the resource shows this issuer and subject, as read from Azure. */
  isVerified: z.boolean(),
  proof: z.enum(PROOFS).optional(),
  provenAt: z.string().optional(),
});
export type RunCredential = z.infer<typeof Credential>;

/**
 * A service connection of the plan. `waiting`: a person completes the conversion. `converting` and `reverting` are stored before the
 * request.
 */
export const CONNECTION_STATES = ["planned", "waiting", "converting", "converted", "reverting", "reverted"] as const;

const Connection = z.object({
  consumer: z.string(),
  name: z.string(),
  projectId: z.string(),
  connectionId: z.string(),
  automatic: z.boolean(),
  state: z.enum(CONNECTION_STATES),
  /** Number of failed sign-ins since the conversion or the last retry. */
  failedSignIns: z.int().optional(),
});
export type RunConnection = z.infer<typeof Connection>;

const BlindSpot = z.object({ code: z.string(), message: z.string() });
export type BlindSpot = z.infer<typeof BlindSpot>;

const Watch = z.object({
  /** When the workloads could switch. Earlier use does not count. */
  since: z.string(),
  checkedAt: z.string(),
  lastUsedAt: z.string().optional(),
  /** Whole days without a sign-in that the logs, or without logs the clock, show since `since`. */
  idleDays: z.int(),
  /** Whether a complete log shows it. */
  isLogged: z.boolean(),
  /** Blind spots of the logs. The secret is not removed until a person has confirmed these codes. */
  blindSpots: z.array(BlindSpot),
});

const RunRecord = z.object({
  runId: z.string(),
  appId: z.string(),
  objectId: z.string(),
  tenantId: z.string(),
  appName: z.string(),
  keyId: z.string(),
  idleDays: z.int(),
  status: z.enum(RUN_STATUSES),
  /** Fingerprint of the plan, by which the run finds that the report has changed. */
  plan: z.string(),
  /** IDs of the consumers of the plan. */
  consumers: z.array(z.object({ id: z.string(), name: z.string(), kind: z.string() })),
  credentials: z.array(Credential),
  connections: z.array(Connection),
  steps: z.array(Step),
  watch: Watch.optional(),
  /** The blind spots that a person accepted. */
  confirmed: z.object({ by: z.string(), at: z.string(), codes: z.array(z.string()) }).optional(),
  rollback: z.object({ by: z.string(), at: z.string(), force: z.boolean() }).optional(),
  /** Stored before the request that removes the secret. Nothing can be rolled back until it is known that the secret stays. */
  removingSince: z.string().optional(),
  failure: Failure.optional(),
  /** Status with which a run that needs attention continues. */
  resume: z.enum(["running", "rollingBack"]).optional(),
  notes: z.array(z.string()),
  requestedBy: z.string(),
  requestId: z.string(),
  createdAt: z.string(),
  endedAt: z.string().optional(),
  /** ID of the worker that has the lease. */
  working: z.string().optional(),
  dueAt: z.string(),
  /** Consecutive transient failures. */
  failures: z.int(),
  /** Changes with every write, so that a retried write can be recognized. */
  writeId: z.string(),
});
export type RunRecord = z.infer<typeof RunRecord>;

/** Partition of the runs and of the rows that point to them, in the table of the rotations. */
export const RUNS = "secretless";
export const runKey = (runId: string): string => `r|${newestFirst(runId)}`;
export const SecretlessRuns = entity("Rotations", RunRecord, { uniqueWrites: true, signed: true });
/** Points from an application to its run that has not ended. */
export const SecretlessPointers = entity("Rotations", z.object({ runId: z.string() }));
export const unfinishedRunKey = (appId: string): string => `u|${keyText(appId.toLowerCase())}`;
/** Returns the ID of the unfinished run of an application. */
export const unfinishedRunOf = async (tables: Pick<Tables, "get">, appId: string): Promise<string | undefined> =>
  (await tables.get(SecretlessPointers, RUNS, unfinishedRunKey(appId)))?.runId;
export const replacementUnfinished = (runId: string): string =>
  `The run ${runId}, which replaces a client secret of the application, has not ended. Wait for it, or roll it back.`;

export const SECRETLESS_QUEUE = "secretless-runs";
export const SecretlessMessage = z.object({ runId: z.string() });
