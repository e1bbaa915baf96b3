import * as z from "zod";
import { SCAN_STATUSES } from "../discovery/scan.ts";
import { VaultFailure } from "../inventory/vault.ts";
import { pageOf, pageParameters } from "../platform/http/paging.ts";
import { queryBoolean } from "../platform/http/query-boolean.ts";
import { singleLine } from "../platform/http/single-line.ts";
import { sum } from "../platform/sum.ts";
import { STEPS } from "./remedy.ts";
import type { ScopeChange as Change, MovingSubscription } from "./scope.ts";
import type { RemovedInventory } from "./subscriptions.ts";

// Schemas of subscriptions in the API, and conversions of stored data to them. A subscription is "watched", or "in scope", if
// scans read it.

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
    name: z
      .string()
      .meta({ description: "Name from the registration, or else the display name in Azure, or else the ID." }),
    source: z.enum(["configuration", "api", "discovered"]).meta({
      description:
        "`api`: added by this API. `configuration`: in AZURE_SUBSCRIPTION_IDS. `discovered`: accessible to the service's identity, or read by earlier scans.",
    }),
    state: z
      .enum(["active", "removing"])
      .meta({ description: "`removing`: its DELETE did not finish; repeat the call." }),
    watched: z.boolean().meta({ description: "Whether scans read the subscription." }),
    outOfScopeSince: z.iso.datetime().nullable().meta({
      description:
        "Time when the subscription left the scope. Its assets are not counted since then. Null while it is watched.",
    }),
    addedAt: z.iso
      .datetime()
      .nullable()
      .meta({ description: "Time when the subscription was added. Null if it was not added." }),
    addedBy: z
      .string()
      .nullable()
      .meta({ description: "Person who added the subscription. Null if it was not added." }),
    lastScan: LastScan.nullable().meta({ description: "Last completed scan of the subscription, with its status." }),
    lastFailure: VaultFailure.nullable().meta({
      description: "Why the last scan could not list the vaults, and how to fix it. Null when it could.",
    }),
    counts: z.object({
      vaults: count,
      vaultsUnreadable: count.meta({ description: "Number of vaults without a list that the last scan could read." }),
      vaultsWithFailures: count.meta({
        description:
          "Number of vaults with a list that the last scan could not read; equals the vaults with failing=true.",
      }),
      assets: count,
      vaultsWithEvents: count.meta({ description: "Number of vaults that have sent an event, such as a new version." }),
    }),
    etag: z.string(),
  })
  .meta({ id: "Subscription" });

export const SubscriptionQuery = z.strictObject({
  unread: queryBoolean().optional().meta({
    description:
      "`true`: only watched subscriptions whose last scan could not list the vaults, timed out or was cancelled, and those that no scan has read yet. Subscriptions with a `lastFailure` come first. `false`: only the others.",
  }),
  ...pageParameters,
});

export const SubscriptionList = z
  .object({
    ...pageOf(Subscription, "SubscriptionPage").shape,
    lastScan: LastScan.nullable().meta({
      description: "Last ended scan of all watched subscriptions. Null before the first.",
    }),
    lastFailure: VaultFailure.nullable().meta({
      description:
        "Why that scan could not list the subscriptions or could not read an entry of the list, and how to fix it. Null if it listed all.",
    }),
  })
  .meta({ id: "SubscriptionList" });

export const Watching = z
  .object({
    watchAll: z.boolean().meta({ description: "Value of the setting watchAll." }),
    subscriptions: count.meta({ description: "Number of watched subscriptions, as far as known." }),
    message: z.string(),
  })
  .meta({ id: "Watching", description: "Scope of the next scan." });

export const AddedSubscription = Subscription.extend({
  watching: Watching.meta({ description: "Scope of the next scan." }),
}).meta({ id: "AddedSubscription" });

export const NewSubscription = z
  .strictObject({
    subscriptionId,
    name: singleLine(128),
  })
  .meta({ id: "NewSubscription" });

export const RemoveQuery = z.strictObject({
  forget: queryBoolean().optional().meta({ description: "`true` deletes the data of its vaults and assets at once." }),
});

export const RemovedSubscription = z
  .object({
    deleted: z.literal(true),
    inventory: z
      .object({
        outcome: z.enum(["removed", "kept", "outOfScope"]).meta({
          description:
            "Effect on its vaults and assets. `kept`: the subscription stays watched. `outOfScope`: they left counts, score and alerts, and are deleted after outOfScopeRetentionDays. `removed`: they were deleted.",
        }),
        vaults: count.meta({ description: "Number of vaults that left the scope." }),
        assets: count.meta({ description: "Number of assets that left the scope." }),
      })
      .meta({ description: "Effect on stored data." }),
    warning: z
      .string()
      .nullable()
      .meta({ description: "Warning about the reduced scope. Null when nothing left the scope." }),
    watching: Watching.meta({ description: "Scope of the next scan." }),
  })
  .meta({ id: "RemovedSubscription" });

/** Returns the warning for a user who narrows the scope. Null if no vault leaves it. */
const scopeWarning = (vaults: number, assets: number): string | null =>
  vaults === 0
    ? null
    : `${vaults} vaults with ${assets} assets are out of scope now. They are excluded from counts, the score and alerts, and are deleted after outOfScopeRetentionDays. GET /api/assets/discovery/vaults?outOfScope=true lists them.`;

/** Returns the warning for a removed subscription. Null if nothing left the scope. */
export const removedWarning = ({ outcome, vaults, assets }: RemovedInventory): string | null =>
  outcome === "outOfScope" ? scopeWarning(vaults, assets) : null;

const Moving = z.object({
  subscriptions: count.meta({ description: "Number of subscriptions." }),
  vaults: count,
  assets: count,
  largest: z
    .array(z.object({ subscriptionId: z.string(), name: z.string().nullable(), vaults: count, assets: count }))
    .meta({ description: "Up to 100, those with the most assets first." }),
});

export const ScopeChange = z
  .object({
    leaves: Moving.meta({ description: "Subscriptions that are no longer watched." }),
    returns: Moving.meta({ description: "Subscriptions that are watched again." }),
    warning: z
      .string()
      .nullable()
      .meta({ description: "Warning about the reduced scope. Null when nothing leaves the scope." }),
  })
  .meta({ id: "ScopeChange" });

const viewOfMoving = (moving: readonly MovingSubscription[]): z.infer<typeof Moving> => ({
  subscriptions: moving.length,
  vaults: sum(moving, ({ vaults }) => vaults),
  assets: sum(moving, ({ assets }) => assets),
  largest: [...moving]
    .sort((a, b) => b.assets - a.assets || (a.subscriptionId < b.subscriptionId ? -1 : 1))
    .slice(0, 100)
    .map((subscription) => ({ ...subscription, name: subscription.name ?? null })),
});

/** Converts a change of the scope to the form in API responses. */
export const scopeChangeView = ({ leaves, returns }: Change): z.infer<typeof ScopeChange> => ({
  leaves: viewOfMoving(leaves),
  returns: viewOfMoving(returns),
  warning: scopeWarning(
    sum(leaves, ({ vaults }) => vaults),
    sum(leaves, ({ assets }) => assets),
  ),
});

export const ConnectionTest = z
  .object({
    subscriptionId: z.string(),
    ok: z.boolean().meta({ description: "Whether every step passed." }),
    testedAt: z.iso.datetime(),
    sampledVaults: z.array(z.string()).meta({ description: "Resource IDs of the tested vaults." }),
    steps: z.array(
      z.object({
        step: z.enum(STEPS).meta({ description: "Operation that was tested." }),
        resource: z.string().meta({ description: "Resource ID of the tested resource." }),
        ok: z.boolean(),
        code: z
          .string()
          .nullable()
          .meta({ description: "Failure, as in the failed vaults of scans. Null when the step passed." }),
        detail: z.string().nullable(),
        remedy: z
          .object({
            text: z.string().meta({ description: "How to fix the problem, in a sentence." }),
            roleDefinition: z.object({ name: z.string(), id: z.string() }).nullable().meta({
              description:
                "Built-in role that fixes the problem when assigned. Null if none does: `text` then names the custom role, or another fix.",
            }),
            scope: z.string().meta({ description: "Resource ID of the resource to change." }),
            azCliCommand: z
              .string()
              .nullable()
              .meta({ description: "Command that fixes the problem. Null if there is none." }),
          })
          .nullable(),
      }),
    ),
  })
  .meta({ id: "ConnectionTest" });
