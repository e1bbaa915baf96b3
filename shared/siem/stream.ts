import * as z from "zod";
import { entity, type Row } from "../platform/storage/entity.ts";
import { StorageCorrupt, type Tables } from "../platform/storage/tables.ts";
import { secretReference } from "../secrets/stored-secrets.ts";

/**
 * Rows of audit streams. A stream sends audit entries, their digests and changes of violations to a SIEM: a webhook, a table of
 * Azure Monitor, or an event hub. All rows are in one partition: the streams, their progress, and the rows of their secrets.
 */

export const DESTINATIONS = ["webhook", "logsIngestion", "eventHubs"] as const;
/** `audit`: audit entries and digests. `violations`: violations that were opened or resolved. */
export const CONTENTS = ["audit", "violations"] as const;

/** Maximum number of streams. All streams run in one execution of a timer. */
export const MAX_STREAMS = 10;

const stream = z.object({
  streamId: z.string(),
  name: z.string(),
  destination: z.enum(DESTINATIONS),
  content: z.array(z.enum(CONTENTS)),
  enabled: z.boolean(),
  /** Webhook: the host of its URL, and the secret with the URL and the signing keys. */
  host: z.string().optional(),
  secret: secretReference.optional(),
  /** Address of the data collection endpoint or of the Event Hubs namespace. */
  endpoint: z.string().optional(),
  ruleId: z.string().optional(),
  streamName: z.string().optional(),
  eventHub: z.string().optional(),
  createdAt: z.string(),
  createdBy: z.string(),
  updatedAt: z.string(),
  updatedBy: z.string(),
});
export type StreamRecord = z.infer<typeof stream>;

const progress = z.object({
  streamId: z.string(),
  /** The position in the sealed audit log (shared/audit/sealed-log.ts). */
  audit: z.object({
    interval: z.string(),
    after: z.object({ interval: z.string(), rowKey: z.string() }).optional(),
    entries: z.int(),
  }),
  /** The position among the changes of violations (shared/compliance/violation-changes.ts). */
  violations: z.object({ key: z.string(), index: z.int() }),
  /** Number of events that the receiver accepted. */
  sent: z.int(),
  lastSentAt: z.string().optional(),
  /** The worker that holds the lease. */
  worker: z.string().optional(),
  /** Number of failed attempts since the last success. */
  failures: z.int(),
  failingSince: z.string().optional(),
  /** Why the last attempt failed. Never contains a part of a URL except its host. */
  error: z.string().optional(),
  /** The last attempt stopped because another program changed the sealed log. */
  logChanged: z.literal(true).optional(),
  nextAttemptAt: z.string().optional(),
});
export type ProgressRecord = z.infer<typeof progress>;

const TABLE = "AuditStreams";
export const STREAMS = "streams";
/**
 * Signed, because they decide where the audit log is sent. `listed`: the removal of a stream, and the return of a deleted or changed
 * one, are detected (shared/signed-rows/ranges.ts).
 */
export const Streams = entity(TABLE, stream, { signed: true, listed: true });
/**
 * Signed, so that nobody who can only write tables can make a stream skip entries. Not listed, because it changes with each batch:
 * someone who puts an earlier state back makes the stream send events again.
 */
export const Progress = entity(TABLE, progress, { signed: true });
export const STREAM_PREFIX = "stream|";
export const streamKey = (streamId: string): string => `${STREAM_PREFIX}${streamId}`;
export const progressKey = (streamId: string): string => `progress|${streamId}`;

/** Reads the progress of a stream. `missing` or `changed` if another program removed or changed its row. */
export async function readProgress(tables: Tables, streamId: string): Promise<ProgressRecord | "missing" | "changed"> {
  try {
    return (await tables.get(Progress, STREAMS, progressKey(streamId))) ?? "missing";
  } catch (error) {
    if (error instanceof StorageCorrupt) return "changed";
    throw error;
  }
}

/** The secret of a webhook, in the service's own key vault. */
export const StreamSecret = z.object({
  url: z.string(),
  /** Signing keys, newest first. */
  keys: z.array(z.object({ key: z.string(), until: z.string().optional() })),
});
export type StreamSecret = z.infer<typeof StreamSecret>;

/** A changed stream, and its signing key if the request created one. */
export interface ChangedStream {
  stream: Row<StreamRecord>;
  webhookSecret?: string | undefined;
}

/** The state of a stream. */
export interface StreamState {
  streamId: string;
  state: "active" | "failing" | "disabled" | "broken";
  /** Undefined if the progress was removed or changed by another program. */
  progress: ProgressRecord | undefined;
  /** ISO 8601. Null if the stream is not failing, or since when it is broken is unknown. */
  failingSince: string | null;
  /** Why the stream is failing or broken. */
  error: string | null;
  lag: StreamLag;
}

/** What is sealed, or found, but not sent yet. */
export interface StreamLag {
  /** Number of audit entries. Null if unknown. */
  entries: number | null;
  /** Time of the oldest event that is not sent, ISO 8601. Null if there is none. */
  since: string | null;
}
