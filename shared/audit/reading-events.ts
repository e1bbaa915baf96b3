import type { Caller } from "../platform/http/endpoint.ts";
import { Problem } from "../platform/http/problem.ts";
import type { AuditEvent } from "./event.ts";
import type { CreatedPart, ExportRequest } from "./export/export.ts";
import type { AuditQuery } from "./list.ts";
import type { Writer } from "./write/writer.ts";

/** Creates the audit entries about reading the audit log itself: lists, verifications and exports. */

/** Formats a filter as the target of an entry. */
function filterText({ start, end, actor, eventType, search }: AuditQuery): string {
  const parts = [
    start && `start_date=${start.toISOString()}`,
    end && `end_date=${end.toISOString()}`,
    actor !== undefined && `actor=${actor.toLowerCase()}`,
    eventType !== undefined && `event_type=${eventType}`,
    // Without the text: a search must not find its own entry, and people may paste secrets.
    search !== undefined && "search",
  ];
  return parts.filter(Boolean).join("&") || "all";
}

/** Creates the event of a page that was read. Pages of one kind and filter share an entry with a count. */
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
 * Creates one part of an export and records the export in the log. The first part records the intent and the last part records
 * the outcome, both under the request id of the first part. If the last part is requested again, the outcome's count increases.
 *
 * @param createPart - Creates the part. Its argument is the id of the export, if this is the first part.
 */
export async function recordExport(
  { append, reading }: Pick<Writer, "append" | "reading">,
  { format, query, cursor }: ExportRequest,
  reader: Caller,
  createPart: (exportId: string) => Promise<CreatedPart>,
): Promise<CreatedPart> {
  const filter = filterText(query);
  const event = { type: "audit.exported", caller: reader, target: { type: "audit", id: reader.requestId } };
  if (cursor === undefined) await append({ ...event, outcome: "intent", details: { format, filter } });
  let part: CreatedPart;
  try {
    part = await createPart(reader.requestId);
  } catch (error) {
    const refused = error instanceof Problem;
    // A rejected cursor in a later part does not end the export.
    if (cursor === undefined || !refused) {
      const reason = refused ? error.code : error instanceof Error ? error.name : "unknown";
      await append({ ...event, outcome: refused ? "refused" : "failure", details: { format, filter, reason } });
    }
    throw error;
  }
  if (part.nextCursor !== null) return part;
  const { exportId, part: parts, entries } = part;
  await reading({
    ...event,
    caller: { ...reader, requestId: exportId },
    target: { type: "audit", id: exportId },
    outcome: "success",
    details: { format, filter, parts, ...(entries !== undefined && { entries }) },
  });
  return part;
}
