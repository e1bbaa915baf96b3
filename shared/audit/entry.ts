import * as z from "zod";
import { ULID } from "../platform/ulid.ts";
import { canonicalJson } from "./canonical.ts";
import type { AuditEvent } from "./event.ts";
import { redact } from "./redact.ts";

/** Format of an event type, in entries and filters. */
export const EVENT_TYPE = /^[a-z][A-Za-z0-9]{0,49}(\.[a-z][A-Za-z0-9]{0,49}){1,3}$/;

/** Maximum length of `before`, `after` and `details` as JSON, in characters. A longer value is replaced by its length. */
export const MAX_DETAIL_CHARACTERS = 16_384;
/** Maximum length of a name, so that with every character escaped it still fits into a row key (1,024 characters). */
const MAX_ACTOR_CHARACTERS = 256;
const MAX_TARGET_CHARACTERS = 1024;

/** An entry of the audit log, as stored and as the API returns it. */
export const AuditEntry = z
  .object({
    id: z.string().regex(ULID).meta({ description: "A ULID." }),
    occurredAt: z.string().meta({ description: "Time under which the entry is listed, ISO 8601." }),
    happenedAt: z.string().optional().meta({
      description:
        "Time of the event, if the log was already closed for that time. occurredAt is then the start of the first interval that was open. Absent otherwise.",
    }),
    eventType: z.string().meta({ example: "settings.changed" }).meta({ description: "Type of the event." }),
    outcome: z.enum(["success", "failure", "refused", "intent"]).meta({
      description:
        "`intent` is recorded before an action. The outcome of the action follows in another entry with the same requestId.",
    }),
    actor: z.string().meta({
      description: "The username; `anonymous`; `system` for timers and queues. An unknown username is only a hash.",
    }),
    address: z.string().optional().meta({ description: "The client's address; IPv6 as its /64." }),
    requestId: z.string(),
    target: z.object({ type: z.string().meta({ description: "Type of the target." }), id: z.string() }).optional(),
    before: z
      .unknown()
      .optional()
      .meta({ description: "State before the change. Absent when not applicable. Never a secret." }),
    after: z
      .unknown()
      .optional()
      .meta({ description: "State after the change. Absent when not applicable. Never a secret." }),
    details: z.unknown().optional().meta({ description: "Additional details." }),
    count: z.int().min(1).meta({
      description:
        "Number of occurrences. Repeated rejections for one reason within a minute are one entry; its details.requestIds has up to 20 of their request IDs.",
    }),
    lastOccurredAt: z.string().optional().meta({ description: "Time of the last occurrence. Absent if count is 1." }),
  })
  .meta({ id: "AuditEntry" });
export type AuditEntry = z.infer<typeof AuditEntry>;

/**
 * Creates the entry of an event.
 *
 * @param occurredAtMs - The time under which the entry is listed, in milliseconds since 1970.
 * @param happenedAtMs - The time of the event, if it is earlier than `occurredAtMs`.
 * @throws TypeError for an event type that is not like `thing.happened`: a programming error.
 */
export function entryOf(event: AuditEvent, id: string, occurredAtMs: number, happenedAtMs?: number): AuditEntry {
  if (!EVENT_TYPE.test(event.type)) throw new TypeError(`${event.type} is not an event type like thing.happened.`);
  return {
    id,
    occurredAt: new Date(occurredAtMs).toISOString(),
    ...(happenedAtMs === undefined ? {} : { happenedAt: new Date(happenedAtMs).toISOString() }),
    eventType: event.type,
    outcome: event.outcome,
    // Cutting the name can split a surrogate pair. UTF-8 can't encode half of one, and the name becomes part of a row key.
    actor: event.caller.actor.slice(0, MAX_ACTOR_CHARACTERS).toWellFormed(),
    ...(event.caller.address === undefined ? {} : { address: event.caller.address }),
    requestId: event.caller.requestId,
    ...(event.target === undefined
      ? {}
      : { target: { type: event.target.type, id: event.target.id.slice(0, MAX_TARGET_CHARACTERS) } }),
    ...(event.before === undefined ? {} : { before: storedDetail(event.before) }),
    ...(event.after === undefined ? {} : { after: storedDetail(event.after) }),
    ...detailsOf(event),
    count: 1,
  };
}

/** Returns the details with the protocol of the call, which stays visible if the details are too long. */
function detailsOf({ details, caller: { via } }: AuditEvent): Pick<AuditEntry, "details"> {
  if (details === undefined && via === undefined) return {};
  const stored = details === undefined ? {} : storedDetail(details);
  return { details: via === undefined ? stored : { ...(stored as object), via } };
}

/** Returns the redacted value, or a note with its length if it is too long. */
function storedDetail(value: unknown): unknown {
  const redacted = redact(value);
  const characters = canonicalJson(redacted).length;
  return characters > MAX_DETAIL_CHARACTERS ? { omitted: `${characters} characters of JSON` } : redacted;
}

/** Returns the stored text of an entry. The entry's hash is the SHA-256 of this text. */
export const entryText = (entry: AuditEntry): string => canonicalJson(entry);

/**
 * Parses the text of a row. Anyone with access to storage may have written the row, so the result is undefined if the text is
 * not an entry. The members are in the order of the schema.
 */
export function readEntry(text: string | undefined): AuditEntry | undefined {
  if (text === undefined) return undefined;
  try {
    const entry = AuditEntry.safeParse(JSON.parse(text)).data;
    return entry && Number.isFinite(Date.parse(entry.occurredAt)) ? entry : undefined;
  } catch {
    return undefined;
  }
}
