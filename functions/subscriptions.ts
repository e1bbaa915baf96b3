import * as z from "zod";
import type { Endpoint } from "../shared/http/endpoint.ts";
import { pageRequest } from "../shared/http/paging.ts";
import { created, ok, resource } from "../shared/http/reply.ts";
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
import { endpoint, timer } from "./kit.ts";
import type { Services } from "./services.ts";

const tag = "Subscriptions";
const params = z.object({ subscription_id: subscriptionId });

const listSubscriptions = endpoint({
  name: "listSubscriptions",
  method: "GET",
  route: "subscriptions",
  summary: "List the subscriptions, and whether they are watched",
  description:
    "Those added here, those of the configuration, and those that the service's identity sees or earlier scans read, by name. With the setting watchAll, the default, all of them are watched; without it those added and configured. To see which subscriptions the service could not read, and why, use unread=true. Beside the items, `lastFailure` says why the list of subscriptions itself could not be read.",
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
  summary: "Read one subscription",
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
    "Gives it a name, and has it watched also where watchAll is false. It never narrows what is watched; `watching` says what that is. Whether the service can read it is what POST /subscriptions/{subscription_id}/test tells.",
  tag,
  access: "admin",
  tier: "core",
  body: NewSubscription,
  example: { body: { subscriptionId: "8eab9bca-7137-4f76-a31c-dcc4acd2ff43", name: "Acme Production" } },
  responds: { 201: AddedSubscription },
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
    "With watchAll, or where AZURE_SUBSCRIPTION_IDS names it too, it loses its name and goes on being watched. Else its vaults and assets leave counts, score and alerts at once, are marked outOfScope, and are forgotten after outOfScopeRetentionDays, or at once with forget=true; adding it again brings back what is not forgotten. 409 when only AZURE_SUBSCRIPTION_IDS names it, and when nobody added it, but for forget=true where it is not watched or not seen any more. A call that was cut off is finished by repeating it.",
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
  summary: "Say what the service's identity can do in a subscription",
  description: "Tries what a scan needs, step by step, on up to five of its vaults. Reads no secret's value.",
  tag,
  access: "admin",
  tier: "core",
  params,
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
  // What environment and App Configuration change, no request tells of.
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
