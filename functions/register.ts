import {
  app,
  type HttpMethod,
  type HttpRequest,
  type HttpResponseInit,
  type InvocationContext,
} from "@azure/functions";
import type { Config } from "../shared/config/config.ts";
import type { Endpoint } from "../shared/http/endpoint.ts";
import { serve } from "../shared/http/pipeline.ts";
import type { Reply } from "../shared/http/reply.ts";
import { systemClock, systemRandomness } from "../shared/runtime.ts";
import type { QueueDeclaration, TimerDeclaration } from "./kit.ts";
import { loggerFor } from "./log.ts";
import type { Services } from "./services.ts";

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
      handler: async (_timer, context) => handle(await invocationOf(context, config())),
    });
  }
  for (const { name, queue, handle } of declared.queues) {
    app.storageQueue(name, {
      queueName: queue,
      connection: "AzureWebJobsStorage",
      handler: async (message, context) => handle(message, await invocationOf(context, config())),
    });
  }
}

function registerEndpoint(endpoint: Endpoint<Services>, config: () => Config): void {
  app.http(endpoint.name, {
    methods: endpoint.route === CATCH_ALL ? EVERY_METHOD : [endpoint.method],
    route: endpoint.route,
    authLevel: "anonymous",
    handler: async (request, context) => {
      const reply = await serve(endpoint, incoming(request), {
        rooms: async () => {
          const services = await servicesOf(config());
          return { gate: services.gate, services };
        },
        trustedProxyHops: config().TRUSTED_PROXY_HOPS,
        clock: systemClock,
        randomness,
        log: (requestId) => loggerFor(context, logLevel(config()), { requestId }),
      });
      return outgoing(reply);
    },
  });
}

export const CATCH_ALL = "{*path}";
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

/** The setting as last read, so that a change takes effect without a restart. */
const logLevel = (config: Config) => () => ready?.settings.current()?.logLevel ?? config.LOG_LEVEL ?? "INFO";

async function invocationOf(context: InvocationContext, config: Config) {
  const services = await servicesOf(config);
  const requestId = context.invocationId;
  const delivery = Number(context.triggerMetadata?.dequeueCount ?? 1);
  return { services, requestId, delivery, log: loggerFor(context, logLevel(config), { requestId }) };
}

const incoming = (request: HttpRequest) => ({
  method: request.method,
  url: request.url,
  headers: request.headers as unknown as Headers,
  params: { ...request.params },
  bytes: async () => new Uint8Array(await request.arrayBuffer()),
});

function outgoing(reply: Reply): HttpResponseInit {
  const { content, json, status, headers, cookies } = reply;
  const type = content?.type ?? "application/json; charset=utf-8";
  const body = content ? content.data : json === undefined ? undefined : JSON.stringify(json);
  return {
    status,
    headers: { ...headers, ...(body === undefined ? {} : { "Content-Type": headers?.["Content-Type"] ?? type }) },
    ...(body === undefined ? {} : { body: body as string }),
    ...(cookies ? { cookies } : {}),
  };
}
