import { pack } from "../../platform/storage/packed-members.ts";
import { DAY_MS } from "../../platform/time.ts";
import type { SignInLine, SignInSpan, UseLine, VaultLine } from "./query.ts";
import { type AssetUseRecord, type Reader, readersOf, type SignInRecord, type VaultUseRecord } from "./rows.ts";

// Merges the result of a query of a Log Analytics workspace into the stored state. A line is one row of the result: see
// query.ts. Merging is idempotent: of times the latest is kept, of daily counts the maximum, and operations are added. Queries
// overlap, and each counts a whole day again.

/** Maximum number of readers that are stored for one asset, most recent first. */
const MAX_READERS = 200;
/** Maximum number of versions that are stored for one reader: those with the latest reads. */
const MAX_VERSIONS = 10;
/** Number of days for which daily counts are stored. */
export const DAYS_COUNTED = 30;
/**
 * Scans list each vault several times a day. So a longer time without events is a gap in the log, and coverage (`since`)
 * restarts after the gap.
 */
const MAX_GAP_MS = 2 * DAY_MS;
/** The same for sign-ins of applications. `BLIND_SPOTS` names this time. */
const MAX_SIGN_IN_GAP_MS = 4 * DAY_MS;

/** Returns the stored use of an asset, merged with the query's lines about it. Drops the oldest readers above MAX_READERS. */
export function mergedAsset(
  stored: AssetUseRecord | undefined,
  lines: readonly UseLine[],
  nameOf: (appId: string) => string | undefined,
): AssetUseRecord {
  const { vaultName, type, name } = stored ?? lines[0]!;
  const readers = new Map((stored ? readersOf(stored) : []).map((one) => [one.id, one]));
  for (const [id, linesOfReader] of Map.groupBy(lines, ({ callerId }) => callerId))
    readers.set(id, mergedReader(readers.get(id), linesOfReader, nameOf));
  const storedReaders = [...readers.values()].sort((a, b) => (a.lastAt > b.lastAt ? -1 : 1)).slice(0, MAX_READERS);
  const more = stored?.more === true || readers.size > storedReaders.length;
  return {
    vaultName,
    type,
    name,
    lastAt: latest(stored?.lastAt, ...lines.map(({ lastAt }) => lastAt)),
    readers: pack(storedReaders),
    ...(more && { more }),
  };
}

/**
 * Merges one reader.
 *
 * @param lines - All lines of this query for the reader and the asset.
 */
function mergedReader(
  stored: Reader | undefined,
  lines: readonly UseLine[],
  nameOf: (appId: string) => string | undefined,
): Reader {
  const { callerId: id } = lines[0]!;
  const last = <T>(memberOf: (line: UseLine) => T | undefined): T | undefined =>
    lines.map(memberOf).findLast((member) => member);
  const appId = last((line) => line.appId) ?? stored?.appId;
  const userName = last((line) => line.userName) ?? stored?.userName;
  const identityOf = last((line) => line.identityOf) ?? stored?.identityOf;
  const name = (appId && nameOf(appId)) ?? stored?.name;
  return {
    id,
    ...(appId && { appId }),
    ...(userName && { userName }),
    ...(name && { name }),
    ...(identityOf && { identityOf }),
    operations: [...new Set([...(stored?.operations ?? []), ...lines.map(({ operation }) => operation)])].sort(),
    lastAt: latest(stored?.lastAt, ...lines.map(({ lastAt }) => lastAt)),
    days: mergedDays(stored?.days ?? [], lines),
    versions: mergedVersions(stored?.versions ?? [], lines),
    ...(stored?.expected !== undefined && { expected: stored.expected }),
  };
}

/** Keeps the larger count of each day, because every query counts the whole day. */
function mergedDays(stored: Reader["days"], lines: readonly UseLine[]): Reader["days"] {
  const days = new Map(stored);
  for (const [day, linesOfDay] of Map.groupBy(lines, (line) => line.day)) {
    const counted = linesOfDay.reduce((sum, { rows }) => sum + rows, 0);
    days.set(day, Math.max(days.get(day) ?? 0, counted));
  }
  return [...days].sort(([a], [b]) => (a < b ? -1 : 1)).slice(-DAYS_COUNTED);
}

function mergedVersions(stored: Reader["versions"], lines: readonly UseLine[]): Reader["versions"] {
  const versions = new Map(stored);
  for (const { version, lastAt } of lines)
    if (version !== undefined) versions.set(version, latest(versions.get(version), lastAt));
  return [...versions].sort(([, a], [, b]) => (a < b ? -1 : 1)).slice(-MAX_VERSIONS);
}

/** Returns the stored coverage of a vault's log, merged with the query's lines about the vault. */
export function mergedVault(stored: VaultUseRecord | undefined, lines: readonly VaultLine[]): VaultUseRecord {
  const { since, lastAt } = withoutGaps(stored, lines, MAX_GAP_MS);
  return { vaultName: (stored ?? lines[0]!).vaultName, since: since!, lastAt: lastAt! };
}

/**
 * Returns the period of sign-ins in a log. Applications of a small company sign in on working days only, so the longest gap that
 * counts as a working log is longer than a long weekend.
 */
export const mergedSignInPeriod = (
  stored: { since: string | undefined; lastAt: string | undefined },
  lines: readonly SignInSpan[],
): { since: string | undefined; lastAt: string | undefined } => withoutGaps(stored, lines, MAX_SIGN_IN_GAP_MS);

/** Returns the last period of events without a gap that is longer than `maxGapMs`. */
function withoutGaps(
  stored: { since: string | undefined; lastAt: string | undefined } | undefined,
  lines: readonly SignInSpan[],
  maxGapMs: number,
): { since: string | undefined; lastAt: string | undefined } {
  let [since, lastAt] = [stored?.since, stored?.lastAt];
  for (const line of [...lines].sort((a, b) => (a.firstAt < b.firstAt ? -1 : 1))) {
    if (since === undefined || Date.parse(line.firstAt) - Date.parse(lastAt ?? "") > maxGapMs) since = line.firstAt;
    lastAt = lastAt === undefined ? line.lastAt : latest(lastAt, line.lastAt);
  }
  return { since, lastAt };
}

export const mergedSignIn = (stored: SignInRecord | undefined, lines: readonly SignInLine[]): SignInRecord => ({
  ...(stored ?? lines[0]!),
  name: lines.find(({ name }) => name !== "")?.name ?? stored?.name ?? "",
  lastAt: latest(stored?.lastAt, ...lines.map(({ lastAt }) => lastAt)),
});

/** Returns the latest of the given times. ISO texts of one time zone sort by time. */
export const latest = (...instants: (string | undefined)[]): string =>
  instants
    .filter((one) => one !== undefined)
    .sort()
    .at(-1)!;
