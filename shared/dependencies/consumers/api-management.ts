import type { ApiManagement, NamedValue } from "../../platform/azure/api-management.ts";
import { unlessMissing } from "../../platform/azure/failure.ts";
import { MINUTE_MS } from "../../platform/time.ts";
import type { ConsumerCheck, PlannedConsumer } from "../../rotation/consumer.ts";
import type { KeyVaultNames } from "../azure/key-vault-names.ts";
import { type KindOfConsumer, namesIn, namesSecret, throwUnclear } from "./consumer-kind.ts";

/** Largest assumed difference between the clocks of this service and of API Management, which reports when it read a secret. */
const MAX_CLOCK_DIFFERENCE_MS = 2 * MINUTE_MS;
const SUCCESS = "Success";
/**
 * Matches codes of reads that fail until a user acts. Other failures can end by themselves, for example that of a busy vault.
 * Unknown codes count as temporary, so that a consumer that works soon is not reported as broken.
 */
const LASTING_CODE = /denied|forbidden|unauthorized|notfound|disabled|expired|invalid/i;
const LIST = "namedValues";

/**
 * Refreshes named values of API Management and checks whether they have the new version:
 * https://learn.microsoft.com/rest/api/apimanagement/named-value/refresh-secret. API Management reports only when it last read
 * a secret, not the version. So `refresh` returns these times as `mark`, the rotation stores them, and `check` compares:
 * another time proves a read after the refresh. `holds` is the version that the consumer has. `gone`: it no longer uses the
 * secret.
 */
export function apiManagementConsumers(apiManagement: ApiManagement, names: KeyVaultNames): KindOfConsumer {
  /** Returns the named values that still reference the secret without a version. */
  async function readNamedValues(consumer: PlannedConsumer): Promise<NamedValue[]> {
    const found: NamedValue[] = [];
    for (const name of namesIn(consumer, LIST)) {
      const value = await unlessMissing(apiManagement.namedValue(`${consumer.id}/${LIST}/${name}`));
      const named = names.ofUrl(value?.keyVault?.secretIdentifier);
      if (value && named?.version === undefined && namesSecret(named, consumer)) found.push(value);
    }
    return found;
  }

  return {
    canCheck: ({ evidence }) => evidence.startsWith(`${LIST}/`),

    async currentProblem(consumer) {
      const problems = (await readNamedValues(consumer)).flatMap(({ name, keyVault }) => {
        const { code } = keyVault?.lastStatus ?? {};
        return code === SUCCESS ? [] : { text: unreadText(name, code), isTemporary: !LASTING_CODE.test(code ?? "") };
      });
      return problems.find(({ isTemporary }) => !isTemporary) ?? problems[0];
    },

    async refresh(consumer) {
      const values = await readNamedValues(consumer);
      for (const [index, { id }] of values.entries()) {
        // A failure after the first refresh is unclear (some of the change was made), because one value was already refreshed.
        const refreshed = apiManagement.refreshSecret(id);
        await (index > 0 ? refreshed.catch(throwUnclear) : refreshed);
      }
      const lastReads = values.map(({ id, keyVault }) => [id.toLowerCase(), keyVault?.lastStatus?.at ?? ""]);
      return { changedMeanwhile: [], mark: JSON.stringify(Object.fromEntries(lastReads)) };
    },

    async check(consumer, _version, since) {
      const values = await readNamedValues(consumer);
      const readTimesBefore = consumer.mark === undefined ? {} : (JSON.parse(consumer.mark) as Record<string, string>);
      const checks = values.map(({ id, name, keyVault }): ConsumerCheck => {
        const { code, at } = keyVault?.lastStatus ?? {};
        if (at === undefined) return { holds: "unknown" };
        // Undefined if this service did not refresh the value. Then the time of the read is compared with the new version's
        // time `since`: clearly later means a read of the new version, clearly earlier of the old one.
        const readBefore = readTimesBefore[id.toLowerCase()];
        const afterSinceMs = Date.parse(at) - since.getTime();
        const readSince = readBefore === undefined ? afterSinceMs > MAX_CLOCK_DIFFERENCE_MS : at !== readBefore;
        if (!readSince)
          return { holds: readBefore !== undefined || afterSinceMs < -MAX_CLOCK_DIFFERENCE_MS ? "old" : "unknown" };
        if (code === SUCCESS) return { holds: "new" };
        return { holds: "old", problem: unreadText(name, code) };
      });
      return checks.find(({ holds }) => holds !== "new") ?? { holds: values.length === 0 ? "gone" : "new" };
    },
  };
}

const unreadText = (name: string, code: string | undefined): string =>
  `API Management could not read ${name}: ${code ?? "it has not tried yet"}.`;
