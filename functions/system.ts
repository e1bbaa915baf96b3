import * as z from "zod";
import { FailedMessageList, failedMessageView } from "../shared/messages/api.ts";
import { IdentityView, identityView } from "../shared/platform/azure/api.ts";
import { Health } from "../shared/platform/http/api.ts";
import { PageQuery, pageRequest, pageView } from "../shared/platform/http/paging.ts";
import { queryBoolean } from "../shared/platform/http/query-boolean.ts";
import { ok } from "../shared/platform/http/reply.ts";
import { builtVersion } from "./built-version.ts";
import { endpoint } from "./declare.ts";

// Endpoints about the service itself: its health, its identity in Azure, and queue messages that failed.

const health = endpoint({
  name: "health",
  method: "GET",
  route: "health",
  summary: "Check the health of the service",
  description:
    "Inexpensive, open to anyone, and not rate limited. With deep=true it requires a token, is rate limited, and reports the version, which dependencies respond, how many stored rows can't be read, and how many alerts are held after a restore. The status is degraded if a dependency does not respond, a row can't be read, or a number can't be determined. A number that can't be determined is absent.",
  tag: "System",
  access: "open",
  tier: "core",
  rateLimit: "none",
  // Answers without loading the services, so that a simple check is fast in a new process. `admit` below loads them.
  standalone: true,
  query: z.strictObject({
    deep: queryBoolean().optional().meta({ description: "Requires a token of any role." }),
  }),
  responds: { 200: Health },
  problems: ["unauthorized", "rateLimited"],
  handle: async ({ query, admit }) => {
    if (!query.deep) return ok({ status: "healthy" });
    // Checks the token and the rate limit, and loads the services.
    const { services } = await admit("user");
    const dependencies = await services.health.check();
    // An unknown count is no reason to fail, but also not healthy. If the tables do not respond, `dependencies` says so.
    const unreadableRows = await services.unreadableRows.count().catch(() => undefined);
    const heldDeliveries = await services.alerts.held.count().catch(() => undefined);
    // Only reported: whether rows are signed depends on the deployment, and is no failure.
    const signedRows = await services.signedRows.status();
    const isHealthy =
      dependencies.every((dependency) => dependency.status === "healthy") &&
      unreadableRows?.listed === 0 &&
      heldDeliveries !== undefined;
    return ok({
      status: isHealthy ? "healthy" : "degraded",
      ...builtVersion(),
      dependencies,
      ...(unreadableRows && { unreadableRows }),
      ...(heldDeliveries !== undefined && { heldDeliveries }),
      signedRows,
    });
  },
});

const identity = endpoint({
  name: "identity",
  method: "GET",
  route: "identity",
  summary: "Get the cloud identity of the service",
  description:
    "Read from the service's own access token, which is never returned. Returns 503 if no token can be acquired.",
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
  summary: "List messages between the service's functions that failed permanently",
  description:
    "Returns the failed messages of the last 30 days, newest first. The audit log also records each as queue.messageFailed.",
  tag: "System",
  access: "user",
  tier: "core",
  query: PageQuery,
  responds: { 200: FailedMessageList },
  handle: async ({ query, services }) => {
    const page = await services.failedMessages.list(pageRequest(query));
    return ok(pageView(page, failedMessageView));
  },
});

export const endpoints = [health, identity, listFailedMessages];
