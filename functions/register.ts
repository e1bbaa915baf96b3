import { app, type HttpRequest, type HttpResponseInit, type InvocationContext } from "@azure/functions";
import { SpanKind } from "@opentelemetry/api";
import type { Config } from "../shared/platform/config/config.ts";
import { type Answer, serve } from "../shared/platform/http/pipeline.ts";
import { loadOnce } from "../shared/platform/load-once.ts";
import { systemClock, systemRandomness } from "../shared/platform/runtime.ts";
import { type SpanOptions, setSpanAttributes, withSpan } from "../shared/platform/telemetry.ts";
import type { FunctionIndex } from "./built-index.ts";
import { type Invocation, scheduleOf } from "./declare.ts";
import { AREAS, type Area } from "./functions.ts";
import { createLogger, withLogContext } from "./log.ts";
import type { Services } from "./services.ts";
import type { Telemetry } from "./telemetry.ts";

/**
 * Registers all functions of the index with Azure Functions (the platform), at the start of a process. Only this file imports
 * the platform's library. The code of a function is loaded by its first call.
 *
 * @param config - Returns the configuration, or throws its error.
 */
export function register({ endpoints, timers, queues }: FunctionIndex, config: () => Config): void {
  app.setup({ enableHttpStream: false });
  for (const endpoint of endpoints) registerEndpoint(endpoint, config);
  for (const timer of timers) {
    const { area, name } = timer;
    app.timer(name, {
      schedule: scheduleOf(timer, config()),
      handler: (_timer, context) =>
        runInvocation({ name, kind: SpanKind.INTERNAL }, context, config(), async (invocation) => {
          const { timers = [] } = await loadArea(area);
          await findByName(timers, name).handle(invocation);
        }),
    });
  }
  for (const { area, name, queue } of queues) {
    app.storageQueue(name, {
      queueName: queue,
      connection: "AzureWebJobsStorage",
      handler: (message, context) => {
        const attributes = { "messaging.destination.name": queue };
        const span = { name, kind: SpanKind.CONSUMER, attributes, carrier: message };
        return runInvocation(span, context, config(), async (invocation) => {
          const { queues = [] } = await loadArea(area);
          await findByName(queues, name).handle(message, invocation);
        });
      },
    });
  }
  app.hook.appTerminate(async () => await telemetry?.flush());
}

/** Loads the declarations of an area. */
const loadArea = (area: string): Promise<Area> => AREAS[area]!();

const findByName = <T extends { name: string }>(declarations: T[], name: string): T =>
  declarations.find((declaration) => declaration.name === name)!;

function registerEndpoint({ area, name, route, methods }: FunctionIndex["endpoints"][number], config: () => Config) {
  app.http(name, {
    methods,
    route,
    authLevel: "anonymous",
    handler: async (request, context) => {
      await ensureTelemetry(config());
      const { traceParent: traceparent, traceState: tracestate } = context.traceContext ?? {};
      const span = {
        name: `${request.method} /${route}`,
        kind: SpanKind.SERVER,
        attributes: { "http.request.method": request.method, "http.route": `/${route}` },
        carrier: { traceparent, tracestate },
      };
      return await withSpan(span, async () => {
        const declaration = async () => findByName((await loadArea(area)).endpoints ?? [], name);
        const answer = await serve(declaration, toRequest(request), {
          loadServices: async () => {
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
            return withLogContext(context, requestId, work);
          },
        });
        setSpanAttributes({ "http.response.status_code": answer.status });
        return toResponse(answer);
      });
    },
  });
}

const randomness = systemRandomness();

/**
 * Creates the services of the process on the first call that needs them. Their code is most of the app, so that it is loaded
 * only then.
 */
const createOnce = loadOnce(async (config: Config) => (await import("./services.ts")).createServices(config));
let currentServices: Services | undefined;
async function servicesOf(config: Config): Promise<Services> {
  currentServices = await createOnce(config);
  return currentServices;
}

/** Starts telemetry before the first invocation. Its library is loaded only if a collector is configured. */
const startOnce = loadOnce(async (endpoint: string, config: Config) =>
  (await import("./telemetry.ts")).startTelemetry(endpoint, config, createLogger(logLevel(config))),
);
let telemetry: Telemetry | undefined;
async function ensureTelemetry(config: Config): Promise<void> {
  const { OTEL_EXPORTER_OTLP_ENDPOINT: endpoint } = config;
  if (endpoint !== undefined) telemetry = await startOnce(endpoint, config);
}

/** Returns a function that reads the log level on every call, so that changes of the setting take effect without a restart. */
const logLevel = (config: Config) => () => currentServices?.settings.current()?.logLevel ?? config.LOG_LEVEL ?? "INFO";

/** Runs a timer or queue handler. The invocation ID is the request ID in logs and in the audit log. */
async function runInvocation(
  span: SpanOptions,
  context: InvocationContext,
  config: Config,
  work: (invocation: Invocation) => Promise<void>,
): Promise<void> {
  await ensureTelemetry(config);
  const requestId = context.invocationId;
  await withSpan({ ...span, attributes: { ...span.attributes, "request.id": requestId } }, () =>
    withLogContext(context, requestId, async () => {
      const services = await servicesOf(config);
      // The error fails the invocation, so that the platform delivers the message again.
      await services.storeFormat.check();
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

const toRequest = (request: HttpRequest) => ({
  method: request.method,
  url: request.url,
  headers: request.headers as unknown as Headers,
  params: { ...request.params },
  bytes: async () => new Uint8Array(await request.arrayBuffer()),
});

/** The platform's library accepts bytes as the body, but its types don't allow them. */
const toResponse = ({ status, headers, cookies, body }: Answer): HttpResponseInit => ({
  status,
  headers,
  ...(cookies.length > 0 && { cookies }),
  ...(body !== undefined && { body: body as string }),
});
