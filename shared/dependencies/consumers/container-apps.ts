import type { ContainerApps } from "../../platform/azure/container-apps.ts";
import { unlessMissing } from "../../platform/azure/failure.ts";
import type { Clock } from "../../platform/runtime.ts";
import { MINUTE_MS } from "../../platform/time.ts";
import type { KeyVaultNames } from "../azure/key-vault-names.ts";
import { type KindOfConsumer, namesSecret } from "./consumer-kind.ts";

/** The platform reads secrets every half hour, and restarts all active revisions if one has changed. */
const PLATFORM_REFRESH_MS = 30 * MINUTE_MS;

/**
 * Checks container apps. The version that an app uses is not visible, so the check uses the age of the app's replicas. Half an
 * hour after a new version, the platform must have restarted all replicas, so none may be older than the version. `holds` is
 * the version that the app has; `gone`: it no longer uses the secret.
 * https://learn.microsoft.com/azure/container-apps/manage-secrets
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
      if (clock.now().getTime() - since.getTime() < PLATFORM_REFRESH_MS) return { holds: "unknown" };
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
