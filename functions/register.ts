import { app, type HttpRequest, type HttpResponseInit, type InvocationContext } from "@azure/functions";
import { SpanKind } from "@opentelemetry/api";
import type { Config } from "../shared/platform/config/config.ts";
import { type Answer, serve } from "../shared/platform/http/pipeline.ts";
import { loadOnce } from "../shared/platform/load-once.ts";
import { systemClock, systemRandomness } from "../shared/platform/runtime.ts";
import { type SpanOptions, setSpanAttributes, withSpan } from "../shared/platform/telemetry.ts";
import type { FunctionIndex } from "./built-index.ts";
import { AREAS, type Area } from "./functions.ts";
import { type Invocation, scheduleOf } from "./kit.ts";
import { createLogger, withinInvocation } from "./log.ts";
import type { Services } from "./services.ts";
import type { Telemetry } from "./telemetry.ts";

/** Tells the platform of every function. This is all of the app that knows the platform's library. */
export function register({ endpoints, timers, queues }: FunctionIndex, config: () => Config): void {
  app.setup({ enableHttpStream: false });
  for (const endpoint of endpoints) registerEndpoint(endpoint, config);
  for (const timer of timers) {
    const { area, name } = timer;
    app.timer(name, {
      schedule: scheduleOf(timer, config()),
      handler: (_timer, context) =>
        inInvocation({ name, kind: SpanKind.INTERNAL }, context, config(), async (invocation) => {
          const { timers = [] } = await loaded(area);
          await named(timers, name).handle(invocation);
        }),
    });
  }
  for (const { area, name, queue } of queues) {
    app.storageQueue(name, {
      queueName: queue,
      connection: "AzureWebJobsStorage",
      handler: (message, context) => {
        const attributes = { "messaging.destination.name": queue };
        const piece = { name, kind: SpanKind.CONSUMER, attributes, carrier: message };
        return inInvocation(piece, context, config(), async (invocation) => {
          const { queues = [] } = await loaded(area);
          await named(queues, name).handle(message, invocation);
        });
      },
    });
  }
  app.hook.appTerminate(async () => await telemetry?.flush());
}

/** The declarations that a function is one of. */
const loaded = (area: string): Promise<Area> => AREAS[area]!();

const named = <T extends { name: string }>(declarations: T[], name: string): T =>
  declarations.find((one) => one.name === name)!;

function registerEndpoint({ area, name, route, methods }: FunctionIndex["endpoints"][number], config: () => Config) {
  app.http(name, {
    methods,
    route,
    authLevel: "anonymous",
    handler: async (request, context) => {
      await started(config());
      const { traceParent: traceparent, traceState: tracestate } = context.traceContext ?? {};
      const piece = {
        name: `${request.method} /${route}`,
        kind: SpanKind.SERVER,
        attributes: { "http.request.method": request.method, "http.route": `/${route}` },
        carrier: { traceparent, tracestate },
      };
      return await withSpan(piece, async () => {
        const declaration = async () => named((await loaded(area)).endpoints ?? [], name);
        const answer = await serve(declaration, incoming(request), {
          rooms: async () => {
            const services = await servicesOf(config());
            return { gate: services.gate, services };
          },
          trustedProxyHops: config().TRUSTED_PROXY_HOPS,
          publicBaseUrl: config().PUBLIC_BASE_URL,
          clock: systemClock,
          randomness,
          log: createLogger(logLevel(config())),
          within: (requestId, work) => {
            setSpanAttributes({ "request.id": requestId });
            return withinInvocation(context, requestId, work);
          },
        });
        setSpanAttributes({ "http.response.status_code": answer.status });
        return outgoing(answer);
      });
    },
  });
}

const randomness = systemRandomness();

/** The process's one set of services. They are the larger part of the app, loaded when the first function needs them. */
const wired = loadOnce(async (config: Config) => (await import("./services.ts")).createServices(config));
let ready: Services | undefined;
async function servicesOf(config: Config): Promise<Services> {
  ready = await wired(config);
  return ready;
}

/** Recording of what the process does, begun before anything of it. Its library is loaded only where a collector is named. */
const recording = loadOnce(async (endpoint: string, config: Config) =>
  (await import("./telemetry.ts")).startTelemetry(endpoint, config, createLogger(logLevel(config))),
);
let telemetry: Telemetry | undefined;
async function started(config: Config): Promise<void> {
  const { OTEL_EXPORTER_OTLP_ENDPOINT: endpoint } = config;
  if (endpoint !== undefined) telemetry = await recording(endpoint, config);
}

/** The setting as last read, so that a change takes effect without a restart. */
const logLevel = (config: Config) => () => ready?.settings.current()?.logLevel ?? config.LOG_LEVEL ?? "INFO";

/** Does a timer's or queue's work; the invocation id is the request id of all that it writes and logs. */
async function inInvocation(
  piece: SpanOptions,
  context: InvocationContext,
  config: Config,
  work: (invocation: Invocation) => Promise<void>,
): Promise<void> {
  await started(config);
  const requestId = context.invocationId;
  await withSpan({ ...piece, attributes: { ...piece.attributes, "request.id": requestId } }, () =>
    withinInvocation(context, requestId, async () => {
      const services = await servicesOf(config);
      const inserted = new Date(String(context.triggerMetadata?.insertionTime));
      await work({
        services,
        requestId,
        delivery: Number(context.triggerMetadata?.dequeueCount ?? 1),
        messageId: String(context.triggerMetadata?.id ?? requestId),
        insertedAt: Number.isNaN(inserted.getTime()) ? services.clock.now() : inserted,
        log: createLogger(logLevel(config)),
      });
    }),
  );
}

const incoming = (request: HttpRequest) => ({
  method: request.method,
  url: request.url,
  headers: request.headers as unknown as Headers,
  params: { ...request.params },
  bytes: async () => new Uint8Array(await request.arrayBuffer()),
});

/** The platform's types know no bytes as a body, its library does. */
const outgoing = ({ status, headers, cookies, body }: Answer): HttpResponseInit => ({
  status,
  headers,
  ...(cookies.length > 0 && { cookies }),
  ...(body !== undefined && { body: body as string }),
});
