import { unexpectedReaderId } from "../dependencies/logs/unexpected-readers.ts";
import type { Usage } from "../dependencies/logs/usage.ts";
import type { AutomationSource, PendingNotice } from "./automation-events.ts";

/**
 * Creates the source of events about reads by unexpected identities, found in the vaults' logs: one per reader and asset.
 * `notice` creates the text of an event; rules call it only for events that they have not notified of.
 */
export function createUsageNotices(usage: Pick<Usage, "unexpected">): AutomationSource {
  return {
    async *notices(type, from) {
      if (type !== "unexpectedReader") return;
      for await (const page of usage.unexpected(from)) {
        yield page.map((unexpectedRead): PendingNotice => {
          const { at, vaultName, name, reader, operations } = unexpectedRead;
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
          return { id: `reader.${unexpectedReaderId(unexpectedRead)}`, at, notice };
        });
      }
    },
  };
}
