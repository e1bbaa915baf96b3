import * as z from "zod";
import { entity } from "../storage/entity.ts";

export const ROTATION_STATUSES = [
  "planned",
  "creating",
  "proving",
  "publishing",
  "verifying",
  "overlapping",
  "revoking",
  "completed",
  "failed",
  "cancelled",
  "rolledBack",
  "needsAttention",
] as const;
export type RotationStatus = (typeof ROTATION_STATUSES)[number];

const ENDED: readonly RotationStatus[] = ["completed", "failed", "cancelled", "rolledBack"];
/** Whether nothing more will be done. One that needs attention is not over. */
export const isOver = (status: RotationStatus): boolean => ENDED.includes(status);

/** What is done in this order; `putBack` and `removeNew` only where a rotation does not succeed. */
export const STEPS = [
  "makeRoom",
  "create",
  "prove",
  "publish",
  "verify",
  "overlap",
  "revoke",
  "putBack",
  "removeNew",
  "cleanUp",
] as const;
export type StepName = (typeof STEPS)[number];

/** Why something did not work, in words for people. Holds no secret. */
export const RotationFailure = z.object({ code: z.string(), message: z.string(), remedy: z.string() });
export type RotationFailure = z.infer<typeof RotationFailure>;

export const Step = z.object({
  name: z.enum(STEPS),
  status: z.enum(["waiting", "running", "done", "failed", "skipped"]),
  startedAt: z.string().optional(),
  finishedAt: z.string().optional(),
  /** How often it was begun. */
  attempts: z.int(),
  failure: RotationFailure.optional(),
});
export type Step = z.infer<typeof Step>;

/**
 * One try to add a client secret. `asked` is written before the request: it stays where the answer was lost, and then a secret
 * with this display name may exist. `refused`: none does. `made`: its value is in the holding secret. `discarding`: it is to be
 * removed, since it is used nowhere. `removed`: it is gone.
 */
const Attempt = z.object({
  displayName: z.string(),
  askedAt: z.string(),
  state: z.enum(["asked", "refused", "made", "discarding", "removed"]),
  keyId: z.string().optional(),
});
export type Attempt = z.infer<typeof Attempt>;

/** A key vault secret that is written, and how far that is. */
const Publication = z.object({
  vaultName: z.string(),
  vaultUri: z.string(),
  secretName: z.string(),
  /** `handover`: in the vault that people fetch the value from; nothing there was in use before. */
  kind: z.enum(["match", "handover"]),
  /** A person said that it holds the old secret. */
  confirmed: z.boolean().optional(),
  /** The current version when it was planned; absent where there was no such secret. */
  plannedVersion: z.string().optional(),
  /** `writing` and `restoring` are written before the request. `left`: somebody else changed it, and it is not touched. */
  state: z.enum(["planned", "writing", "written", "restoring", "restored", "left"]),
  writtenVersion: z.string().optional(),
  writtenAt: z.string().optional(),
});
export type Publication = z.infer<typeof Publication>;

/** What happened, what is safe and what to do: for the person who is asked to look. */
export const Attention = z.object({
  code: z.string(),
  message: z.string(),
  done: z.string(),
  safe: z.string(),
  next: z.string(),
  since: z.string(),
  /** Where it goes on after `retry`. */
  resume: z.enum(ROTATION_STATUSES),
});
export type Attention = z.infer<typeof Attention>;

const Summary = z.object({
  rotationId: z.string(),
  /** The client id, and the directory object's id. */
  appId: z.string(),
  objectId: z.string(),
  appName: z.string(),
  oldKeyId: z.string(),
  newKeyId: z.string().optional(),
  status: z.enum(ROTATION_STATUSES),
  /** Whether a policy began it. */
  automatic: z.boolean(),
  requestedBy: z.string(),
  createdAt: z.string(),
  endedAt: z.string().optional(),
  needsConfirmation: z.boolean(),
  /** Why it ended without success, or goes back. */
  failure: RotationFailure.optional(),
});
/** A rotation as lists show it. */
export type RotationSummary = z.infer<typeof Summary>;

const RotationRecord = z.object({
  ...Summary.shape,
  expiryDays: z.int(),
  overlapDays: z.int(),
  updateKeyVaults: z.boolean(),
  /** The first characters of the old secret's value, as the directory shows them. */
  oldHint: z.string().optional(),
  /** All client secrets that the application had when this was planned. */
  knownKeyIds: z.array(z.string()),
  /** An expired client secret that is removed first, to make room. */
  removeExpired: z.string().optional(),
  /** Set while it goes back: how it is going to end. */
  ending: z.enum(["failed", "cancelled", "rolledBack"]).optional(),
  attempts: z.array(Attempt),
  newExpiresAt: z.string().optional(),
  /** Sign-ins with the new secret that were accepted one after the other. */
  proof: z
    .object({ accepted: z.int(), tries: z.int(), startedAt: z.string(), lastAt: z.string().optional() })
    .optional(),
  publications: z.array(Publication),
  /** Places that may hold the old secret and are not written. */
  notUpdated: z.array(
    z.object({ vaultName: z.string(), secretName: z.string(), confidence: z.enum(["certain", "likely", "possible"]) }),
  ),
  /** What was decided otherwise than asked for, such as a shorter life. */
  notes: z.array(z.string()),
  /** What could not be looked into. */
  coverage: z.array(z.string()),
  overlapEndsAt: z.string().optional(),
  /** When it was last seen what stands against removing the old secret. */
  checkedAt: z.string().optional(),
  /** Why the old secret is not removed without a person. */
  reasons: z.array(z.string()),
  finish: z.object({ by: z.string(), at: z.string(), force: z.boolean() }).optional(),
  cancel: z.object({ by: z.string(), at: z.string() }).optional(),
  /** Written before the old secret is removed: from then on nothing can be put back. */
  revokingSince: z.string().optional(),
  attention: Attention.optional(),
  steps: z.array(Step),
  /** Who works on it. Nobody else does until the row has been left alone for as long as a lease. */
  working: z.string().optional(),
  /** When the next turn is due. */
  dueAt: z.string(),
  /** Failures in a row that may pass by themselves. */
  failures: z.int(),
  /** The request that began it, and under which it is audited. */
  requestId: z.string(),
  /** Another one with every write. */
  writeId: z.string(),
});
export type RotationRecord = z.infer<typeof RotationRecord>;

/** Rotations and all that points to them lie in one partition, so that each change is one transaction. */
export const ROTATIONS = "rotations";
export const Rotations = entity("Rotations", RotationRecord, { witness: true, signed: true });
export const RotationSummaries = entity("Rotations", Summary);
/** Names a rotation: by its application while it is not over, and by when it is due. */
export const RotationPointers = entity("Rotations", z.object({ rotationId: z.string() }));
/** A rotation has ended or needs attention: what alerts tell of. */
export const RotationEvents = entity("Rotations", z.object({ ...Summary.shape, at: z.string() }));
/** Who may change applications of the tenant now; nobody while `owner` is empty. */
export const WriterLeases = entity("Rotations", z.object({ owner: z.string(), writeId: z.string() }));

export const ROTATION_QUEUE = "rotations";
export const RotationMessage = z.object({ rotationId: z.string() });

export function summaryOf(record: RotationRecord): RotationSummary {
  return Summary.parse(record);
}
