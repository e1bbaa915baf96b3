import type { ContainerApps } from "../../platform/azure/container-apps.ts";
import { unlessMissing } from "../../platform/azure/failure.ts";
import type { Clock } from "../../platform/runtime.ts";
import { MINUTE_MS } from "../../platform/time.ts";
import type { KeyVaultNames } from "../azure/key-vault-names.ts";
import { type KindOfConsumer, namesSecret } from "./consumer-kind.ts";

/** The platform reads secrets every half hour, and restarts all active revisions if one has changed. */
const TICK_MS = 30 * MINUTE_MS;

/**
 * Checks container apps. Their version is not visible, so the check uses the age of the replicas: once the platform must have
 * read the secret, none may be older than the version. https://learn.microsoft.com/azure/container-apps/manage-secrets
 */
export function containerAppConsumers(
  containerApps: ContainerApps,
  names: KeyVaultNames,
  clock: Clock,
): KindOfConsumer {
  return {
    canCheck: () => true,

    async check(consumer, _version, since) {
      const app = await unlessMissing(containerApps.app(consumer.id));
      const named = app?.secrets.map(({ keyVaultUrl }) => names.ofUrl(keyVaultUrl));
      const used = named?.filter((one) => namesSecret(one, consumer)) ?? [];
      if (used.length === 0) return { holds: "gone" };
      if (used.some((one) => one?.version !== undefined))
        return { holds: "old", problem: "It is pinned to a version." };
      if (clock.now().getTime() - since.getTime() < TICK_MS) return { holds: "unknown" };
      for (const revision of await containerApps.activeRevisions(consumer.id)) {
        for (const { name, createdOn } of await containerApps.replicas(consumer.id, revision.name)) {
          if (createdOn === undefined) return { holds: "unknown" };
          if (Date.parse(createdOn) > since.getTime()) continue;
          const problem = `The replica ${name} is older than the new version: the platform did not restart it. See whether its identity may read the secret.`;
          return { holds: "old", problem };
        }
      }
      return { holds: "new" };
    },
  };
}
