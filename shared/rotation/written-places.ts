import type { Logger } from "../platform/runtime.ts";
import type { Tables } from "../platform/storage/tables.ts";
import { ROTATIONS, type RotationRecord, RotationSummaries, Rotations } from "./rotation.ts";
import { listPrefix, listRange, recordKey } from "./rows.ts";
import { placeKey } from "./targets.ts";

/** Number of latest completed rotations of an application that are read. */
const MAX_ROTATIONS = 20;

/** How a rotation wrote a place. */
export interface WrittenPlace {
  /** Version of the vault secret that the rotation created. */
  version: string;
  /** Resource ID of the vault. Absent if an earlier release of the service wrote the place. */
  vaultId?: string | undefined;
}

/**
 * Returns the places (vault secrets) that completed rotations of an application wrote, by `placeKey`. Needed for rotations of
 * earlier releases, which did not store `MatchRecord.rotated`. Reads the signed records, because the list of summaries is not
 * signed.
 */
export async function findWrittenPlaces(
  { tables, log }: { tables: Tables; log: Logger },
  appId: string,
): Promise<Map<string, WrittenPlace>> {
  const written = new Map<string, WrittenPlace>();
  const range = listRange(listPrefix({ subject: appId, status: "completed" }), {});
  for await (const page of tables.pages(RotationSummaries, {
    ...range,
    pageSize: MAX_ROTATIONS,
    select: ["rotationId"],
  })) {
    for (const { rotationId } of page) {
      // A record that this service did not sign is skipped.
      const record = await tables.get(Rotations, ROTATIONS, recordKey(rotationId), {
        onCorrupt: ({ message }) => log.error(message),
      });
      if (record?.status !== "completed" || record.appId?.toLowerCase() !== appId.toLowerCase()) continue;
      for (const publication of writtenMatches(record)) {
        const key = placeKey(publication);
        const { vaultId, writtenVersion: version } = publication;
        if (!written.has(key)) written.set(key, { version: version!, vaultId });
      }
    }
    // The first page has `MAX_ROTATIONS` rows, and no more are read.
    break;
  }
  return written;
}

/** Returns the places that a rotation wrote the new client secret to. */
export const writtenMatches = ({ publications }: RotationRecord): RotationRecord["publications"] =>
  publications.filter(({ kind, state, writtenVersion }) => kind === "match" && state === "written" && writtenVersion);
