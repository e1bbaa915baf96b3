import { encodeTime } from "ulid";
import { CloudFailure } from "../../platform/azure/failure.ts";
import type { LogAnalytics, QueryAnswer } from "../../platform/azure/log-analytics.ts";
import type { Clock, Randomness } from "../../platform/runtime.ts";
import { isConflict, repeatOnConflict } from "../../platform/storage/conflict.ts";
import { type Entity, type Row, withoutKeys } from "../../platform/storage/entity.ts";
import { pack } from "../../platform/storage/packed-members.ts";
import { type Fence, type Operation, put, remove, type Tables } from "../../platform/storage/tables.ts";
import { DAY_MS, HOUR_MS, SECOND_MS } from "../../platform/time.ts";
import type { KeyVaultNames } from "../azure/key-vault-names.ts";
import type { ExpectedReaders } from "./expected-readers.ts";
import { mergedAsset, mergedSignIn, mergedSignInPeriod, mergedVault } from "./merge.ts";
import { type Summary, summaryOf, summaryQuery } from "./query.ts";
import {
  ASSET_USES,
  type AssetUseRecord,
  AssetUses,
  assetUseKey,
  FENCE_KEY,
  readersOf,
  SIGN_INS,
  SignIns,
  signInKey,
  UNEXPECTED_PREFIX,
  UnexpectedReaders,
  UsageFences,
  under,
  VAULT_USES,
  VaultUses,
  vaultUseKey,
  WORKSPACES,
  type WorkspaceRecord,
  WorkspaceRows,
} from "./rows.ts";
import { unexpectedReaderOperation } from "./unexpected-readers.ts";

/**
 * Each query overlaps the previous one by this time, so events that arrive up to this late are still read. Logs usually lag by
 * minutes. Hours have been observed.
 */
const LATE_MS = 6 * HOUR_MS;
/** Maximum period of a query, and the period of the first query. After a longer time without a query, the gap is not read. */
const LONGEST_SPAN_MS = 7 * DAY_MS;
/** After this many consecutive failures the shortest period is queried, because a long one may be the cause. */
const FAILURES_BEFORE_SHORT = 3;
/** A query ends this long after now, because the log's clock may be ahead of this service's. */
const CLOCK_TOLERANCE_MS = 10 * 60 * SECOND_MS;
/** Retention of events about unexpected readers, much longer than alerts need. */
const KEEP_UNEXPECTED_MS = 30 * DAY_MS;
/** Rows about assets, vaults and sign-ins are deleted this long after their last event. */
const DELETE_AFTER_MS = 400 * DAY_MS;

/**
 * Queries the configured Log Analytics workspaces, which contain the audit events of vaults and the sign-ins of applications,
 * and stores who used which asset.
 */
export interface WorkspaceReader {
  /**
   * Queries a workspace, unless that was done within this hour, and stores the result. Returns the workspace's state, including
   * a failure.
   */
  read(workspaceId: string, signal?: AbortSignal): Promise<WorkspaceRecord>;
}

export interface WorkspaceReaderDeps {
  tables: Tables;
  logAnalytics: LogAnalytics;
  /** Returns the object ID of the service's identity. @throws {CloudFailure} */
  ownObjectId(): Promise<string | undefined>;
  names: KeyVaultNames;
  /** The service's own key vault is excluded. */
  isServiceVault: (vaultName: string) => boolean;
  expected: ExpectedReaders;
  clock: Clock;
  randomness: Randomness;
}

export function createWorkspaceReader(deps: WorkspaceReaderDeps): WorkspaceReader {
  const { tables, logAnalytics, names, clock, randomness } = deps;

  const find = (workspaceId: string) => tables.get(WorkspaceRows, WORKSPACES, workspaceId);

  /**
   * Claims the query of this hour and returns the workspace's row. Returns undefined if another worker has claimed it, or it
   * was already sent.
   */
  async function claimHour(workspaceId: string, now: Date): Promise<Row<WorkspaceRecord> | undefined> {
    const hour = new Date(Math.floor(now.getTime() / HOUR_MS) * HOUR_MS).toISOString();
    let isClaimed = false;
    const claim = (before: WorkspaceRecord | undefined): WorkspaceRecord | undefined => {
      isClaimed = !before || (before.askedHour < hour && (before.notBefore ?? "") <= now.toISOString());
      return isClaimed ? { ...(before ?? { workspaceId, failures: 0 }), askedHour: hour } : undefined;
    };
    const row = await tables.modify(WorkspaceRows, WORKSPACES, workspaceId, claim, { replaceCorrupt: true });
    return isClaimed ? row : undefined;
  }

  async function queryWorkspace(workspaceId: string, span: { from: Date; to: Date }, signal: AbortSignal | undefined) {
    const own = await deps.ownObjectId();
    return await logAnalytics.query(workspaceId, summaryQuery(own === undefined ? [] : [own]), span, signal);
  }

  /** Queries a workspace whose hour this worker has claimed, and stores the result. */
  async function readClaimed(row: Row<WorkspaceRecord>, now: Date, signal: AbortSignal | undefined): Promise<void> {
    const { workspaceId } = row;
    let currentRow = row;
    // A fence is a row whose ETag each write of the results requires. Taking it makes later writes of an earlier worker fail.
    // The fence's owner is the worker that took it last.
    const fence = tables.fence(UsageFences, workspaceId, FENCE_KEY, { owner: randomness.ulid(now), etag: undefined });
    await fence.take();
    const span = spanOf(row, now);
    let found: QueryAnswer | undefined;
    let failure: CloudFailure | undefined;
    try {
      found = await queryWorkspace(workspaceId, span, signal);
      // A partial answer is stored too. As a failure it does not change `readTo`, so the next query reads the period again.
      failure = found.incomplete;
    } catch (error) {
      if (!(error instanceof CloudFailure)) throw error;
      failure = error;
    }
    const summary = summaryOf(found?.rows ?? [], names);
    if (found)
      await repeatOnConflict(async (attempt) => {
        if (attempt > 1) {
          await fence.take();
          // Another worker has taken the fence. If it is a delayed worker of an earlier hour, this worker takes the fence back
          // and writes again. If it works for a later hour, it has also changed the workspace's row, so this write fails with a
          // conflict, which `read` ignores.
          currentRow = await tables.replace(WorkspaceRows, currentRow);
        }
        await writeSummary(workspaceId, summary, fence, now);
      }, 2);
    await tables.replace(WorkspaceRows, { ...currentRow, ...progress(currentRow, span, summary, failure, now) });
  }

  /** Merges the result of a query into the rows of sign-ins, vaults and assets, and deletes old events of unexpected readers. */
  async function writeSummary(workspaceId: string, summary: Summary, fence: Fence, now: Date): Promise<void> {
    const { uses, vaults, signIns } = summary;
    const deleteBefore = new Date(now.getTime() - DELETE_AFTER_MS).toISOString();
    const mergeContext = { workspaceId, fence, deleteBefore };
    await mergeRows(
      mergeContext,
      SIGN_INS,
      SignIns,
      grouped(signIns, (one) => signInKey(one.appId, one.keyId)),
      mergedSignIn,
    );
    const otherVaults = vaults.filter(({ vaultName }) => !deps.isServiceVault(vaultName));
    await mergeRows(
      mergeContext,
      VAULT_USES,
      VaultUses,
      grouped(otherVaults, (one) => vaultUseKey(one.vaultName)),
      mergedVault,
    );
    const nameOf = new Map(signIns.map(({ appId, name }) => [appId, name || undefined]));
    const counted = uses.filter(({ vaultName }) => !deps.isServiceVault(vaultName));
    const merge = (before: AssetUseRecord | undefined, lines: readonly (typeof uses)[number][]) =>
      mergedAsset(before, lines, (appId) => nameOf.get(appId));
    await mergeRows(mergeContext, ASSET_USES, AssetUses, grouped(counted, assetUseKey), merge, decideExpectations(now));
    const events = under(workspaceId, UNEXPECTED_PREFIX);
    const firstKept = UNEXPECTED_PREFIX + encodeTime(Math.max(0, now.getTime() - KEEP_UNEXPECTED_MS));
    for await (const rows of tables.pages(UnexpectedReaders, { ...events, before: firstKept, select: [] }))
      await writeAll(
        fence,
        rows.map(({ rowKey }) => remove(UnexpectedReaders, rowKey)),
      );
  }

  /**
   * Returns the `beforeWrite` of `mergeRows` that decides which new readers are unexpected. The event is written before the row
   * that stores the decision: after a crash in between, the event is written again with the same ID.
   */
  function decideExpectations(now: Date) {
    const isExpectedReader = deps.expected.createLookup();
    return async (record: AssetUseRecord): Promise<{ record: AssetUseRecord; operations: Operation[] }> => {
      const readers = readersOf(record);
      const undecided = readers.filter(({ expected }) => expected === undefined);
      if (undecided.length === 0) return { record, operations: [] };
      const isExpected = await isExpectedReader(record);
      // Undefined while access to the vaults is not known completely. Then a later query decides.
      if (isExpected === undefined) return { record, operations: [] };
      for (const reader of undecided) reader.expected = isExpected(reader);
      const unexpected = undecided.filter(({ expected }) => expected === false);
      const operations = unexpected.map((reader) => unexpectedReaderOperation(record, reader, now, randomness));
      return { record: { ...record, readers: pack(readers) }, operations };
    };
  }

  return {
    async read(workspaceId, signal) {
      const now = clock.now();
      const row = await claimHour(workspaceId, now);
      try {
        if (row) await readClaimed(row, now, signal);
      } catch (error) {
        // Another worker reads the workspace for a later hour.
        if (!isConflict(error)) throw error;
      }
      return withoutKeys((await find(workspaceId))!);
    },
  };

  /**
   * Merges the result of a query into the rows of one kind, page by page, and deletes rows past their retention.
   *
   * @param incoming - Lines of the query by row key. Lines that were merged into a stored row are removed from the map.
   * @param beforeWrite - Can change each record before it is written, and add operations that are written before it.
   */
  async function mergeRows<R extends { lastAt: string }, L>(
    { workspaceId, fence, deleteBefore }: MergeContext,
    prefix: string,
    entity: Entity<R>,
    incoming: Map<string, L[]>,
    merge: (before: R | undefined, lines: readonly L[]) => R,
    beforeWrite: (record: R) => Promise<{ record: R; operations: Operation[] }> = async (record) => ({
      record,
      operations: [],
    }),
  ): Promise<void> {
    for await (const rows of tables.pages(entity, { ...under(workspaceId, prefix), onCorrupt: "leaveOut" })) {
      const operations: Operation[] = [];
      for (const row of rows as Row<R>[]) {
        const before = withoutKeys(row) as unknown as R;
        const lines = incoming.get(row.rowKey) ?? [];
        incoming.delete(row.rowKey);
        const merged = await beforeWrite(lines.length > 0 ? merge(before, lines) : before);
        operations.push(...merged.operations);
        if (merged.record.lastAt < deleteBefore) operations.push(remove(entity, row.rowKey));
        else if (!isSame(merged.record, before)) operations.push(put(entity, row.rowKey, merged.record));
      }
      await writeAll(fence, operations);
    }
    const operations: Operation[] = [];
    for (const [rowKey, lines] of [...incoming].sort(([a], [b]) => (a < b ? -1 : 1))) {
      const merged = await beforeWrite(merge(undefined, lines));
      // Replaces a row that can't be read.
      operations.push(...merged.operations, put(entity, rowKey, merged.record));
    }
    await writeAll(fence, operations);
  }
}

/** Shared by all calls of `mergeRows` for one query. */
interface MergeContext {
  workspaceId: string;
  fence: Fence;
  /** Rows last seen before this time are deleted. */
  deleteBefore: string;
}

async function writeAll(fence: Fence, operations: readonly Operation[]): Promise<void> {
  if (operations.length > 0) await fence.write(operations);
}

/** Returns the period to query. It starts at the beginning of a day, so that the counts of its days are complete. */
function spanOf({ readTo, failures }: WorkspaceRecord, now: Date): { from: Date; to: Date } {
  const latestStart = now.getTime() - LATE_MS;
  const earliestStart = now.getTime() - LONGEST_SPAN_MS;
  const wanted = readTo === undefined ? earliestStart : Date.parse(readTo) - LATE_MS;
  const from = failures >= FAILURES_BEFORE_SHORT ? latestStart : Math.max(earliestStart, Math.min(latestStart, wanted));
  return { from: new Date(Math.floor(from / DAY_MS) * DAY_MS), to: new Date(now.getTime() + CLOCK_TOLERANCE_MS) };
}

/** Returns the changes of the workspace's own row after a query. A failure does not change the period that was read. */
function progress(
  before: WorkspaceRecord,
  { from }: { from: Date },
  { signInSpans }: Summary,
  failure: CloudFailure | undefined,
  now: Date,
): Partial<WorkspaceRecord> {
  const at = now.toISOString();
  const signIns = mergedSignInPeriod({ since: before.signInSince, lastAt: before.signInAt }, signInSpans);
  const signInMembers = { signInAt: signIns.lastAt, signInSince: signIns.since };
  if (failure) {
    const { code, message, remedy, retryAfterSeconds = 0 } = failure;
    const notBefore = new Date(now.getTime() + retryAfterSeconds * SECOND_MS).toISOString();
    return { ...signInMembers, notBefore, failures: before.failures + 1, failure: { code, message, remedy, at } };
  }
  // The period continues the earlier one without a gap. After a gap, the period that was read starts anew.
  const isContinuous = before.readTo !== undefined && from.toISOString() <= before.readTo;
  const readFrom = isContinuous ? before.readFrom : from.toISOString();
  return { ...signInMembers, notBefore: undefined, failures: 0, failure: undefined, readFrom, readTo: at };
}

const grouped = <T>(lines: readonly T[], keyOf: (line: T) => string): Map<string, T[]> => Map.groupBy(lines, keyOf);

const isSame = (a: object, b: object): boolean => textOf(a) === textOf(b);
const textOf = (value: object): string =>
  JSON.stringify(value, (_, member: unknown) =>
    member instanceof Uint8Array ? Buffer.from(member).toString("base64") : member,
  );
