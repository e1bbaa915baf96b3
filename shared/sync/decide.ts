import { markId } from "./providers/ownership-mark.ts";
import { type Mark, SyncFailure, type SyncTarget, type TargetService, type TargetState } from "./providers/provider.ts";
import type { ENTRY_KINDS, RecordFailure, SyncRecord } from "./record.ts";
import type { SourceVersion } from "./sources.ts";

/**
 * Decides what a run of a sync record does. A record copies a secret of a key vault (the source) to another store (the target).
 * The target stores a mark beside the value, if the provider can. The mark shows which record wrote the value, and from which
 * source version.
 */

/** State of source and target before a run writes. Contains no secret value. */
export interface SyncState {
  service: TargetService;
  target: SyncTarget;
  /** Current state of the target. */
  state: TargetState;
  source: SourceVersion;
  mark: Mark;
}

/** The action of a run, with the reason. */
export interface Decision {
  /**
   * `none`: the target holds the current version, as far as the provider reports it. `write`: writes the source's value.
   * `restore`: makes the target's version with that value current again. `report`: the target differs and is not changed.
   */
  action: "none" | "write" | "restore" | "report";
  /** Kind of the history entry. `mended`: a target that someone else changed or deleted is restored. Absent: no entry. */
  kind?: (typeof ENTRY_KINDS)[number];
  /** The deleted target is recovered first. The next run then writes it. */
  undelete?: true;
  /** The target belongs to no record and is taken over first. */
  adopt?: true;
  /** Reason as a sentence for users. */
  why: string;
}

/** Result of a dry run. */
export interface Planned {
  decision?: Decision;
  /** Current version of the source. */
  source?: string;
  state?: TargetState;
  /** Whether the target has that version. Undefined if the provider can't report it. */
  holdsSourceVersion?: boolean | undefined;
  failure?: Omit<RecordFailure, "since">;
}

/**
 * Decides what a run does, from the states of source and target.
 *
 * @param interrupted - The write that a crashed worker had announced.
 * @throws {SyncFailure} targetRefused, targetNotOwned, targetDeleted
 */
export function decide(
  record: SyncRecord,
  { service, target, state, source, mark }: SyncState,
  interrupted?: { writing: string; creating: boolean },
): Decision {
  if (state.refused !== undefined) {
    throw new SyncFailure("targetRefused", `The target can't be written: ${state.refused}.`, {
      remedy: "Choose another target.",
    });
  }
  if (!state.exists) return decideAbsent(record, state);
  // A provider without marks reports no owner (`ownedBy` undefined). Then the record says whether the target is its own, or a
  // crashed worker may have created it.
  const isOwned =
    state.ownedBy === undefined
      ? record.targetOwned || interrupted?.creating === true
      : state.ownedBy === record.recordId;
  if (!isOwned && !record.adopt) throw notOwned(state);

  const adopt = isOwned ? {} : { adopt: true as const };
  const isNewVersion = record.lastSourceVersion !== source.version;
  if (!service.storesMark) {
    if (!isNewVersion && isOwned)
      return {
        action: "none",
        why: "The source has not changed. The provider does not report which version the target has.",
      };
    return {
      action: "write",
      kind: isOwned && record.lastSyncedAt ? "updated" : "created",
      ...adopt,
      why: REASONS.newVersion,
    };
  }

  if (state.currentMarkId === markId(mark) && isOwned) {
    // The target is up to date. If the record names an older version, or a write of this version was announced, a worker
    // crashed after its write.
    if (!isNewVersion && interrupted?.writing !== source.version) {
      return { action: "none", why: "The target has the source's current version." };
    }
    // A version that the record already knows is only written again to undo a change by someone else.
    const kind = !isNewVersion ? "mended" : record.lastSyncedAt ? "updated" : "created";
    return { action: "none", kind, why: "The target was written by a run that crashed before it stored the result." };
  }
  // Drift: the target holds another value than the one that this record wrote last. If a worker crashed after that write, the
  // record does not know of it.
  const isLastWrite =
    state.currentMarkId === record.targetMark ||
    (interrupted !== undefined && state.currentMarkId === markId({ ...mark, sourceVersion: interrupted.writing }));
  const hasDrifted = record.targetMark !== undefined && !isLastWrite && isOwned;
  if (hasDrifted && record.onDrift === "report") return { action: "report", kind: "driftFound", why: REASONS.drift };
  if (!isNewVersion && isOwned && target.restoreVersion)
    return { action: "restore", kind: "mended", why: REASONS.drift };
  const kind = hasDrifted ? "mended" : record.lastSyncedAt ? "updated" : "created";
  return { action: "write", kind, ...adopt, why: hasDrifted ? REASONS.drift : REASONS.newVersion };
}

/** Decides for a target that does not exist, or that was deleted and can be recovered (`deletedUntil`). */
function decideAbsent(record: SyncRecord, { deletedUntil, ownedBy }: TargetState): Decision {
  const existedBefore = record.lastSyncedAt !== undefined;
  // All providers that can recover a deleted target also store its owner.
  if (deletedUntil !== undefined && ownedBy !== record.recordId && !record.adopt) {
    throw new SyncFailure(
      "targetDeleted",
      "The target's name is reserved by a deleted secret that does not belong to this record.",
      {
        remedy:
          "Recover or purge that secret, choose another target secret name, or allow the sync to overwrite an existing secret (adopt).",
      },
    );
  }
  if (existedBefore && record.onDrift === "report")
    return { action: "report", kind: "driftFound", why: "The target was deleted." };
  if (deletedUntil !== undefined) {
    return { action: "write", kind: "mended", undelete: true, why: "The target was deleted and is recovered." };
  }
  if (existedBefore) return { action: "write", kind: "mended", why: "The target was deleted." };
  return { action: "write", kind: "created", why: "The target does not exist yet." };
}

const REASONS = {
  newVersion: "The source has a version that the target does not have.",
  drift: "Someone else changed the target.",
};

const notOwned = ({ ownedBy }: TargetState) =>
  new SyncFailure(
    "targetNotOwned",
    typeof ownedBy === "string"
      ? `The target belongs to another sync record, ${ownedBy}.`
      : "The target already exists and was not created by this record.",
    { remedy: "Choose another target secret name, or allow the sync to overwrite an existing secret (adopt)." },
  );
