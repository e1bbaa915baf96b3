import { markId } from "./providers/ownership-mark.ts";
import { type Mark, SyncFailure, type SyncTarget, type TargetService, type TargetState } from "./providers/provider.ts";
import type { ENTRY_KINDS, RecordFailure, SyncRecord } from "./record.ts";
import type { SourceVersion } from "./sources.ts";

/** State of source and target before a run writes. Contains no value. */
export interface SyncState {
  service: TargetService;
  target: SyncTarget;
  /** Current state of the target. */
  state: TargetState;
  source: SourceVersion;
  mark: Mark;
}

/** What a run does, with the reason. */
export interface Decision {
  /**
   * `none`: the target holds the current version, as far as the provider reports it. `write`: writes the source's value.
   * `restore`: makes the target's version with that value current again. `report`: the target differs and is not changed.
   */
  action: "none" | "write" | "restore" | "report";
  /** Kind of the history entry. Absent if nothing changes. */
  kind?: (typeof ENTRY_KINDS)[number];
  /** The deleted target is recovered first. */
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
  /** Whether the target holds that version. Undefined if the provider can't report it. */
  holds?: boolean | undefined;
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
  const ours =
    state.ownedBy === undefined
      ? record.targetOwned || interrupted?.creating === true
      : state.ownedBy === record.recordId;
  if (!ours && !record.adopt) throw notOwned(state);

  const adopt = ours ? {} : { adopt: true as const };
  const isNewVersion = record.lastSourceVersion !== source.version;
  if (!service.marks) {
    if (!isNewVersion && ours)
      return {
        action: "none",
        why: "The source has not changed. The provider does not report which version the target holds.",
      };
    return {
      action: "write",
      kind: ours && record.lastSyncedAt ? "updated" : "created",
      ...adopt,
      why: WHY.newVersion,
    };
  }

  const wanted = markId(mark);
  if (state.holds === wanted && ours) {
    if (!isNewVersion && interrupted?.writing !== source.version) {
      return { action: "none", why: "The target holds the source's current version." };
    }
    const kind = !isNewVersion ? "mended" : record.lastSyncedAt ? "updated" : "created";
    return { action: "none", kind, why: "The target was written by a run that crashed before it stored the result." };
  }
  const drifted = record.targetMark !== undefined && state.holds !== record.targetMark && ours;
  if (drifted && record.onDrift === "report") return { action: "report", kind: "driftFound", why: WHY.drift };
  if (!isNewVersion && ours && target.restoreVersion) return { action: "restore", kind: "mended", why: WHY.drift };
  const kind = drifted ? "mended" : record.lastSyncedAt ? "updated" : "created";
  return { action: "write", kind, ...adopt, why: drifted ? WHY.drift : WHY.newVersion };
}

function decideAbsent(record: SyncRecord, { deletedUntil, ownedBy }: TargetState): Decision {
  const existedBefore = record.lastSyncedAt !== undefined;
  if (deletedUntil !== undefined && ownedBy !== record.recordId && !record.adopt) {
    throw new SyncFailure(
      "targetDeleted",
      "The target's name is reserved by a deleted secret that does not belong to this record.",
      {
        remedy: "Recover or purge that secret, choose another targetName, or set adopt to take it over.",
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

const WHY = {
  newVersion: "The source has a version that the target does not hold.",
  drift: "Someone else changed the target.",
};

const notOwned = ({ ownedBy }: TargetState) =>
  new SyncFailure(
    "targetNotOwned",
    typeof ownedBy === "string"
      ? `The target belongs to another sync record, ${ownedBy}.`
      : "The target already exists and was not created by this record.",
    { remedy: "Choose another targetName, or set adopt to take it over: its value is then overwritten." },
  );
