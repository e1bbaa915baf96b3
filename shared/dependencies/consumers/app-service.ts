import type { AppService, KeyVaultReference } from "../../platform/azure/app-service.ts";
import { type CloudFailure, failure, unlessMissing } from "../../platform/azure/failure.ts";
import { resourceName } from "../../platform/azure/resource-id.ts";
import type { PlannedConsumer } from "../../rotation/consumer.ts";
import type { KeyVaultNames } from "../azure/key-vault-names.ts";
import { type KindOfConsumer, NOTHING_OVERWRITTEN, namesSecret, throwUnclear } from "./consumer-kind.ts";

const RESOLVED = "Resolved";
/** Statuses that end without an action of a user. */
const TEMPORARY_STATUSES = ["Initialized", "FetchTimedOut"];

/**
 * Refreshes web apps, function apps and their slots. App Service refreshes references on request. Then a restart is needed,
 * because most apps read their settings only when they start. A restart alone refreshes nothing:
 * https://learn.microsoft.com/azure/app-service/app-service-key-vault-references#rotation. `holds` is the version that the app
 * has; `gone`: it no longer uses the secret.
 */
export function appServiceConsumers(appService: AppService, names: KeyVaultNames): KindOfConsumer {
  /** Returns the references to the secret; undefined if the site does not exist. */
  async function allReferences(consumer: PlannedConsumer): Promise<KeyVaultReference[] | undefined> {
    const list = await unlessMissing(appService.references(consumer.id));
    return list?.entries.filter(({ reference }) => namesSecret(names.ofReference(reference), consumer));
  }

  /** Returns the unpinned references to the secret; undefined if the site does not exist. */
  async function unpinnedReferences(consumer: PlannedConsumer): Promise<KeyVaultReference[] | undefined> {
    const all = await allReferences(consumer);
    return all?.filter(({ reference }) => names.ofReference(reference)?.version === undefined);
  }

  const unresolvedText = (references: readonly KeyVaultReference[]): string | undefined => {
    const unresolved = references.find(({ status }) => status !== RESOLVED);
    return unresolved && `App Service can't follow ${unresolved.name}: ${unresolved.status}.`;
  };

  return {
    canCheck: () => true,

    async currentProblem(consumer) {
      const all = (await allReferences(consumer)) ?? [];
      const lasting = unresolvedText(all.filter(({ status }) => !TEMPORARY_STATUSES.includes(status)));
      if (lasting !== undefined) return { text: lasting, isTemporary: false };
      // A reference with an active version was resolved before, so the app can use the secret.
      const temporary = unresolvedText(all.filter(({ activeVersion }) => activeVersion === undefined));
      return temporary === undefined ? undefined : { text: temporary, isTemporary: true };
    },

    async refresh(consumer, { version, restart }) {
      await appService.refresh(consumer.id);
      if (!restart) return NOTHING_OVERWRITTEN;
      const references = await unpinnedReferences(consumer).catch(throwUnclear);
      // After a restart the app would get no value for an unresolved reference, or the previous value. A reference whose
      // version App Service does not report counts as current.
      const outdated = references?.filter(
        ({ status, activeVersion = version }) => status !== RESOLVED || activeVersion !== version,
      );
      if (outdated?.length) throw notRefreshed(consumer, outdated);
      await appService.restart(consumer.id).catch(throwUnclear);
      return NOTHING_OVERWRITTEN;
    },

    async check(consumer, version) {
      const references = await unpinnedReferences(consumer);
      if (references === undefined || references.length === 0) return { holds: "gone" };
      const problem = unresolvedText(references);
      if (problem !== undefined) return { holds: "old", problem };
      // If some settings have the new version and some the old one, the value that the app uses is unknown.
      const updated = references.filter(({ activeVersion }) => activeVersion === version).length;
      if (updated < references.length) return { holds: updated === 0 ? "old" : "unknown" };
      // The app may not have started with the new value.
      const { availability } = await appService.state(consumer.id);
      const limited = availability !== undefined && availability !== "Normal";
      return limited ? { holds: "unknown", problem: `The app's availability is ${availability}.` } : { holds: "new" };
    },
  };
}

/** Returns the failure for references that App Service has not refreshed yet. */
const notRefreshed = ({ id }: PlannedConsumer, outdated: readonly KeyVaultReference[]): CloudFailure => {
  const target = { operation: "refresh the key vault references", resource: `site ${resourceName(id)}` };
  const names = outdated.map(({ name, status }) => (status === RESOLVED ? name : `${name} (${status})`)).join(", ");
  const reason = `App Service has not got the version of ${names}, and the app was not restarted`;
  return failure("timedOut", target, reason, {
    remedy: "See the reference's status in the portal, and whether the site's identity may read the secret.",
  });
};
