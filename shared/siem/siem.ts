import { randomUUID } from "node:crypto";
import type { Audit } from "../audit/audit.ts";
import { audited } from "../audit/audited.ts";
import { INTERVAL_MS, intervalFrom } from "../audit/interval.ts";
import type { Compliance } from "../compliance/compliance.ts";
import type { AzureEvents } from "../platform/azure/azure-events.ts";
import type { Config } from "../platform/config/config.ts";
import type { Caller } from "../platform/http/endpoint.ts";
import { createOutgoing } from "../platform/outgoing/outgoing.ts";
import { webhookTargets } from "../platform/outgoing/webhooks.ts";
import { MINUTE_MS, SECOND_MS } from "../platform/time.ts";
import { createDestinations, SendFailed } from "./destinations.ts";
import { type StreamEvent, stoppingEvent, testEvent } from "./event.ts";
import { createStreamSender } from "./send.ts";
import { type ProgressRecord, readProgress, type StreamLag, type StreamRecord, type StreamState } from "./stream.ts";
import { createStreamStore, type StreamStore, type StreamStoreDependencies } from "./streams.ts";

/** Audit streams: they send the audit log, its digests and changes of violations to a SIEM. */
export interface AuditStreams extends StreamStore {
  /**
   * Sends what is new of all enabled streams. A timer calls it. Without streams it costs one request. With streams of which none has
   * anything new, it costs three requests and one or two per stream.
   *
   * @returns Number of sent events.
   * @throws the unexpected error of a stream, or an AggregateError of several, after all streams were tried
   */
  run(): Promise<number>;
  /** Sends a test event. Returns why it failed, or undefined. @throws {Problem} notFound */
  test(streamId: string, caller: Caller): Promise<string | undefined>;
  /** Returns the state of each stream with what is not sent yet. Costs two requests, and two or three per stream. */
  states(streams: readonly StreamRecord[]): Promise<StreamState[]>;
}

const BROKEN = {
  missing: "The row with the stream's position was removed by another program. Delete the stream and create it again.",
  changed: "The row with the stream's position was changed by another program. Delete the stream and create it again.",
};

export function createAuditStreams(
  deps: Omit<StreamStoreDependencies, "config" | "tellStopping"> & {
    audit: Audit;
    compliance: Pick<Compliance, "violationChanges">;
    azureEvents: AzureEvents;
    config: StreamStoreDependencies["config"] & Pick<Config, "PUBLIC_BASE_URL">;
  },
): AuditStreams {
  const { tables, audit, compliance, config, clock, randomness } = deps;
  const store = createStreamStore({
    ...deps,
    tellStopping: async (stream, reason, caller) => {
      const id = `stopping.${randomness.ulid(clock.now())}`;
      return await sendOne(stream, stoppingEvent(id, clock.now(), reason, caller.actor));
    },
  });
  const open = createDestinations({
    azureEvents: deps.azureEvents,
    outgoing: createOutgoing(webhookTargets(config.ALLOW_PRIVATE_WEBHOOK_ADDRESSES)),
    readSecret: store.readSecret,
    source: config.PUBLIC_BASE_URL?.replace(/\/+$/, "") ?? "urn:credential-lifecycle",
    clock,
  });
  const sender = createStreamSender({ tables, audit, compliance, open, clock });

  /** Sends one event. Returns why the receiver did not accept it, or undefined. */
  async function sendOne(stream: StreamRecord, event: StreamEvent): Promise<string | undefined> {
    try {
      await (await open(stream)).send([event], AbortSignal.timeout(ONE_EVENT_MS));
      return undefined;
    } catch (error) {
      if (error instanceof SendFailed) return error.message;
      if (error instanceof Error && error.name === "TimeoutError") return "The receiver did not answer in ten seconds.";
      throw error;
    }
  }

  async function lagOf(
    { content }: StreamRecord,
    progress: ProgressRecord,
    newest: Awaited<ReturnType<Audit["sealed"]["newest"]>>,
  ): Promise<StreamLag> {
    const auditLag = content.includes("audit") ? await audit.sealed.lag(progress.audit, newest) : NOTHING;
    const oldest = content.includes("violations")
      ? await compliance.violationChanges.oldest(progress.violations)
      : null;
    const [since = null] = [auditLag.since, oldest].filter((time) => time !== null).sort();
    return { entries: auditLag.entries, since };
  }

  return {
    ...store,

    async run() {
      const streams = (await store.all()).filter(({ enabled }) => enabled);
      if (streams.length === 0) return 0;
      const newest = await audit.sealed.newest();
      const caller: Caller = { actor: "system", requestId: randomUUID() };
      const results = await Promise.allSettled(streams.map((stream) => sender.send(stream, newest, caller)));
      const errors = results.flatMap((result) => (result.status === "rejected" ? [result.reason] : []));
      if (errors.length > 1) throw new AggregateError(errors, "Audit streams failed.");
      if (errors.length === 1) throw errors[0];
      return results.reduce((sent, result) => sent + (result.status === "fulfilled" ? result.value : 0), 0);
    },

    async test(streamId, caller) {
      const stream = await store.get(streamId);
      const event = { type: "auditStream.tested", caller, target: { type: "auditStream", id: streamId } };
      return await audited(
        audit,
        event,
        () => sendOne(stream, testEvent(`test.${randomness.ulid(clock.now())}`, clock.now())),
        (reason) => ({ details: reason === undefined ? { delivered: true } : { delivered: false, reason } }),
      );
    },

    async states(streams) {
      const newest = streams.length > 0 ? await audit.sealed.newest() : undefined;
      return await Promise.all(
        streams.map(async (stream): Promise<StreamState> => {
          const { streamId, enabled } = stream;
          const progress = await readProgress(tables, streamId);
          if (typeof progress === "string")
            return {
              streamId,
              state: "broken",
              progress: undefined,
              failingSince: null,
              error: BROKEN[progress],
              lag: { entries: null, since: null },
            };
          const lag = await lagOf(stream, progress, newest);
          const { failures, failingSince = null, error = null, logChanged } = progress;
          if (!enabled) return { streamId, state: "disabled", progress, failingSince, error, lag };
          if (logChanged) return { streamId, state: "broken", progress, failingSince, error, lag };
          if (failures > 0) return { streamId, state: "failing", progress, failingSince, error, lag };
          const sealedUntil = newest ? intervalFrom(newest.interval) + INTERVAL_MS : Date.parse(stream.createdAt);
          if (stream.content.includes("audit") && sealedUntil + UNSEALED_MS < clock.now().getTime())
            return {
              streamId,
              state: "failing",
              progress,
              failingSince: new Date(sealedUntil).toISOString(),
              error: NOT_SEALED,
              lag,
            };
          return { streamId, state: "active", progress, failingSince, error, lag };
        }),
      );
    },
  };
}

/** Time without a new digest after which streams of the audit log are failing. The log is sealed every ten minutes. */
const UNSEALED_MS = 30 * MINUTE_MS;
const NOT_SEALED =
  "The audit log has no new digest, so no entry is sent. Check AUDIT_SIGNING_KEYS and the errors of the timer sealAudit.";
/** Time limit of a single event, for which a person waits. */
const ONE_EVENT_MS = 10 * SECOND_MS;
const NOTHING = { entries: 0, since: null };
