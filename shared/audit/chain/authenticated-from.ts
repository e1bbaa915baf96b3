import * as z from "zod";
import type { Tables } from "../../platform/storage/tables.ts";
import { HOUR_MS } from "../../platform/time.ts";
import { type Interval, intervalFrom, intervalName, intervalOf, isIntervalName } from "../interval.ts";
import { readRow } from "../read-rows.ts";
import { DIGESTS_PARTITION, DigestRow, FIRST_PARTITION, FirstRow, RecordRow, ROLLBACK } from "../rows.ts";
import type { ChainEnd } from "./chain.ts";
import { type PublicKeys, readStatement, type SigningKey, signStatement } from "./signing.ts";

/**
 * Determines since when every entry must have an authentication code. Versions up to the build f8ec7568 wrote entries without
 * one. Digests contain this time. Until the first digest, the row of the first interval has a signed statement with it.
 */

/**
 * How long entries without a code are accepted after the first sealing that follows an earlier version: its instances may finish
 * an execution, which takes up to an hour.
 */
const UPGRADE_MS = HOUR_MS;

const Since = z.object({ from: z.string().refine(isIntervalName) });
/** SHA-256 of the newest digest when the log was prepared for an earlier version. Null if there was none. */
const Rollback = z.object({ newest: z.string().nullable() });

/** Signs the statement that all entries since `from` have a code. */
export const authenticationStatement = (from: Interval, signer: SigningKey): string =>
  signStatement("audit-authenticated", { from: intervalName(from) }, signer);

/**
 * Signs the statement that an earlier version may write entries after this digest. It counts until the next digest, so that
 * nobody can use a copy of it later.
 */
export const rollbackStatement = (end: ChainEnd | undefined, signer: SigningKey): string =>
  signStatement("audit-rollback", { newest: end?.hash ?? null }, signer);

/**
 * Returns since when every entry must have a code. Undefined if no entry needs one, because an earlier version sealed last or
 * the log was prepared for an earlier version (rollback.ts). Costs one or two requests.
 *
 * @param end - The newest digest.
 */
export async function requiredSince(
  tables: Tables,
  keys: PublicKeys,
  end: ChainEnd | undefined,
): Promise<Interval | undefined> {
  const since = end ? end.authenticatedFrom : await statedSince(tables, keys);
  if (since === undefined) return undefined;
  const row = await readRow(tables, RecordRow, ROLLBACK, ROLLBACK);
  const rollback = readStatement("audit-rollback", Rollback, row?.value?.record ?? "", keys);
  return "payload" in rollback && rollback.payload.newest === (end?.hash ?? null) ? undefined : since;
}

async function statedSince(tables: Tables, keys: PublicKeys): Promise<Interval | undefined> {
  const row = await readRow(tables, FirstRow, FIRST_PARTITION, FIRST_PARTITION);
  const stated = readStatement("audit-authenticated", Since, row?.value?.authenticated ?? "", keys);
  return "payload" in stated ? intervalFrom(stated.payload.from) : undefined;
}

/**
 * Returns whether entries need a code or soon will. A log that has digests needs codes from the next sealing on. Signatures are not
 * checked, because a process without keys calls this.
 */
export async function isAuthenticated(tables: Tables): Promise<boolean> {
  const first = await readRow(tables, FirstRow, FIRST_PARTITION, FIRST_PARTITION);
  if (first?.value?.authenticated !== undefined) return true;
  for await (const page of tables.pages(DigestRow, { partitionKey: DIGESTS_PARTITION, pageSize: 1, select: [] }))
    if (page.length > 0) return true;
  return false;
}

/** Returns the time that the first sealing after an earlier version stores in its digests. */
export const requiredAfterUpgrade = (nowMs: number): Interval => intervalOf(nowMs + UPGRADE_MS);
