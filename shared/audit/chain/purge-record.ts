import * as z from "zod";
import type { Tables } from "../../platform/storage/tables.ts";
import { type Interval, intervalFrom } from "../interval.ts";
import { readRows } from "../read-rows.ts";
import { PURGES_PARTITION, RecordRow } from "../rows.ts";
import { DigestName } from "./digest.ts";
import { type PublicKeys, readStatement } from "./signing.ts";

/**
 * The signed record of a purge, which removes entries and digests older than the retention. The record stays, and verification
 * starts at its end. The first digest after the purge names its `last` digest.
 */
export const PurgeRecord = z
  .object({
    from: z.string().meta({ description: "The start of the first interval that was removed." }),
    to: z.string().meta({ description: "The end of the last interval that was removed." }),
    digests: z.int().meta({ description: "Number of digests that were removed with the entries." }),
    entries: z.int(),
    /** Number of entries in all intervals from the first up to the last purged one. */
    total: z.int(),
    last: DigestName.meta({ description: "The last digest that was removed." }),
    retentionDays: z.int().meta({ description: "Retention in days that the purge applied." }),
    actor: z.string().meta({ description: "Person who started the purge; `system` for the daily run." }),
    requestId: z.string(),
    purgedAt: z.string().meta({ description: "Time of the purge." }),
  })
  .meta({ id: "AuditPurge" });
export type PurgeRecord = z.infer<typeof PurgeRecord>;

/** All purge records of a log. */
export interface Purges {
  /** Records with a trusted signature, oldest first. */
  records: { record: PurgeRecord; statement: string }[];
  /** Row keys of records that no trusted key signed. */
  changed: string[];
}

/** Reads all purge records. There is one per purge that removed something, so about one a day. */
export async function readPurges(tables: Tables, keys: PublicKeys): Promise<Purges> {
  const purges: Purges = { records: [], changed: [] };
  for await (const page of readRows(tables, RecordRow, { partitionKey: PURGES_PARTITION })) {
    for (const { rowKey, value } of page) {
      const statement = value?.record ?? "";
      const result = readStatement("audit-purge", PurgeRecord, statement, keys);
      if ("payload" in result && result.payload.to === rowKey)
        purges.records.push({ record: result.payload, statement });
      else purges.changed.push(rowKey);
    }
  }
  return purges;
}

/** Returns the end of the purged range. Undefined if nothing was purged. */
export const purgedTo = ({ records }: Purges): Interval | undefined => {
  const last = records.at(-1);
  return last && intervalFrom(last.record.to);
};
