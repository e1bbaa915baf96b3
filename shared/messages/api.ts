import * as z from "zod";
import { pageOf } from "../http/paging.ts";
import type { FailedMessage } from "./failed.ts";

const FailedMessageView = z
  .object({
    queue: z
      .string()
      .meta({ description: "The queue whose function failed at it five times.", example: "scan-vaults" }),
    messageId: z.string().meta({ description: "The platform's id of the message." }),
    failedAt: z.iso.datetime().meta({ description: "When it failed for good." }),
    readable: z.boolean().meta({
      description: "false: not a message of this service, or cut on the way. Nothing was done about it.",
    }),
    message: z.string().nullable().meta({ description: "Its JSON; null where it is not readable or very long." }),
  })
  .meta({ id: "FailedMessage" });

export const FailedMessageList = pageOf(FailedMessageView, "FailedMessageList");

export const failedMessageView = (failed: FailedMessage): z.infer<typeof FailedMessageView> => ({
  queue: failed.queue,
  messageId: failed.messageId,
  failedAt: failed.failedAt,
  readable: failed.readable,
  message: failed.message ?? null,
});
