import { createHash } from "node:crypto";
import type { AzureEvents } from "../platform/azure/azure-events.ts";
import { CloudFailure } from "../platform/azure/failure.ts";
import { Problem } from "../platform/http/problem.ts";
import { type Outgoing, Unreachable } from "../platform/outgoing/outgoing.ts";
import { signatureHeaders } from "../platform/outgoing/webhooks.ts";
import type { Clock } from "../platform/runtime.ts";
import { cloudEventText, recordOf, type StreamEvent } from "./event.ts";
import type { StreamRecord, StreamSecret } from "./stream.ts";

/** Sends batches of events to the three kinds of destinations. */

/** A batch that the receiver did not accept, or may not have. `message` is shown to people and contains no secret. */
export class SendFailed extends Error {
  override readonly name = "SendFailed";
  readonly retryAfterSeconds: number | undefined;

  constructor(message: string, retryAfterSeconds?: number) {
    super(message);
    this.retryAfterSeconds = retryAfterSeconds;
  }
}

/** The opened destination of a stream. */
export interface Destination {
  /** Maximum size of a batch in bytes, as `sizeOf` counts it, and in events. */
  readonly maxBytes: number;
  readonly maxEvents: number;
  /** Returns the bytes that an event adds to a batch. */
  sizeOf(event: StreamEvent): number;
  /** Sends a batch. Its events stay in order. @throws {SendFailed} */
  send(events: readonly StreamEvent[], signal?: AbortSignal): Promise<void>;
}

/** https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/formats/json-format.md#4-json-batch-format */
const BATCH_TYPE = "application/cloudevents-batch+json; charset=UTF-8";
/** Sizes of batches in bytes. Logs Ingestion takes 1 MB. Event Hubs takes 256 KB in the tier Basic, and webhooks often take 1 MB. */
const WEBHOOK_BYTES = 512 * 1024;
const INGESTION_BYTES = 1_000_000;
const EVENT_HUBS_BYTES = 250_000;
const MAX_EVENTS = 500;
/** Bytes that separate events. */
const SEPARATOR = 2;

/** Opens the destinations of streams. */
export function createDestinations(deps: {
  azureEvents: AzureEvents;
  outgoing: Outgoing;
  readSecret(stream: StreamRecord): Promise<StreamSecret | undefined>;
  /** The CloudEvents source: the public address of the service, or a URN. */
  source: string;
  clock: Clock;
}): (stream: StreamRecord) => Promise<Destination> {
  const { azureEvents, outgoing, source, clock } = deps;

  async function secretOf(stream: StreamRecord): Promise<StreamSecret> {
    let secret: StreamSecret | undefined;
    try {
      secret = await deps.readSecret(stream);
    } catch (error) {
      if (error instanceof CloudFailure) throw new SendFailed(describe(error), error.retryAfterSeconds);
      if (error instanceof Problem) throw new SendFailed(error.message);
      throw error;
    }
    if (!secret) throw new SendFailed("The stream's webhookUrl is missing from the key vault. Set webhookUrl again.");
    return secret;
  }

  function webhook({ streamId }: StreamRecord, secret: StreamSecret): Destination {
    const textOf = (event: StreamEvent) => cloudEventText(event, streamId, source);
    return {
      maxBytes: WEBHOOK_BYTES,
      maxEvents: MAX_EVENTS,
      sizeOf: (event) => Buffer.byteLength(textOf(event)) + SEPARATOR,
      async send(events, signal) {
        const body = `[${events.map(textOf).join(",\n")}]`;
        // The same for every attempt to send the same events.
        const id = `${streamId}.${createHash("sha256").update(body).digest("base64url").slice(0, 22)}`;
        const headers = {
          "content-type": BATCH_TYPE,
          "user-agent": "credential-lifecycle",
          ...signatureHeaders(secret, id, body, clock.now()),
        };
        try {
          const { status, headers: received } = await outgoing.send(secret.url, {
            method: "POST",
            headers,
            body,
            ...(signal && { signal }),
          });
          if (status >= 200 && status < 300) return;
          const redirect = status >= 300 && status < 400 ? " Redirects are not followed." : "";
          const retryAfter = received["retry-after"] ?? "";
          throw new SendFailed(
            `The receiver returned ${status}.${redirect}`,
            /^\d{1,6}$/.test(retryAfter) ? Number(retryAfter) : undefined,
          );
        } catch (error) {
          if (error instanceof Unreachable) throw new SendFailed(error.message);
          throw error;
        }
      },
    };
  }

  function logsIngestion({ streamId, endpoint = "", ruleId = "", streamName = "" }: StreamRecord): Destination {
    return {
      maxBytes: INGESTION_BYTES,
      maxEvents: MAX_EVENTS,
      sizeOf: (event) => Buffer.byteLength(JSON.stringify(recordOf(event, streamId))) + SEPARATOR,
      async send(events, signal) {
        const records = events.map((event) => recordOf(event, streamId));
        await inCloud(() => azureEvents.ingest({ endpoint, ruleId, streamName }, records, signal));
      },
    };
  }

  function eventHubs({ streamId, endpoint = "", eventHub = "" }: StreamRecord): Destination {
    const textOf = (event: StreamEvent) => cloudEventText(event, streamId, source);
    /** The text is a JSON string of the batch. Each event also has the partition key. */
    const sizeOf = (event: StreamEvent) => Buffer.byteLength(JSON.stringify(textOf(event))) + 100;
    return {
      maxBytes: EVENT_HUBS_BYTES,
      maxEvents: MAX_EVENTS,
      sizeOf,
      async send(events, signal) {
        // All events have the stream's ID as partition key, so that they are in one partition and stay in order.
        await inCloud(() => azureEvents.send({ endpoint, eventHub }, streamId, events.map(textOf), signal));
      },
    };
  }

  return async (stream) => {
    if (stream.destination === "webhook") return webhook(stream, await secretOf(stream));
    return stream.destination === "logsIngestion" ? logsIngestion(stream) : eventHubs(stream);
  };
}

async function inCloud(work: () => Promise<void>): Promise<void> {
  try {
    await work();
  } catch (error) {
    if (!(error instanceof CloudFailure)) throw error;
    throw new SendFailed(describe(error), error.retryAfterSeconds);
  }
}

/** Codes whose remedy is the same for streams as for scans. */
const WITH_REMEDY: ReadonlySet<CloudFailure["code"]> = new Set(["accessDenied", "unauthenticated", "foreignHost"]);
const describe = ({ code, message, remedy }: CloudFailure): string =>
  WITH_REMEDY.has(code) ? `${message} ${remedy}` : message;
