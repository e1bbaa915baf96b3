import { pack } from "../../platform/storage/packed-members.ts";
import { DAY_MS } from "../../platform/time.ts";
import type { SignInLine, UseLine, VaultLine } from "./query.ts";
import { type AssetUseRecord, type Reader, readersOf, type SignInRecord, type VaultUseRecord } from "./rows.ts";

// Merges the result of a query into the stored state. Merging is idempotent: times keep the latest, daily counts the maximum, and
// operations are a union. A later query counts a whole day again.

/** Maximum number of readers that are stored for one asset, most recent first. */
const MAX_READERS = 200;
/** Maximum number of versions of one reader, and of days of its counts. */
const MAX_VERSIONS = 10;
export const DAYS_COUNTED = 30;
/**
 * Scans list each vault several times a day. So a longer time without events is a gap in the log, and coverage (`since`) restarts
 * after the gap.
 */
const MAX_GAP_MS = 2 * DAY_MS;

export function mergedAsset(
  workspaceId: string,
  before: AssetUseRecord | undefined,
  lines: readonly UseLine[],
  nameOf: (appId: string) => string | undefined,
): AssetUseRecord {
  const { vaultName, type, name } = before ?? lines[0]!;
  const readers = new Map((before ? readersOf(workspaceId, before) : []).map((one) => [one.id, one]));
  for (const [id, own] of Map.groupBy(lines, ({ callerId }) => callerId))
    readers.set(id, mergedReader(readers.get(id), own, nameOf));
  const kept = [...readers.values()].sort((a, b) => (a.lastAt > b.lastAt ? -1 : 1)).slice(0, MAX_READERS);
  const more = before?.more === true || readers.size > kept.length;
  return {
    vaultName,
    type,
    name,
    lastAt: latest(before?.lastAt, ...lines.map(({ lastAt }) => lastAt)),
    readers: pack(kept),
    ...(more && { more }),
  };
}

/**
 * Merges one reader.
 *
 * @param lines - All lines of this query for the reader and the asset.
 */
function mergedReader(
  before: Reader | undefined,
  lines: readonly UseLine[],
  nameOf: (appId: string) => string | undefined,
): Reader {
  const { callerId: id } = lines[0]!;
  const last = <T>(of: (line: UseLine) => T | undefined): T | undefined => lines.map(of).findLast((one) => one);
  const appId = last((line) => line.appId) ?? before?.appId;
  const userName = last((line) => line.userName) ?? before?.userName;
  const identityOf = last((line) => line.identityOf) ?? before?.identityOf;
  const name = (appId && nameOf(appId)) ?? before?.name;
  return {
    id,
    ...(appId && { appId }),
    ...(userName && { userName }),
    ...(name && { name }),
    ...(identityOf && { identityOf }),
    operations: [...new Set([...(before?.operations ?? []), ...lines.map(({ operation }) => operation)])].sort(),
    lastAt: latest(before?.lastAt, ...lines.map(({ lastAt }) => lastAt)),
    days: mergedDays(before?.days ?? [], lines),
    versions: mergedVersions(before?.versions ?? [], lines),
    ...(before?.expected !== undefined && { expected: before.expected }),
  };
}

/** Keeps the larger count of each day. Queries always count whole days. */
function mergedDays(before: Reader["days"], lines: readonly UseLine[]): Reader["days"] {
  const days = new Map(before);
  for (const [day, own] of Map.groupBy(lines, (line) => line.day)) {
    const counted = own.reduce((sum, { rows }) => sum + rows, 0);
    days.set(day, Math.max(days.get(day) ?? 0, counted));
  }
  return [...days].sort(([a], [b]) => (a < b ? -1 : 1)).slice(-DAYS_COUNTED);
}

function mergedVersions(before: Reader["versions"], lines: readonly UseLine[]): Reader["versions"] {
  const versions = new Map(before);
  for (const { version, lastAt } of lines)
    if (version !== undefined) versions.set(version, latest(versions.get(version), lastAt));
  return [...versions].sort(([, a], [, b]) => (a < b ? -1 : 1)).slice(-MAX_VERSIONS);
}

export function mergedVault(before: VaultUseRecord | undefined, lines: readonly VaultLine[]): VaultUseRecord {
  let [since, lastAt] = [before?.since, before?.lastAt];
  for (const line of [...lines].sort((a, b) => (a.firstAt < b.firstAt ? -1 : 1))) {
    if (since === undefined || Date.parse(line.firstAt) - Date.parse(lastAt!) > MAX_GAP_MS) since = line.firstAt;
    lastAt = latest(lastAt, line.lastAt);
  }
  return { vaultName: (before ?? lines[0]!).vaultName, since: since!, lastAt: lastAt! };
}

export const mergedSignIn = (before: SignInRecord | undefined, lines: readonly SignInLine[]): SignInRecord => ({
  ...(before ?? lines[0]!),
  name: lines.find(({ name }) => name !== "")?.name ?? before?.name ?? "",
  lastAt: latest(before?.lastAt, ...lines.map(({ lastAt }) => lastAt)),
});

/** ISO texts of one time zone sort by time. */
export const latest = (...instants: (string | undefined)[]): string =>
  instants
    .filter((one) => one !== undefined)
    .sort()
    .at(-1)!;
