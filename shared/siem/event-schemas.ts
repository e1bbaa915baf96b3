import * as z from "zod";
import { AuditEntry } from "../audit/entry.ts";
import { EVENT_TYPES, type EventType } from "./event.ts";

/**
 * Schemas of the events of audit streams, as CloudEvents 1.0. Webhooks get batches of them, and event hubs each as an event. The
 * names of all members are part of the public contract with receivers.
 */

const instant = z.iso.datetime();

/** Data of a digest: the signed statement about the entries of ten minutes. */
const DigestData = z.object({
  interval: z.string().meta({ description: "Start of the interval of ten minutes.", example: "2026-11-21T10:40Z" }),
  number: z.int().meta({ description: "Number of the digest. Increases by one per interval.", example: 144 }),
  entries: z.int().meta({ description: "Number of entries of the interval." }),
  total: z.int().meta({ description: "Number of entries of all intervals up to this one." }),
  statement: z.string().meta({
    description:
      "Compact JWS (EdDSA). Its payload has `manifest`, the SHA-256 of 26 characters of ID and 32 bytes of hash per entry, by ID, and `previous`, the SHA-256 of the previous statement. The hash of an entry is the SHA-256 of its data by RFC 8785.",
  }),
});

const ViolationData = z.object({
  violationId: z.string().meta({ description: "ID of the violation: `<checkId>.<resourceId>`." }),
  checkId: z.string(),
  title: z.string().meta({ description: "Title of the check." }),
  severity: z.enum(["critical", "high", "medium", "low"]),
  resourceId: z.string().meta({ description: "ID of an asset, or name of a vault." }),
  resourceType: z.string().meta({ description: "Type of the resource." }),
  vaultName: z.string(),
  subscriptionId: z.string().nullable().meta({ description: "Subscription of the vault. Null if unknown." }),
  firstSeenAt: instant.meta({ description: "Time at which the violation was first found." }),
});

const EVENTS: Record<EventType, { data: z.ZodType; summary: string }> = {
  "lifecycle.audit.entry": { data: z.object(AuditEntry.shape), summary: "An audit entry was sealed" },
  "lifecycle.audit.digest": { data: DigestData, summary: "An interval of the audit log was sealed" },
  "lifecycle.violation.opened": { data: ViolationData, summary: "A violation was found" },
  "lifecycle.violation.resolved": { data: ViolationData, summary: "A violation was resolved" },
  "lifecycle.stream.test": {
    data: z.object({ message: z.string().meta({ description: "Fixed text." }) }),
    summary: "An administrator tested the stream",
  },
  "lifecycle.stream.stopping": {
    data: z.object({
      reason: z.enum(["deleted", "paused", "changed"]).meta({
        description: "`changed`: the stream gets another receiver or content.",
      }),
      actor: z.string().meta({ description: "Administrator who stops the stream.", example: "ada" }),
    }),
    summary: "An administrator stops the stream; without a later event, this is the last one",
  },
};

const isStreamEvent = (type: string): type is EventType => EVENT_TYPES.some((known) => known === type);

/** Returns the schema of an event. Undefined for an unknown type. */
export function streamEventOf(type: string): z.ZodObject | undefined {
  if (!isStreamEvent(type)) return undefined;
  return z.object({
    specversion: z.literal("1.0"),
    id: z.string().meta({ description: "Unique ID, the same for every attempt. For an audit entry, its ID." }),
    source: z.string().meta({ description: "PUBLIC_BASE_URL of the service, or `urn:credential-lifecycle`." }),
    subject: z.string().meta({ description: "`audit/streams/<ID>` of the stream." }),
    time: instant.meta({ description: "Time of the entry, the sealing, or the evaluation." }),
    datacontenttype: z.literal("application/json"),
    sequence: z.string().meta({
      description: "Text that sorts audit events, and violations, in the order of the stream (CloudEvents extension).",
    }),
    type: z.literal(type),
    data: EVENTS[type].data,
  });
}

/** Returns the types of all events with a title. */
export const streamEvents = (): { type: EventType; summary: string }[] =>
  EVENT_TYPES.map((type) => ({ type, summary: EVENTS[type].summary }));
