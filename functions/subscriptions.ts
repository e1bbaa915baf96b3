import * as z from "zod";
import type { Endpoint } from "../shared/http/endpoint.ts";
import { pageOf, pageParameters, pageRequest } from "../shared/http/paging.ts";
import { created, ok, resource } from "../shared/http/reply.ts";
import {
  ConnectionTest,
  NewSubscription,
  RemovedSubscription,
  Subscription,
  subscriptionId,
} from "../shared/subscriptions/api.ts";
import { endpoint } from "./kit.ts";
import type { Services } from "./services.ts";

const tag = "Subscriptions";
const params = z.object({ subscription_id: subscriptionId });

const listSubscriptions = endpoint({
  name: "listSubscriptions",
  method: "GET",
  route: "subscriptions",
  summary: "List the subscriptions that are scanned",
  description:
    "Those added here and those of the configuration, by name. Without any, all the identity may see are scanned.",
  tag,
  access: "user",
  tier: "core",
  query: z.strictObject(pageParameters),
  responds: { 200: pageOf(Subscription, "SubscriptionList") },
  handle: async ({ query, services }) => ok(await services.subscriptions.list(pageRequest(query))),
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
  summary: "Add a subscription to what is scanned",
  description: "Whether the service can read it is what POST /subscriptions/{subscription_id}/test tells.",
  tag,
  access: "admin",
  tier: "core",
  body: NewSubscription,
  responds: { 201: Subscription },
  handle: async ({ body, caller, services }) => {
    const subscription = await services.subscriptions.add(body, caller);
    return created(subscription, `/subscriptions/${subscription.subscriptionId}`);
  },
});

const removeSubscription = endpoint({
  name: "removeSubscription",
  method: "DELETE",
  route: "subscriptions/{subscription_id}",
  summary: "Remove a subscription and its inventory",
  description:
    "Its vaults and assets leave the inventory, unless AZURE_SUBSCRIPTION_IDS names it too: then they stay and go on being scanned. 409 when only AZURE_SUBSCRIPTION_IDS names it. A call that was cut off is finished by repeating it.",
  tag,
  access: "admin",
  tier: "core",
  conditional: true,
  params,
  responds: {
    200: RemovedSubscription,
  },
  handle: async ({ params, caller, ifMatch, services }) =>
    ok({ deleted: true, inventory: await services.subscriptions.remove(params.subscription_id, caller, ifMatch) }),
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
