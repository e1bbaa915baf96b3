import type * as z from "zod";
import type { Config } from "../shared/platform/config/config.ts";
import { endpointFor } from "../shared/platform/http/endpoint.ts";
import type { Logger } from "../shared/platform/runtime.ts";
import { DAY_MS } from "../shared/platform/time.ts";
import type { Services } from "./services.ts";

/*
 * How files in functions/ declare endpoints, timers and queue handlers. A declaration is data: register.ts registers it with
 * Azure Functions (the platform).
 */

/** Declares an endpoint whose handler receives the services of this app. */
export const endpoint = endpointFor<Services>();

/**
 * Returns a date for examples that must be in the future. Call it in a getter, so that the date is current when the example is
 * shown.
 */
export const exampleDay = (days: number): string => new Date(Date.now() + days * DAY_MS).toISOString().slice(0, 10);

/** Input of timer and queue handlers. The platform's invocation ID is the request ID in logs and in the audit log. */
export interface Invocation {
  services: Services;
  requestId: string;
  log: Logger;
  /** Number of this delivery of the queue message: 1 for the first. */
  delivery: number;
  /** The platform's ID of the queue message, and the time at which the message was enqueued. */
  messageId: string;
  insertedAt: Date;
}

/**
 * Sends a message with a random delay. Timers start work through a queue, so that many deployments don't call the cloud at the
 * same time and failures are retried.
 */
export async function sendWithJitter({ services }: Invocation, queue: string, message: object): Promise<number> {
  const delaySeconds = Math.floor(services.randomness.number() * services.config.SCHEDULE_JITTER_SECONDS);
  await services.queues.send(queue, message, { delaySeconds });
  return delaySeconds;
}

/** A function with a schedule. The platform logs errors of the handler and continues the schedule. */
export interface TimerDeclaration {
  name: string;
  /** An NCRONTAB expression in UTC, or the name of the setting that contains one. */
  schedule: string | { setting: Extract<keyof Config, `${string}_SCHEDULE`> };
  handle(invocation: Invocation): Promise<void>;
}

/**
 * A function that handles queue messages. If the handler throws, the platform delivers the message again, and after five
 * failures moves it to the poison queue. Every queue needs a declaration for its poison queue (`poison`).
 */
export interface QueueDeclaration {
  name: string;
  queue: string;
  message: z.ZodType;
  handle(message: unknown, invocation: Invocation): Promise<void>;
}

/** Returns the NCRONTAB expression of a timer. */
export const scheduleOf = ({ schedule }: Pick<TimerDeclaration, "schedule">, config: Config): string =>
  typeof schedule === "string" ? schedule : config[schedule.setting];

/** Declares a timer. */
export const timer = (declaration: TimerDeclaration): TimerDeclaration => declaration;

/**
 * Declares the handler of a queue. Messages are validated with the schema before the handler is called. The last delivery is
 * recorded, so that a poison queue's handler can tell a failed message from a planted one.
 */
export const queue = <S extends z.ZodType>(declaration: {
  name: string;
  queue: string;
  message: S;
  handle(message: z.output<S>, invocation: Invocation): Promise<void>;
}): QueueDeclaration => ({
  ...declaration,
  handle: async (body, invocation) => {
    const message = declaration.message.parse(body);
    const { services, delivery } = invocation;
    await services.failedMessages.handleDelivery({ queue: declaration.queue, body, delivery }, () =>
      declaration.handle(message, invocation),
    );
  },
});

/**
 * Declares the handler of a poison queue, which receives messages that failed five times or don't match the schema. Each
 * message is recorded in `GET /system/failed-messages` and in the audit log. `handle` receives only messages that match the
 * schema and whose last delivery failed in this service.
 */
export const poison = <S extends z.ZodType>(declaration: {
  name: string;
  /** The queue in which the messages failed. */
  of: string;
  message: S;
  handle?(message: z.output<S>, invocation: Invocation): Promise<void>;
}): QueueDeclaration => ({
  name: declaration.name,
  queue: `${declaration.of}-poison`,
  message: declaration.message,
  handle: async (body, invocation) => {
    const { services, messageId, insertedAt, delivery, requestId } = invocation;
    const { of, handle } = declaration;
    const received = { queue: of, messageId, insertedAt, delivery, body, requestId };
    await services.failedMessages.receive(
      received,
      declaration.message,
      handle && ((message) => handle(message, invocation)),
    );
  },
});
