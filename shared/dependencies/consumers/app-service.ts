import type { AppService, KeyVaultReference } from "../../platform/azure/app-service.ts";
import { type CloudFailure, failure, unlessMissing } from "../../platform/azure/failure.ts";
import { resourceName } from "../../platform/azure/resource-id.ts";
import type { PlannedConsumer } from "../../rotation/consumer.ts";
import type { KeyVaultNames } from "../azure/key-vault-names.ts";
import { afterPart, type KindOfConsumer, NOTHING_CHANGED, namesSecret } from "./consumer-kind.ts";

const RESOLVED = "Resolved";

/**
 * Refreshes web apps, function apps and their slots. App Service refreshes references on request. Then a restart is needed,
 * because most apps read their settings only when they start. A restart alone refreshes nothing:
 * https://learn.microsoft.com/azure/app-service/app-service-key-vault-references#rotation
 */
export function appServiceConsumers(appService: AppService, names: KeyVaultNames): KindOfConsumer {
  /** Returns the unpinned references to the secret; undefined if the site does not exist. */
  async function references(consumer: PlannedConsumer): Promise<KeyVaultReference[] | undefined> {
    const found = await unlessMissing(appService.references(consumer.id));
    return found?.entries.filter(({ reference }) => {
      const named = names.ofReference(reference);
      return named?.version === undefined && namesSecret(named, consumer);
    });
  }

  return {
    canCheck: () => true,

    async refresh(consumer, { version, restart }) {
      await appService.refresh(consumer.id);
      if (!restart) return NOTHING_CHANGED;
      const held = await references(consumer).catch(afterPart);
      // After a restart the app would get no value for an unresolved reference, or the previous value.
      const late = held?.filter(
        ({ status, activeVersion = version }) => status !== RESOLVED || activeVersion !== version,
      );
      if (late?.length) throw notYet(consumer, late);
      await appService.restart(consumer.id).catch(afterPart);
      return NOTHING_CHANGED;
    },

    async check(consumer, version) {
      const held = await references(consumer);
      if (held === undefined || held.length === 0) return { holds: "gone" };
      const unresolved = held.find(({ status }) => status !== RESOLVED);
      if (unresolved) {
        return { holds: "old", problem: `App Service can't follow ${unresolved.name}: ${unresolved.status}.` };
      }
      const current = held.filter(({ activeVersion }) => activeVersion === version).length;
      if (current < held.length) return { holds: current === 0 ? "old" : "unknown" };
      const { availability } = await appService.state(consumer.id);
      const limited = availability !== undefined && availability !== "Normal";
      return limited ? { holds: "unknown", problem: `The app's availability is ${availability}.` } : { holds: "new" };
    },
  };
}

const notYet = ({ id }: PlannedConsumer, late: readonly KeyVaultReference[]): CloudFailure => {
  const target = { operation: "refresh the key vault references", resource: `site ${resourceName(id)}` };
  const names = late.map(({ name, status }) => (status === RESOLVED ? name : `${name} (${status})`)).join(", ");
  const reason = `App Service has not got the version of ${names}, and the app was not restarted`;
  return failure("timedOut", target, reason, {
    remedy: "See the reference's status in the portal, and whether the site's identity may read the secret.",
  });
};
