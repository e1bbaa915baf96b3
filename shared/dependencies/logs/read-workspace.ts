import { encodeTime } from "ulid";
import { CloudFailure } from "../../platform/azure/failure.ts";
import type { LogAnalytics, QueryAnswer } from "../../platform/azure/log-analytics.ts";
import type { Clock, Randomness } from "../../platform/runtime.ts";
import { isConflict, repeatOnConflict } from "../../platform/storage/conflict.ts";
import { type Entity, type Row, withoutKeys } from "../../platform/storage/entity.ts";
import { pack } from "../../platform/storage/packed-members.ts";
import { type Fence, insert, type Operation, put, remove, type Tables } from "../../platform/storage/tables.ts";
import { DAY_MS, HOUR_MS, SECOND_MS } from "../../platform/time.ts";
import type { KeyVaultNames } from "../azure/key-vault-names.ts";
import type { ExpectedReaders } from "./expected.ts";
import { latest, mergedAsset, mergedSignIn, mergedVault } from "./merge.ts";
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
  UNEXPECTED,
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
import { unexpectedReaderOperation } from "./unexpected.ts";

/** What arrives so late is still read. A log has an event after some minutes; hours are known of. */
const LATE_MS = 6 * HOUR_MS;
/** So far back the first reading goes. After a longer time without one, what is between is not read any more. */
const LONGEST_SPAN_MS = 7 * DAY_MS;
/** After so many failures in a row the span is the shortest: a longer one may be why. */
const FAILURES_BEFORE_SHORT = 3;
/** The log's clock may be ahead of ours. */
const AHEAD_MS = 10 * 60 * SECOND_MS;
/** How long it is kept that a reader was unexpected: far longer than anybody takes to tell of it. */
const KEEP_NEWS_MS = 30 * DAY_MS;
/** What nobody did for so long is forgotten. */
const FORGOTTEN_MS = 400 * DAY_MS;

/** Reads the workspaces that are named. */
export interface WorkspaceReader {
  /**
   * Asks a workspace, unless that was done within this hour, and writes what it says. Answers how far it was read; a failure of
   * the workspace stands in there.
   */
  read(workspaceId: string, signal?: AbortSignal): Promise<WorkspaceRecord>;
}

export interface WorkspaceReaderDeps {
  tables: Tables;
  logAnalytics: LogAnalytics;
  /** The service's own. @throws {CloudFailure} */
  ownObjectId(): Promise<string | undefined>;
  names: KeyVaultNames;
  /** The service's own key vault is never a subject. */
  isServiceVault: (vaultName: string) => boolean;
  expected: ExpectedReaders;
  clock: Clock;
  randomness: Randomness;
}

export function createWorkspaceReader(deps: WorkspaceReaderDeps): WorkspaceReader {
  const { tables, logAnalytics, names, clock, randomness } = deps;

  const find = (workspaceId: string) => tables.get(WorkspaceRows, WORKSPACES, workspaceId);

  /** The workspace's row, once this hour's query is this worker's; undefined when it is somebody else's, or was sent. */
  async function claimed(workspaceId: string, now: Date): Promise<Row<WorkspaceRecord> | undefined> {
    const hour = new Date(Math.floor(now.getTime() / HOUR_MS) * HOUR_MS).toISOString();
    const before = await find(workspaceId);
    if (before && (before.askedHour >= hour || (before.notBefore ?? "") > now.toISOString())) return undefined;
    try {
      if (before) return await tables.replace(WorkspaceRows, { ...before, askedHour: hour });
      return await tables.insert(WorkspaceRows, WORKSPACES, workspaceId, { workspaceId, askedHour: hour, failures: 0 });
    } catch (error) {
      if (!isConflict(error)) throw error;
      return undefined;
    }
  }

  async function ask(workspaceId: string, span: { from: Date; to: Date }, signal: AbortSignal | undefined) {
    const own = await deps.ownObjectId();
    return await logAnalytics.query(workspaceId, summaryQuery(own === undefined ? [] : [own]), span, signal);
  }

  async function readClaimed(row: Row<WorkspaceRecord>, now: Date, signal: AbortSignal | undefined): Promise<void> {
    const { workspaceId } = row;
    let held = row;
    const fence = tables.fence(UsageFences, workspaceId, FENCE_KEY, { owner: randomness.ulid(now), etag: undefined });
    await fence.take();
    const span = spanOf(row, now);
    let found: QueryAnswer | undefined;
    let failure: CloudFailure | undefined;
    try {
      found = await ask(workspaceId, span, signal);
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
          // A taking may have come late. Whoever reads a later hour claims it before he takes the fence: then this fails.
          held = await tables.replace(WorkspaceRows, held);
        }
        await write(workspaceId, summary, fence, now);
      }, 2);
    await tables.replace(WorkspaceRows, { ...held, ...progress(held, span, summary, failure, now) });
  }

  async function write(workspaceId: string, summary: Summary, fence: Fence, now: Date): Promise<void> {
    const { uses, vaults, signIns } = summary;
    const forgotten = new Date(now.getTime() - FORGOTTEN_MS).toISOString();
    const walk = { workspaceId, fence, forgotten };
    await bringUpToDate(
      walk,
      SIGN_INS,
      SignIns,
      grouped(signIns, (one) => signInKey(one.appId, one.keyId)),
      mergedSignIn,
    );
    const ofOthers = vaults.filter(({ vaultName }) => !deps.isServiceVault(vaultName));
    await bringUpToDate(
      walk,
      VAULT_USES,
      VaultUses,
      grouped(ofOthers, (one) => vaultUseKey(one.vaultName)),
      mergedVault,
    );
    const nameOf = new Map(signIns.map(({ appId, name }) => [appId, name || undefined]));
    const counted = uses.filter(({ vaultName }) => !deps.isServiceVault(vaultName));
    const merge = (before: AssetUseRecord | undefined, lines: readonly (typeof uses)[number][]) =>
      mergedAsset(workspaceId, before, lines, (appId) => nameOf.get(appId));
    await bringUpToDate(walk, ASSET_USES, AssetUses, grouped(counted, assetUseKey), merge, judged(workspaceId, now));
    const old = under(workspaceId, UNEXPECTED);
    const before = UNEXPECTED + encodeTime(Math.max(0, now.getTime() - KEEP_NEWS_MS));
    for await (const rows of tables.pages(UnexpectedReaders, { ...old, before, select: [] }))
      await writeAll(
        fence,
        rows.map(({ rowKey }) => remove(UnexpectedReaders, rowKey)),
      );
  }

  /**
   * Looks who was not expected, where that was not known yet. What is to be told is written before the row that says it was
   * looked at: who dies between writes it once more, under the same id.
   */
  function judged(workspaceId: string, now: Date) {
    const look = deps.expected.reading();
    return async (record: AssetUseRecord): Promise<{ record: AssetUseRecord; operations: Operation[] }> => {
      const readers = readersOf(workspaceId, record);
      const open = readers.filter(({ expected }) => expected === undefined);
      if (open.length === 0) return { record, operations: [] };
      const isExpected = await look(record);
      if (isExpected === undefined) return { record, operations: [] };
      for (const reader of open) reader.expected = isExpected(reader);
      const unexpected = open.filter(({ expected }) => expected === false);
      const operations = unexpected.map((reader) => unexpectedReaderOperation(record, reader, now, randomness));
      return { record: { ...record, readers: pack(readers) }, operations };
    };
  }

  return {
    async read(workspaceId, signal) {
      const now = clock.now();
      const row = await claimed(workspaceId, now);
      try {
        if (row) await readClaimed(row, now, signal);
      } catch (error) {
        // Another worker reads it for a later hour.
        if (!isConflict(error)) throw error;
      }
      return withoutKeys((await find(workspaceId))!);
    },
  };

  /** Merges what a reading brings with the rows of one kind, page by page, and takes away what is forgotten. */
  async function bringUpToDate<R extends { lastAt: string }, L>(
    { workspaceId, fence, forgotten }: Walk,
    prefix: string,
    entity: Entity<R>,
    incoming: Map<string, L[]>,
    merge: (before: R | undefined, lines: readonly L[]) => R,
    also: (record: R) => Promise<{ record: R; operations: Operation[] }> = async (record) => ({
      record,
      operations: [],
    }),
  ): Promise<void> {
    for await (const rows of tables.pages(entity, under(workspaceId, prefix))) {
      const operations: Operation[] = [];
      for (const row of rows as Row<R>[]) {
        const before = withoutKeys(row) as unknown as R;
        const lines = incoming.get(row.rowKey) ?? [];
        incoming.delete(row.rowKey);
        const merged = await also(lines.length > 0 ? merge(before, lines) : before);
        operations.push(...merged.operations);
        if (merged.record.lastAt < forgotten) operations.push(remove(entity, row.rowKey));
        else if (!isSame(merged.record, before)) operations.push(put(entity, row.rowKey, merged.record));
      }
      await writeAll(fence, operations);
    }
    const operations: Operation[] = [];
    for (const [rowKey, lines] of [...incoming].sort(([a], [b]) => (a < b ? -1 : 1))) {
      const merged = await also(merge(undefined, lines));
      operations.push(...merged.operations, insert(entity, rowKey, merged.record));
    }
    await writeAll(fence, operations);
  }
}

/** One reading's way through the rows of a workspace. */
interface Walk {
  workspaceId: string;
  fence: Fence;
  /** What was seen last before this instant leaves. */
  forgotten: string;
}

async function writeAll(fence: Fence, operations: readonly Operation[]): Promise<void> {
  if (operations.length > 0) await fence.write(operations);
}

/** From the beginning of a day, so that the counts of its days are whole. */
function spanOf({ readTo, failures }: WorkspaceRecord, now: Date): { from: Date; to: Date } {
  const shortest = now.getTime() - LATE_MS;
  const longest = now.getTime() - LONGEST_SPAN_MS;
  const wanted = readTo === undefined ? longest : Date.parse(readTo) - LATE_MS;
  const from = failures >= FAILURES_BEFORE_SHORT ? shortest : Math.max(longest, Math.min(shortest, wanted));
  return { from: new Date(Math.floor(from / DAY_MS) * DAY_MS), to: new Date(now.getTime() + AHEAD_MS) };
}

/** What a reading changes of the workspace's own row. */
function progress(
  before: WorkspaceRecord,
  { from }: { from: Date },
  { signIns }: Summary,
  failure: CloudFailure | undefined,
  now: Date,
): Partial<WorkspaceRecord> {
  const at = now.toISOString();
  const signInAt =
    signIns.length > 0 ? latest(before.signInAt, ...signIns.map(({ lastAt }) => lastAt)) : before.signInAt;
  if (failure) {
    const { code, message, remedy, retryAfterSeconds = 0 } = failure;
    const notBefore = new Date(now.getTime() + retryAfterSeconds * SECOND_MS).toISOString();
    return { signInAt, notBefore, failures: before.failures + 1, failure: { code, message, remedy, at } };
  }
  const goesOn = before.readTo !== undefined && from.toISOString() <= before.readTo;
  const readFrom = goesOn ? before.readFrom : from.toISOString();
  return { signInAt, notBefore: undefined, failures: 0, failure: undefined, readFrom, readTo: at };
}

const grouped = <T>(lines: readonly T[], keyOf: (line: T) => string): Map<string, T[]> => Map.groupBy(lines, keyOf);

const isSame = (a: object, b: object): boolean => textOf(a) === textOf(b);
const textOf = (value: object): string =>
  JSON.stringify(value, (_, one: unknown) => (one instanceof Uint8Array ? Buffer.from(one).toString("base64") : one));
