import * as z from "zod";
import { singleLine } from "../http/text.ts";
import { STEPS } from "./remedy.ts";

/** Subscriptions as the API takes and shows them. */

export const subscriptionId = z.guid("must be a subscription id (a GUID)");

export const Subscription = z
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

export const NewSubscription = z
  .strictObject({
    subscriptionId,
    name: singleLine(128),
  })
  .meta({ id: "NewSubscription" });

export const RemovedSubscription = z
  .object({
    deleted: z.literal(true),
    inventory: z.object({
      outcome: z.enum(["removed", "kept"]).meta({ description: "What became of its vaults and assets." }),
      vaults: z.int().meta({ description: "Vaults that left the inventory." }),
      assets: z.int().meta({ description: "Assets that left the inventory." }),
    }),
  })
  .meta({ id: "RemovedSubscription" });

export const ConnectionTest = z
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
