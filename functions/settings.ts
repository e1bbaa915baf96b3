import * as z from "zod";
import type { Actor, Confirmations, Endpoint } from "../shared/platform/http/endpoint.ts";
import { previewQuery } from "../shared/platform/http/parse-request.ts";
import { notFound, Problem } from "../shared/platform/http/problem.ts";
import { ok } from "../shared/platform/http/reply.ts";
import {
  AllSettings,
  categoryChanges,
  categoryIdOf,
  HistoryPurge,
  HistoryStatistics,
  PurgeRequest,
  PurgeResult,
  Setting,
  SettingList,
} from "../shared/settings/api.ts";
import { CATEGORY_NAMES, type Category, defaultsOf, keysOf, SETTING_KEYS } from "../shared/settings/definitions.ts";
import { HISTORY_TYPES, type HistoryType } from "../shared/settings/retention.ts";
import type { Described, SettingDescription } from "../shared/settings/settings.ts";
import { ScopeChange, scopeChangeView } from "../shared/subscriptions/api.ts";
import { endpoint, timer } from "./declare.ts";
import type { Services } from "./services.ts";

/*
 * Endpoints and timers of the settings. A setting has a value from App Configuration, an environment variable or a default. An
 * administrator can override the value through the API. The endpoints of the retention of histories, such as the alert history,
 * are here too.
 */

const tag = "Settings";

/** The setting `watchAll` decides which subscriptions are monitored (the scope), so changing it moves assets out or back in. */
const scopeChange = {
  scopeChange: ScopeChange.optional().meta({
    description: "For watchAll: the assets that leave the scope and those that return to it.",
  }),
};
const FeatureSetting = Setting.extend(scopeChange).meta({ id: "FeatureSetting" });

/** Returns how the scope changes if the override of `watchAll` is removed. */
async function scopeAfterReset({ settings, subscriptions }: Services) {
  const { value } = await settings.afterRemoval("features", "watchAll");
  return { scopeChange: scopeChangeView(await subscriptions.previewWatchAll(value === true)) };
}

/**
 * Settings that require a confirmation for guarded requests, each with its confirmation. A request that turns one of them off
 * needs all confirmations that are required at that time.
 */
const CONFIRMATIONS = { requireStepUp: "stepUp", requireApproval: "approval" } as const;
const CONFIRMATION_KEYS = Object.keys(CONFIRMATIONS) as (keyof typeof CONFIRMATIONS)[];

/** Returns whether the removal of the override turns a required confirmation off. */
async function turnsOff({ settings }: Services, key: string, required: Confirmations): Promise<boolean> {
  const confirmation = CONFIRMATION_KEYS.find((name) => name === key);
  if (!confirmation || !required[CONFIRMATIONS[confirmation]]) return false;
  const described = (await settings.describe("features")).settings.find((setting) => setting.key === key);
  return described?.source === "override" && (await settings.afterRemoval("features", key)).value === false;
}

/**
 * Rejects a change that no administrator could undo. To turn on `requireStepUp`, the user must have confirmed a step-up. To turn on
 * `requireApproval`, there must be two administrators.
 *
 * @throws {Problem} stepUpRequired, conflict
 */
async function requireConfirmable(
  { settings, access }: Services,
  actor: Actor,
  change: Partial<Record<string, unknown>>,
) {
  const { requireStepUp, requireApproval } = await settings.values();
  if (change.requireStepUp === true && !requireStepUp && !access.stepUp.isFresh(actor))
    throw await access.stepUp.problem(actor);
  if (change.requireApproval === true && !requireApproval && !(await access.administrators.hasAtLeastTwo())) {
    throw new Problem(
      "conflict",
      "requireApproval needs two active administrators, because each approves the requests of the other. Make another user an administrator first.",
    );
  }
}

const withEtag = <Json>(etag: string, json: Json) => ({ ...ok(json), headers: { ETag: etag } });

const getAllSettings = endpoint({
  name: "getAllSettings",
  method: "GET",
  route: "api/settings/all",
  summary: "List all settings by category",
  tag,
  access: "user",
  tier: "core",
  versioned: true,
  responds: { 200: AllSettings },
  handle: async ({ services }) => {
    const { etag, settings } = await services.settings.describeAll();
    const { "alert-defaults": alertDefaults, "compliance-policy": compliancePolicy, ...others } = settings;
    return withEtag(etag, { licenseTier: await services.licensing.tier(), ...others, alertDefaults, compliancePolicy });
  },
});

const removeAllOverrides = endpoint({
  name: "removeAllOverrides",
  method: "DELETE",
  route: "api/settings/all",
  summary: "Remove all overrides",
  description: "Each setting falls back to App Configuration, its environment variable or its default.",
  tag,
  access: "admin",
  tier: "core",
  conditional: true,
  query: previewQuery("returns the settings that have an override."),
  // Guarded requests need the confirmations (a fresh second factor, an approval) that settings require. `required` has the
  // confirmations that are required now. A request that turns off such a requirement needs them.
  guarded: async ({ query, services }, required) => {
    if (query.preview) return false;
    for (const key of CONFIRMATION_KEYS) if (await turnsOff(services, key, required)) return true;
    return false;
  },
  example: { query: { preview: "true" } },
  responds: {
    200: z
      .object({
        deleted: z.boolean().meta({ description: "False for a dry run." }),
        keys: z.array(z.enum(SETTING_KEYS)).meta({ description: "The settings that had an override." }),
        ...scopeChange,
      })
      .meta({ id: "RemovedOverrides" }),
  },
  handle: async ({ services, query, caller, confirmed, ifMatch }) => {
    const { settings } = await services.settings.describeAll();
    // Only a setting with an override has a time of change.
    const overridden = Object.values(settings)
      .flat()
      .filter(({ updatedAt }) => updatedAt !== null)
      .map(({ key }) => key);
    const scope = overridden.includes("watchAll") ? await scopeAfterReset(services) : {};
    if (query.preview) return ok({ deleted: false, keys: overridden, ...scope });
    return ok({ deleted: true, keys: await services.settings.removeAll(caller, ifMatch, confirmed), ...scope });
  },
});

const readCategory = (category: Category) =>
  endpoint({
    name: `get${categoryIdOf(category)}Settings`,
    method: "GET",
    route: `api/settings/${category}`,
    summary: `Get the settings of the category ${category}`,
    tag,
    access: "user",
    tier: "core",
    versioned: true,
    responds: { 200: SettingList },
    handle: async ({ services }) => {
      const described = await services.settings.describe(category);
      return withEtag(described.etag, described.settings);
    },
  });

const updateCategory = (category: Category) =>
  endpoint({
    name: `update${categoryIdOf(category)}Settings`,
    method: "PUT",
    route: `api/settings/${category}`,
    summary: `Override settings of the category ${category}`,
    description: updateDescription(category),
    tag,
    access: "admin",
    tier: "core",
    conditional: true,
    query: previewQuery("returns the current settings."),
    body: categoryChanges(category),
    example: { query: { preview: "true" }, body: defaultsOf(category) },
    responds: { 200: SettingList },
    handle: async ({ services, query, body, caller, ifMatch }) => {
      const described = query.preview
        ? await services.settings.describe(category)
        : await services.settings.update(category, body, caller, ifMatch);
      return withEtag(described.etag, described.settings);
    },
  });

const updateDescription = (category: Category): string =>
  `Accepts any subset of ${keysOf(category).join(", ")}. If one value is invalid, nothing is saved. All instances apply changes within 30 seconds.`;

/**
 * The category `features` has its own endpoint: changing `watchAll` changes the scope, so the response contains the scope
 * change.
 */
const updateFeatures = endpoint({
  name: "updateFeaturesSettings",
  method: "PUT",
  route: "api/settings/features",
  summary: "Override settings of the category features",
  description: `${updateDescription("features")} If watchAll is included, its setting reports in scopeChange which assets left the scope and which returned.`,
  tag,
  access: "admin",
  tier: "core",
  conditional: true,
  query: previewQuery("returns the current settings and the scope change of watchAll."),
  body: categoryChanges("features"),
  guarded: ({ query, body }, required) =>
    !query.preview && CONFIRMATION_KEYS.some((key) => body[key] === false && required[CONFIRMATIONS[key]]),
  example: {
    query: { preview: "true" },
    body: { enableNotifications: true, enableComplianceScanning: true, watchAll: true },
  },
  responds: {
    200: z.array(FeatureSetting),
  },
  handle: async ({ services, query, body, actor, caller, confirmed, ifMatch }) => {
    const { watchAll } = body;
    if (!query.preview) await requireConfirmable(services, actor, body);
    const change =
      typeof watchAll === "boolean"
        ? scopeChangeView(await services.subscriptions.previewWatchAll(watchAll))
        : undefined;
    const described: Described<SettingDescription[]> = query.preview
      ? await services.settings.describe("features")
      : await services.settings.update("features", body, caller, ifMatch, confirmed);
    const settings = described.settings.map((setting) =>
      setting.key === "watchAll" && change ? { ...setting, scopeChange: change } : setting,
    );
    return withEtag(described.etag, settings);
  },
});

/** Each category has its own routes, because a route parameter would also match `api/settings/all`. */
const categoryEndpoints: Endpoint<Services>[] = CATEGORY_NAMES.flatMap((category) => [
  readCategory(category),
  category === "features" ? updateFeatures : updateCategory(category),
]);

const removeOverride = endpoint({
  name: "removeOverride",
  method: "DELETE",
  route: "api/settings/{category}/{key}",
  summary: "Remove an override",
  description:
    "Returns the setting after the removal. For watchAll, scopeChange reports which assets left the scope and which returned. Returns 404 if the setting does not exist or has no override.",
  tag,
  access: "admin",
  tier: "core",
  conditional: true,
  params: z.object({
    category: z.string().meta({ enum: CATEGORY_NAMES }),
    key: z.string().meta({ enum: SETTING_KEYS }),
  }),
  query: previewQuery("returns the setting without its override."),
  guarded: async ({ params, query, services }, required) =>
    !query.preview && (await turnsOff(services, params.key, required)),
  example: { query: { preview: "true" } },
  responds: {
    200: z
      .object({
        deleted: z.boolean().meta({ description: "False for a dry run." }),
        setting: FeatureSetting.meta({ description: "The setting without the override." }),
      })
      .meta({ id: "RemovedOverride" }),
  },
  handle: async ({ services, params, query, caller, confirmed, ifMatch }) => {
    const category = CATEGORY_NAMES.find((name) => name === params.category);
    if (!category) throw notFound(`The category ${params.category.slice(0, 64)}`);
    const withoutOverride = await services.settings.afterRemoval(category, params.key);
    const scope = withoutOverride.key === "watchAll" ? await scopeAfterReset(services) : {};
    const setting = query.preview
      ? withoutOverride
      : await services.settings.remove(category, params.key, caller, ifMatch, confirmed);
    return ok({ deleted: !query.preview, setting: { ...setting, ...scope } });
  },
});

const getRetentionStats = endpoint({
  name: "getRetentionStats",
  method: "GET",
  route: "api/settings/retention/stats",
  summary: "Get the size of each history",
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
  description: "Removes only entries older than retentionDays, or older than the retention settings. Also runs daily.",
  tag,
  access: "admin",
  tier: "core",
  body: PurgeRequest,
  bodyOptional: true,
  example: { body: { retentionDays: 3650 } },
  harmlessRepeat: true,
  responds: {
    200: PurgeResult,
  },
  handle: async ({ services, body, caller }) => {
    const histories = await services.retention.purgeAll(body.retentionDays, caller);
    return ok({ removed: histories.reduce((sum, { removed }) => sum + removed, 0), histories });
  },
});

const purgeHistory = endpoint({
  name: "purgeHistory",
  method: "POST",
  route: "api/settings/retention/purge/{history_type}",
  summary: "Purge a history",
  description: "Removes only entries older than retentionDays, or older than the retention setting. Also runs daily.",
  tag,
  access: "admin",
  tier: "core",
  params: z.object({ history_type: z.string().meta({ enum: HISTORY_TYPES }) }),
  body: PurgeRequest,
  bodyOptional: true,
  example: { body: { retentionDays: 3650 } },
  harmlessRepeat: true,
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
    schedule: "50 5,15,25,35,45,55 * * * *",
    handle: ({ services }) => services.settings.notify(),
  }),
  timer({
    name: "purgeDueHistories",
    schedule: "0 43 2 * * *",
    handle: async ({ services, requestId }) => {
      await services.retention.runDue({ actor: "system", requestId });
    },
  }),
];
