import * as z from "zod";
import type { Tables } from "../../platform/storage/tables.ts";
import { HOUR_MS } from "../../platform/time.ts";
import { type Interval, intervalFrom, intervalName, intervalOf, isIntervalName } from "../interval.ts";
import { readRow } from "../read-rows.ts";
import { FIRST_PARTITION, FirstRow } from "../rows.ts";
import { type PublicKeys, readStatement, type SigningKey, signStatement } from "./signing.ts";

/**
 * Since when every entry must have an authentication code. The version before wrote entries without one. Digests contain this time; until
 * the first digest does, the signed statement in the row of the first interval is used, which the version that created the log wrote.
 */

/**
 * How long entries without a code are accepted after the first sealing by this version: instances of the earlier version may finish an
 * execution, which takes up to an hour.
 */
const UPGRADE_MS = HOUR_MS;

const Statement = z.object({ from: z.string().refine(isIntervalName) });

/** Signs the statement that all entries since `from` have a code. */
export const authenticationStatement = (from: Interval, signer: SigningKey): string =>
  signStatement("audit-authenticated", { from: intervalName(from) }, signer);

/** Returns the time of the signed statement. Undefined if there is none, as in logs of an earlier version. */
export async function statedAuthenticatedFrom(tables: Tables, keys: PublicKeys): Promise<Interval | undefined> {
  const row = await readRow(tables, FirstRow, FIRST_PARTITION, FIRST_PARTITION);
  const read = readStatement("audit-authenticated", Statement, row?.value?.authenticated ?? "", keys);
  return "payload" in read ? intervalFrom(read.payload.from) : undefined;
}

/** Returns the time that the first sealing of an upgraded log stores in its digests. */
export const authenticatedAfterUpgrade = (nowMs: number): Interval => intervalOf(nowMs + UPGRADE_MS);
