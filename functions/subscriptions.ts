import * as z from "zod";
import type { Endpoint } from "../shared/platform/http/endpoint.ts";
import { pageRequest } from "../shared/platform/http/paging.ts";
import { created, ok, resource } from "../shared/platform/http/reply.ts";
import {
  AddedSubscription,
  ConnectionTest,
  NewSubscription,
  RemovedSubscription,
  RemoveQuery,
  removedWarning,
  Subscription,
  SubscriptionList,
  SubscriptionQuery,
  subscriptionId,
} from "../shared/subscriptions/api.ts";
import { endpoint, timer } from "./declare.ts";
import type { Services } from "./services.ts";

/*
 * Endpoints and timers of subscriptions. A watched subscription is monitored: scans read its vaults. The scope is the set of
 * watched subscriptions. Assets of other subscriptions are out of scope, and deleted after a while.
 */

const tag = "Subscriptions";
const params = z.object({ subscription_id: subscriptionId });

const listSubscriptions = endpoint({
  name: "listSubscriptions",
  method: "GET",
  route: "subscriptions",
  summary: "List subscriptions and their watch status",
  description:
    "Lists subscriptions by name: those added by this API, those in the configuration, and those that the service's identity can access or earlier scans read. With the setting watchAll, the default, all of them are watched; otherwise only those added and configured. To list the subscriptions that the service could not read, with the reason, use unread=true. If the list of subscriptions itself could not be read, `lastFailure` states why.",
  tag,
  access: "user",
  tier: "core",
  query: SubscriptionQuery,
  example: { query: { unread: "true" } },
  responds: { 200: SubscriptionList },
  handle: async ({ query: { unread, ...page }, services }) =>
    ok(await services.subscriptions.list({ unread }, pageRequest(page))),
});

const getSubscription = endpoint({
  name: "getSubscription",
  method: "GET",
  route: "subscriptions/{subscription_id}",
  summary: "Get a subscription",
  tag,
  access: "user",
  tier: "core",
  params,
  responds: { 200: Subscription },
  handle: async ({ params, services }) => resource(await services.subscriptions.get(params.subscription_id)),
});

const addSubscription = endpoint({
  name: "addSubscription",
  method: "POST",
  route: "subscriptions",
  summary: "Add a subscription",
  description:
    "Names the subscription and watches it even if watchAll is false. Adding a subscription never stops the monitoring of others; see `watching`. Use POST /subscriptions/{subscription_id}/test to test access.",
  tag,
  access: "admin",
  tier: "core",
  body: NewSubscription,
  example: { body: { subscriptionId: "8eab9bca-7137-4f76-a31c-dcc4acd2ff43", name: "Acme Production" } },
  responds: { 201: AddedSubscription },
  repeat: {
    idOf: ({ subscriptionId }) => subscriptionId,
    answer: ({ id, services }) => services.subscriptions.added(id),
  },
  handle: async ({ body, caller, services }) => {
    const subscription = await services.subscriptions.add(body, caller);
    return created(subscription, `/subscriptions/${subscription.subscriptionId}`);
  },
});

const removeSubscription = endpoint({
  name: "removeSubscription",
  method: "DELETE",
  route: "subscriptions/{subscription_id}",
  summary: "Remove a subscription that was added",
  description:
    "If watchAll is true or AZURE_SUBSCRIPTION_IDS names the subscription, it loses its name and stays watched. Otherwise its vaults and assets leave counts, score and alerts at once and are marked outOfScope. They are deleted after outOfScopeRetentionDays, or at once with forget=true. Adding the subscription again restores assets that were not deleted. Returns 409 if only AZURE_SUBSCRIPTION_IDS names it, or if it was never added; with forget=true, only if it is still watched or accessible. If a call is interrupted, repeat it.",
  tag,
  access: "admin",
  tier: "core",
  conditional: true,
  params,
  query: RemoveQuery,
  example: { params: { subscription_id: "00000000-0000-4000-8000-000000000000" } },
  responds: {
    200: RemovedSubscription,
  },
  handle: async ({ params, query, caller, ifMatch, services }) => {
    const options = { ifMatch, forget: query.forget };
    const { inventory, watching } = await services.subscriptions.remove(params.subscription_id, caller, options);
    return ok({ deleted: true, inventory, warning: removedWarning(inventory), watching });
  },
});

const testSubscription = endpoint({
  name: "testSubscription",
  method: "POST",
  route: "subscriptions/{subscription_id}/test",
  summary: "Test the access to a subscription",
  description: "Tests each step of a scan on up to five vaults of the subscription. Reads no secret values.",
  tag,
  access: "admin",
  tier: "core",
  params,
  harmlessRepeat: true,
  responds: { 200: ConnectionTest },
  handle: async ({ params, services }) => ok(await services.subscriptions.test(params.subscription_id)),
});

export const endpoints: Endpoint<Services>[] = [
  listSubscriptions,
  getSubscription,
  addSubscription,
  removeSubscription,
  testSubscription,
];

export const timers = [
  // Changes of environment variables and of App Configuration are not requests, so a timer detects them.
  timer({
    name: "refreshScope",
    schedule: "20 4,14,24,34,44,54 * * * *",
    handle: ({ services, requestId }) => services.subscriptions.refreshScope({ actor: "system", requestId }),
  }),
  timer({
    name: "forgetOutOfScope",
    schedule: "0 17 3 * * *",
    handle: ({ services, requestId }) => services.subscriptions.forgetOutOfScope({ actor: "system", requestId }),
  }),
];
