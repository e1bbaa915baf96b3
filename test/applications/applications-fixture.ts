import type { Cloud } from "simulated-cloud/cloud.ts";
import type { CompanyApplication } from "simulated-cloud/company/applications.ts";
import type { RunRecord } from "../../shared/applications/application.ts";
import {
  type ApplicationsService,
  createApplications,
  type DiscoverMessage,
} from "../../shared/applications/applications.ts";
import { createAudit } from "../../shared/audit/audit.ts";
import { createCompliance } from "../../shared/compliance/compliance.ts";
import { createInventory } from "../../shared/inventory/inventory.ts";
import { createInventoryWriter } from "../../shared/inventory/write.ts";
import { createGraph } from "../../shared/platform/azure/graph.ts";
import { createIdentity } from "../../shared/platform/azure/identity.ts";
import type { Config } from "../../shared/platform/config/config.ts";
import { systemRandomness } from "../../shared/platform/runtime.ts";
import { createStoreClock } from "../../shared/platform/storage/clock.ts";
import type { Fence } from "../../shared/platform/storage/fence.ts";
import type { Queues } from "../../shared/platform/storage/queues.ts";
import { createTables, type Tables } from "../../shared/platform/storage/tables.ts";
import { DEFINITIONS, SETTING_KEYS, type SettingValues } from "../../shared/settings/definitions.ts";
import { IMPATIENT } from "../azure/services.ts";

/** The module applications on real tables and the simulated cloud, with queues that the test controls. */

export const caller = { actor: "admin", requestId: "request-1" };
export const everything = { limit: 1000, offset: 0, cursor: undefined };
const quiet = { debug() {}, info() {}, warn() {}, error() {} };
const settings = Object.fromEntries(
  SETTING_KEYS.map((key) => [key, DEFINITIONS[key].default]),
) as unknown as SettingValues;

/** Creates applications of which every third has two secrets and some none, with a certificate for each fifth. */
export const applications = (count: number): CompanyApplication[] =>
  Array.from({ length: count }, (_, index) => ({
    name: `App ${String(index).padStart(3, "0")}`,
    owners: [`owner${index % 3}@acme.example`],
    secrets: Array.from({ length: index % 7 === 6 ? 0 : index % 3 === 0 ? 2 : 1 }, (_one, at) => ({
      name: `secret-${at}`,
      expiresInDays: ((index * 13) % 300) + at - 20,
    })),
    ...(index % 5 === 4 ? { certificates: [{ name: "cert", expiresInDays: 100 + index }] } : {}),
  }));

/** The write at which a process crashes, and whether the store applies it. */
export interface Crash {
  at: number;
  applied: boolean;
  taken: number;
  dead: boolean;
}
export const mayCrash = (at = Number.POSITIVE_INFINITY, applied = false): Crash => ({
  at,
  applied,
  taken: 0,
  dead: false,
});

const WRITES = new Set([
  "insert",
  "put",
  "replace",
  "remove",
  "modify",
  "transaction",
  "write",
  "take",
  "move",
  "send",
]);

/** Calls of a process that crashes at one of its writes. Later calls have no effect. */
function crashable<T extends object>(inner: T, crash: Crash): T {
  return new Proxy(inner, {
    get(target, name) {
      const member: unknown = Reflect.get(target, name, target);
      if (typeof member !== "function" || typeof name !== "string") return member;
      return (...args: unknown[]) => {
        if (crash.dead && WRITES.has(name)) return Promise.reject(new Error("dead"));
        if (crash.dead) throw new Error("dead");
        if (name === "fence") return crashable(member.apply(target, args) as Fence, crash);
        if (!WRITES.has(name)) return member.apply(target, args) as unknown;
        if (++crash.taken !== crash.at) return member.apply(target, args) as unknown;
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

export interface Process {
  applications: ApplicationsService;
  inventory: ReturnType<typeof createInventory>;
  compliance: ReturnType<typeof createCompliance>;
  writer: ReturnType<typeof createInventoryWriter>;
  tables: Tables;
  audit: ReturnType<typeof createAudit>;
}

/** One store, with any number of processes on it. */
export class Deployment {
  readonly connectionString: string;
  readonly config: Config;
  /** Moves the time by the delay of a hidden message. By default no time passes. */
  readonly pass: (milliseconds: number) => Promise<void>;
  readonly messages: { message: DiscoverMessage; delaySeconds: number }[] = [];
  licensed = true;
  evaluations = 0;

  constructor(
    connectionString: string,
    { config }: { cloud: Cloud; config: Config },
    pass: (milliseconds: number) => Promise<void> = async () => {},
  ) {
    this.pass = pass;
    this.connectionString = connectionString;
    this.config = config;
  }

  /**
   * @param ahead - Milliseconds that the processes' clocks are ahead of the store's.
   * @param whileReading - Awaited between the two lists of a discovery.
   */
  start({
    crash = mayCrash(),
    waitMs,
    ahead = 0,
    whileReading = async () => {},
  }: {
    crash?: Crash;
    waitMs?: number;
    ahead?: number;
    whileReading?: () => Promise<void>;
  } = {}): Process {
    const storeClock = createStoreClock();
    const clock = { now: () => new Date(storeClock.now().getTime() + ahead) };
    const tables = crashable(createTables({ connectionString: this.connectionString }, { clock: storeClock }), crash);
    const queues: Queues = crashable(
      {
        checkReachable: async () => {},
        send: async (_queue: string, message: unknown, { delaySeconds = 0 } = {}) => {
          this.messages.push({ message: message as DiscoverMessage, delaySeconds });
        },
      },
      crash,
    );
    const randomness = systemRandomness();
    const identity = createIdentity(this.config);
    const graph = createGraph({ config: this.config, identity, log: quiet, limits: IMPATIENT });
    const audit = createAudit({
      tables,
      clock,
      randomness,
      config: { AUDIT_SIGNING_KEYS: undefined, AUDIT_MINIMUM_RETENTION_DAYS: 90 },
      log: quiet,
    });
    const values = { values: async () => settings } as never;
    const licensed = async () => this.licensed;
    const compliance = createCompliance({
      tables,
      queues,
      settings: values,
      audit,
      licensed,
      clock,
      randomness,
      log: quiet,
    });
    const writer = createInventoryWriter({ tables });
    const inventory = createInventory({
      keyVaults: undefined as never,
      tables,
      settings: values,
      clock,
      randomness,
      ownerTag: "owner",
      licensed,
      writer,
      vaultLeaves: (vault) => compliance.prepareChange({ vault, vaultBefore: vault, vaultGone: true }),
    });
    const fixture = createApplications({
      tables,
      queues,
      graph: {
        ...graph,
        async *servicePrincipals(signal) {
          await whileReading();
          yield* graph.servicePrincipals(signal);
        },
      },
      tenantId: async () => (await identity.describe()).tenantId!,
      inventory: { writer, prepareChange: compliance.prepareChange },
      moment: () => inventory.moment(),
      licensed,
      audit,
      ended: async () => void this.evaluations++,
      clock,
      randomness,
      log: quiet,
      ...(waitMs === undefined ? {} : { waitMs }),
    });
    return { applications: fixture, inventory, compliance, writer, tables, audit };
  }

  /** Starts a run of this mode, as the timer does, and waits for its end. */
  async scheduled(mode: "full" | "changes", process = this.start()): Promise<RunRecord | undefined> {
    await process.applications.handle({ mode }, caller);
    const last = this.messages.at(-1)?.message.runId;
    await this.drain(process);
    return last === undefined ? undefined : await process.applications.run(last);
  }

  /** Delivers the queue's messages until none is left. */
  async drain(process = this.start()): Promise<void> {
    for (let next = this.messages.shift(); next; next = this.messages.shift()) {
      if (next.delaySeconds > 0) await this.pass(next.delaySeconds * 1000);
      await process.applications.handle(next.message, caller);
    }
  }
}
