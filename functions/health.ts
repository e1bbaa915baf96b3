import type { Identity } from "../shared/azure/identity.ts";
import type { ResourceManager } from "../shared/azure/resource-manager.ts";
import { ACTIVE, ActiveScans, QUEUES } from "../shared/discovery/scan.ts";
import type { Clock } from "../shared/runtime.ts";
import type { Queues } from "../shared/storage/queues.ts";
import type { Tables } from "../shared/storage/tables.ts";

export interface Dependency {
  name: "tables" | "queues" | "identity" | "resourceManager";
  status: "healthy" | "unhealthy";
  /** What went wrong, without secrets. */
  detail?: string;
  milliseconds: number;
}

export interface Health {
  /** Asks each dependency for something small; remembered for a few seconds, so that a monitor costs little. */
  check(): Promise<Dependency[]>;
}

const REMEMBERED_MS = 10_000;
const TIMEOUT_MS = 10_000;

export function createHealth(deps: {
  tables: Tables;
  queues: Queues;
  identity: Identity;
  resourceManager: ResourceManager;
  clock: Clock;
}): Health {
  let last: { at: number; checks: Promise<Dependency[]> } | undefined;
  const probes: Record<Dependency["name"], () => Promise<unknown>> = {
    tables: () => deps.tables.get(ActiveScans, ACTIVE, ACTIVE),
    queues: () => deps.queues.reachable(QUEUES.plan),
    identity: () => deps.identity.describe(),
    resourceManager: () => deps.resourceManager.subscriptions(AbortSignal.timeout(TIMEOUT_MS)),
  };
  async function probe(name: Dependency["name"]): Promise<Dependency> {
    const started = performance.now();
    const milliseconds = () => Math.round(performance.now() - started);
    try {
      await Promise.race([probes[name](), timeout()]);
      return { name, status: "healthy", milliseconds: milliseconds() };
    } catch (error) {
      return {
        name,
        status: "unhealthy",
        detail: error instanceof Error ? error.message.slice(0, 500) : "failed",
        milliseconds: milliseconds(),
      };
    }
  }
  return {
    async check() {
      const now = deps.clock.now().getTime();
      if (!last || now - last.at > REMEMBERED_MS) {
        last = { at: now, checks: Promise.all((Object.keys(probes) as Dependency["name"][]).map(probe)) };
      }
      return await last.checks;
    },
  };
}

const timeout = (): Promise<never> =>
  new Promise((_, reject) => {
    setTimeout(() => reject(new Error(`no answer within ${TIMEOUT_MS / 1000} seconds`)), TIMEOUT_MS).unref();
  });
