import * as z from "zod";
import { entityTag } from "../platform/http/conditional-requests.ts";
import { EXAMPLE_ULID } from "../platform/http/member-descriptions.ts";
import type { Row } from "../platform/storage/entity.ts";
import { type ChangedStream, CONTENTS, DESTINATIONS, type StreamRecord, type StreamState } from "./stream.ts";

/** API schemas and views of audit streams. */

const instant = z.iso.datetime();

export const streamParams = z.strictObject({
  stream_id: z.string().meta({ description: "ID of the stream.", example: EXAMPLE_ULID }),
});

const destination = z.enum(DESTINATIONS).meta({
  description:
    "`webhook`: CloudEvents 1.0 in batches, signed as Standard Webhooks. `logsIngestion`: a table of Log Analytics. `eventHubs`: an event hub.",
});
/** The members that a user can set and change. */
const fields = {
  name: z.string().trim().min(1).max(100).meta({ description: "Unique name.", example: "Sentinel" }),
  content: z.array(z.enum(CONTENTS)).min(1).meta({
    description: "`audit`: audit entries and their digests. `violations`: violations that were opened or resolved.",
  }),
  enabled: z.boolean().meta({ description: "False pauses the stream. It later continues where it stopped." }),
  webhookUrl: z.url().max(4096).meta({
    writeOnly: true,
    description: "For `webhook`: URL of the receiver. Write-only, stored in the service's key vault.",
  }),
  endpoint: z.url().max(256).meta({
    description:
      "For `logsIngestion`: address of the data collection endpoint. For `eventHubs`: address of the namespace.",
    example: "https://dce-siem-1a2b.westeurope-1.ingest.monitor.azure.com",
  }),
  ruleId: z
    .string()
    .regex(
      /^dcr-[0-9a-f]{32}$/,
      "must be the immutable ID of a data collection rule, such as dcr-0123456789abcdef0123456789abcdef",
    )
    .meta({ description: "For `logsIngestion`: immutable ID of the data collection rule." }),
  streamName: z
    .string()
    .regex(
      /^Custom-[A-Za-z0-9_]{1,100}$/,
      "must be the name of a stream of the rule, such as Custom-CredentialLifecycle_CL",
    )
    .meta({
      description: "For `logsIngestion`: stream of the data collection rule.",
      example: "Custom-CredentialLifecycle_CL",
    }),
  eventHub: z
    .string()
    .regex(/^[A-Za-z0-9][A-Za-z0-9._-]{0,255}$/, "must be the name of an event hub")
    .meta({ description: "For `eventHubs`: name of the event hub.", example: "audit" }),
};
const { name, content, enabled, ...address } = fields;
const optionalAddress = z.object(address).partial().shape;

export const NewAuditStream = z
  .strictObject({
    name,
    destination,
    content: content.default([...CONTENTS]),
    enabled: enabled.default(true),
    from: z.enum(["now", "beginning"]).default("now").meta({
      description:
        "`now`: starts with the next sealed entry. `beginning`: starts with the oldest entry of the audit log.",
    }),
    ...optionalAddress,
  })
  .meta({ id: "NewAuditStream" });
export type NewAuditStream = z.infer<typeof NewAuditStream>;

export const AuditStreamChange = z
  .strictObject(z.object(fields).partial().shape)
  .meta({ id: "AuditStreamChange", description: "Any subset of the fields. The destination's kind can't be changed." });
export type AuditStreamChange = z.infer<typeof AuditStreamChange>;

const AuditStreamLag = z
  .object({
    entries: z
      .int()
      .nullable()
      .meta({ description: "Number of sealed audit entries that are not sent. Null if unknown." }),
    since: instant.nullable().meta({
      description:
        "Start of the oldest interval of ten minutes, or time of the oldest violation, that is not completely sent. Null if everything is sent.",
    }),
  })
  .meta({ id: "AuditStreamLag", description: "Events that are ready but not sent." });

const viewFields = {
  id: z.string(),
  name: z.string().meta({ description: "Unique name.", example: "Sentinel" }),
  destination,
  content: z.array(z.enum(CONTENTS)).meta({ description: "Kinds of events that the stream sends." }),
  enabled: z.boolean(),
  host: z.string().nullable().meta({
    description: "Host of `webhookUrl`. Null for other destinations. The URL is never returned.",
    example: "siem.acme.example",
  }),
  endpoint: z.string().nullable().meta({
    description: "Address of the data collection endpoint or the namespace. Null for webhooks.",
    example: "https://dce-siem-1a2b.westeurope-1.ingest.monitor.azure.com",
  }),
  ruleId: z.string().nullable().meta({
    description: "Immutable ID of the data collection rule. Null for other destinations.",
    example: "dcr-0123456789abcdef0123456789abcdef",
  }),
  streamName: z.string().nullable().meta({
    description: "Stream of the data collection rule. Null for other destinations.",
    example: "Custom-CredentialLifecycle_CL",
  }),
  eventHub: z
    .string()
    .nullable()
    .meta({ description: "Name of the event hub. Null for other destinations.", example: "audit" }),
  state: z.enum(["active", "failing", "disabled", "broken"]).meta({
    description:
      "`failing`: the receiver did not accept the last batch, or the log is not sealed; the service tries again. `broken`: another program changed the position of the stream or the sealed log; nothing is sent.",
  }),
  error: z.string().nullable().meta({
    description: "Why the last attempt failed. Null if it did not fail.",
    example: "The receiver returned 503.",
  }),
  failingSince: instant
    .nullable()
    .meta({ description: "Time of the first failed attempt, or of the last sealed entry. Null if it does not fail." }),
  nextAttemptAt: instant
    .nullable()
    .meta({ description: "Earliest time of the next attempt. Null if the last one succeeded." }),
  lastSentAt: instant
    .nullable()
    .meta({ description: "Time at which the receiver last accepted events. Null if never." }),
  sent: z.int().meta({ description: "Number of events that the receiver accepted, with duplicates.", example: 1440 }),
  lag: AuditStreamLag,
  createdAt: instant,
  createdBy: z.string(),
  updatedAt: instant,
  updatedBy: z.string(),
  etag: z.string(),
};
export const AuditStream = z.object(viewFields).meta({ id: "AuditStream" });
export const AuditStreamList = z.object({ items: z.array(AuditStream) }).meta({ id: "AuditStreamList" });
export const AuditStreamWithSecret = z
  .object({
    ...viewFields,
    webhookSecret: z.string().optional().meta({
      description:
        "Key that signs the stream's webhooks, as in the Standard Webhooks specification. Returned only by the request that created the key.",
      example: "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
    }),
  })
  .meta({ id: "AuditStreamWithSecret" });
export const AuditStreamTest = z
  .object({
    delivered: z.boolean().meta({ description: "Whether the receiver accepted the test event." }),
    message: z
      .string()
      .meta({ description: "Result as a sentence.", example: "The receiver accepted the test event." }),
  })
  .meta({ id: "AuditStreamTest" });

export const streamView = (
  stream: Row<StreamRecord>,
  { state, error, progress, failingSince, lag }: StreamState,
): z.infer<typeof AuditStream> => ({
  id: stream.streamId,
  name: stream.name,
  destination: stream.destination,
  content: stream.content,
  enabled: stream.enabled,
  host: stream.host ?? null,
  endpoint: stream.endpoint ?? null,
  ruleId: stream.ruleId ?? null,
  streamName: stream.streamName ?? null,
  eventHub: stream.eventHub ?? null,
  state,
  error,
  failingSince,
  nextAttemptAt: progress?.nextAttemptAt ?? null,
  lastSentAt: progress?.lastSentAt ?? null,
  sent: progress?.sent ?? 0,
  lag,
  createdAt: stream.createdAt,
  createdBy: stream.createdBy,
  updatedAt: stream.updatedAt,
  updatedBy: stream.updatedBy,
  etag: entityTag(stream),
});

export const changedStreamView = (
  { stream, webhookSecret }: ChangedStream,
  state: StreamState,
): z.infer<typeof AuditStreamWithSecret> => ({
  ...streamView(stream, state),
  ...(webhookSecret !== undefined && { webhookSecret }),
});

export const testView = (reason: string | undefined): z.infer<typeof AuditStreamTest> => ({
  delivered: reason === undefined,
  message: reason ?? "The receiver accepted the test event.",
});
