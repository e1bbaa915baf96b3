import { randomUUID } from "node:crypto";
import type { AppConfiguration } from "../shared/platform/azure/app-configuration.ts";
import type { Identity } from "../shared/platform/azure/identity.ts";
import type { MailSender } from "../shared/platform/azure/mail.ts";
import type { ResourceManager } from "../shared/platform/azure/resource-manager.ts";
import type { ServiceKeyVault } from "../shared/platform/azure/service-key-vault.ts";
import { DEPENDENCIES } from "../shared/platform/http/health.ts";
import type { Clock } from "../shared/platform/runtime.ts";

type DependencyName = (typeof DEPENDENCIES)[number];

export interface Dependency {
  name: DependencyName;
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
  /** Ask for something small. */
  tables: () => Promise<unknown>;
  queues: () => Promise<unknown>;
  identity: Identity;
  resourceManager: ResourceManager;
  serviceKeyVault?: ServiceKeyVault | undefined;
  appConfiguration?: AppConfiguration | undefined;
  mail?: MailSender | undefined;
  clock: Clock;
}): Health {
  let last: { at: number; checks: Promise<Dependency[]> } | undefined;
  const { serviceKeyVault, appConfiguration, mail } = deps;
  const probes: Partial<Record<DependencyName, () => Promise<unknown>>> = {
    tables: deps.tables,
    queues: deps.queues,
    identity: () => deps.identity.describe(),
    resourceManager: () => deps.resourceManager.subscriptions(AbortSignal.timeout(TIMEOUT_MS)),
    // A secret that is not there: to be told so takes the same permission as to read one.
    ...(serviceKeyVault && { serviceKeyVault: () => serviceKeyVault.readTags("health-check") }),
    ...(appConfiguration && { appConfiguration: () => appConfiguration.read() }),
    ...(mail && { mail: () => askOfNoMail(mail) }),
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
        detail: error instanceof Error ? error.message.slice(0, 500) : "failed",
        milliseconds: milliseconds(),
      };
    }
  }
  return {
    async check() {
      const now = deps.clock.now().getTime();
      if (!last || now - last.at > REMEMBERED_MS) {
        last = {
          at: now,
          checks: Promise.all(DEPENDENCIES.flatMap((name) => (probes[name] ? [probe(name, probes[name])] : []))),
        };
      }
      return await last.checks;
    },
  };
}

/** The state of a mail that was never sent: no mail costs less to ask for, and it takes the permission to send. */
async function askOfNoMail(mail: MailSender): Promise<void> {
  const answer = await mail.outcome(randomUUID());
  if ("reason" in answer) throw new Error(answer.reason);
}

const timeout = (): Promise<never> =>
  new Promise((_, reject) => {
    setTimeout(() => reject(new Error(`no answer within ${TIMEOUT_MS / 1000} seconds`)), TIMEOUT_MS).unref();
  });
