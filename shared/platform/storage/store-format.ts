import * as z from "zod";
import type { Logger } from "../runtime.ts";
import { MINUTE_MS, SECOND_MS } from "../time.ts";
import { entity } from "./entity.ts";
import { StorageCorrupt } from "./errors.ts";
import type { Tables } from "./tables.ts";

/**
 * The format of the stored rows. A row contains the highest format of all builds that worked with the store, and a build does not
 * work with a store of a higher format than its own.
 *
 * Instances of two builds with the same format work side by side, for example during a deployment. Raise the number only if
 * an earlier build would misread or damage what this build writes, because an instance of this build stops those of earlier
 * builds. `npm run store -- prepare-rollback` removes the row. Builds up to 3fd3c8ae don't read it.
 */
export const STORE_FORMAT = 1;

const FormatRecord = z.object({
  /** Minimum format of the builds that can work with the store. */
  format: z.int(),
});
export const FORMAT_TABLE = "Settings";
/**
 * Other programs must not be able to stop the service, so only a signed row with a higher format stops it. Each process first reads
 * the row without verifying its signature, because the key vault may not respond when the process starts.
 */
const SignedFormat = entity(FORMAT_TABLE, FormatRecord, { signed: "withKeyVault" });
const UnverifiedFormat = entity(FORMAT_TABLE, FormatRecord);
const [STORE, FORMAT] = ["store", "format"];

/** Returns the format in the row of a copy of `FORMAT_TABLE`, or undefined for other rows. */
export const formatOfRow = (row: {
  partitionKey: string;
  rowKey: string;
  columns: Record<string, unknown>;
}): number | undefined =>
  row.partitionKey === STORE && row.rowKey === FORMAT ? Number(row.columns.format) : undefined;

/** The store was written by a build with a higher format. */
export class StoreIsNewer extends Error {
  override readonly name = "StoreIsNewer";

  constructor(format: number) {
    super(
      `A newer version of the service has used this storage account (format ${format}, this version has ${STORE_FORMAT}). Deploy the newer version again, or stop the app, run npm run store -- prepare-rollback with the newer version, and then start this version.`,
    );
  }
}

/**
 * Checks that this build can work with the store. Costs one request, and one more for a row that names a higher format.
 *
 * @returns whether the row must be written, because no build of this format has used the store.
 * @throws {StoreIsNewer}
 */
export async function requireKnownFormat(tables: Tables): Promise<boolean> {
  const format = await formatOf(tables, UnverifiedFormat);
  if (format !== undefined && format <= STORE_FORMAT) return format < STORE_FORMAT;
  // A higher format counts only with its signature.
  const signedFormat = format === undefined ? undefined : await formatOf(tables, SignedFormat);
  if (signedFormat !== undefined && signedFormat > STORE_FORMAT) throw new StoreIsNewer(signedFormat);
  return true;
}

/** Returns undefined if the row is missing or, after `Tables` reported it, can't be read. */
async function formatOf(tables: Tables, format: typeof SignedFormat): Promise<number | undefined> {
  try {
    return (await tables.get(format, STORE, FORMAT))?.format;
  } catch (error) {
    if (error instanceof StorageCorrupt) return undefined;
    throw error;
  }
}

/** Removes the row, so that an earlier build writes its own. */
export const removeFormat = (tables: Tables): Promise<boolean> => tables.remove(SignedFormat, STORE, FORMAT);

/** How long a process works without another check. */
const CHECK_EVERY_MS = 5 * MINUTE_MS;
/** How long a process that can't work with the store waits, so that it works soon after the store's preparation. */
const CHECK_AGAIN_MS = 10 * SECOND_MS;

/** Checks the format of the store for a process. */
export interface StoreFormat {
  /**
   * Returns if this build can work with the store. Costs up to two requests every five minutes, and one more for the first
   * process of a build with a new format, which writes the row.
   *
   * @throws {StoreIsNewer}
   */
  check(): Promise<void>;
}

/** Creates the check. It uses the process's own monotonic clock, so that a clock that is set does not matter. */
export function createStoreFormat({ tables, log }: { tables: Tables; log: Logger }): StoreFormat {
  let result: Promise<void> = Promise.resolve();
  let checkAt = Number.NEGATIVE_INFINITY;

  async function check(): Promise<void> {
    if (!(await requireKnownFormat(tables))) return;
    try {
      await tables.put(SignedFormat, STORE, FORMAT, { format: STORE_FORMAT });
    } catch (error) {
      // The write can fail because the key vault does not respond. This build works without the row. The next check writes the row,
      // because without it an earlier build would not notice that it can't work with the store.
      log.warn("The format of the store could not be written", { error: String(error) });
    }
  }

  return {
    async check() {
      const now = performance.now();
      if (now >= checkAt) {
        checkAt = now + CHECK_EVERY_MS;
        result = check().catch((error: unknown) => {
          // After any other error, such as an outage of storage, the next call checks.
          checkAt = performance.now() + (error instanceof StoreIsNewer ? CHECK_AGAIN_MS : 0);
          throw error;
        });
      }
      await result;
    },
  };
}
