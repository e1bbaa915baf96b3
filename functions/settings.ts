import * as z from "zod";
import type { Endpoint } from "../shared/http/endpoint.ts";
import { notFound } from "../shared/http/problem.ts";
import { ok } from "../shared/http/reply.ts";
import {
  AllSettings,
  HistoryPurge,
  HistoryStatistics,
  PurgeRequest,
  Setting,
  SettingList,
} from "../shared/settings/api.ts";
import {
  CATEGORIES,
  CATEGORY_NAMES,
  type Category,
  changesOf,
  keysOf,
  SETTING_KEYS,
} from "../shared/settings/definitions.ts";
import { HISTORY_TYPES, type HistoryType } from "../shared/settings/retention.ts";
import { endpoint, timer } from "./kit.ts";
import type { Services } from "./services.ts";

const tag = "Settings";

const withEtag = (etag: string, json: unknown) => ({ ...ok(json), headers: { ETag: etag } });

const getAllSettings = endpoint({
  name: "getAllSettings",
  method: "GET",
  route: "api/settings/all",
  summary: "All settings, by category",
  tag,
  access: "user",
  tier: "core",
  responds: { 200: AllSettings },
  handle: async ({ services }) => {
    const all = await services.settings.describeAll();
    const byMember = CATEGORY_NAMES.map((category) => [CATEGORIES[category], all.settings[category]] as const);
    return withEtag(all.etag, { licenseTier: await services.licensing.tier(), ...Object.fromEntries(byMember) });
  },
});

const removeAllOverrides = endpoint({
  name: "removeAllOverrides",
  method: "DELETE",
  route: "api/settings/all",
  summary: "Remove every override",
  description: "Each setting falls back to App Configuration, the environment or its default.",
  tag,
  access: "admin",
  tier: "core",
  conditional: true,
  responds: {
    200: z
      .object({
        deleted: z.literal(true),
        keys: z.array(z.enum(SETTING_KEYS)).meta({ description: "The settings that had an override." }),
      })
      .meta({ id: "RemovedOverrides" }),
  },
  handle: async ({ services, caller, ifMatch }) =>
    ok({ deleted: true, keys: await services.settings.removeAll(caller, ifMatch) }),
});

/** Names of functions and schemas: `alert-defaults` becomes `AlertDefaults`. */
const titled = (category: Category): string => CATEGORIES[category].replace(/^./, (letter) => letter.toUpperCase());

/** A pair per category, since a parameter in the last part would also match `api/settings/all`. */
const categoryEndpoints = CATEGORY_NAMES.flatMap((category) => [
  endpoint({
    name: `get${titled(category)}Settings`,
    method: "GET",
    route: `api/settings/${category}`,
    summary: `The settings of the category ${category}`,
    tag,
    access: "user",
    tier: "core",
    responds: { 200: SettingList },
    handle: async ({ services }) => {
      const described = await services.settings.describe(category);
      return withEtag(described.etag, described.settings);
    },
  }),
  endpoint({
    name: `update${titled(category)}Settings`,
    method: "PUT",
    route: `api/settings/${category}`,
    summary: `Override settings of the category ${category}`,
    description: `Any of ${keysOf(category).join(", ")}; all are taken or none. Every instance feels it within 30 seconds.`,
    tag,
    access: "admin",
    tier: "core",
    conditional: true,
    body: changesOf(category).meta({ id: `${titled(category)}Changes` }),
    responds: { 200: SettingList },
    handle: async ({ services, body, caller, ifMatch }) => {
      const described = await services.settings.update(category, body, caller, ifMatch);
      return withEtag(described.etag, described.settings);
    },
  }),
]);

const removeOverride = endpoint({
  name: "removeOverride",
  method: "DELETE",
  route: "api/settings/{category}/{key}",
  summary: "Remove one override",
  description: "Answers the setting as it is then. 404 when there is no such setting or it has no override.",
  tag,
  access: "admin",
  tier: "core",
  conditional: true,
  params: z.object({
    category: z.string().meta({ enum: CATEGORY_NAMES }),
    key: z.string().meta({ enum: SETTING_KEYS }),
  }),
  responds: { 200: z.object({ deleted: z.literal(true), setting: Setting }).meta({ id: "RemovedOverride" }) },
  handle: async ({ services, params, caller, ifMatch }) => {
    const category = CATEGORY_NAMES.find((name) => name === params.category);
    if (!category) throw notFound(`The category ${params.category.slice(0, 64)}`);
    return ok({ deleted: true, setting: await services.settings.remove(category, params.key, caller, ifMatch) });
  },
});

const getRetentionStats = endpoint({
  name: "getRetentionStats",
  method: "GET",
  route: "api/settings/retention/stats",
  summary: "How much each history holds",
  tag,
  access: "user",
  tier: "core",
  responds: { 200: HistoryStatistics },
  handle: async ({ services }) =>
    ok({
      histories: await services.retention.stats(),
      auditMinimumRetentionDays: services.config.AUDIT_MINIMUM_RETENTION_DAYS,
    }),
});

const purgeHistories = endpoint({
  name: "purgeHistories",
  method: "POST",
  route: "api/settings/retention/purge",
  summary: "Purge all histories",
  description: "Only what is older than retentionDays, or than the retention settings. Happens daily by itself.",
  tag,
  access: "admin",
  tier: "core",
  body: PurgeRequest,
  bodyOptional: true,
  responds: {
    200: z.object({ removed: z.int(), histories: z.array(HistoryPurge) }).meta({ id: "PurgeResult" }),
  },
  handle: async ({ services, body, caller }) => {
    const histories = await services.retention.purgeAll(body.retentionDays, caller);
    return ok({ removed: histories.reduce((sum, one) => sum + one.removed, 0), histories });
  },
});

const purgeHistory = endpoint({
  name: "purgeHistory",
  method: "POST",
  route: "api/settings/retention/purge/{history_type}",
  summary: "Purge one history",
  description: "Only what is older than retentionDays, or than the retention setting.",
  tag,
  access: "admin",
  tier: "core",
  params: z.object({ history_type: z.string().meta({ enum: HISTORY_TYPES }) }),
  body: PurgeRequest,
  bodyOptional: true,
  responds: { 200: HistoryPurge },
  handle: async ({ services, params, body, caller }) => {
    const type = HISTORY_TYPES.find((name: HistoryType) => name === params.history_type);
    if (!type) throw notFound(`The history ${params.history_type.slice(0, 64)}`);
    return ok(await services.retention.purge(type, body.retentionDays, caller));
  },
});

export const endpoints: Endpoint<Services>[] = [
  getAllSettings,
  removeAllOverrides,
  ...categoryEndpoints,
  removeOverride,
  getRetentionStats,
  purgeHistories,
  purgeHistory,
];

export const timers = [
  timer({
    name: "notifyOfChangedSettings",
    schedule: () => "50 5,15,25,35,45,55 * * * *",
    handle: ({ services }) => services.settings.notify(),
  }),
  timer({
    name: "purgeDueHistories",
    schedule: () => "0 43 2 * * *",
    handle: async ({ services, requestId }) => {
      await services.retention.runDue({ actor: "system", requestId });
    },
  }),
];
