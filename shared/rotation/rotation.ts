import * as z from "zod";
import { resourceName } from "../platform/azure/resource-id.ts";
import { entity } from "../platform/storage/entity.ts";
import { PlannedConsumer } from "./consumer.ts";
import { MaintenanceWindow } from "./maintenance-window.ts";

/**
 * Statuses of a rotation: one for each phase until `revoking`, in order, then the four ends. `failed`: no place had the new
 * value. `rolledBack`: the places that had the new value have the previous one again. `needsAttention`: it waits for a user.
 */
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
/** Returns whether a rotation has ended. A rotation that needs attention has not. */
export const isOver = (status: RotationStatus): boolean => ENDED.includes(status);

/**
 * Steps of a rotation, in order. `makeRoom` removes an expired client secret. `prove` signs in with the new one. `publish`
 * writes the places, `verify` refreshes the consumers, `overlap` waits while both values are valid, and `revoke` removes the
 * old secret. `cleanUp` deletes the held copies of new values. Only a rollback runs `putBack` (restore places), `restore`
 * (restore consumers) and `removeNew`, which removes the new secret. Vault secrets have no `makeRoom`, `create`, `prove`, `revoke`
 * and `removeNew`.
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

/** Failure of a step or a rotation, with texts for users that contain no secret. */
export const RotationFailure = z.object({ code: z.string(), message: z.string(), remedy: z.string() });
export type RotationFailure = z.infer<typeof RotationFailure>;

export const Step = z.object({
  name: z.enum(STEPS),
  status: z.enum(["waiting", "running", "done", "failed", "skipped"]),
  startedAt: z.string().optional(),
  finishedAt: z.string().optional(),
  /** Number of times the step was started. */
  attempts: z.int(),
  failure: RotationFailure.optional(),
});
export type Step = z.infer<typeof Step>;

/**
 * One attempt to add a client secret. `asked` is stored before the request and stays if the response is lost: a secret with
 * this display name may then exist. `refused`: no secret was added. `made`: the secret was added, and its held copy (a copy of
 * the value in the service's own vault) is stored. `discarding`: the secret is unused and will be removed. `removed`: the
 * secret was removed. `left`: the secret stays, because it may be in use or is the only valid one.
 */
const Attempt = z.object({
  displayName: z.string(),
  askedAt: z.string(),
  state: z.enum(["asked", "refused", "made", "discarding", "removed", "left"]),
  keyId: z.string().optional(),
  /** Names the held copy. Default: the key ID. An issuer that chooses values has another copy for each attempt. */
  copyId: z.string().optional(),
  /**
   * True if the secret was `left` because it is the application's only valid client secret. Its held copy is then not deleted.
   */
  isValueKept: z.boolean().optional(),
});
export type Attempt = z.infer<typeof Attempt>;

/** A key vault secret that the rotation writes, with its progress. */
const Publication = z.object({
  vaultName: z.string(),
  vaultUri: z.string(),
  /** Resource ID of the vault. Absent for a handover, and in rotations of earlier versions. */
  vaultId: z.string().optional(),
  secretName: z.string(),
  /**
   * `match`: the place stores the client secret. `handover`: a secret in the handover vault, which nothing reads. `secret`: the
   * rotated vault secret itself.
   */
  kind: z.enum(["match", "handover", "secret"]),
  /** A user confirmed that the place stores the old secret. */
  confirmed: z.boolean().optional(),
  /** Current version at the time of the plan. Absent if the secret did not exist. */
  plannedVersion: z.string().optional(),
  /**
   * `writing` and `restoring` are stored before the request. `left`: another writer changed the secret, so a rollback skips it.
   */
  state: z.enum(["planned", "writing", "written", "restoring", "restored", "left"]),
  writtenVersion: z.string().optional(),
  /** Creation time of that version in Unix seconds. Absent in rotations of earlier versions. */
  writtenCreatedOn: z.int().optional(),
  writtenAt: z.string().optional(),
  /** The version with the restored value. For `left`, the version of the other writer. */
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
 * A consumer (a resource that uses the secret) with its progress. `waiting`: it reads the new value by itself, or will be
 * refreshed. `acting`, `acted`: its refresh started, its refresh is done. `verified`: it has the new value. `unverified`: its
 * value is unknown. `failed`: it did not take the new value, so the rotation rolls back. `restoring`, `restored`: a rollback
 * refreshes it, it has the previous value again. `left`: the rollback failed for it, and a user ended the rotation anyway. In
 * `acting` or `restoring` without `actedAt`, the refresh may or may not have happened.
 */
export const RotationConsumer = z.object({
  ...PlannedConsumer.shape,
  /** False if `includeResources` of the request does not name it. It is then not refreshed. */
  included: z.boolean(),
  /**
   * It could not use the secret before the rotation wrote anything, or when it was first seen; `problem` says why. It is
   * neither refreshed nor checked, and decides nothing. Before a client secret is removed it is read again, and counts if it
   * recovered.
   */
  brokenBefore: z.boolean().optional(),
  /**
   * Before the rotation wrote anything, it was unclear whether it can use the secret, and the request did not name it. It is
   * refreshed and checked, but if it does not take the new value, it does not roll the rotation back. Removed once it could use
   * the secret.
   */
  unclearBefore: z.boolean().optional(),
  state: z.enum(CONSUMER_STATES),
  /** Value that it had at the last check. */
  holds: z.enum(["new", "old", "gone", "unknown"]).optional(),
  /** Why it could not take the expected version. */
  problem: z.string().optional(),
  /** When its first refresh started. From then on it may have the new value. Removed if the refresh was rejected. */
  touchedAt: z.string().optional(),
  /**
   * When the current attempt started: to the new version, or in a rollback to the previous one. `actedAt`: when it was
   * refreshed.
   */
  since: z.string().optional(),
  actedAt: z.string().optional(),
  /** Number of checks of its value in the current attempt. The stored name is older than the term "check". */
  looks: z.int().optional(),
});
export type RotationConsumer = z.infer<typeof RotationConsumer>;

/**
 * Returns whether a rollback must still restore the consumer: it was or may have been refreshed, and was not restored or left.
 */
export const isToRestore = ({ touchedAt, state }: RotationConsumer): boolean =>
  touchedAt !== undefined && state !== "restored" && state !== "left";

/** Reasons of a request that change what the rotation does. */
export const ROTATION_REASONS = ["compromised"] as const;

/**
 * Reasons why a place (vault secret) is not written. `newPlace`: it certainly stores the old secret, but no user confirmed it
 * and no earlier rotation wrote it. `uncertain`: it may store the old secret. `notNamed`: the request names other places only.
 * `unreadable`: its vault denies access, so the service can't check what it stores. `unanswered`: no user confirmed it and no
 * rotation wrote it, and its vault or the sign-in gave no clear answer.
 */
export const LEFT_OUT_REASONS = ["newPlace", "uncertain", "notNamed", "unreadable", "unanswered"] as const;
export type LeftOutReason = (typeof LEFT_OUT_REASONS)[number];

/** Texts for the user who must act: what happened, what the rotation changed, what is safe and what to do. */
export const Attention = z.object({
  code: z.string(),
  message: z.string(),
  done: z.string(),
  safe: z.string(),
  next: z.string(),
  since: z.string(),
  /** Status with which the rotation continues after `retry`. */
  resume: z.enum(ROTATION_STATUSES),
});
export type Attention = z.infer<typeof Attention>;

const Summary = z.object({
  rotationId: z.string(),
  /** Client ID and object ID of the application. Absent for a vault secret. */
  appId: z.string().optional(),
  objectId: z.string().optional(),
  appName: z.string().optional(),
  oldKeyId: z.string().optional(),
  newKeyId: z.string().optional(),
  /** Asset ID of the vault secret. Absent for a credential that an issuer creates. */
  assetId: z.string().optional(),
  /** Resource whose key is replaced, or server of a login, and the name of its kind. Only for keys and logins. */
  resourceId: z.string().optional(),
  keyKind: z.string().optional(),
  /** ID of the registration of the two users, of whose server `resourceId` is the ID. Only for logins of databases. */
  loginId: z.string().optional(),
  status: z.enum(ROTATION_STATUSES),
  /** Whether a policy started the rotation. */
  automatic: z.boolean(),
  requestedBy: z.string(),
  createdAt: z.string(),
  endedAt: z.string().optional(),
  /** True while `reasons` keep the old value from being removed. A user can then finish the rotation. */
  needsConfirmation: z.boolean(),
  /** Why the rotation ended without success or rolls back. */
  failure: RotationFailure.optional(),
});
/** A rotation as shown in lists. */
export type RotationSummary = z.infer<typeof Summary>;

/** Kinds of issuers: what creates the new value of a rotation. issuers/issuers.ts lists their implementations. */
export const ISSUER_KINDS = ["clientSecret", "resourceKey", "databaseLogin"] as const;
export type IssuerKind = (typeof ISSUER_KINDS)[number];

const RotationRecord = z.object({
  ...Summary.shape,
  /**
   * Absent for a vault secret, for client secrets in rotations of earlier versions, and for logins of databases, which have a
   * `loginId` instead: earlier versions read the row, and would reject another kind here. See `issuerKindOf`.
   */
  issuer: z.enum(ISSUER_KINDS).exclude(["databaseLogin"]).optional(),
  expiryDays: z.int(),
  overlapDays: z.int(),
  updateKeyVaults: z.boolean(),
  /** `compromised`: only named places are written, and the old secret is removed although other places store copies of it. */
  reason: z.enum(ROTATION_REASONS).optional(),
  /** The request named the places to write. During the overlap period, only places that a user confirms are added. */
  namedOnly: z.boolean().optional(),
  /** The registration at the time of the plan. Only for logins of databases. */
  login: z
    .object({
      database: z.string(),
      users: z.tuple([z.string(), z.string()]),
      signInAs: z.string(),
    })
    .optional(),
  /** Text that names the new key in connection strings that contain such a name. Only for keys of Azure resources. */
  newKeyReference: z.string().optional(),
  /** The old key is regenerated after the overlap period. Default: it stays valid until the next rotation regenerates it. */
  regenerateOld: z.boolean().optional(),
  /** From the policy that started the rotation. Absent: its steps run at any time. */
  maintenanceWindow: MaintenanceWindow.optional(),
  /** When the old credential expires. Only in rotations with a maintenance window. */
  oldExpiresAt: z.string().optional(),
  /** First characters of the old secret's value, from the directory. */
  oldHint: z.string().optional(),
  /** Key IDs of all client secrets of the application at the time of the plan. */
  knownKeyIds: z.array(z.string()),
  /** Key ID of an expired client secret that is removed first, because the application has no free slot. */
  removeExpired: z.string().optional(),
  /** Status that the rotation will end with. Set during a rollback. */
  ending: z.enum(["failed", "cancelled", "rolledBack"]).optional(),
  attempts: z.array(Attempt),
  newExpiresAt: z.string().optional(),
  /** Consecutive accepted sign-ins with the new secret. */
  proof: z
    .object({
      accepted: z.int(),
      tries: z.int(),
      startedAt: z.string(),
      lastAt: z.string().optional(),
      /** The last clear answer of the resource rejected the key, so an unclear answer does not prove the key. */
      rejected: z.boolean().optional(),
    })
    .optional(),
  publications: z.array(Publication),
  /** Absent in rotations of earlier versions, which found the consumers in the step `verify`. */
  consumers: z.array(RotationConsumer).optional(),
  /** Consumers are refreshed, and their values are not checked. */
  skipVerification: z.boolean().optional(),
  /** False: apps that read their settings only when they start are not restarted. */
  restartApps: z.boolean().optional(),
  /** Places that may store the old secret and are not written. */
  notUpdated: z.array(
    z.object({
      vaultName: z.string(),
      secretName: z.string(),
      confidence: z.enum(["certain", "likely", "possible"]),
      /** Absent for a handover, and in rotations of earlier versions. */
      reason: z.enum(LEFT_OUT_REASONS).optional(),
    }),
  ),
  /**
   * When a user last confirmed or rejected a place of the application during this rotation. Removed when the overlap step has
   * processed it.
   */
  placeConfirmedAt: z.string().optional(),
  /** Decisions that differ from the request, such as a shorter lifetime. */
  notes: z.array(z.string()),
  /** Sentences about scopes that could not be read. */
  coverage: z.array(z.string()),
  overlapEndsAt: z.string().optional(),
  /** When the reasons against removing the old secret were last checked. */
  checkedAt: z.string().optional(),
  /** Reasons why the old secret is not removed without a user. */
  reasons: z.array(z.string()),
  /** A user's request to end the overlap period now. Removed if a check then finds reasons against the end. */
  finish: z.object({ by: z.string(), at: z.string(), force: z.boolean() }).optional(),
  /** A user's request to roll back. The next start of a step sets `ending`. */
  cancel: z.object({ by: z.string(), at: z.string() }).optional(),
  /** Stored before the old secret is removed. From then on nothing can be rolled back. */
  revokingSince: z.string().optional(),
  attention: Attention.optional(),
  steps: z.array(Step),
  /** ID of the worker that has the lease. Others wait until the row has not been written for the duration of a lease. */
  working: z.string().optional(),
  /** When the next step is due. */
  dueAt: z.string(),
  /** Consecutive transient failures. */
  failures: z.int(),
  /** The request that started the rotation, also in its audit entries. */
  requestId: z.string(),
  /** Changes with every write, so that a retried write can be recognized. */
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

/**
 * Returns the kind of the issuer that creates the new value. Undefined for a vault secret, because its new value comes with the
 * request: an issuer without anything to create, prove or retire would only have empty operations.
 */
export function issuerKindOf({ issuer, assetId, loginId }: Issued): IssuerKind | undefined {
  if (loginId !== undefined) return "databaseLogin";
  return issuer ?? (assetId === undefined ? "clientSecret" : undefined);
}

/** The members of a rotation, or of a request for one, that decide its issuer. */
export interface Issued {
  issuer?: IssuerKind | undefined;
  assetId?: string | undefined;
  loginId?: string | undefined;
}

/** Returns whether the rotation writes a vault secret whose new value came with the request. */
export const isVaultSecret = (rotation: Issued): boolean => issuerKindOf(rotation) === undefined;

/**
 * Returns the client secret that a rotation replaces.
 *
 * @throws {Error} for the rotation of a vault secret, which is a programming error.
 */
export function clientSecretOf({ rotationId, appId, objectId, appName, oldKeyId }: RotationSummary): ClientSecret {
  if (appId === undefined || objectId === undefined || appName === undefined || oldKeyId === undefined)
    throw new Error(`Rotation ${rotationId} replaces no client secret.`);
  return { appId, objectId, appName, oldKeyId };
}

/** The key of a resource that a rotation replaces. */
export interface ResourceKey {
  resourceId: string;
  keyKind: string;
  /** Name of the key in use. */
  oldKeyId: string;
}

/**
 * Returns the key that a rotation replaces.
 *
 * @throws {Error} for a rotation of another kind, which is a programming error.
 */
export function resourceKeyOf({ rotationId, resourceId, keyKind, oldKeyId }: RotationSummary): ResourceKey {
  if (resourceId === undefined || keyKind === undefined || oldKeyId === undefined)
    throw new Error(`Rotation ${rotationId} replaces no key of a resource.`);
  return { resourceId, keyKind, oldKeyId };
}

/** The login of a database that a rotation replaces. */
export interface RotatedLogin {
  loginId: string;
  serverId: string;
  database: string;
  users: readonly [string, string];
  signInAs: string;
  /** Name of the user in use. */
  oldUser: string;
}

/**
 * Returns the login that a rotation replaces.
 *
 * @throws {Error} for a rotation of another kind, which is a programming error.
 */
export function databaseLoginOf({ rotationId, loginId, resourceId, oldKeyId, login }: RotationRecord): RotatedLogin {
  if (loginId === undefined || resourceId === undefined || oldKeyId === undefined || login === undefined)
    throw new Error(`Rotation ${rotationId} replaces no login of a database.`);
  const { database, users, signInAs } = login;
  return { loginId, serverId: resourceId, database, users, signInAs, oldUser: oldKeyId };
}

/**
 * Returns the subject of a rotation: a client ID, an asset ID, the ID of a registration, or a resource ID in lower case. Only one
 * rotation of a subject runs at a time.
 */
export const subjectOf = ({ appId, assetId, loginId, resourceId }: RotatedSubject): string =>
  appId ?? assetId ?? loginId ?? resourceId?.toLowerCase() ?? "";

/** The members of a rotation that name what it rotates, for audit entries. */
export type RotatedSubject = Pick<RotationSummary, "appId" | "assetId" | "loginId" | "resourceId">;
export const subjectDetails = ({ appId, assetId, loginId, resourceId }: RotatedSubject): Record<string, unknown> =>
  appId !== undefined
    ? { appId }
    : resourceId !== undefined
      ? { resourceId, ...(loginId !== undefined && { loginId }) }
      : { assetId };

/** Returns a name of the rotated subject for users. */
export const titleOf = ({ appName, assetId, resourceId, rotationId }: RotationSummary): string =>
  appName ?? assetId ?? (resourceId === undefined ? rotationId : resourceName(resourceId));

/** Partition of rotations and of all rows that point to them, so that each change is one transaction. */
export const ROTATIONS = "rotations";
export const Rotations = entity("Rotations", RotationRecord, { uniqueWrites: true, signed: true });
export const RotationSummaries = entity("Rotations", Summary);
/**
 * Points to a rotation: from its subject while it is unfinished, from its due time, and from a held copy that is written before
 * the rotation.
 */
export const RotationPointers = entity(
  "Rotations",
  z.object({
    rotationId: z.string(),
    /**
     * Only of a pointer by due time. A message that arrives while the rotation is leased or not due is replaced by a delayed
     * message, the follow-up. This is the time when the follow-up arrives.
     */
    followUpAt: z.string().optional(),
  }),
);
/**
 * Events for alerts: a rotation ended, needs attention or, with `leftOut`, started but does not write a place that certainly stores
 * the old secret, because it is not a known place.
 */
export const RotationEvents = entity(
  "Rotations",
  z.object({ ...Summary.shape, at: z.string(), leftOut: z.boolean().optional() }),
);
/** Lease of the worker that may change applications of the tenant. `owner` is the worker's ID. The lease is free if it is empty. */
export const WriterLeases = entity("Rotations", z.object({ owner: z.string(), writeId: z.string() }));

export const ROTATION_QUEUE = "rotations";
export const RotationMessage = z.object({ rotationId: z.string() });

export function summaryOf(record: RotationRecord): RotationSummary {
  return Summary.parse(record);
}
