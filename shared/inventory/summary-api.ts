import * as z from "zod";
import { pageOf, pageParameters, queryInstant } from "../platform/http/paging.ts";
import { DAY_MS } from "../platform/time.ts";
import { Asset, credentialView, subscriptionId, toInstant } from "./api.ts";
import { ASSET_TYPES, assetId, SOURCES, sourceOf } from "./asset.ts";
import { daysUntil, type Moment } from "./asset-status.ts";
import { CHANGE_KINDS, type LoggedChange } from "./change-log.ts";
import { statusOfAsset } from "./renewal.ts";
import type { AssetSummary } from "./summary.ts";
import { NEXT_DAYS, PAST_DAYS } from "./summary-totals.ts";

/** Schemas and views of the summary and the changes in the API. */

const count = z.int().min(0);
const ByStatus = z
  .object({ healthy: count, warning: count, critical: count, expired: count })
  .meta({ id: "AssetsByStatus", description: "By status at request time." });
const assets = count.meta({ description: "Number of assets." });

/** Default number of days for which changes are counted. */
export const SUMMARY_DAYS = 7;

export const SummaryQuery = z.strictObject({
  type: z.enum(ASSET_TYPES).optional(),
  subscription: subscriptionId.optional(),
  source: z.enum(SOURCES).optional(),
  since: queryInstant("start")
    .optional()
    .meta({ description: `Start time for counting changes. Default: ${SUMMARY_DAYS} days ago.`, type: "string" }),
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
    generatedAt: z.iso.datetime().meta({ description: "Time of the count." }),
    assets: assets.meta({ description: "Number of counted assets that match the filters." }),
    byStatus: ByStatus,
    byType: z
      .object({ certificate: count, key: count, secret: count })
      .meta({ description: "Numbers of assets by type." }),
    byTypeAndStatus: z
      .object({ certificate: ByStatus, key: ByStatus, secret: ByStatus })
      .meta({ description: "Numbers of assets of each type by status." }),
    bySource: z
      .object({
        keyVault: count.meta({ description: "Assets in key vaults." }),
        entra: count.meta({ description: "Credentials of applications." }),
        b2c: count.meta({ description: "Credentials of B2C tenants." }),
      })
      .meta({ description: "Numbers of assets by source." }),
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
      .meta({ description: "Numbers of assets by subscription." }),
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
      .meta({ description: "Numbers of assets by vault." }),
    owners: z
      .object({
        largest: z
          .array(z.object({ owner: z.string(), assets }))
          .meta({ description: "Up to 20, those with the most assets first." }),
        others: z.object({
          owners: count.nullable().meta({ description: "Null when a vault has more owners than are stored by name." }),
          assets,
        }),
        none: count.meta({ description: "Number of assets without an owner." }),
        notCounted: count.meta({
          description:
            "Number of assets whose owners the next scan counts, because they were last scanned by an earlier version or with another OWNER_TAG.",
        }),
      })
      .meta({ description: "Numbers of assets by owner." }),
    endsByDay: z.array(z.object({ date: z.iso.date(), certificate: count, key: count, secret: count })).meta({
      description: `Numbers of assets that expire on each UTC day, from ${PAST_DAYS} days ago to ${NEXT_DAYS - 1} days ahead. Days without expiries are left out.`,
    }),
    endsNext: z.array(EndsNext).meta({ description: "The next 10 assets to expire, excluding expired ones." }),
    changes: z
      .object({
        since: z.iso.datetime(),
        added: count,
        updated: count,
        removed: count,
        complete: z.boolean().meta({
          description:
            "False when more vaults changed than one request reads. Then only the newest changes are counted.",
        }),
      })
      .meta({ description: "Numbers of changes." }),
    outOfScope: z
      .object({ vaults: count, assets })
      .meta({ description: "Assets that are not counted because their subscription is no longer watched." }),
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
      largest: summary.subscriptions.largest.map((subscription) => ({
        ...subscription,
        name: subscription.name ?? null,
      })),
    },
    vaults: {
      ...summary.vaults,
      largest: summary.vaults.largest.map((vault) => ({
        ...vault,
        subscriptionName: names.get(vault.subscriptionId.toLowerCase()) ?? null,
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
        status: statusOfAsset(asset, moment),
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
  const firstDay = Math.floor(now / DAY_MS) - PAST_DAYS;
  return counts.secret.flatMap((secret, dayIndex) => {
    const [certificate, key] = [counts.certificate[dayIndex]!, counts.key[dayIndex]!];
    if (certificate + key + secret === 0) return [];
    return [{ date: new Date((firstDay + dayIndex) * DAY_MS).toISOString().slice(0, 10), certificate, key, secret }];
  });
}

export const ChangeQuery = z.strictObject({
  since: queryInstant("start").optional().meta({ description: "Start: a date or time, inclusive.", type: "string" }),
  until: queryInstant("end")
    .optional()
    .meta({ description: "End: before this time, or up to the end of this date.", type: "string" }),
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
    at: z.iso.datetime().meta({ description: "Time when the inventory changed." }),
    change: z.enum(CHANGE_KINDS).meta({ description: "Kind of change." }),
    assetId: z.string().meta({ description: "ID of the asset, also for removed assets." }),
    source: z.enum(SOURCES).meta({ description: "Source of the asset." }),
    type: z.enum(ASSET_TYPES).meta({ description: "Whether the asset is a secret, a key or a certificate." }),
    name: z.string(),
    title: z.string().nullable().meta({
      description:
        "For a credential of a directory, whose name consists of IDs: its application and name at that time. Null if unknown.",
      example: "Payments API/current",
    }),
    vaultName: z.string().nullable().meta({ description: "Null for assets outside key vaults." }),
    subscriptionId: z.string().nullable(),
    members: z.array(z.string()).meta({
      description:
        "For updates: names of changed properties, such as `expiresOn`, as far as known. Their values are not stored.",
    }),
  })
  .meta({ id: "AssetChange" });
export const ChangeList = pageOf(Change, "AssetChangeList");

export const changeView = ({ at, kind, type, name, title, ...origin }: LoggedChange): z.infer<typeof Change> => {
  const isOfVault = origin.source === "keyVault";
  return {
    at,
    change: kind,
    assetId: assetId({ vaultName: origin.vaultName, type, name }),
    source: origin.source,
    type,
    name,
    title: title ?? null,
    vaultName: isOfVault ? origin.vaultName : null,
    subscriptionId: isOfVault ? origin.subscriptionId : null,
    members: origin.members,
  };
};
