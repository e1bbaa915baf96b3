import type { AuditEvent } from "../../shared/audit/event.ts";
import { createDependencies, type Dependencies, type DiscoverMessage } from "../../shared/dependencies/dependencies.ts";
import type { Edge, Resource } from "../../shared/dependencies/edge.ts";
import type { EdgeSource, ReadingItem, ReadOptions } from "../../shared/dependencies/edge-source.ts";
import type { Usage } from "../../shared/dependencies/logs/usage.ts";
import {
  EDGES,
  Edges,
  NOT_SEEN,
  NotSeenRows,
  type ResourceRecord,
  Resources,
  type RunRecord,
  rangeOf,
  UNITS,
  UNRESOLVED,
  Units,
  UnresolvedRows,
  unpackEdges,
} from "../../shared/dependencies/rows.ts";
import type { FoundAsset } from "../../shared/inventory/query.ts";
import { CloudFailure } from "../../shared/platform/azure/failure.ts";
import { systemRandomness } from "../../shared/platform/runtime.ts";
import { createStoreClock } from "../../shared/platform/storage/clock.ts";
import { withoutKeys } from "../../shared/platform/storage/entity.ts";
import type { Fence } from "../../shared/platform/storage/fence.ts";
import { createTables, type Tables } from "../../shared/platform/storage/tables.ts";

// Fixture of dependency discovery. The module runs on real tables, but the test controls the source of resources, the queue and
// the clock. The test can crash a process at any of its writes.

export const caller = { actor: "admin", requestId: "request-1" };
export const FIRST_1000 = { limit: 1000, offset: 0, cursor: undefined };
const quiet = { debug() {}, info() {}, warn() {}, error() {} };
export const SERVICE_VAULT = "kv-lifecycle-service";

/** Methods that write: of tables (from `insert`), of a fence (`take`, `move`), of queues (`send`) and of the audit log (`append`). */
const WRITES = new Set([
  "insert",
  "put",
  "replace",
  "remove",
  "transaction",
  "write",
  "take",
  "move",
  "send",
  "append",
]);

/** The crash of one simulated process. */
export interface SimulatedCrash {
  /** Number of the write at which the process crashes, from 1. */
  at: number;
  /** Whether that write is applied before the crash. */
  applied: boolean;
  /** Number of writes so far. */
  taken: number;
  /** Whether the process has crashed. Then all its calls fail. */
  dead: boolean;
}
/** Returns a crash at the given write. Without arguments, the process does not crash and only its writes are counted. */
export const crashAt = (at = Number.POSITIVE_INFINITY, applied = false): SimulatedCrash => ({
  at,
  applied,
  taken: 0,
  dead: false,
});

/** Wraps tables, queues or the audit log so that the process crashes at the write that `crash` plans. */
function crashable<T extends object>(inner: T, crash: SimulatedCrash): T {
  return new Proxy(inner, {
    get(target, name) {
      const member: unknown = Reflect.get(target, name, target);
      if (typeof member !== "function" || typeof name !== "string") return member;
      return (...args: unknown[]) => {
        if (crash.dead && WRITES.has(name)) return Promise.reject(new Error("dead"));
        if (crash.dead) throw new Error("dead");
        if (name === "fence") return crashable(member.apply(target, args) as Fence, crash);
        if (!WRITES.has(name) || ++crash.taken !== crash.at) return member.apply(target, args) as unknown;
        if (!crash.applied) {
          crash.dead = true;
          return Promise.reject(new Error("dead"));
        }
        return Promise.resolve(member.apply(target, args)).finally(() => {
          crash.dead = true;
          throw new Error("dead");
        });
      };
    },
  });
}

/**
 * A source of dependencies whose content the test sets. A source is read unit by unit, for example by subscription. A unit can
 * also fail.
 */
export class SimulatedSource implements EdgeSource {
  readonly name = "azure";
  itemsByUnit: Record<string, ReadingItem[] | CloudFailure> = {};
  /** The failure of listing the units, if it must fail. */
  listFailure: CloudFailure | undefined;
  /** Arguments of all calls of `read`. */
  readonly readings: { unit: string; since: Date | undefined; after?: string | undefined }[] = [];
  /** Called before each reported item. */
  beforeItem: (unit: string) => Promise<void> = async () => {};

  /** Returns the items that a read of a unit reports after the position `_after`. A failure ends the read. */
  itemsOf = (unit: string, _after: string | undefined): (ReadingItem | CloudFailure)[] | CloudFailure =>
    this.itemsByUnit[unit] ?? [];

  async units(): Promise<string[]> {
    if (this.listFailure) throw this.listFailure;
    return Object.keys(this.itemsByUnit);
  }

  async *read(unit: string, { since, after }: ReadOptions): AsyncGenerator<ReadingItem> {
    this.readings.push({ unit, since, ...(after !== undefined && { after }) });
    const items = this.itemsOf(unit, after);
    if (items instanceof CloudFailure) throw items;
    for (const item of items) {
      await this.beforeItem(unit);
      if (item instanceof CloudFailure) throw item;
      yield item;
    }
  }
}

export const denied = () =>
  new CloudFailure("accessDenied", "Could not list the sites: the service's identity may not.", {
    remedy: "Give the service's identity the role Reader.",
  });

export const timedOut = () =>
  new CloudFailure("timedOut", "Could not list the sites in time.", { remedy: "See which service answers slowly." });

/**
 * Returns a web app as a source reports it.
 *
 * @param settings - The edges by name of the setting with the reference. Without `vault` and `secret`, the setting refers to the
 *   secret `db` in `kv-one`.
 */
export function app(
  name: string,
  settings: Record<string, Partial<Edge> & { vault?: string; secret?: string }>,
  more: Partial<Resource> & { partial?: boolean } = {},
): Extract<ReadingItem, { resource: Resource }> {
  const { partial, ...resourceFields } = more;
  const resource: Resource = {
    id: `/subscriptions/s1/sites/${name}`,
    kind: "webApp",
    name,
    subscriptionId: "s1",
    ...resourceFields,
  };
  const edges = Object.entries(settings).map(([evidence, { vault = "kv-one", secret = "db", ...edge }]): Edge => {
    const asset = { vaultName: vault, type: "secret", name: secret } as const;
    return { ...asset, resource, strength: "references", evidence, refresh: { how: "action" }, ...edge };
  });
  return { resource, edges, ...(partial ? { partial } : {}) };
}

export const notSeen = (scope: string): ReadingItem => ({
  notSeen: { scope, code: "accessDenied", message: `Could not read ${scope}.`, remedy: "Give the role Reader." },
});

export const resolved = { state: { resolved: true, status: "Resolved" } };
export const unresolved = { state: { resolved: false, status: "AccessToKeyVaultDenied" } };

/** After this time the queue delivers the message of a crashed process again, and the process's lease (60 s) has expired. */
const REDELIVERY_SECONDS = 61;

/** A deployment of the service: one storage account, on which `start` starts any number of processes. */
export class Deployment {
  /** Messages that wait in the queue. */
  readonly messages: { message: DiscoverMessage; delaySeconds: number }[] = [];
  readonly company = new SimulatedSource();
  readonly events: AuditEvent[] = [];
  /** Calls that notified the compliance module about assets whose references changed. */
  readonly compliance: { vaultName: string; assets: string[] }[] = [];
  readonly assets = new Map<string, FoundAsset>();
  usage: Pick<Usage, "ofAsset" | "lastSignIn"> = {
    ofAsset: async () => ({ lastAt: undefined, readers: [], more: false, logs: [] }),
    lastSignIn: async () => undefined,
  };
  licensed = true;
  /** Number of ended runs. */
  ended = 0;
  /** Milliseconds by which the clocks of all processes are ahead of the storage account's. */
  ahead = 0;
  readonly connectionString: string;
  /** Called with the delay of a message before its delivery. Lets that time pass, if the storage's clock can be moved. */
  readonly pass: (milliseconds: number) => Promise<void>;

  constructor(connectionString: string, pass: (milliseconds: number) => Promise<void> = async () => {}) {
    this.connectionString = connectionString;
    this.pass = pass;
  }

  start({ crash = crashAt(), sources = [this.company] }: { crash?: SimulatedCrash; sources?: EdgeSource[] } = {}): {
    dependencies: Dependencies;
    tables: Tables;
  } {
    const storeClock = createStoreClock();
    const tables = crashable(createTables({ connectionString: this.connectionString }, { clock: storeClock }), crash);
    const moment = async () => ({ now: Date.now(), criticalDays: 7, warningDays: 30 });
    const dependencies = createDependencies({
      tables,
      queues: crashable(
        {
          checkReachable: async () => {},
          send: async (_queue: string, message: unknown, { delaySeconds = 0 } = {}) => {
            this.messages.push({ message: message as DiscoverMessage, delaySeconds });
          },
        },
        crash,
      ),
      audit: crashable({ append: async (event: AuditEvent) => void this.events.push(event) }, crash),
      config: { SERVICE_KEY_VAULT_URL: `https://${SERVICE_VAULT}.vault.azure.net` },
      sources,
      usage: this.usage,
      inventory: { assets: { get: async (id) => this.assets.get(id.toLowerCase()) }, moment },
      referencesChanged: async (vaultName, assets) => void this.compliance.push({ vaultName, assets }),
      ended: async () => void this.ended++,
      licensed: async () => this.licensed,
      clock: { now: () => new Date(storeClock.now().getTime() + this.ahead) },
      randomness: systemRandomness(),
      log: quiet,
    });
    return { dependencies, tables };
  }

  /** Starts a run as the timer does, executes it to its end, and returns its result. */
  async run(mode: "full" | "changes" = "full", process = this.start()): Promise<RunRecord> {
    await process.dependencies.handle({ mode }, caller);
    const { runId } = this.messages.at(-1)!.message;
    await this.drain(process);
    return await process.dependencies.run(runId!);
  }

  /** Delivers the messages of the queue until it is empty. Messages of crashed processes are delivered again. */
  async drain(process = this.start(), restart = () => this.start()): Promise<void> {
    let running = process;
    for (let next = this.messages.shift(); next; next = this.messages.shift()) {
      if (next.delaySeconds > 0) await this.pass(next.delaySeconds * 1000);
      try {
        await running.dependencies.handle(next.message, caller);
      } catch (error) {
        if (!(error instanceof Error && error.message === "dead")) throw error;
        this.messages.push({ ...next, delaySeconds: REDELIVERY_SECONDS });
        running = restart();
      }
    }
  }

  /** Returns the content of all tables without times and ids, so that the results of two runs can be compared. */
  async readState(tables = this.start().tables) {
    const readRows = async <T extends object>(prefix: string, table: Parameters<Tables["pages"]>[0]) => {
      const rows: [string, T][] = [];
      for await (const page of tables.pages(table, rangeOf(prefix)))
        for (const row of page) rows.push([row.rowKey, withoutKeys(row as object) as T]);
      return rows;
    };
    const withoutTimes = ({ toldAt: _t, lastSeenAt, ...rest }: { toldAt?: string; lastSeenAt?: string }) => ({
      ...rest,
      // Only rows of a resource that later runs could not read have `lastSeenAt`. They are kept.
      held: lastSeenAt !== undefined,
    });
    return {
      edges: (await readRows<object>(EDGES, Edges)).map(([key, edge]) => [key, withoutTimes(edge)]),
      resources: (await readRows<ResourceRecord>("r|", Resources)).map(([key, row]) => {
        const { edges: _, ...rest } = row;
        return [key, withoutTimes(rest), [...unpackEdges(row)].sort()];
      }),
      units: (await readRows<{ lastFullAt?: string; lastReadAt?: string; lastFailure?: object }>(UNITS, Units)).map(
        ([key, { lastFullAt: _f, lastReadAt: _r, lastFailure, ...row }]) => [key, row, lastFailure !== undefined],
      ),
      notSeen: (await readRows<{ since: string }>(NOT_SEEN, NotSeenRows)).map(([key, { since: _, ...row }]) => [
        key,
        row,
      ]),
      unresolved: [
        ...new Set((await readRows<{ id: string; edge: string }>(UNRESOLVED, UnresolvedRows)).map(([, { id }]) => id)),
      ].length,
      // Keys with the prefix `q|` mark assets that compliance must still evaluate again.
      outdated: (await readRows("q|", Edges as never)).length,
    };
  }
}
