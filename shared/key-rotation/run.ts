import * as z from "zod";
import { CONSUMER_KINDS, type ConsumerKind } from "../dependencies/edge.ts";
import { INCOMPLETE_REASONS } from "../dependencies/incomplete.ts";
import { entity } from "../platform/storage/entity.ts";
import { keyEnd, keyText } from "../platform/storage/keys.ts";
import { newestFirst } from "../platform/ulid.ts";

/**
 * The stored record of a rotation of a vault key. States and transitions:
 *
 * | status | meaning | next |
 * |---|---|---|
 * | `rotating` | the new version does not exist yet | `waiting` with the new version; `failed` |
 * | `waiting` | consumers still use the old version, within the documented time | `done`; `late` |
 * | `late` | a consumer uses the old version, or is unknown, after that time | `done`; `superseded` by the next rotation |
 * | `done`, `failed`, `superseded` | ended | |
 *
 * The service adds one version to the key. It never disables or deletes a version, and never changes a consumer.
 */
export const RUN_STATUSES = ["rotating", "waiting", "late", "done", "failed", "superseded"] as const;
export type RunStatus = (typeof RUN_STATUSES)[number];
export const isOver = (status: RunStatus): boolean =>
  status === "done" || status === "failed" || status === "superseded";

/**
 * `followed`: the consumer uses the new version. `waiting`, `late`: it follows by itself and uses the old version. `pinned`: its
 * configuration names another version. `unknown`: the service can't read the version in use. `unlinked`: it uses another key now.
 */
export const CONSUMER_STATES = ["followed", "waiting", "late", "pinned", "unknown", "unlinked"] as const;

export const RunConsumer = z.object({
  /** Resource ID in its original spelling. */
  id: z.string(),
  kind: z.enum(CONSUMER_KINDS),
  name: z.string(),
  state: z.enum(CONSUMER_STATES),
  /** Whether it uses a new version by itself. Absent if unknown. */
  followsNewest: z.boolean().optional(),
  /** The version in use at the last check. Absent if the resource does not report it. */
  version: z.string().optional(),
  /** Time until which it should use the new version. Absent in plans. */
  dueAt: z.string().optional(),
  checkedAt: z.string().optional(),
  /** Why the state is unknown. */
  message: z.string().optional(),
});
export interface RunConsumer extends z.infer<typeof RunConsumer> {
  kind: ConsumerKind;
}

export const RunFailure = z.object({ code: z.string(), message: z.string(), remedy: z.string() });
export type RunFailure = z.infer<typeof RunFailure>;

export const RunRecord = z.object({
  runId: z.string(),
  status: z.enum(RUN_STATUSES),
  vaultName: z.string(),
  vaultUri: z.string(),
  vaultId: z.string(),
  subscriptionId: z.string(),
  /** Name of the key. */
  name: z.string(),
  requestedBy: z.string(),
  requestId: z.string(),
  createdAt: z.string(),
  endedAt: z.string().optional(),
  /** Version that was current before the rotation. */
  oldVersion: z.string(),
  /** The current version once it differs from `oldVersion`. */
  newVersion: z.string().optional(),
  /** Time at which the service saw the new version. */
  rotatedAt: z.string().optional(),
  /** True if the version was added before this run sent a request: by the vault's own policy or by another client. */
  createdElsewhere: z.boolean().optional(),
  /** Time of a request for a new version whose outcome is unknown. Stored before the request. */
  requestedAt: z.string().optional(),
  consumers: z.array(RunConsumer),
  /** Why further consumers may exist. Absent if discovery read everything that it can read. */
  incompleteReason: z.enum(INCOMPLETE_REASONS).optional(),
  /** Time of the check at which the run became late. */
  lateSince: z.string().optional(),
  /** Time of the next step. */
  dueAt: z.string(),
  /** Number of consecutive failed attempts of the current step. */
  failures: z.int(),
  failure: RunFailure.optional(),
  /** The end that was decided, until it is completely written. `entryId`: ID of its audit entry. */
  ending: z.object({ status: z.enum(["done", "failed"]), entryId: z.string() }).optional(),
  /** The worker that has the lease. */
  worker: z.string().optional(),
});
export type RunRecord = z.infer<typeof RunRecord>;

const TABLE = "KeyRotations";
/** The partition of all rows. */
export const KEY_ROTATIONS = "rotations";
/** A run. Signed, because it decides whether the service asks for another version of a key. */
export const Runs = entity(TABLE, RunRecord, { signed: true });
/** The unfinished run of a key. */
export const ActiveRuns = entity(TABLE, z.object({ runId: z.string() }), { signed: true });

// Row keys. `r|<ID counting down>`: a run, newest first. `u|<vault>|<key>`: the unfinished run of a key.
const RUN = "r|";
const ACTIVE = "u|";
export const runKey = (runId: string): string => RUN + newestFirst(runId);
export const activeKey = ({ vaultName, name }: { vaultName: string; name: string }): string =>
  `${ACTIVE}${keyText(vaultName.toLowerCase())}|${keyText(name.toLowerCase())}`;
/** The range of all runs, newest first. */
export const runRange = { partitionKey: KEY_ROTATIONS, from: RUN, before: keyEnd(RUN) };
export const activeRange = { partitionKey: KEY_ROTATIONS, from: ACTIVE, before: keyEnd(ACTIVE) };

/** Queue of messages that continue a run. */
export const QUEUE = "key-rotations";
export const KeyRotationMessage = z.object({ runId: z.string() });
export type KeyRotationMessage = z.infer<typeof KeyRotationMessage>;
