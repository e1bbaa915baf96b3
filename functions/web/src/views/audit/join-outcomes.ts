import type { Schemas } from "../../api/client.ts";

type Entry = Schemas["AuditEntry"];
/** An entry as a row of the list. `startedAt`: when its action started, if the list contains the entry of the start too. */
export type AuditRow = Entry & { startedAt?: string };

/**
 * Returns the rows of the list: an action whose start (intent) and outcome are both loaded is one row, with the details of both
 * entries. A start without an outcome stays, because the action may have failed without one.
 */
export function joinOutcomes(entries: readonly Entry[]): AuditRow[] {
  const intents = new Map(
    entries.filter(({ outcome }) => outcome === "intent").map((entry) => [actionOf(entry), entry]),
  );
  const joinedIntents = new Set<Entry>();
  // Newest first, so an outcome precedes its intent.
  const rows = entries.map((entry): AuditRow => {
    const intent = entry.outcome === "intent" ? undefined : intents.get(actionOf(entry));
    // If an action has several outcomes, only the newest one is joined with the intent.
    if (intent === undefined || joinedIntents.has(intent)) return entry;
    joinedIntents.add(intent);
    const { details, before = intent.before, after = intent.after } = entry;
    return {
      ...entry,
      startedAt: intent.occurredAt,
      details: { ...(intent.details as object), ...(details as object) },
      before,
      after,
    };
  });
  return rows.filter((row) => !joinedIntents.has(row));
}

/** Identifies an action: its request, its event and its target. */
const actionOf = ({ requestId, eventType, target }: Entry): string =>
  [requestId, eventType, target?.type, target?.id].join(" ");
