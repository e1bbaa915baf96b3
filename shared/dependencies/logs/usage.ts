import pMap from "p-map";
import type { SignInEvidence } from "../../applications/credential-usage.ts";
import type { AssetLocation } from "../../inventory/asset.ts";
import type { Clock } from "../../platform/runtime.ts";
import { withoutKeys } from "../../platform/storage/entity.ts";
import type { Tables } from "../../platform/storage/tables.ts";
import { DAY_MS, HOUR_MS } from "../../platform/time.ts";
import type { OldVersionRead, SecretUsage } from "../../rotation/secret-usage.ts";
import { DAYS_COUNTED, latest } from "./merge.ts";
import type { WorkspaceReader } from "./read-workspace.ts";
import {
  AssetUses,
  assetUseKey,
  type Reader,
  readersOf,
  SIGN_INS,
  SignIns,
  signInKey,
  signInsPrefix,
  type UnexpectedReader,
  under,
  VaultUses,
  vaultUseKey,
  WORKSPACES,
  type WorkspaceRecord,
  WorkspaceRows,
} from "./rows.ts";
import { nameOfReader, unexpectedSince } from "./unexpected-readers.ts";

/** A log counts as current if it was read within this time. It is read once an hour, but a worker may be late. */
const MAX_LOG_AGE_MS = 3 * HOUR_MS;

/**
 * A log of sign-ins counts as working if it was read, and had a sign-in, within this time. No time after its last read counts as
 * complete.
 */
const CURRENT_SIGN_INS_MS = 4 * DAY_MS;

/** A user of an asset, from all configured logs. */
export interface SeenReader extends Omit<Reader, "days" | "versions"> {
  /** Name of the person or application, or its ID. */
  title: string;
  /** Number of uses in the last 30 days, as far as the logs cover them. */
  uses: number;
  versions: { version: string; lastAt: string }[];
}

/** Logged use of one asset. */
export interface AssetUsage {
  lastAt: string | undefined;
  /** Most recent first. */
  readers: SeenReader[];
  /** Whether there were more readers, longer ago. */
  more: boolean;
  /** State of each configured workspace. */
  logs: LogState[];
}

/** State of one workspace for one vault. */
export interface LogState {
  workspaceId: string;
  /** Period that was read without gaps. Undefined if the workspace was never read. */
  readFrom: string | undefined;
  readTo: string | undefined;
  /** Start of the vault's events in the log without a gap. Undefined if there are none. */
  vaultSince: string | undefined;
  failure: WorkspaceRecord["failure"];
}

/** Answers queries about use from the logs of the configured workspaces. */
export interface Usage extends SecretUsage {
  /**
   * Returns the stored use of an asset. Makes three requests for each workspace. Queries no workspace: only the methods for
   * rotations need results of this hour.
   */
  ofAsset(asset: AssetLocation): Promise<AssetUsage>;
  /**
   * Returns the stored sign-ins of one application, or of all. Makes one request for each workspace, and one more for each 1,000
   * credentials. Queries no workspace.
   */
  signInEvidence(appId?: string): Promise<SignInEvidence>;
  /** Lists unexpected readers since a time. */
  unexpected(from: Date): AsyncGenerator<UnexpectedReader[]>;
}

export function createUsage(deps: {
  tables: Tables;
  workspaceIds: readonly string[];
  reader: WorkspaceReader;
  clock: Clock;
}): Usage {
  const { tables, workspaceIds, reader, clock } = deps;

  /** Returns the states of all workspaces, after querying those that were not queried within this hour. */
  const readWorkspaces = () => pMap(workspaceIds, (id) => reader.read(id), { concurrency: 2 });

  const readersIn = async (
    workspaceId: string,
    asset: AssetLocation,
  ): Promise<{ readers: Reader[]; more: boolean }> => {
    const use = await tables.get(AssetUses, workspaceId, assetUseKey(asset));
    return { readers: use ? readersOf(use) : [], more: use?.more === true };
  };

  async function stateOf(workspaceId: string, vaultName: string): Promise<LogState> {
    const [workspace, vault] = await Promise.all([
      tables.get(WorkspaceRows, WORKSPACES, workspaceId),
      tables.get(VaultUses, workspaceId, vaultUseKey(vaultName)),
    ]);
    const { readFrom, readTo, failure } = workspace ? withoutKeys(workspace) : {};
    const vaultSince = vault && readFrom !== undefined ? latest(vault.since, readFrom) : undefined;
    return { workspaceId, readFrom, readTo, vaultSince, failure };
  }

  return {
    async ofAsset(asset) {
      const found = await pMap(workspaceIds, (id) => readersIn(id, asset), { concurrency: 4 });
      const logs = await pMap(workspaceIds, (id) => stateOf(id, asset.vaultName), { concurrency: 4 });
      const byId = Map.groupBy(
        found.flatMap(({ readers }) => readers),
        ({ id }) => id,
      );
      const readers = [...byId.values()].map((entries) => mergeReader(entries, clock.now()));
      readers.sort((a, b) => (a.lastAt > b.lastAt ? -1 : 1));
      return { lastAt: readers[0]?.lastAt, readers, more: found.some(({ more }) => more), logs };
    },

    async readersOfOldVersion({ vaultName, secretName, version, since }) {
      await readWorkspaces();
      const from = since.toISOString();
      const found = await pMap(workspaceIds, (id) => readersIn(id, { vaultName, type: "secret", name: secretName }));
      const byId = Map.groupBy(
        found.flatMap(({ readers }) => readers),
        ({ id }) => id,
      );
      return [...byId.values()].flatMap((entries): OldVersionRead[] => {
        // Tuples of a version and its last read. Reads of an old version count if no read of the new version followed.
        const lastReads = entries.flatMap(({ versions }) => versions);
        const newAt = latest("", ...lastReads.filter(([read]) => read === version).map(([, at]) => at));
        const oldReads = lastReads.filter(([read, at]) => read !== version && at > from && at > newAt);
        const [last] = oldReads.sort(([, a], [, b]) => (a > b ? -1 : 1));
        return last ? [{ caller: nameOfReader(entries[0]!), version: last[0], at: new Date(last[1]) }] : [];
      });
    },

    async lastSignIn({ appId, keyId }) {
      await readWorkspaces();
      const signIns = await pMap(workspaceIds, (id) => tables.get(SignIns, id, signInKey(appId, keyId)));
      const last = latest("", ...signIns.map((signIn) => signIn?.lastAt));
      return last === "" ? undefined : new Date(last);
    },

    async unreadSignIns() {
      const now = clock.now().getTime();
      return (await readWorkspaces()).flatMap(({ workspaceId, readTo, signInAt, failure }) => {
        // A workspace that was read and contains no sign-in of any application does not receive sign-ins.
        if (readTo !== undefined && signInAt === undefined) return [];
        if (failure === undefined && readTo !== undefined && now - Date.parse(readTo) <= MAX_LOG_AGE_MS) return [];
        const why = failure ? `${failure.message} ${failure.remedy}` : "It was not read for some hours.";
        return [`Sign-ins may be missing: the workspace ${workspaceId} can't be read now. ${why}`];
      });
    },

    async signInEvidence(appId) {
      const lastByKey = new Map<string, string>();
      const prefix = appId === undefined ? SIGN_INS : signInsPrefix(appId);
      const current = new Date(clock.now().getTime() - CURRENT_SIGN_INS_MS).toISOString();
      const periods = await pMap(
        workspaceIds,
        async (id) => {
          // A row that can't be read may hold the last sign-in of a secret. So no period of this log is complete then.
          let isReadable = true;
          const onCorrupt = () => {
            isReadable = false;
          };
          const range = { ...under(id, prefix), select: ["lastAt"] as const, onCorrupt };
          for await (const rows of tables.pages(SignIns, range))
            for (const { rowKey, lastAt } of rows) lastByKey.set(rowKey, latest(lastByKey.get(rowKey), lastAt));
          const {
            readFrom,
            readTo = "",
            signInAt = "",
            signInSince,
          } = (await tables.get(WorkspaceRows, WORKSPACES, id, { onCorrupt })) ?? {};
          if (!isReadable || readFrom === undefined || signInSince === undefined) return [];
          if (readTo < current || signInAt < current) return [];
          return [{ since: latest(readFrom, signInSince), until: readTo }];
        },
        { concurrency: 4 },
      );
      const longest = periods.flat().sort((a, b) => (a.since < b.since ? -1 : 1))[0];
      return {
        workspaces: workspaceIds.length,
        completeSince: longest?.since,
        completeUntil: longest?.until,
        lastSignIn: (one) => lastByKey.get(signInKey(one.appId, one.keyId)),
      };
    },

    unexpected: (from) => unexpectedSince(workspaceIds, from, tables),
  };
}

/** Merges the entries of the same reader in several workspaces. */
function mergeReader(entries: readonly Reader[], now: Date): SeenReader {
  const [first] = [...entries].sort((a, b) => (a.lastAt > b.lastAt ? -1 : 1));
  const { days: _d, versions: _v, ...reader } = first!;
  const from = new Date(now.getTime() - DAYS_COUNTED * DAY_MS).toISOString().slice(0, 10);
  // A vault may send its log to several workspaces, which then have the same counts.
  const days = new Map<string, number>();
  const versions = new Map<string, string>();
  for (const entry of entries) {
    for (const [day, count] of entry.days) if (day >= from) days.set(day, Math.max(days.get(day) ?? 0, count));
    for (const [version, at] of entry.versions) versions.set(version, latest(versions.get(version), at));
  }
  return {
    ...reader,
    title: nameOfReader(reader as Reader),
    uses: [...days.values()].reduce((sum, count) => sum + count, 0),
    versions: [...versions]
      .map(([version, lastAt]) => ({ version, lastAt }))
      .sort((a, b) => (a.lastAt > b.lastAt ? -1 : 1)),
  };
}
