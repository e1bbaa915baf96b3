import * as z from "zod";
import { pageOf, pageParameters, queryInstant } from "../http/paging.ts";
import { DAY_MS } from "../time.ts";
import { Asset, credentialView, subscriptionId, toInstant } from "./api.ts";
import { ASSET_TYPES, assetId, SOURCES, sourceOf } from "./asset.ts";
import { CHANGE_KINDS, type LoggedChange } from "./change-log.ts";
import { daysUntil, type Moment, statusOf } from "./health.ts";
import type { AssetSummary } from "./summary.ts";
import { NEXT_DAYS, PAST_DAYS } from "./summary-totals.ts";

/** The summary of the inventory and its changes as the API shows them. */

const count = z.int().min(0);
const ByStatus = z
  .object({ healthy: count, warning: count, critical: count, expired: count })
  .meta({ id: "AssetsByStatus", description: "By the time until they expire and the compliance policy, now." });
const assets = count.meta({ description: "How many assets." });

/** Since when changes are counted where nothing is said, in days. */
export const SUMMARY_DAYS = 7;

export const SummaryQuery = z.strictObject({
  type: z.enum(ASSET_TYPES).optional(),
  subscription: subscriptionId.optional(),
  source: z.enum(SOURCES).optional(),
  since: queryInstant("start")
    .optional()
    .meta({ description: `Counts changes since then; ${SUMMARY_DAYS} days when left out.`, type: "string" }),
});

const EndsNext = Asset.pick({
  id: true,
  source: true,
  type: true,
  name: true,
  vaultName: true,
  subscriptionId: true,
  subscriptionName: true,
  owner: true,
  enabled: true,
  status: true,
  credential: true,
})
  .extend({ expiresOn: z.iso.datetime(), daysUntilExpiry: z.int() })
  .meta({ id: "EndsNext" });

export const Summary = z
  .object({
    generatedAt: z.iso.datetime().meta({ description: "When it was counted." }),
    assets: assets.meta({ description: "How many assets count and fit the filters." }),
    byStatus: ByStatus,
    byType: z
      .object({ certificate: count, key: count, secret: count })
      .meta({ description: "How many assets, by type." }),
    byTypeAndStatus: z
      .object({ certificate: ByStatus, key: ByStatus, secret: ByStatus })
      .meta({ description: "How many assets of each type, by status." }),
    bySource: z
      .object({
        keyVault: count.meta({ description: "Of key vaults." }),
        entra: count.meta({ description: "Of applications." }),
        b2c: count.meta({ description: "Of B2C tenants." }),
      })
      .meta({ description: "How many assets, by what holds them." }),
    subscriptions: z
      .object({
        largest: z
          .array(
            z.object({
              subscriptionId: z.string(),
              name: z.string().nullable(),
              vaults: count,
              assets,
              byStatus: ByStatus,
            }),
          )
          .meta({ description: "Up to 100, those with the most assets first." }),
        others: z.object({ subscriptions: count, assets }),
      })
      .meta({ description: "How many assets, by subscription." }),
    vaults: z
      .object({
        total: count,
        largest: z
          .array(
            z.object({
              name: z.string(),
              subscriptionId: z.string(),
              subscriptionName: z.string().nullable(),
              assets,
              byStatus: ByStatus,
            }),
          )
          .meta({ description: "Up to 20, those with the most assets first." }),
        others: z.object({ vaults: count, assets }),
      })
      .meta({ description: "How many assets, by vault." }),
    owners: z
      .object({
        largest: z
          .array(z.object({ owner: z.string(), assets }))
          .meta({ description: "Up to 20, those with the most assets first." }),
        others: z.object({
          owners: count.nullable().meta({ description: "Null where a vault has more owners than are kept by name." }),
          assets,
        }),
        none: count.meta({ description: "Assets without an owner." }),
        notCounted: count.meta({
          description:
            "Assets whose owners the next scan counts: they were last scanned by an earlier version, or under another OWNER_TAG.",
        }),
      })
      .meta({ description: "How many assets, by owner." }),
    endsByDay: z.array(z.object({ date: z.iso.date(), certificate: count, key: count, secret: count })).meta({
      description: `How many end on each day of UTC, from ${PAST_DAYS} days ago to ${NEXT_DAYS - 1} days ahead. Days on which none does are left out.`,
    }),
    endsNext: z.array(EndsNext).meta({ description: "The 10 that expire next, of those that have not expired." }),
    changes: z
      .object({
        since: z.iso.datetime(),
        added: count,
        updated: count,
        removed: count,
        complete: z.boolean().meta({
          description: "False where more vaults changed than one request reads: then the newest changes are counted.",
        }),
      })
      .meta({ description: "What changed." }),
    outOfScope: z
      .object({ vaults: count, assets })
      .meta({ description: "What is in no count since its subscription is not watched any more." }),
  })
  .meta({ id: "AssetSummary" });

export const summaryView = (summary: AssetSummary, moment: Moment, since: Date): z.infer<typeof Summary> => {
  const names = new Map(summary.subscriptions.largest.map(({ subscriptionId, name }) => [subscriptionId, name]));
  return {
    generatedAt: new Date(moment.now).toISOString(),
    assets: summary.assets,
    byStatus: summary.byStatus,
    byType: summary.byType,
    byTypeAndStatus: summary.byTypeAndStatus,
    bySource: summary.bySource,
    subscriptions: {
      ...summary.subscriptions,
      largest: summary.subscriptions.largest.map((one) => ({ ...one, name: one.name ?? null })),
    },
    vaults: {
      ...summary.vaults,
      largest: summary.vaults.largest.map((one) => ({
        ...one,
        subscriptionName: names.get(one.subscriptionId.toLowerCase()) ?? null,
      })),
    },
    owners: { ...summary.owners, others: { ...summary.owners.others, owners: summary.owners.others.owners ?? null } },
    endsByDay: endsByDayView(summary.endsByDay, moment),
    endsNext: summary.endsNext.map(({ asset, owner, subscriptionName }) => {
      const source = sourceOf(asset);
      return {
        id: assetId(asset),
        source,
        type: asset.type,
        name: asset.name,
        vaultName: source === "keyVault" ? asset.vaultName : null,
        subscriptionId: source === "keyVault" ? asset.subscriptionId : null,
        subscriptionName: subscriptionName ?? null,
        owner: owner ?? null,
        enabled: asset.enabled,
        status: statusOf(asset.expiresOn, moment),
        expiresOn: toInstant(asset.expiresOn)!,
        daysUntilExpiry: daysUntil(asset.expiresOn!, moment),
        ...(asset.credential && { credential: credentialView(asset.credential) }),
      };
    }),
    changes: { since: since.toISOString(), ...summary.changes },
    outOfScope: summary.outOfScope,
  };
};

function endsByDayView(counts: AssetSummary["endsByDay"], { now }: Moment): z.infer<typeof Summary>["endsByDay"] {
  const first = Math.floor(now / DAY_MS) - PAST_DAYS;
  return counts.secret.flatMap((secret, at) => {
    const [certificate, key] = [counts.certificate[at]!, counts.key[at]!];
    if (certificate + key + secret === 0) return [];
    return [{ date: new Date((first + at) * DAY_MS).toISOString().slice(0, 10), certificate, key, secret }];
  });
}

export const ChangeQuery = z.strictObject({
  since: queryInstant("start").optional().meta({ description: "From this date or instant on.", type: "string" }),
  until: queryInstant("end")
    .optional()
    .meta({ description: "Before this instant, or up to the end of this date.", type: "string" }),
  change: z.enum(CHANGE_KINDS).optional(),
  type: z.enum(ASSET_TYPES).optional(),
  vault: z
    .string()
    .regex(/^[a-zA-Z0-9-]{1,127}$/, "must be a vault name")
    .optional(),
  subscription: subscriptionId.optional(),
  source: z.enum(SOURCES).optional(),
  ...pageParameters,
});

export const Change = z
  .object({
    at: z.iso.datetime().meta({ description: "When the inventory was changed." }),
    change: z.enum(CHANGE_KINDS).meta({ description: "What happened to it." }),
    assetId: z.string().meta({ description: "Of a removed asset the id that it had." }),
    source: z.enum(SOURCES).meta({ description: "What holds it." }),
    type: z.enum(ASSET_TYPES).meta({ description: "Whether it is a secret, a key or a certificate." }),
    name: z.string(),
    vaultName: z.string().nullable().meta({ description: "Null for what is no key vault's." }),
    subscriptionId: z.string().nullable(),
    members: z.array(z.string()).meta({
      description:
        "Of an update the facts that differ, such as `expiresOn`, as far as they are known; the values are not kept.",
    }),
  })
  .meta({ id: "AssetChange" });
export const ChangeList = pageOf(Change, "AssetChangeList");

export const changeView = ({ at, kind, type, name, ...of }: LoggedChange): z.infer<typeof Change> => {
  const isOfVault = of.source === "keyVault";
  return {
    at,
    change: kind,
    assetId: assetId({ vaultName: of.vaultName, type, name }),
    source: of.source,
    type,
    name,
    vaultName: isOfVault ? of.vaultName : null,
    subscriptionId: isOfVault ? of.subscriptionId : null,
    members: of.members,
  };
};
