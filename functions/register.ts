import {
  app,
  type HttpMethod,
  type HttpRequest,
  type HttpResponseInit,
  type InvocationContext,
} from "@azure/functions";
import { SpanKind } from "@opentelemetry/api";
import type { Config } from "../shared/config/config.ts";
import { type Endpoint, methodsOf } from "../shared/http/endpoint.ts";
import { type Answer, serve } from "../shared/http/pipeline.ts";
import { systemClock, systemRandomness } from "../shared/runtime.ts";
import { describe, inSpan, type Piece } from "../shared/telemetry.ts";
import { CATCH_ALL } from "./catch-all.ts";
import type { Invocation, QueueDeclaration, TimerDeclaration } from "./kit.ts";
import { createLogger, withinInvocation } from "./log.ts";
import type { Services } from "./services.ts";
import type { Telemetry } from "./telemetry.ts";

/** Tells the platform of every declared function. This is all of the app that knows the platform's library. */
export function register(
  declared: { endpoints: Endpoint<Services>[]; timers: TimerDeclaration[]; queues: QueueDeclaration[] },
  config: () => Config,
): void {
  app.setup({ enableHttpStream: false });
  for (const endpoint of declared.endpoints) registerEndpoint(endpoint, config);
  for (const { name, schedule, handle } of declared.timers) {
    app.timer(name, {
      schedule: schedule(config()),
      handler: (_timer, context) =>
        inInvocation({ name, kind: SpanKind.INTERNAL }, context, config(), (invocation) => handle(invocation)),
    });
  }
  for (const { name, queue, handle } of declared.queues) {
    app.storageQueue(name, {
      queueName: queue,
      connection: "AzureWebJobsStorage",
      handler: (message, context) => {
        const attributes = { "messaging.destination.name": queue };
        const piece = { name, kind: SpanKind.CONSUMER, attributes, carrier: message };
        return inInvocation(piece, context, config(), (invocation) => handle(message, invocation));
      },
    });
  }
  app.hook.appTerminate(async () => await (await telemetry)?.flush());
}

function registerEndpoint(endpoint: Endpoint<Services>, config: () => Config): void {
  app.http(endpoint.name, {
    methods: endpoint.route === CATCH_ALL ? EVERY_METHOD : methodsOf(endpoint),
    route: endpoint.route,
    authLevel: "anonymous",
    handler: async (request, context) => {
      await started(config());
      const { traceParent: traceparent, traceState: tracestate } = context.traceContext ?? {};
      const piece = {
        name: `${request.method} /${endpoint.route}`,
        kind: SpanKind.SERVER,
        attributes: { "http.request.method": request.method, "http.route": `/${endpoint.route}` },
        carrier: { traceparent, tracestate },
      };
      return await inSpan(piece, async () => {
        const answer = await serve(endpoint, incoming(request), {
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
            describe({ "request.id": requestId });
            return withinInvocation(context, requestId, work);
          },
        });
        describe({ "http.response.status_code": answer.status });
        return outgoing(answer);
      });
    },
  });
}

const EVERY_METHOD: HttpMethod[] = ["GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS"];

const randomness = systemRandomness();

/** The process's one set of services. They are the larger part of the app, loaded when the first function needs them. */
let wired: Promise<Services> | undefined;
let ready: Services | undefined;
async function servicesOf(config: Config): Promise<Services> {
  wired ??= import("./services.ts").then(({ createServices }) => createServices(config));
  ready = await wired;
  return ready;
}

/** Recording of what the process does, begun before anything of it. Its library is loaded only where a collector is named. */
let telemetry: Promise<Telemetry> | undefined;
async function started(config: Config): Promise<void> {
  const { OTEL_EXPORTER_OTLP_ENDPOINT: endpoint } = config;
  if (endpoint === undefined) return;
  telemetry ??= import("./telemetry.ts").then(({ startTelemetry }) =>
    startTelemetry(endpoint, config, createLogger(logLevel(config))),
  );
  await telemetry;
}

/** The setting as last read, so that a change takes effect without a restart. */
const logLevel = (config: Config) => () => ready?.settings.current()?.logLevel ?? config.LOG_LEVEL ?? "INFO";

/** Does a timer's or queue's work; the invocation id is the request id of all that it writes and logs. */
async function inInvocation(
  piece: Piece,
  context: InvocationContext,
  config: Config,
  work: (invocation: Invocation) => Promise<void>,
): Promise<void> {
  await started(config);
  const requestId = context.invocationId;
  await inSpan({ ...piece, attributes: { ...piece.attributes, "request.id": requestId } }, () =>
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
