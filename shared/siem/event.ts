import type { SealedItem, SealedPosition } from "../audit/sealed-log.ts";
import type { ViolationChange, ViolationPosition } from "../compliance/violation-changes.ts";

/** Events of audit streams, in the forms that receivers get: CloudEvents, and records of a table of Azure Monitor. */

export const EVENT_TYPES = [
  "lifecycle.audit.entry",
  "lifecycle.audit.digest",
  "lifecycle.violation.opened",
  "lifecycle.violation.resolved",
  "lifecycle.stream.test",
  "lifecycle.stream.stopping",
] as const;
export type EventType = (typeof EVENT_TYPES)[number];

/** An event to send. */
export interface StreamEvent {
  /** The same for every attempt, so that receivers can detect duplicates. */
  id: string;
  type: EventType;
  /** ISO 8601. */
  time: string;
  /** Texts that sort events of one kind of content in the order of the stream. */
  sequence: string;
  /** The event's data as JSON. The data of an entry is the text that its digest covers. */
  text: string;
  /** The columns of a table that people filter by. */
  columns: { Actor?: string; Action?: string; Outcome?: string; Target?: string };
  /** The position of the stream after the event. */
  next: { audit?: SealedPosition; violations?: ViolationPosition };
}

/** Returns the event of an audit entry or a digest. */
export function auditEvent(item: SealedItem): StreamEvent {
  const { next } = item;
  if (item.kind === "digest") {
    const { interval, number, entries, total, statement, sealedAt } = item;
    return {
      id: `digest.${interval}`,
      type: "lifecycle.audit.digest",
      time: sealedAt,
      // `~` sorts after the ID of every entry.
      sequence: `${interval.slice(0, 10)}|${interval.slice(11, 16)}|~`,
      text: JSON.stringify({ interval, number, entries, total, statement }),
      columns: {},
      next: { audit: next },
    };
  }
  const { id, text, at, rowKey } = item;
  const { actor, eventType, outcome, target } = JSON.parse(text) as Record<string, unknown>;
  const { type, id: targetId } = (target ?? {}) as Record<string, unknown>;
  return {
    id,
    type: "lifecycle.audit.entry",
    time: at,
    sequence: `${at.slice(0, 10)}|${rowKey}`,
    text,
    columns: {
      Actor: String(actor),
      Action: String(eventType),
      Outcome: String(outcome),
      ...(target !== undefined && { Target: `${type}/${targetId}` }),
    },
    next: { audit: next },
  };
}

/** Returns the event of a violation that was opened or resolved. */
export function violationEvent({ id, sequence, change, at, next, ...violation }: ViolationChange): StreamEvent {
  const { subscriptionId, ...data } = violation;
  return {
    id,
    type: `lifecycle.violation.${change}`,
    time: at,
    sequence,
    text: JSON.stringify({ ...data, subscriptionId: subscriptionId || null }),
    columns: {
      Action: violation.checkId,
      Outcome: change,
      Target: `${violation.resourceType}/${violation.resourceId}`,
    },
    next: { violations: next },
  };
}

/** Returns the event of a test. */
export const testEvent = (id: string, now: Date): StreamEvent => ({
  id,
  type: "lifecycle.stream.test",
  time: now.toISOString(),
  sequence: now.toISOString(),
  text: JSON.stringify({ message: "Test of the audit stream." }),
  columns: {},
  next: {},
});

/** Why a stream stops sending to a receiver. `changed`: it sends other content, or to another receiver. */
export type StopReason = "deleted" | "paused" | "changed";

/** Returns the event that tells a receiver that an administrator stops its stream. */
export const stoppingEvent = (id: string, now: Date, reason: StopReason, actor: string): StreamEvent => ({
  id,
  type: "lifecycle.stream.stopping",
  time: now.toISOString(),
  sequence: now.toISOString(),
  text: JSON.stringify({ reason, actor }),
  columns: { Actor: actor, Action: "auditStream.stopping", Outcome: reason },
  next: {},
});

/**
 * Returns an event as a CloudEvent 1.0 in JSON, with the extension `sequence`:
 * https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/formats/json-format.md
 *
 * @param source - Public address of the service, or a URN.
 */
export function cloudEventText(
  { id, type, time, sequence, text }: StreamEvent,
  streamId: string,
  source: string,
): string {
  const attributes = {
    specversion: "1.0",
    id,
    type,
    source,
    subject: `audit/streams/${streamId}`,
    time,
    datacontenttype: "application/json",
    sequence,
  };
  // The stored text is inserted as it is, so that receivers that keep the JSON keep what the digest covers.
  return `${JSON.stringify(attributes).slice(0, -1)},"data":${text}}`;
}

/** Characters of a column. A value has at most 64 KB in Azure Monitor, and a character up to 3 bytes in UTF-8. */
const COLUMN_CHARACTERS = 20_000;

/** Returns an event as a record of a table of Azure Monitor. Long data continues in further columns. */
export function recordOf(
  { id, type, time, sequence, text, columns }: StreamEvent,
  streamId: string,
): Record<string, string> {
  const [data = "", second, third] = partsOf(text);
  return {
    TimeGenerated: time,
    OccurredAt: time,
    EventId: id,
    EventType: type,
    Sequence: sequence,
    StreamId: streamId,
    ...columns,
    Data: data,
    ...(second !== undefined && { DataPart2: second }),
    ...(third !== undefined && { DataPart3: third }),
  };
}

/** Splits a text, but no surrogate pair. An entry has at most 52,000 characters, so it has at most three parts. */
function partsOf(text: string): string[] {
  const parts: string[] = [];
  for (let start = 0; start < text.length; ) {
    let end = Math.min(start + COLUMN_CHARACTERS, text.length);
    if (end < text.length && /[\uD800-\uDBFF]/.test(text[end - 1]!)) end--;
    parts.push(text.slice(start, end));
    start = end;
  }
  return parts;
}
