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
import type { QueueDeclaration, TimerDeclaration } from "./kit.ts";
import { loggerFor } from "./log.ts";
import { type Services, servicesOf } from "./services.ts";

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
      handler: (_timer, context) => handle(invocationOf(context, config())),
    });
  }
  for (const { name, queue, handle } of declared.queues) {
    app.storageQueue(name, {
      queueName: queue,
      connection: "AzureWebJobsStorage",
      handler: (message, context) => handle(message, invocationOf(context, config())),
    });
  }
}

function registerEndpoint(endpoint: Endpoint<Services>, config: () => Config): void {
  app.http(endpoint.name, {
    methods: endpoint.route === CATCH_ALL ? EVERY_METHOD : [endpoint.method],
    route: endpoint.route,
    authLevel: "anonymous",
    handler: async (request, context) => {
      const services = servicesOf(config());
      const reply = await serve(endpoint, incoming(request), {
        gate: services.gate,
        services,
        clock: services.clock,
        randomness: services.randomness,
        log: (requestId) => loggerFor(context, services, { requestId }),
      });
      return outgoing(reply);
    },
  });
}

export const CATCH_ALL = "{*path}";
const EVERY_METHOD: HttpMethod[] = ["GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS"];

function invocationOf(context: InvocationContext, config: Config) {
  const services = servicesOf(config);
  const requestId = context.invocationId;
  const delivery = Number(context.triggerMetadata?.dequeueCount ?? 1);
  return { services, requestId, delivery, log: loggerFor(context, services, { requestId }) };
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
