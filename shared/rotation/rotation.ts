import * as z from "zod";
import { entity } from "../platform/storage/entity.ts";
import { PlannedConsumer } from "./consumer.ts";

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

/**
 * What is done in this order; `putBack`, `restore` and `removeNew` only where a rotation does not succeed. A vault's secret
 * has no `makeRoom`, `create`, `prove`, `revoke` and `removeNew`.
 */
export const STEPS = [
  "makeRoom",
  "create",
  "prove",
  "publish",
  "verify",
  "overlap",
  "revoke",
  "putBack",
  "restore",
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
 * removed, since it is used nowhere. `removed`: it is gone. `left`: it is not removed, since it may be in use or is the only valid one.
 */
const Attempt = z.object({
  displayName: z.string(),
  askedAt: z.string(),
  state: z.enum(["asked", "refused", "made", "discarding", "removed", "left"]),
  keyId: z.string().optional(),
  /** It is `left` as the application's only valid client secret, so its held value stays in the service's own key vault. */
  isValueKept: z.boolean().optional(),
});
export type Attempt = z.infer<typeof Attempt>;

/** A key vault secret that is written, and how far that is. */
const Publication = z.object({
  vaultName: z.string(),
  vaultUri: z.string(),
  /** The vault's resource id; absent where the value is handed over, and in rotations of earlier versions. */
  vaultId: z.string().optional(),
  secretName: z.string(),
  /**
   * `match`: it holds the client secret. `handover`: in the vault that people fetch the value from; nothing there was in use
   * before. `secret`: the vault's secret that is rotated itself.
   */
  kind: z.enum(["match", "handover", "secret"]),
  /** A person said that it holds the old secret. */
  confirmed: z.boolean().optional(),
  /** The current version when it was planned; absent where there was no such secret. */
  plannedVersion: z.string().optional(),
  /** `writing` and `restoring` are written before the request. `left`: somebody else changed it, and it is not touched. */
  state: z.enum(["planned", "writing", "written", "restoring", "restored", "left"]),
  writtenVersion: z.string().optional(),
  writtenAt: z.string().optional(),
  /** The version that holds the value from before again; where it was `left`, the one that somebody else wrote. */
  restoredVersion: z.string().optional(),
  restoredAt: z.string().optional(),
});
export type Publication = z.infer<typeof Publication>;

export const CONSUMER_STATES = [
  "waiting",
  "acting",
  "acted",
  "verified",
  "unverified",
  "failed",
  "restoring",
  "restored",
  "left",
] as const;

/**
 * A consumer and how far it is. `waiting`: it takes the new value by itself, or is acted on later. `unverified`: nobody has
 * seen what it holds. `left`: it could not be brought back, and a person ended the rotation all the same. While it is `acting` or `restoring` without `actedAt` it may have been acted on, or not.
 */
export const RotationConsumer = z.object({
  ...PlannedConsumer.shape,
  /** False: it is not acted on, since `includeResources` leaves it out. */
  included: z.boolean(),
  state: z.enum(CONSUMER_STATES),
  /** What it was last seen to hold. */
  holds: z.enum(["new", "old", "gone", "unknown"]).optional(),
  /** Why it could not be brought to hold what it is to hold. */
  problem: z.string().optional(),
  /** When it was first acted on, unless that was refused: from then on it may hold the new value. */
  touchedAt: z.string().optional(),
  /** When it began to be brought to the version that it is to hold, and when it was acted on for that. */
  since: z.string().optional(),
  actedAt: z.string().optional(),
  /** How often it was looked at for that. */
  looks: z.int().optional(),
});
export type RotationConsumer = z.infer<typeof RotationConsumer>;

/** Whether a consumer was acted on, or may have been, and is not back on the value from before. */
export const isToRestore = ({ touchedAt, state }: RotationConsumer): boolean =>
  touchedAt !== undefined && state !== "restored" && state !== "left";

/** Why an application's client secret is rotated, where that changes what is done. */
export const ROTATION_REASONS = ["compromised"] as const;

/**
 * Why a place was left out. `newPlace`: it surely holds the old secret, and neither did a person confirm it nor an earlier
 * rotation write it. `uncertain`: it may hold the old secret. `notNamed`: the request names the only places that are written.
 * `unreadable`: its vault refuses the service, so nothing can be proved.
 */
export const LEFT_OUT_REASONS = ["newPlace", "uncertain", "notNamed", "unreadable"] as const;
export type LeftOutReason = (typeof LEFT_OUT_REASONS)[number];

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
  /** Where an application's client secret is rotated: the client id, and the directory object's id. */
  appId: z.string().optional(),
  objectId: z.string().optional(),
  appName: z.string().optional(),
  oldKeyId: z.string().optional(),
  newKeyId: z.string().optional(),
  /** Where a vault's secret is rotated that is no application's: its asset id. */
  assetId: z.string().optional(),
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
  /** `compromised`: only named places are written, and no others keep the old secret from being removed. */
  reason: z.enum(ROTATION_REASONS).optional(),
  /** The request named the places to write. Only places that a person confirms are added later. */
  namedOnly: z.boolean().optional(),
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
  /** Absent in rotations of earlier versions, which asked for them when they were verified. */
  consumers: z.array(RotationConsumer).optional(),
  /** Consumers are acted on, and what they hold is not waited for. */
  skipVerification: z.boolean().optional(),
  /** False: apps that read their settings only when they start are not restarted. */
  restartApps: z.boolean().optional(),
  /** Places that may hold the old secret and are not written. */
  notUpdated: z.array(
    z.object({
      vaultName: z.string(),
      secretName: z.string(),
      confidence: z.enum(["certain", "likely", "possible"]),
      /** Absent where the value is handed over, and in rotations of earlier versions. */
      reason: z.enum(LEFT_OUT_REASONS).optional(),
    }),
  ),
  /** When a person last confirmed a place of the application since this began; absent once the overlap has taken account of it. */
  placeConfirmedAt: z.string().optional(),
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

/** The client secret that a rotation replaces. */
export interface ClientSecret {
  appId: string;
  objectId: string;
  appName: string;
  oldKeyId: string;
}

/** Whether a vault's secret is rotated, and not an application's client secret. */
export const isVaultSecret = ({ assetId }: Pick<RotationSummary, "assetId">): boolean => assetId !== undefined;

/** Of a rotation that replaces one; a mistake in this program for any other. */
export function clientSecretOf({ rotationId, appId, objectId, appName, oldKeyId }: RotationSummary): ClientSecret {
  if (appId === undefined || objectId === undefined || appName === undefined || oldKeyId === undefined)
    throw new Error(`Rotation ${rotationId} replaces no client secret.`);
  return { appId, objectId, appName, oldKeyId };
}

/** What is rotated, by the application's client id or the asset's id. One rotation of it at a time. */
export const subjectOf = ({ appId, assetId }: Pick<RotationSummary, "appId" | "assetId">): string =>
  appId ?? assetId ?? "";

/** What is rotated, for people. */
export const titleOf = ({ appName, assetId, rotationId }: RotationSummary): string => appName ?? assetId ?? rotationId;

/** Rotations and all that points to them lie in one partition, so that each change is one transaction. */
export const ROTATIONS = "rotations";
export const Rotations = entity("Rotations", RotationRecord, { uniqueWrites: true, signed: true });
export const RotationSummaries = entity("Rotations", Summary);
/** Names a rotation: by what is rotated while it is not over, by when it is due, and one whose value is held before it is written. */
export const RotationPointers = entity("Rotations", z.object({ rotationId: z.string() }));
/** A rotation has ended or needs attention, or began with a new place left out: what alerts tell of. */
export const RotationEvents = entity(
  "Rotations",
  z.object({ ...Summary.shape, at: z.string(), leftOut: z.boolean().optional() }),
);
/** Who may change applications of the tenant now; nobody while `owner` is empty. */
export const WriterLeases = entity("Rotations", z.object({ owner: z.string(), writeId: z.string() }));

export const ROTATION_QUEUE = "rotations";
export const RotationMessage = z.object({ rotationId: z.string() });

export function summaryOf(record: RotationRecord): RotationSummary {
  return Summary.parse(record);
}
