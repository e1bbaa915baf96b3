import * as z from "zod";
import { pageParameters, pageRequest } from "../shared/http/paging.ts";
import { ok } from "../shared/http/reply.ts";
import { FailedMessageList, failedMessageView } from "../shared/messages/api.ts";
import { DEPENDENCIES } from "./health.ts";
import { endpoint } from "./kit.ts";

const DependencyView = z.object({
  name: z.enum(DEPENDENCIES),
  status: z.enum(["healthy", "unhealthy"]).meta({ description: "Whether it answers." }),
  detail: z.string().optional(),
  milliseconds: z.int().meta({ description: "How long it took to answer." }),
});

const HealthStatus = z
  .object({
    status: z.enum(["healthy", "degraded"]).meta({ description: "`degraded`: a dependency does not answer." }),
    dependencies: z.array(DependencyView).optional().meta({ description: "With deep=true only." }),
  })
  .meta({ id: "Health" });

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
  responds: { 200: HealthStatus },
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
    200: z
      .object({
        credentialType: z
          .enum(["clientSecret", "managedIdentity", "developerSignIn"])
          .meta({ description: "How the service signs in to the cloud." }),
        tenantId: z.string().nullable(),
        clientId: z.string().nullable(),
        objectId: z.string().nullable().meta({ description: "What role assignments name." }),
        name: z.string().nullable(),
        cloud: z.string().meta({ description: "Which Azure cloud." }),
        authorityHost: z.string().meta({ description: "Where its tokens come from." }),
        tokenExpiresAt: z.iso.datetime().meta({ description: "When the token that was looked at ends." }),
      })
      .meta({ id: "Identity" }),
  },
  handle: async ({ services }) => {
    const { tenantId, clientId, objectId, name, ...rest } = await services.identity.describe();
    return ok({
      credentialType: rest.credentialType,
      tenantId: tenantId ?? null,
      clientId: clientId ?? null,
      objectId: objectId ?? null,
      name: name ?? null,
      cloud: rest.cloud,
      authorityHost: rest.authorityHost,
      tokenExpiresAt: rest.tokenExpiresAt,
    });
  },
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
