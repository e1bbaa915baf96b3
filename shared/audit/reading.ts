import type { Caller } from "../platform/http/endpoint.ts";
import { Problem } from "../platform/http/problem.ts";
import type { AuditEvent } from "./event.ts";
import type { ExportRequest, MadePart } from "./export/export.ts";
import type { AuditQuery } from "./list.ts";
import type { Writer } from "./write/writer.ts";

/** Who reads the log is entered like everything else. */

/** A filter as the target of an entry: what was read. */
function filterText({ start, end, actor, eventType }: AuditQuery): string {
  const parts = [
    start && `start_date=${start.toISOString()}`,
    end && `end_date=${end.toISOString()}`,
    actor !== undefined && `actor=${actor.toLowerCase()}`,
    eventType !== undefined && `event_type=${eventType}`,
  ];
  return parts.filter(Boolean).join("&") || "all";
}

/** One page read: pages of one kind and filter are one entry with a count. */
export const readingEvent = (
  type: "audit.listed" | "audit.verified",
  reader: Caller,
  query: AuditQuery,
): AuditEvent => ({
  type,
  caller: reader,
  outcome: "success",
  target: { type: "audit", id: filterText(query) },
});

/**
 * Makes one part of an export: enters the intent before the first one, and the outcome with the last one, both under the
 * request id of the first. A part that is asked for again after the last one adds to the outcome's count.
 */
export async function enterExport(
  { append, reading }: Pick<Writer, "append" | "reading">,
  { format, query, cursor }: ExportRequest,
  reader: Caller,
  make: (exportId: string) => Promise<MadePart>,
): Promise<MadePart> {
  const filter = filterText(query);
  const event = { type: "audit.exported", caller: reader, target: { type: "audit", id: reader.requestId } };
  if (cursor === undefined) await append({ ...event, outcome: "intent", details: { format, filter } });
  let made: MadePart;
  try {
    made = await make(reader.requestId);
  } catch (error) {
    const refused = error instanceof Problem;
    // A cursor that is refused later on ends no export.
    if (cursor === undefined || !refused) {
      const reason = refused ? error.code : error instanceof Error ? error.name : "unknown";
      await append({ ...event, outcome: refused ? "refused" : "failure", details: { format, filter, reason } });
    }
    throw error;
  }
  if (made.nextCursor !== null) return made;
  const { exportId, part: parts, entries } = made;
  await reading({
    ...event,
    caller: { ...reader, requestId: exportId },
    target: { type: "audit", id: exportId },
    outcome: "success",
    details: { format, filter, parts, ...(entries !== undefined && { entries }) },
  });
  return made;
}
