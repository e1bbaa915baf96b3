import * as z from "zod";
import { ULID } from "../platform/ulid.ts";
import { canonicalJson } from "./canonical.ts";
import type { AuditEvent } from "./event.ts";
import { redact } from "./redact.ts";

/** What an event's type looks like, in entries and as a filter. */
export const EVENT_TYPE = /^[a-z][A-Za-z0-9]{0,49}(\.[a-z][A-Za-z0-9]{0,49}){1,3}$/;

/** Longest JSON of `before`, `after` and `details`, in characters; an entry says so where it left more out. */
export const MAX_DETAIL_CHARACTERS = 16_384;
/** A name in any script still makes a legal row key (at most 1,024 characters) when every character is escaped. */
const MAX_ACTOR_CHARACTERS = 256;
const MAX_TARGET_CHARACTERS = 1024;

export const AuditEntry = z
  .object({
    id: z.string().regex(ULID).meta({ description: "A ULID." }),
    occurredAt: z.string().meta({ description: "The instant it was entered." }),
    happenedAt: z.string().optional().meta({
      description:
        "When it happened, where the log was closed for that time already; occurredAt is then the next instant that was not. Before its interval is over, only a stranger with access to storage closes it.",
    }),
    eventType: z.string().meta({ example: "settings.changed" }).meta({ description: "What happened." }),
    outcome: z
      .enum(["success", "failure", "refused", "intent"])
      .meta({ description: "intent: entered before an outside effect; its outcome follows under the same requestId." }),
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
    count: z
      .int()
      .min(1)
      .meta({ description: "Number of occurrences. Repeated rejections within a minute are one entry." }),
    lastOccurredAt: z.string().optional().meta({ description: "The last repeat, where count is above 1." }),
  })
  .meta({ id: "AuditEntry" });
export type AuditEntry = z.infer<typeof AuditEntry>;

/**
 * @param happenedAt - Where it is not entered under its own instant, in milliseconds since 1970.
 * @throws TypeError for an event type that is not `thing.happened`: a mistake of the code that tells it.
 */
export function entryOf(event: AuditEvent, id: string, at: number, happenedAt?: number): AuditEntry {
  if (!EVENT_TYPE.test(event.type)) throw new TypeError(`${event.type} is not an event type like thing.happened.`);
  return {
    id,
    occurredAt: new Date(at).toISOString(),
    ...(happenedAt === undefined ? {} : { happenedAt: new Date(happenedAt).toISOString() }),
    eventType: event.type,
    outcome: event.outcome,
    actor: event.caller.actor.slice(0, MAX_ACTOR_CHARACTERS).toWellFormed(),
    ...(event.caller.address === undefined ? {} : { address: event.caller.address }),
    requestId: event.caller.requestId,
    ...(event.target === undefined
      ? {}
      : { target: { type: event.target.type, id: event.target.id.slice(0, MAX_TARGET_CHARACTERS) } }),
    ...(event.before === undefined ? {} : { before: detail(event.before) }),
    ...(event.after === undefined ? {} : { after: detail(event.after) }),
    ...(event.details === undefined ? {} : { details: detail(event.details) }),
    count: 1,
  };
}

function detail(value: unknown): unknown {
  const shown = redact(value);
  const characters = canonicalJson(shown).length;
  return characters > MAX_DETAIL_CHARACTERS ? { omitted: `${characters} characters of JSON` } : shown;
}

/** An entry as a row keeps it; its hash is the SHA-256 of this text. */
export const entryText = (entry: AuditEntry): string => canonicalJson(entry);

/**
 * The entry of a row that anyone may have written, its members in the order of the description; undefined when the text is
 * none.
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
