import { randomUUID } from "node:crypto";
import type { AppConfiguration } from "../shared/platform/azure/app-configuration.ts";
import type { Identity } from "../shared/platform/azure/identity.ts";
import type { MailSender } from "../shared/platform/azure/mail.ts";
import type { ResourceManager } from "../shared/platform/azure/resource-manager.ts";
import type { ServiceKeyVault } from "../shared/platform/azure/service-key-vault.ts";
import { DEPENDENCIES } from "../shared/platform/http/health.ts";
import type { Clock } from "../shared/platform/runtime.ts";

/*
 * The deep health check (`GET /health?deep=true`): sends a request to each service that the app depends on, and reports
 * response times and errors.
 */

type DependencyName = (typeof DEPENDENCIES)[number];

/** The result of checking one dependency. */
export interface Dependency {
  name: DependencyName;
  status: "healthy" | "unhealthy";
  /** The error message, without secrets. */
  detail?: string;
  milliseconds: number;
}

/** Checks the services that the app depends on. */
export interface Health {
  /** Sends an inexpensive request to each dependency. Results are cached for ten seconds. */
  check(): Promise<Dependency[]>;
}

/** Time for which results are returned from memory, so that many callers cause few requests. */
const CACHE_MS = 10_000;
/** Time after which a dependency that does not respond is unhealthy. */
const TIMEOUT_MS = 10_000;

/** Maximum number of characters of an error message in a response. */
const MAX_DETAIL_LENGTH = 500;

export function createHealth(deps: {
  /** An inexpensive request to the tables and to the queues. */
  tables: () => Promise<unknown>;
  queues: () => Promise<unknown>;
  identity: Identity;
  resourceManager: ResourceManager;
  serviceKeyVault?: ServiceKeyVault | undefined;
  appConfiguration?: AppConfiguration | undefined;
  mail?: MailSender | undefined;
  clock: Clock;
}): Health {
  let cached: { startedAt: number; results: Promise<Dependency[]> } | undefined;
  const { serviceKeyVault, appConfiguration, mail } = deps;
  const probes: Partial<Record<DependencyName, () => Promise<unknown>>> = {
    tables: deps.tables,
    queues: deps.queues,
    identity: () => deps.identity.describe(),
    resourceManager: () => deps.resourceManager.subscriptions(AbortSignal.timeout(TIMEOUT_MS)),
    // Reads a secret that does not exist. A 404 requires the same permission as a successful read.
    ...(serviceKeyVault && { serviceKeyVault: () => serviceKeyVault.readTags("health-check") }),
    ...(appConfiguration && { appConfiguration: () => appConfiguration.read() }),
    ...(mail && { mail: () => readMissingMail(mail) }),
  };
  async function probe(name: DependencyName, work: () => Promise<unknown>): Promise<Dependency> {
    const started = performance.now();
    const milliseconds = () => Math.round(performance.now() - started);
    try {
      await Promise.race([work(), timeout()]);
      return { name, status: "healthy", milliseconds: milliseconds() };
    } catch (error) {
      return {
        name,
        status: "unhealthy",
        detail: error instanceof Error ? error.message.slice(0, MAX_DETAIL_LENGTH) : "failed",
        milliseconds: milliseconds(),
      };
    }
  }
  return {
    async check() {
      const now = deps.clock.now().getTime();
      if (!cached || now - cached.startedAt > CACHE_MS) {
        cached = {
          startedAt: now,
          results: Promise.all(DEPENDENCIES.flatMap((name) => (probes[name] ? [probe(name, probes[name])] : []))),
        };
      }
      return await cached.results;
    },
  };
}

/** Reads the status of a mail that does not exist. This is inexpensive and requires the permission to send mail. */
async function readMissingMail(mail: MailSender): Promise<void> {
  const answer = await mail.outcome(randomUUID());
  if ("reason" in answer) throw new Error(answer.reason);
}

/** Rejects after the time limit. */
const timeout = (): Promise<never> =>
  new Promise((_, reject) => {
    setTimeout(() => reject(new Error(`no response within ${TIMEOUT_MS / 1000} seconds`)), TIMEOUT_MS).unref();
  });
