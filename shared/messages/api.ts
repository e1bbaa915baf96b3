import * as z from "zod";
import { pageOf } from "../platform/http/paging.ts";
import type { FailedMessage } from "./failed-messages.ts";

// Schemas and views of failed messages in the API.

const FailedMessageView = z
  .object({
    queue: z
      .string()
      .meta({ description: "Queue whose function failed five times to process the message.", example: "scan-vaults" }),
    messageId: z.string().meta({ description: "Id of the message in the queue." }),
    failedAt: z.iso.datetime().meta({ description: "Time of the last failure." }),
    readable: z.boolean().meta({
      description:
        "Whether the message has a valid format. False: the message is not from this service or is damaged, and was ignored.",
    }),
    message: z
      .string()
      .nullable()
      .meta({ description: "JSON of the message. Null if the message is not readable or too long." }),
  })
  .meta({ id: "FailedMessage" });

/** A page of messages that failed five times. */
export const FailedMessageList = pageOf(FailedMessageView, "FailedMessageList");

/** Converts a failed message to the form in API responses. */
export const failedMessageView = (failed: FailedMessage): z.infer<typeof FailedMessageView> => ({
  queue: failed.queue,
  messageId: failed.messageId,
  failedAt: failed.failedAt,
  readable: failed.readable,
  message: failed.message ?? null,
});
