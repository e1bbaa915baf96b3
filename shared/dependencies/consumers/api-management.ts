import type { ApiManagement } from "../../azure/api-management.ts";
import { unlessMissing } from "../../azure/failure.ts";
import { MINUTE_MS } from "../../time.ts";
import type { KeyVaultNames } from "../azure/key-vault-names.ts";
import { type KindOfConsumer, namesIn, namesSecret } from "./kind.ts";

/** By how much the service's clock may be behind ours: it says itself when it read a secret. */
const CLOCKS_DIFFER_MS = 2 * MINUTE_MS;
const SUCCESS = "Success";
const LIST = "namedValues";

/** Named values of API Management: https://learn.microsoft.com/rest/api/apimanagement/named-value/refresh-secret */
export function apiManagementConsumers(apiManagement: ApiManagement, names: KeyVaultNames): KindOfConsumer {
  return {
    sees: ({ evidence }) => evidence.startsWith(`${LIST}/`),

    async act(consumer) {
      for (const name of namesIn(consumer, LIST)) await apiManagement.refreshSecret(`${consumer.id}/${LIST}/${name}`);
    },

    async look(consumer, _version, since) {
      let used = 0;
      for (const name of namesIn(consumer, LIST)) {
        const value = await unlessMissing(apiManagement.namedValue(`${consumer.id}/${LIST}/${name}`));
        if (!namesSecret(names.ofUrl(value?.keyVault?.secretIdentifier), consumer)) continue;
        used++;
        const { code, at } = value?.keyVault?.lastStatus ?? {};
        if (at === undefined) return { holds: "unknown" };
        if (Date.parse(at) < since.getTime() - CLOCKS_DIFFER_MS) return { holds: "old" };
        if (code !== SUCCESS) return { holds: "old", problem: `API Management could not read ${name}: ${code}.` };
      }
      return { holds: used === 0 ? "gone" : "new" };
    },
  };
}
