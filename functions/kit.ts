import type * as z from "zod";
import type { Config } from "../shared/platform/config/config.ts";
import { endpointFor } from "../shared/platform/http/endpoint.ts";
import type { Logger } from "../shared/platform/runtime.ts";
import { DAY_MS } from "../shared/platform/time.ts";
import type { Services } from "./services.ts";

/** Declares one endpoint of this app: its handler gets the app's services. */
export const endpoint = endpointFor<Services>();

/** A day of an example that must lie ahead whenever it is tried: ask for it when the example is shown, in a getter. */
export const exampleDay = (days: number): string => new Date(Date.now() + days * DAY_MS).toISOString().slice(0, 10);

/** What a timer or queue handler is called with; the invocation id is the request id of all it writes and logs. */
export interface Invocation {
  services: Services;
  requestId: string;
  log: Logger;
  /** Of a queue message: 1 for its first delivery. */
  delivery: number;
  /** Of a queue message: the platform's id of it, and when it came into the queue. */
  messageId: string;
  insertedAt: Date;
}

/** Work on a schedule. An error escapes to the platform, which logs it and keeps the schedule. */
export interface TimerDeclaration {
  name: string;
  /** NCRONTAB in UTC, or the setting that says it. */
  schedule: string | { setting: Extract<keyof Config, `${string}_SCHEDULE`> };
  handle(invocation: Invocation): Promise<void>;
}

/**
 * Work from a queue. An error escapes, so that the platform delivers again and, after five times, to the poison queue, whose
 * own declaration (`poison`) every queue has.
 */
export interface QueueDeclaration {
  name: string;
  queue: string;
  message: z.ZodType;
  handle(message: unknown, invocation: Invocation): Promise<void>;
}

export const scheduleOf = ({ schedule }: Pick<TimerDeclaration, "schedule">, config: Config): string =>
  typeof schedule === "string" ? schedule : config[schedule.setting];

export const timer = (declaration: TimerDeclaration): TimerDeclaration => declaration;

/** Declares a queue's handler; the message is checked with its schema before the handler sees it. */
export const queue = <S extends z.ZodType>(declaration: {
  name: string;
  queue: string;
  message: S;
  handle(message: z.output<S>, invocation: Invocation): Promise<void>;
}): QueueDeclaration => ({
  ...declaration,
  handle: async (message, invocation) => await declaration.handle(declaration.message.parse(message), invocation),
});

/**
 * Declares what becomes of a queue's messages that failed five times, or are none of ours: people see them in
 * `GET /system/failed-messages` and in the audit log. `handle` gets those that fit the schema.
 */
export const poison = <S extends z.ZodType>(declaration: {
  name: string;
  /** The queue they failed in. */
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
