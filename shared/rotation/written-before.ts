import type { Logger } from "../platform/runtime.ts";
import { StorageCorrupt, type Tables } from "../platform/storage/tables.ts";
import { ROTATIONS, type RotationRecord, RotationSummaries, Rotations } from "./rotation.ts";
import { listPrefix, listRange, recordKey } from "./rows.ts";
import { placeKey } from "./targets.ts";

/** Completed rotations of one application that are read, the newest first: each wrote every place that it was allowed to. */
const MAX_ROTATIONS = 20;

/**
 * Returns the places that completed rotations of an application wrote, by `placeKey`, each with the vault's resource id where
 * it was recorded. For places of which `MatchRecord.rotated` says nothing, since an earlier version rotated them. The signed
 * records decide; the list that leads to them is not signed.
 */
export async function writtenBefore(
  { tables, log }: { tables: Tables; log: Logger },
  appId: string,
): Promise<Map<string, string | undefined>> {
  const written = new Map<string, string | undefined>();
  const range = listRange(listPrefix({ subject: appId, status: "completed" }), {});
  for await (const page of tables.pages(RotationSummaries, {
    ...range,
    pageSize: MAX_ROTATIONS,
    select: ["rotationId"],
  })) {
    for (const { rotationId } of page) {
      const record = await trusted(rotationId);
      if (record?.status !== "completed" || record.appId?.toLowerCase() !== appId.toLowerCase()) continue;
      for (const publication of writtenMatches(record)) {
        const key = placeKey(publication);
        if (!written.has(key)) written.set(key, publication.vaultId);
      }
    }
    break;
  }
  return written;

  /** A record that this service did not sign counts as missing. */
  async function trusted(rotationId: string): Promise<RotationRecord | undefined> {
    try {
      return await tables.get(Rotations, ROTATIONS, recordKey(rotationId));
    } catch (error) {
      if (!(error instanceof StorageCorrupt)) throw error;
      log.error(error.message);
      return undefined;
    }
  }
}

/** The places of an application's client secret that hold the new value because of a rotation. */
export const writtenMatches = ({ publications }: RotationRecord): RotationRecord["publications"] =>
  publications.filter(({ kind, state, writtenVersion }) => kind === "match" && state === "written" && writtenVersion);
