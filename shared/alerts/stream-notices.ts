import type { Clock } from "../platform/runtime.ts";
import { MINUTE_MS } from "../platform/time.ts";
import type { AuditStreams } from "../siem/siem.ts";
import type { AutomationSource, PendingNotice } from "./automation-events.ts";

/** Time after which a failing stream causes an event. Shorter failures often end without a person. */
const FAILING_MS = 15 * MINUTE_MS;

/** Creates the source of events about audit streams that don't reach their receivers: one event for each time since which one fails. */
export function createStreamNotices(
  streams: Pick<AuditStreams, "all" | "states">,
  { clock }: { clock: Clock },
): AutomationSource {
  return {
    async *notices(type) {
      if (type !== "auditStreamFailing") return;
      const all = await streams.all();
      const names = new Map(all.map(({ streamId, name }) => [streamId, name]));
      const failing = (await streams.states(all)).filter(({ state }) => state === "failing" || state === "broken");
      yield failing.flatMap(({ streamId, state, failingSince, error, lag }): PendingNotice[] => {
        const at = failingSince ?? undefined;
        if (state === "failing" && at !== undefined && clock.now().getTime() - Date.parse(at) < FAILING_MS) return [];
        const entries = lag.entries === null ? "" : `${lag.entries} audit entries are waiting.`;
        const notice = async () =>
          ({
            title: names.get(streamId) ?? streamId,
            urgency: state === "broken" ? "critical" : "warning",
            what: "does not reach its receiver",
            why: error ?? "",
            done:
              state === "broken" ? "The service sends nothing to the receiver." : `The service tries again. ${entries}`,
            safe: "Entries wait until the retention of the audit log ends, and violations for 14 days.",
            next: "Fix the cause, then send a test event: see docs/siem.md.",
          }) as const;
        const id = state === "broken" ? `stream.${streamId}.broken.${at ?? ""}` : `stream.${streamId}.${at}`;
        return [{ id, ...(at !== undefined && { at }), notice }];
      });
    },
  };
}
