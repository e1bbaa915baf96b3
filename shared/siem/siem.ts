import { randomUUID } from "node:crypto";
import type { Audit } from "../audit/audit.ts";
import { audited } from "../audit/audited.ts";
import type { Compliance } from "../compliance/compliance.ts";
import type { AzureEvents } from "../platform/azure/azure-events.ts";
import type { Config } from "../platform/config/config.ts";
import type { Caller } from "../platform/http/endpoint.ts";
import { createOutgoing } from "../platform/outgoing/outgoing.ts";
import { webhookTargets } from "../platform/outgoing/webhooks.ts";
import { createDestinations, SendFailed } from "./destinations.ts";
import { testEvent } from "./event.ts";
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
   * @throws the first unexpected error, after all streams were tried
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
  deps: Omit<StreamStoreDependencies, "config"> & {
    audit: Audit;
    compliance: Pick<Compliance, "violationChanges">;
    azureEvents: AzureEvents;
    config: StreamStoreDependencies["config"] & Pick<Config, "PUBLIC_BASE_URL">;
  },
): AuditStreams {
  const { tables, audit, compliance, config, clock, randomness } = deps;
  const store = createStreamStore(deps);
  const open = createDestinations({
    azureEvents: deps.azureEvents,
    outgoing: createOutgoing(webhookTargets(config.ALLOW_PRIVATE_WEBHOOK_ADDRESSES)),
    readSecret: store.readSecret,
    source: config.PUBLIC_BASE_URL?.replace(/\/+$/, "") ?? "urn:credential-lifecycle",
    clock,
  });
  const sender = createStreamSender({ tables, audit, compliance, open, clock });

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
      let sent = 0;
      for (const result of results) {
        if (result.status === "rejected") throw result.reason;
        sent += result.value;
      }
      return sent;
    },

    async test(streamId, caller) {
      const stream = await store.get(streamId);
      const event = { type: "auditStream.tested", caller, target: { type: "auditStream", id: streamId } };
      return await audited(
        audit,
        event,
        async () => {
          try {
            const destination = await open(stream);
            await destination.send([testEvent(`test.${randomness.ulid(clock.now())}`, clock.now())]);
            return undefined;
          } catch (error) {
            if (error instanceof SendFailed) return error.message;
            throw error;
          }
        },
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
              error: BROKEN[progress],
              lag: { entries: null, since: null },
            };
          const state = !enabled ? "disabled" : progress.failures > 0 ? "failing" : "active";
          const lag = await lagOf(stream, progress, newest);
          return { streamId, state, progress, error: progress.error ?? null, lag };
        }),
      );
    },
  };
}

const NOTHING = { entries: 0, since: null };
