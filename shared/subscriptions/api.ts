import * as z from "zod";
import { SCAN_STATUSES } from "../discovery/scan.ts";
import { pageOf, pageParameters } from "../http/paging.ts";
import { singleLine } from "../http/text.ts";
import { VaultFailure } from "../inventory/vault.ts";
import { STEPS } from "./remedy.ts";
import type { ScopeChange as Change, MovingSubscription } from "./scope.ts";
import type { RemovedInventory } from "./subscriptions.ts";

/** Subscriptions as the API takes and shows them. */

export const subscriptionId = z.guid("must be a subscription id (a GUID)");

const count = z.int().min(0);

const LastScan = z.object({
  scanId: z.string(),
  status: z.enum(SCAN_STATUSES).meta({ description: "How that scan ended." }),
  finishedAt: z.iso.datetime(),
});

export const Subscription = z
  .object({
    subscriptionId: z.string(),
    name: z.string().meta({ description: "As it was added, else its display name in Azure, else the id." }),
    source: z.enum(["configuration", "api", "discovered"]).meta({
      description:
        "api: added here. configuration: AZURE_SUBSCRIPTION_IDS. discovered: the service's identity sees it, or earlier scans read it.",
    }),
    state: z.enum(["active", "removing"]).meta({ description: "removing: its DELETE did not finish; repeat it." }),
    watched: z.boolean().meta({ description: "Whether scans read it." }),
    outOfScopeSince: z.iso.datetime().nullable().meta({
      description:
        "When it left the scope: since then what is known of it is in no count and no score. Null while it is watched.",
    }),
    addedAt: z.iso.datetime().nullable().meta({ description: "When it was added; null where nobody added it." }),
    addedBy: z.string().nullable().meta({ description: "Who added it; null where nobody did." }),
    lastScan: LastScan.nullable().meta({ description: "The last scan of it that is over, with that scan's status." }),
    lastFailure: VaultFailure.nullable().meta({
      description: "Why the last scan could not list its vaults, and what to do about it; null where it could.",
    }),
    counts: z.object({
      vaults: count,
      vaultsUnreadable: count.meta({ description: "Of which the last scan could read no list." }),
      assets: count,
      vaultsWithEvents: count.meta({ description: "Of which an event has arrived, such as that of a new version." }),
    }),
    etag: z.string(),
  })
  .meta({ id: "Subscription" });

export const SubscriptionQuery = z.strictObject({
  unread: z
    .enum(["true", "false"])
    .transform((value) => value === "true")
    .optional()
    .meta({
      description:
        "`true`: only watched subscriptions whose last scan could not list the vaults, timed out or was cancelled, and those that no scan has read yet. Those with a `lastFailure` come first. `false`: only the others.",
    }),
  ...pageParameters,
});

export const SubscriptionList = z
  .object({
    ...pageOf(Subscription, "SubscriptionPage").shape,
    lastScan: LastScan.nullable().meta({
      description: "The last scan of all watched subscriptions that is over. Null before the first.",
    }),
    lastFailure: VaultFailure.nullable().meta({
      description:
        "Why that scan could not list the subscriptions, or could not read an entry in their list, and what to do. Null where it listed all.",
    }),
  })
  .meta({ id: "SubscriptionList" });

export const Watching = z
  .object({
    watchAll: z.boolean().meta({ description: "The setting watchAll." }),
    subscriptions: count.meta({ description: "How many are watched, as far as is known." }),
    message: z.string(),
  })
  .meta({ id: "Watching", description: "What the next scan reads." });

export const AddedSubscription = Subscription.extend({
  watching: Watching.meta({ description: "What the next scan reads." }),
}).meta({ id: "AddedSubscription" });

export const NewSubscription = z
  .strictObject({
    subscriptionId,
    name: singleLine(128),
  })
  .meta({ id: "NewSubscription" });

export const RemoveQuery = z.strictObject({
  forget: z
    .enum(["true", "false"])
    .transform((value) => value === "true")
    .optional()
    .meta({ description: "`true`: what is known of its vaults and assets is forgotten at once." }),
});

export const RemovedSubscription = z
  .object({
    deleted: z.literal(true),
    inventory: z
      .object({
        outcome: z.enum(["removed", "kept", "outOfScope"]).meta({
          description:
            "What became of its vaults and assets. kept: it goes on being watched. outOfScope: they left counts, score and alerts, and are forgotten after outOfScopeRetentionDays. removed: they are forgotten.",
        }),
        vaults: count.meta({ description: "Vaults that left." }),
        assets: count.meta({ description: "Assets that left." }),
      })
      .meta({ description: "What became of what was known of it." }),
    warning: z
      .string()
      .nullable()
      .meta({ description: "What somebody should know who narrows the scope; null where nothing left." }),
    watching: Watching.meta({ description: "What the next scan reads." }),
  })
  .meta({ id: "RemovedSubscription" });

/** What somebody should know who has just narrowed the scope; null where nothing left. */
const narrowed = (vaults: number, assets: number): string | null =>
  vaults === 0
    ? null
    : `${vaults} vaults with ${assets} assets are out of scope now: they are in no count, no score and no alert, and are forgotten after outOfScopeRetentionDays. GET /api/assets/discovery/vaults?outOfScope=true lists them.`;

export const removedWarning = ({ outcome, vaults, assets }: RemovedInventory): string | null =>
  outcome === "outOfScope" ? narrowed(vaults, assets) : null;

const Moving = z.object({
  subscriptions: count.meta({ description: "How many subscriptions." }),
  vaults: count,
  assets: count,
  largest: z
    .array(z.object({ subscriptionId: z.string(), name: z.string().nullable(), vaults: count, assets: count }))
    .meta({ description: "Up to 100, those with the most assets first." }),
});

export const ScopeChange = z
  .object({
    leaves: Moving.meta({ description: "What is not watched any more." }),
    returns: Moving.meta({ description: "What is watched again." }),
    warning: z
      .string()
      .nullable()
      .meta({ description: "What somebody should know who narrows the scope; null where nothing leaves." }),
  })
  .meta({ id: "ScopeChange" });

const sum = (moving: readonly MovingSubscription[], of: "vaults" | "assets"): number =>
  moving.reduce((total, one) => total + one[of], 0);

const movingView = (moving: readonly MovingSubscription[]): z.infer<typeof Moving> => ({
  subscriptions: moving.length,
  vaults: sum(moving, "vaults"),
  assets: sum(moving, "assets"),
  largest: [...moving]
    .sort((a, b) => b.assets - a.assets || (a.subscriptionId < b.subscriptionId ? -1 : 1))
    .slice(0, 100)
    .map((one) => ({ ...one, name: one.name ?? null })),
});

export const scopeChangeView = ({ leaves, returns }: Change): z.infer<typeof ScopeChange> => ({
  leaves: movingView(leaves),
  returns: movingView(returns),
  warning: narrowed(sum(leaves, "vaults"), sum(leaves, "assets")),
});

export const ConnectionTest = z
  .object({
    subscriptionId: z.string(),
    ok: z.boolean().meta({ description: "Whether every step worked." }),
    testedAt: z.iso.datetime(),
    sampledVaults: z.array(z.string()).meta({ description: "Resource ids of the vaults whose lists were tried." }),
    steps: z.array(
      z.object({
        step: z.enum(STEPS).meta({ description: "What was tried." }),
        resource: z.string().meta({ description: "Resource id of what it was tried on." }),
        ok: z.boolean(),
        code: z.string().nullable().meta({ description: "As of failed vaults in scans; null where it worked." }),
        detail: z.string().nullable(),
        remedy: z
          .object({
            text: z.string().meta({ description: "What to do, in a sentence." }),
            roleDefinition: z.object({ name: z.string(), id: z.string() }).nullable().meta({
              description:
                "Built-in role whose assignment fixes the step. Null where none does: `text` then names the custom role, or what else to do.",
            }),
            scope: z.string().meta({ description: "Resource id of what to change." }),
            azCliCommand: z
              .string()
              .nullable()
              .meta({ description: "The command that does it; null where none does." }),
          })
          .nullable(),
      }),
    ),
  })
  .meta({ id: "ConnectionTest" });
