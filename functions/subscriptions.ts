import * as z from "zod";
import type { Endpoint } from "../shared/http/endpoint.ts";
import { pageOf, pageParameters, pageRequest } from "../shared/http/paging.ts";
import { created, ok, resource } from "../shared/http/reply.ts";
import { singleLine } from "../shared/http/text.ts";
import { STEPS } from "../shared/subscriptions/remedy.ts";
import { endpoint } from "./kit.ts";
import type { Services } from "./services.ts";

const tag = "Subscriptions";
const subscriptionId = z.guid("must be a subscription id (a GUID)");
const params = z.object({ subscription_id: subscriptionId });

const Subscription = z
  .object({
    subscriptionId: z.string(),
    name: z.string().meta({ description: "The id again where only the configuration names it." }),
    source: z.enum(["configuration", "api"]).meta({ description: "configuration: AZURE_SUBSCRIPTION_IDS." }),
    state: z
      .enum(["active", "removing"])
      .meta({ description: "removing: its DELETE did not finish; it is not scanned. Repeat the DELETE." }),
    addedAt: z.iso.datetime().nullable(),
    addedBy: z.string().nullable(),
    etag: z.string(),
  })
  .meta({ id: "Subscription" });

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
  body: z
    .strictObject({
      subscriptionId,
      name: singleLine(128),
    })
    .meta({ id: "NewSubscription" }),
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
    200: z
      .object({
        deleted: z.literal(true),
        inventory: z.object({
          outcome: z.enum(["removed", "kept"]).meta({ description: "What became of its vaults and assets." }),
          vaults: z.int().meta({ description: "Vaults that left the inventory." }),
          assets: z.int().meta({ description: "Assets that left the inventory." }),
        }),
      })
      .meta({ id: "RemovedSubscription" }),
  },
  handle: async ({ params, caller, ifMatch, services }) =>
    ok({ deleted: true, inventory: await services.subscriptions.remove(params.subscription_id, caller, ifMatch) }),
});

const ConnectionTest = z
  .object({
    subscriptionId: z.string(),
    ok: z.boolean().meta({ description: "Whether every step worked." }),
    testedAt: z.iso.datetime(),
    sampledVaults: z.array(z.string()).meta({ description: "Resource ids of the vaults whose lists were tried." }),
    steps: z.array(
      z.object({
        step: z.enum(STEPS),
        resource: z.string().meta({ description: "Resource id of what it was tried on." }),
        ok: z.boolean(),
        code: z.string().nullable().meta({ description: "As of failed vaults in scans; null where it worked." }),
        detail: z.string().nullable(),
        remedy: z
          .object({
            text: z.string(),
            roleDefinition: z
              .object({ name: z.string(), id: z.string() })
              .nullable()
              .meta({ description: "The role whose assignment mends it; null where no role would." }),
            scope: z.string().meta({ description: "Resource id of what to change." }),
            azCliCommand: z.string().nullable(),
          })
          .nullable(),
      }),
    ),
  })
  .meta({ id: "ConnectionTest" });

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
