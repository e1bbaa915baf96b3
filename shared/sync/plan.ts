import { markId } from "./providers/mark.ts";
import { type Mark, SyncFailure, type SyncTarget, type TargetService, type TargetState } from "./providers/provider.ts";
import type { ENTRY_KINDS, RecordFailure, SyncRecord } from "./record.ts";
import type { SourceVersion } from "./source.ts";

/** What a run found when it looked, before it writes anything. No value is part of it. */
export interface Look {
  service: TargetService;
  target: SyncTarget;
  /** The target's state now. */
  state: TargetState;
  source: SourceVersion;
  mark: Mark;
}

/** What is to be done about a record, and why. */
export interface Decision {
  /**
   * `none`: the target holds what it should, as far as it can be told. `write`: the source's value is written. `restore`:
   * the version that holds it is made current again. `report`: the target differs and is left as it is.
   */
  action: "none" | "write" | "restore" | "report";
  /** What the history calls it; absent where nothing changed. */
  kind?: (typeof ENTRY_KINDS)[number];
  /** The target is deleted, and is brought back first. */
  undelete?: true;
  /** The target is not ours, and is taken over first. */
  adopt?: true;
  /** A sentence for people. */
  why: string;
}

/** What a run would do. */
export interface Planned {
  decision?: Decision;
  /** Version of the source. */
  source?: string;
  state?: TargetState;
  /** Whether the target holds that version; undefined where the provider can't tell. */
  holds?: boolean | undefined;
  failure?: Omit<RecordFailure, "since">;
}

/**
 * @param dying - What a worker that died was about to write.
 * @throws {SyncFailure} targetRefused, targetNotOwned, targetDeleted
 */
export function decide(
  record: SyncRecord,
  { service, target, state, source, mark }: Look,
  dying?: { writing: string; creating: boolean },
): Decision {
  if (state.refused !== undefined) {
    throw new SyncFailure("targetRefused", `The target can't be written: ${state.refused}.`, {
      remedy: "Choose another target.",
    });
  }
  if (!state.exists) return decideAbsent(record, state);
  const ours =
    state.ownedBy === undefined ? record.targetOwned || dying?.creating === true : state.ownedBy === record.recordId;
  if (!ours && !record.adopt) throw notOwned(state);

  const adopt = ours ? {} : { adopt: true as const };
  const isNewVersion = record.lastSourceVersion !== source.version;
  if (!service.marks) {
    if (!isNewVersion && ours)
      return { action: "none", why: "The source has not changed. The provider does not report what the target holds." };
    return {
      action: "write",
      kind: ours && record.lastSyncedAt ? "updated" : "created",
      ...adopt,
      why: WHY.newVersion,
    };
  }

  const wanted = markId(mark);
  if (state.holds === wanted && ours) {
    if (!isNewVersion && dying?.writing !== source.version) {
      return { action: "none", why: "The target holds the source's current version." };
    }
    const kind = !isNewVersion ? "mended" : record.lastSyncedAt ? "updated" : "created";
    return { action: "none", kind, why: "The target was written by a run that ended early." };
  }
  const drifted = record.targetMark !== undefined && state.holds !== record.targetMark && ours;
  if (drifted && record.onDrift === "report") return { action: "report", kind: "driftFound", why: WHY.drift };
  if (!isNewVersion && ours && target.restoreVersion) return { action: "restore", kind: "mended", why: WHY.drift };
  const kind = drifted ? "mended" : record.lastSyncedAt ? "updated" : "created";
  return { action: "write", kind, ...adopt, why: drifted ? WHY.drift : WHY.newVersion };
}

function decideAbsent(record: SyncRecord, { deletedUntil, ownedBy }: TargetState): Decision {
  const wasThere = record.lastSyncedAt !== undefined;
  if (deletedUntil !== undefined && ownedBy !== record.recordId && !record.adopt) {
    throw new SyncFailure("targetDeleted", "The target's name is held by a deleted secret that is not this record's.", {
      remedy: "Recover or purge it there, choose another targetName, or set adopt to take it over.",
    });
  }
  if (wasThere && record.onDrift === "report")
    return { action: "report", kind: "driftFound", why: "The target was deleted." };
  if (deletedUntil !== undefined) {
    return { action: "write", kind: "mended", undelete: true, why: "The target was deleted and is brought back." };
  }
  if (wasThere) return { action: "write", kind: "mended", why: "The target was deleted." };
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
      : "The target exists already and was not made by this record.",
    { remedy: "Choose another targetName, or set adopt to take it over: its value is then overwritten." },
  );
