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
import { SHORT_WAITS } from "../azure/services.ts";

// Runs the applications module on real tables (Azurite) and the simulated cloud. The test delivers the messages of the queue.

export const caller = { actor: "admin", requestId: "request-1" };
export const ALL_ITEMS = { limit: 1000, offset: 0, cursor: undefined };
const silentLog = { debug() {}, info() {}, warn() {}, error() {} };
const settings = Object.fromEntries(
  SETTING_KEYS.map((key) => [key, DEFINITIONS[key].default]),
) as unknown as SettingValues;

/** Creates applications with none, one or two secrets; each fifth has a certificate too. */
export const applications = (count: number): CompanyApplication[] =>
  Array.from({ length: count }, (_, index) => ({
    name: `App ${String(index).padStart(3, "0")}`,
    owners: [`owner${index % 3}@acme.example`],
    secrets: Array.from({ length: index % 7 === 6 ? 0 : index % 3 === 0 ? 2 : 1 }, (_, secretIndex) => ({
      name: `secret-${secretIndex}`,
      // Spread over 300 days, from 20 days ago.
      expiresInDays: ((index * 13) % 300) + secretIndex - 20,
    })),
    ...(index % 5 === 4 ? { certificates: [{ name: "cert", expiresInDays: 100 + index }] } : {}),
  }));

/** The simulated crash of a process at one of its writes. */
export interface Crash {
  /** The number of the write at which the process crashes. */
  atWrite: number;
  /** Whether storage applies that write. */
  isApplied: boolean;
  /** Number of writes so far. */
  writes: number;
  hasCrashed: boolean;
}
/** Plans a crash. By default the process never crashes, and its writes are only counted. */
export const planCrash = (atWrite = Number.POSITIVE_INFINITY, isApplied = false): Crash => ({
  atWrite,
  isApplied,
  writes: 0,
  hasCrashed: false,
});

/** Methods of tables, fences and queues that change stored data. */
const WRITE_METHODS = new Set([
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

/** Wraps tables or queues so that the process crashes at the planned write. Later calls fail. */
function crashable<T extends object>(inner: T, crash: Crash): T {
  return new Proxy(inner, {
    get(target, name) {
      const member: unknown = Reflect.get(target, name, target);
      if (typeof member !== "function" || typeof name !== "string") return member;
      return (...args: unknown[]) => {
        if (crash.hasCrashed && WRITE_METHODS.has(name)) return Promise.reject(new Error("crashed"));
        if (crash.hasCrashed) throw new Error("crashed");
        if (name === "fence") return crashable(member.apply(target, args) as Fence, crash);
        if (!WRITE_METHODS.has(name)) return member.apply(target, args) as unknown;
        if (++crash.writes !== crash.atWrite) return member.apply(target, args) as unknown;
        if (!crash.isApplied) {
          crash.hasCrashed = true;
          return Promise.reject(new Error("crashed"));
        }
        return Promise.resolve(member.apply(target, args)).finally(() => {
          crash.hasCrashed = true;
          throw new Error("crashed");
        });
      };
    },
  });
}

/** The modules of one process of the service. */
export interface Process {
  applications: ApplicationsService;
  inventory: ReturnType<typeof createInventory>;
  compliance: ReturnType<typeof createCompliance>;
  writer: ReturnType<typeof createInventoryWriter>;
  tables: Tables;
  audit: ReturnType<typeof createAudit>;
}

/** One storage account, and any number of processes that use it. */
export class Deployment {
  readonly connectionString: string;
  readonly config: Config;
  /** Advances the time by the delay of a message. By default no time passes. */
  readonly pass: (milliseconds: number) => Promise<void>;
  readonly messages: { message: DiscoverMessage; delaySeconds: number }[] = [];
  licensed = true;
  /** Number of times that a run requested an evaluation of the alert rules. */
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
   * Starts a process.
   *
   * @param ahead - Milliseconds by which the process's clock is ahead of the storage account's.
   * @param whileReading - Awaited between the two lists (applications and service principals) of a discovery.
   */
  start({
    crash = planCrash(),
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
    const graph = createGraph({ config: this.config, identity, log: silentLog, limits: SHORT_WAITS });
    const audit = createAudit({
      tables,
      clock,
      randomness,
      config: { AUDIT_SIGNING_KEYS: undefined, AUDIT_MINIMUM_RETENTION_DAYS: 90 },
      log: silentLog,
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
      log: silentLog,
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
      prepareVaultRemoval: (vault) => compliance.prepareChange({ vault, vaultBefore: vault, vaultGone: true }),
    });
    const applications = createApplications({
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
      log: silentLog,
      ...(waitMs === undefined ? {} : { waitMs }),
    });
    return { applications: applications, inventory, compliance, writer, tables, audit };
  }

  /** Starts a run of this mode as the timer does, and handles its messages until none is left. */
  async runScheduled(mode: "full" | "changes", process = this.start()): Promise<RunRecord | undefined> {
    await process.applications.handle({ mode }, caller);
    const runId = this.messages.at(-1)?.message.runId;
    await this.drain(process);
    return runId === undefined ? undefined : await process.applications.run(runId);
  }

  /** Delivers the queue's messages until none is left. */
  async drain(process = this.start()): Promise<void> {
    for (let next = this.messages.shift(); next; next = this.messages.shift()) {
      if (next.delaySeconds > 0) await this.pass(next.delaySeconds * 1000);
      await process.applications.handle(next.message, caller);
    }
  }
}
