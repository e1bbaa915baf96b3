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

/** The fixture of dependencies on real tables, with sources, queue and time that the test holds. */

export const caller = { actor: "admin", requestId: "request-1" };
export const everything = { limit: 1000, offset: 0, cursor: undefined };
const quiet = { debug() {}, info() {}, warn() {}, error() {} };
export const SERVICE_VAULT = "kv-lifecycle-service";

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

/** Which write of a process ends its life, and whether that was applied. */
export interface SimulatedCrash {
  at: number;
  applied: boolean;
  taken: number;
  dead: boolean;
}
export const mayDie = (at = Number.POSITIVE_INFINITY, applied = false): SimulatedCrash => ({
  at,
  applied,
  taken: 0,
  dead: false,
});

function crashable<T extends object>(inner: T, death: SimulatedCrash): T {
  return new Proxy(inner, {
    get(target, name) {
      const member: unknown = Reflect.get(target, name, target);
      if (typeof member !== "function" || typeof name !== "string") return member;
      return (...args: unknown[]) => {
        if (death.dead && WRITES.has(name)) return Promise.reject(new Error("dead"));
        if (death.dead) throw new Error("dead");
        if (name === "fence") return crashable(member.apply(target, args) as Fence, death);
        if (!WRITES.has(name) || ++death.taken !== death.at) return member.apply(target, args) as unknown;
        if (!death.applied) {
          death.dead = true;
          return Promise.reject(new Error("dead"));
        }
        return Promise.resolve(member.apply(target, args)).finally(() => {
          death.dead = true;
          throw new Error("dead");
        });
      };
    },
  });
}

/** A source whose units the test writes; a unit may be a failure. */
export class Company implements EdgeSource {
  readonly name = "azure";
  units_: Record<string, ReadingItem[] | CloudFailure> = {};
  unlistable: CloudFailure | undefined;
  readonly readings: { unit: string; since: Date | undefined; after?: string | undefined }[] = [];
  /** Called before each reported item. */
  before: (unit: string) => Promise<void> = async () => {};

  /** Items that a run over a unit, or a part of it, reports. */
  told = (unit: string, _after: string | undefined): (ReadingItem | CloudFailure)[] | CloudFailure =>
    this.units_[unit] ?? [];

  async units(): Promise<string[]> {
    if (this.unlistable) throw this.unlistable;
    return Object.keys(this.units_);
  }

  async *read(unit: string, { since, after }: ReadOptions): AsyncGenerator<ReadingItem> {
    this.readings.push({ unit, since, ...(after !== undefined && { after }) });
    const reported = this.told(unit, after);
    if (reported instanceof CloudFailure) throw reported;
    for (const one of reported) {
      await this.before(unit);
      if (one instanceof CloudFailure) throw one;
      yield one;
    }
  }
}

export const denied = () =>
  new CloudFailure("accessDenied", "Could not list the sites: the service's identity may not.", {
    remedy: "Give the service's identity the role Reader.",
  });

export const timedOut = () =>
  new CloudFailure("timedOut", "Could not list the sites in time.", { remedy: "See which service answers slowly." });

/** A web app of a subscription; names of settings to what they name. */
export function app(
  name: string,
  settings: Record<string, Partial<Edge> & { vault?: string; secret?: string }>,
  more: Partial<Resource> & { partial?: boolean } = {},
): Extract<ReadingItem, { resource: Resource }> {
  const { partial, ...rest } = more;
  const resource: Resource = {
    id: `/subscriptions/s1/sites/${name}`,
    kind: "webApp",
    name,
    subscriptionId: "s1",
    ...rest,
  };
  const edges = Object.entries(settings).map(([evidence, { vault = "kv-one", secret = "db", ...edge }]): Edge => {
    const named = { vaultName: vault, type: "secret", name: secret } as const;
    return { ...named, resource, strength: "references", evidence, refresh: { how: "action" }, ...edge };
  });
  return { resource, edges, ...(partial ? { partial } : {}) };
}

export const notSeen = (scope: string): ReadingItem => ({
  notSeen: { scope, code: "accessDenied", message: `Could not read ${scope}.`, remedy: "Give the role Reader." },
});

export const resolved = { state: { resolved: true, status: "Resolved" } };
export const unresolved = { state: { resolved: false, status: "AccessToKeyVaultDenied" } };

/** One store, and as many processes on it as a test starts. */
export class Deployment {
  readonly messages: { message: DiscoverMessage; delaySeconds: number }[] = [];
  readonly company = new Company();
  readonly events: AuditEvent[] = [];
  readonly compliance: { vaultName: string; assets: string[] }[] = [];
  readonly assets = new Map<string, FoundAsset>();
  usage: Pick<Usage, "of" | "lastSignIn"> = {
    of: async () => ({ lastAt: undefined, readers: [], more: false, logs: [] }),
    lastSignIn: async () => undefined,
  };
  licensed = true;
  ended = 0;
  /** Milliseconds that everybody's clock is ahead of the store's. */
  ahead = 0;
  readonly connectionString: string;
  readonly pass: (milliseconds: number) => Promise<void>;

  constructor(connectionString: string, pass: (milliseconds: number) => Promise<void> = async () => {}) {
    this.connectionString = connectionString;
    this.pass = pass;
  }

  start({ death = mayDie(), sources = [this.company] }: { death?: SimulatedCrash; sources?: EdgeSource[] } = {}): {
    fixture: Dependencies;
    tables: Tables;
  } {
    const storeClock = createStoreClock();
    const tables = crashable(createTables({ connectionString: this.connectionString }, { clock: storeClock }), death);
    const moment = async () => ({ now: Date.now(), criticalDays: 7, warningDays: 30 });
    const fixture = createDependencies({
      tables,
      queues: crashable(
        {
          checkReachable: async () => {},
          send: async (_queue: string, message: unknown, { delaySeconds = 0 } = {}) => {
            this.messages.push({ message: message as DiscoverMessage, delaySeconds });
          },
        },
        death,
      ),
      audit: crashable({ append: async (event: AuditEvent) => void this.events.push(event) }, death),
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
    return { fixture, tables };
  }

  /** A run as the timer begins it, to its end. */
  async run(mode: "full" | "changes" = "full", process = this.start()): Promise<RunRecord> {
    await process.fixture.handle({ mode }, caller);
    const { runId } = this.messages.at(-1)!.message;
    await this.drain(process);
    return await process.fixture.run(runId!);
  }

  /** Delivers the messages of the queue until it is empty. Messages of crashed processes are delivered again. */
  async drain(process = this.start(), revived = () => this.start()): Promise<void> {
    let living = process;
    for (let next = this.messages.shift(); next; next = this.messages.shift()) {
      if (next.delaySeconds > 0) await this.pass(next.delaySeconds * 1000);
      try {
        await living.fixture.handle(next.message, caller);
      } catch (error) {
        if (!(error instanceof Error && error.message === "dead")) throw error;
        this.messages.push({ ...next, delaySeconds: 61 });
        living = revived();
      }
    }
  }

  /** All that stands but for times and what tells two writes apart. */
  async standing(tables = this.start().tables) {
    const rows = async <T extends object>(prefix: string, of: Parameters<Tables["pages"]>[0]) => {
      const found: [string, T][] = [];
      for await (const page of tables.pages(of, rangeOf(prefix)))
        for (const row of page) found.push([row.rowKey, withoutKeys(row as object) as T]);
      return found;
    };
    const timeless = ({ toldAt: _t, lastSeenAt, ...rest }: { toldAt?: string; lastSeenAt?: string }) => ({
      ...rest,
      held: lastSeenAt !== undefined,
    });
    return {
      edges: (await rows<object>(EDGES, Edges)).map(([key, edge]) => [key, timeless(edge)]),
      resources: (await rows<ResourceRecord>("r|", Resources)).map(([key, row]) => {
        const { edges: _, ...rest } = row;
        return [key, timeless(rest), [...unpackEdges(key, row)].sort()];
      }),
      units: (await rows<{ lastFullAt?: string; lastReadAt?: string; lastFailure?: object }>(UNITS, Units)).map(
        ([key, { lastFullAt: _f, lastReadAt: _r, lastFailure, ...row }]) => [key, row, lastFailure !== undefined],
      ),
      notSeen: (await rows<{ since: string }>(NOT_SEEN, NotSeenRows)).map(([key, { since: _, ...row }]) => [key, row]),
      unresolved: [
        ...new Set((await rows<{ id: string; edge: string }>(UNRESOLVED, UnresolvedRows)).map(([, { id }]) => id)),
      ].length,
      outdated: (await rows("q|", Edges as never)).length,
    };
  }
}
