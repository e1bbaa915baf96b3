import { idOfUnexpected } from "../dependencies/logs/unexpected.ts";
import type { Usage } from "../dependencies/logs/usage.ts";
import type { AutomationSource, PendingNotice } from "./automation.ts";

/** What alerts tell of logs: who has read an asset and was not expected to. Once for each reader and asset. */
export function createUsageNotices(usage: Pick<Usage, "unexpected">): AutomationSource {
  return {
    async *notices(type, from) {
      if (type !== "unexpectedReader") return;
      for await (const page of usage.unexpected(from)) {
        yield page.map((found): PendingNotice => {
          const { at, vaultName, name, reader, operations } = found;
          const notice = async () =>
            ({
              vaultName,
              title: `${vaultName}/${name}`,
              urgency: "warning",
              what: `was read by somebody whom nobody expected: ${reader}`,
              why: `${operations.join(", ")}; no role, access policy or reference that is known names ${reader}.`,
              done: "Nothing was changed.",
              safe: "",
              next: `See who ${reader} is. If nobody knows, rotate the secret and take the access to ${vaultName} away.`,
            }) as const;
          return { id: `reader.${idOfUnexpected(found)}`, at, notice };
        });
      }
    },
  };
}
