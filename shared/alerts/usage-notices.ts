import { unexpectedReaderId } from "../dependencies/logs/unexpected-readers.ts";
import type { Usage } from "../dependencies/logs/usage.ts";
import type { AutomationSource, PendingNotice } from "./automation-events.ts";

/** Events of unexpected reads in logs, once per reader and asset. */
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
              what: `was read by an unexpected identity: ${reader}`,
              why: `${operations.join(", ")}. No known role, access policy or reference covers ${reader}.`,
              done: "No changes were made.",
              safe: "",
              next: `Find out who ${reader} is. If the read was not authorized, rotate the secret and remove the access to ${vaultName}.`,
            }) as const;
          return { id: `reader.${unexpectedReaderId(found)}`, at, notice };
        });
      }
    },
  };
}
