import * as z from "zod";
import { pageOf } from "../http/paging.ts";
import type { FailedMessage } from "./failed.ts";

const FailedMessageView = z
  .object({
    queue: z.string().meta({ description: "Queue whose function failed five times.", example: "scan-vaults" }),
    messageId: z.string().meta({ description: "ID of the message on the platform." }),
    failedAt: z.iso.datetime().meta({ description: "Time of the final failure." }),
    readable: z.boolean().meta({
      description: "`false`: the message was not sent by this service, or was truncated. It was not processed.",
    }),
    message: z
      .string()
      .nullable()
      .meta({ description: "JSON of the message. Null when it is not readable or very long." }),
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
