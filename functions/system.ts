import * as z from "zod";
import { IdentityView, identityView } from "../shared/azure/api.ts";
import { Health } from "../shared/http/api.ts";
import { pageParameters, pageRequest } from "../shared/http/paging.ts";
import { ok } from "../shared/http/reply.ts";
import { FailedMessageList, failedMessageView } from "../shared/messages/api.ts";
import { endpoint } from "./kit.ts";

const health = endpoint({
  name: "health",
  method: "GET",
  route: "health",
  summary: "Whether the service answers",
  description:
    "Cheap, open and not counted. With deep=true it needs a token, is counted, and says which of its dependencies answer.",
  tag: "System",
  access: "open",
  tier: "core",
  rateLimit: "none",
  standalone: true,
  query: z.strictObject({
    deep: z.enum(["true", "false"]).optional().meta({ description: "Needs a token of any role." }),
  }),
  responds: { 200: Health },
  problems: ["unauthorized", "rateLimited"],
  handle: async ({ query, admit }) => {
    if (query.deep !== "true") return ok({ status: "healthy" });
    const { services } = await admit("user");
    const dependencies = await services.health.check();
    const status = dependencies.every((one) => one.status === "healthy") ? "healthy" : "degraded";
    return ok({ status, dependencies });
  },
});

const identity = endpoint({
  name: "identity",
  method: "GET",
  route: "identity",
  summary: "Who the service is in the cloud",
  description: "From its own token, which is never shown. 503 when no token can be had.",
  tag: "System",
  access: "user",
  tier: "core",
  responds: {
    200: IdentityView,
  },
  handle: async ({ services }) => ok(identityView(await services.identity.describe())),
});

const listFailedMessages = endpoint({
  name: "listFailedMessages",
  method: "GET",
  route: "system/failed-messages",
  summary: "Messages between the service's own functions that failed for good",
  description: "Newest first, for thirty days. Each is entered in the audit log too, as queue.messageFailed.",
  tag: "System",
  access: "user",
  tier: "core",
  query: z.strictObject(pageParameters),
  responds: { 200: FailedMessageList },
  handle: async ({ query, services }) => {
    const page = await services.failedMessages.list(pageRequest(query));
    return ok({ ...page, items: page.items.map(failedMessageView) });
  },
});

export const endpoints = [health, identity, listFailedMessages];
