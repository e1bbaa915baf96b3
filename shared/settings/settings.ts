import { createHash, randomUUID } from "node:crypto";
import * as z from "zod";
import type { Audit } from "../audit/audit.ts";
import { audited } from "../audit/audited.ts";
import type { AppConfiguration } from "../platform/azure/app-configuration.ts";
import { CloudFailure } from "../platform/azure/failure.ts";
import type { Config } from "../platform/config/config.ts";
import { requireMatch } from "../platform/http/conditional-requests.ts";
import type { Caller, Confirmations } from "../platform/http/endpoint.ts";
import { parse } from "../platform/http/parse-request.ts";
import { notFound, Problem } from "../platform/http/problem.ts";
import type { Clock, Logger } from "../platform/runtime.ts";
import { undefinedIfChanged } from "../platform/storage/conflict.ts";
import { entity, type Row, withoutKeys } from "../platform/storage/entity.ts";
import type { Tables } from "../platform/storage/tables.ts";
import {
  CATEGORY_NAMES,
  type Category,
  changesOf,
  DEFINITIONS,
  keyIn,
  keysOf,
  SETTING_KEYS,
  type SettingKey,
  type SettingValue,
  type SettingValues,
} from "./definitions.ts";
import {
  type Ignored,
  type Layers,
  type Overrides,
  type Resolved,
  resolve,
  type Source,
  thresholdConflict,
  valuesOf,
} from "./effective-values.ts";

export type { SettingKey, SettingValues } from "./definitions.ts";

/** A setting in API responses. Members that don't apply are null. */
export interface SettingDescription {
  key: SettingKey;
  value: SettingValue;
  source: Source;
  default: SettingValue;
  environmentVariable: string;
  type: "integer" | "boolean" | "string";
  minimum: number | null;
  maximum: number | null;
  allowed: readonly string[] | null;
  description: string;
  /** Time of the override, ISO 8601. */
  updatedAt: string | null;
  updatedBy: string | null;
  ignored: Ignored[];
}

/** Settings with their ETag. */
export interface Described<T> {
  /** ETag, which changes when any member of the settings changes. */
  etag: string;
  settings: T;
}

/** A function that is called with the keys of the settings whose override a request changed or removed. */
export type ChangeListener = (keys: SettingKey[]) => Promise<void>;

/**
 * The runtime settings: effective values, overrides (values that administrators set through the API), and notifications of
 * changes. All modules read settings through it.
 */
export interface Settings {
  /**
   * Returns the effective values, at most 20 seconds old, so that all instances apply a change within 30 seconds. Costs one
   * table request if the cached values are older.
   */
  values(): Promise<SettingValues>;
  /**
   * Reads and returns the effective values. Undefined if App Configuration could not be read, because the values may then be
   * different. Work that can't be undone must use these values.
   */
  fresh(): Promise<SettingValues | undefined>;
  /**
   * Like `fresh`, but uses the last known values of App Configuration while it can't be read. Undefined if this instance has never
   * read App Configuration.
   */
  freshOrLastKnown(): Promise<SettingValues | undefined>;
  /** Returns the last loaded values without waiting. Undefined before the first load. The logger reads its level from them. */
  current(): SettingValues | undefined;
  /** Returns the settings of all categories. Like `describe` not from the cache, because clients send the ETag back. */
  describeAll(): Promise<Described<Record<Category, SettingDescription[]>>>;
  /** Returns the settings of one category. */
  describe(category: Category): Promise<Described<SettingDescription[]>>;
  /**
   * Sets overrides: either all of `changes` or none.
   *
   * @param changes - Any subset of the category's settings.
   * @param ifMatch - ETag of the category on which the change is based.
   * @param confirmed - The confirmations of the request. Without them, `requireStepUp` and `requireApproval` can't be turned off.
   * Default: no confirmation is needed, for commands.
   * @throws {Problem} invalidRequest if a value is not allowed; preconditionFailed if `ifMatch` is stale; conflict if a
   * confirmation is missing.
   */
  update(
    category: Category,
    changes: Record<string, unknown>,
    caller: Caller,
    ifMatch?: string,
    confirmed?: Confirmations,
  ): Promise<Described<SettingDescription[]>>;
  /**
   * Removes one override and returns the setting with its new value.
   *
   * @throws {Problem} notFound if there is no such setting or it has no override; conflict if the new value would conflict with
   * another setting; preconditionFailed.
   */
  remove(
    category: Category,
    key: string,
    caller: Caller,
    ifMatch?: string,
    confirmed?: Confirmations,
  ): Promise<SettingDescription>;
  /** Returns the result of `remove` without changing anything. @throws {Problem} notFound; conflict. */
  afterRemoval(category: Category, key: string): Promise<SettingDescription>;
  /** Removes all overrides and returns their keys. @throws {Problem} preconditionFailed. */
  removeAll(caller: Caller, ifMatch?: string, confirmed?: Confirmations): Promise<SettingKey[]>;
  /**
   * Adds a listener, which is called after a change is stored and before its request is answered. If a listener fails or the
   * process crashes, the change remains stored, and `notify` calls the listeners again. So a listener may be called twice for a
   * change.
   */
  onChange(listener: ChangeListener): void;
  /**
   * Calls the listeners for changes of which not all were notified. A timer calls it. Costs one table request if there are
   * none.
   */
  notify(): Promise<void>;
}

export interface SettingsDependencies {
  tables: Tables;
  config: Config;
  clock: Clock;
  audit: Audit;
  appConfiguration?: AppConfiguration | undefined;
  /**
   * Returns whether an earlier version, which did not have the setting `watchAll`, watched all subscriptions. Undefined if
   * there was no earlier version. Called once for a storage account.
   */
  watchedAllBefore?: () => Promise<boolean | undefined>;
  log: Logger;
}

const SettingsRecord = z.object({
  overrides: z.record(
    z.string(),
    z.object({ value: z.union([z.string(), z.number(), z.boolean()]), updatedAt: z.string(), updatedBy: z.string() }),
  ),
  /** Settings whose listeners were not all notified yet. Written with the change, and removed after the last listener. */
  unnotified: z.array(z.string()).optional(),
  /** True once the upgrade has preserved the earlier value of `watchAll`. */
  watchAllKept: z.boolean().optional(),
});
type SettingsRecord = z.infer<typeof SettingsRecord>;
/**
 * All overrides are in one row (`settings`, `overrides`), so that one read loads them and a change of several is atomic. Signed
 * and listed, so that the service does not use a row that was changed, removed or replaced by an older state outside of it.
 * `adopted`: unsigned rows of earlier versions are accepted until this version has signed them.
 */
export const SettingsRow = entity("Settings", SettingsRecord, { signed: "adopted", listed: true });
export const SETTINGS_PARTITION = "settings";
export const OVERRIDES = "overrides";

/** Time for which loaded values are used. Not at a negative age: the clock follows the store and can be set back. */
const CACHE_MS = 20_000;

const NO_VALUES: ReadonlyMap<string, string> = new Map();

/** The settings at one time: the values of all sources, and the effective values with and without their source. */
interface State {
  layers: Layers;
  resolved: Record<SettingKey, Resolved>;
  values: SettingValues;
}

function stateOf(config: Layers["config"], overrides: Overrides, appConfiguration: Layers["appConfiguration"]): State {
  const layers: Layers = { overrides, appConfiguration, config };
  const resolved = resolve(layers);
  return { layers, resolved, values: valuesOf(resolved) };
}

export function createSettings(deps: SettingsDependencies): Settings {
  const { tables, config, clock, audit, appConfiguration, log } = deps;
  const listeners: ChangeListener[] = [];
  let loaded: { state: State; loadedAtMs: number } | undefined;
  let loading: Promise<State> | undefined;
  /** Number of changes by this instance. A load that started before the last one must not replace the changed values. */
  let changes = 0;
  let appConfigurationValues = NO_VALUES;
  /** True if the last read of App Configuration failed. */
  let isAppConfigurationUnread = false;
  /** True once a read of App Configuration succeeded, or if there is none. */
  let isAppConfigurationKnown = !appConfiguration;
  let loggedWarnings = new Set<string>();

  /** Reads App Configuration. If that fails, returns the values of the last successful read, and none before the first. */
  async function readAppConfiguration(): Promise<ReadonlyMap<string, string>> {
    if (!appConfiguration) return NO_VALUES;
    try {
      appConfigurationValues = await appConfiguration.read();
      isAppConfigurationUnread = false;
      isAppConfigurationKnown = true;
    } catch (error) {
      if (!(error instanceof CloudFailure)) throw error;
      isAppConfigurationUnread = true;
      const problem = { code: error.code, problem: error.message, remedy: error.remedy };
      log.warn("App Configuration could not be read. Its last known values stay in effect", problem);
    }
    return appConfigurationValues;
  }

  async function load(): Promise<State> {
    const loadedAtMs = clock.now().getTime();
    const changesBefore = changes;
    const [stored, fromAppConfiguration] = await Promise.all([
      tables.get(SettingsRow, SETTINGS_PARTITION, OVERRIDES),
      readAppConfiguration(),
    ]);
    const { watchedAllBefore } = deps;
    const row =
      watchedAllBefore && !stored?.watchAllKept
        ? await preserveWatchAll(
            deps,
            stateOf(config, stored?.overrides ?? {}, fromAppConfiguration),
            await watchedAllBefore(),
          )
        : stored;
    if (loaded && changes !== changesBefore) return loaded.state;
    const state = stateOf(config, row?.overrides ?? {}, fromAppConfiguration);
    loaded = { state, loadedAtMs };
    warnOfIgnored(state);
    return state;
  }

  /** Logs each ignored value once per instance, not at each load. */
  function warnOfIgnored({ resolved }: State): void {
    const currentWarnings = new Set<string>();
    for (const key of SETTING_KEYS) {
      for (const { source, reason } of resolved[key].ignored) {
        const line = `${key} ${source} ${reason}`;
        currentWarnings.add(line);
        if (!loggedWarnings.has(line)) log.warn("A setting's value is ignored", { key, source, reason });
      }
    }
    loggedWarnings = currentWarnings;
  }

  /** Loads the settings. Concurrent callers share one load. */
  function refresh(): Promise<State> {
    if (loading) return loading;
    const currentLoad = load();
    const clearLoading = () => {
      if (loading === currentLoad) loading = undefined;
    };
    currentLoad.then(clearLoading, clearLoading);
    loading = currentLoad;
    return currentLoad;
  }

  /** Loads the settings again after a load in progress, which may have started before a change that the caller knows of. */
  async function reload(): Promise<SettingValues> {
    await loading?.catch(() => {});
    return (await refresh()).values;
  }

  function cachedState(): State | undefined {
    const age = loaded ? clock.now().getTime() - loaded.loadedAtMs : Infinity;
    return age >= 0 && age < CACHE_MS ? loaded?.state : undefined;
  }

  /**
   * Changes overrides, for `update`, `remove` and `removeAll`. Records the intent in the audit log before the write, and the
   * outcome after it.
   *
   * @param request - `target` names the changed settings in the audit log, and `keys` are the settings that `ifMatch` covers
   * and that may change.
   * @param edit - Returns the new overrides, or undefined if nothing changes. Called again after a conflict with another write.
   */
  async function change(
    request: {
      target: string;
      keys: readonly SettingKey[];
      caller: Caller;
      ifMatch: string | undefined;
      confirmed: Confirmations | undefined;
    },
    edit: (current: State) => Overrides | undefined,
  ): Promise<{ state: State; changed: SettingKey[] }> {
    const { keys, caller } = request;
    const planChange = (overrides: Overrides) => {
      const before = stateOf(config, overrides, appConfigurationValues);
      requireMatch(etagOf(keys, before), request.ifMatch, "At least one setting");
      const newOverrides = edit(before);
      const after = newOverrides ? stateOf(config, newOverrides, appConfigurationValues) : before;
      requireConfirmed(before.values, after.values, request.confirmed);
      return {
        before,
        after,
        newOverrides,
        // Compares objects by identity: `edit` copies the overrides that it keeps by reference.
        changed: keys.filter((key) => overrides[key] !== after.layers.overrides[key]),
      };
    };
    const auditViewOf = ({ before, after, changed }: ReturnType<typeof planChange>) => ({
      before: auditView(changed, before),
      after: auditView(changed, after),
    });

    const firstPlan = planChange((await refresh()).layers.overrides);
    if (!firstPlan.newOverrides) {
      // A repeated request may follow a change whose listeners failed.
      await notifyOrLog(notify);
      return { state: firstPlan.before, changed: [] };
    }
    const event = {
      type: "settings.changed",
      caller,
      target: { type: "settings", id: request.target },
      ...auditViewOf(firstPlan),
    };
    const write = async () => {
      let planned = firstPlan;
      const stored = await tables.modify(SettingsRow, SETTINGS_PARTITION, OVERRIDES, (row) => {
        planned = planChange(row?.overrides ?? {});
        const unnotified = [...new Set([...(row?.unnotified ?? []), ...planned.changed])];
        return (
          planned.newOverrides && { ...(row && withoutKeys(row)), overrides: { ...planned.newOverrides }, unnotified }
        );
      });
      // The time of the load does not change, because App Configuration was not read again. A load in progress may have read
      // the row before the change, so later callers don't share it.
      loaded = { state: planned.after, loadedAtMs: loaded?.loadedAtMs ?? clock.now().getTime() };
      changes++;
      loading = undefined;
      return { ...planned, stored };
    };
    const planned = await audited(audit, event, write, auditViewOf);
    await notifyOrLog(() => callListeners(planned.stored));
    return { state: planned.after, changed: planned.changed };
  }

  const notify = async () => await callListeners(await tables.get(SettingsRow, SETTINGS_PARTITION, OVERRIDES));

  async function callListeners(row: Row<SettingsRecord> | undefined): Promise<void> {
    const keys = SETTING_KEYS.filter((key) => row?.unnotified?.includes(key));
    if (!row || keys.length === 0) return;
    for (const listener of listeners) await listener(keys);
    // If another change has been stored in the meantime, the row stays unchanged, and the listeners are called again.
    await undefinedIfChanged(tables.replace(SettingsRow, { ...row, unnotified: undefined }));
  }

  /** A failure to notify does not fail the change: the timer calls `notify` later. */
  async function notifyOrLog(work: () => Promise<void>): Promise<void> {
    try {
      await work();
    } catch (error) {
      const problem = error instanceof Error ? error.message : String(error);
      log.error("The effects of a changed setting could not be started. The timer retries", { problem });
    }
  }

  return {
    values: async () => (cachedState() ?? (await refresh())).values,
    current: () => loaded?.state.values,

    async fresh() {
      const values = await reload();
      return isAppConfigurationUnread ? undefined : values;
    },

    async freshOrLastKnown() {
      const values = await reload();
      return isAppConfigurationKnown ? values : undefined;
    },
    async describeAll() {
      const state = await refresh();
      const described = CATEGORY_NAMES.map((category) => [category, describeKeys(keysOf(category), state)] as const);
      return {
        etag: etagOf(SETTING_KEYS, state),
        settings: Object.fromEntries(described) as Record<Category, SettingDescription[]>,
      };
    },

    describe: async (category) => describeSettings(keysOf(category), await refresh()),

    async update(category, given, caller, ifMatch, confirmed) {
      const requested = parse(changesOf(category), given, "body");
      const keys = keysOf(category);
      const { state } = await change({ target: category, keys, caller, ifMatch, confirmed }, (current) => {
        const override = { updatedAt: clock.now().toISOString(), updatedBy: caller.actor };
        const different = keys.filter(
          (key) => requested[key] !== undefined && current.layers.overrides[key]?.value !== requested[key],
        );
        if (different.length === 0) return undefined;
        const overrides = {
          ...current.layers.overrides,
          ...Object.fromEntries(different.map((key) => [key, { ...override, value: requested[key]! }])),
        };
        requireNoConflict(keys, { ...current.layers, overrides });
        return overrides;
      });
      return describeSettings(keys, state);
    },

    async remove(category, name, caller, ifMatch, confirmed) {
      const key = requireKey(category, name);
      const request = { target: `${category}/${key}`, keys: keysOf(category), caller, ifMatch, confirmed };
      const { state } = await change(request, ({ layers }) => withoutOverride(key, layers));
      return describeKey(key, state);
    },

    async afterRemoval(category, name) {
      const key = requireKey(category, name);
      const { layers } = await refresh();
      return describeKey(key, stateOf(config, withoutOverride(key, layers), appConfigurationValues));
    },

    async removeAll(caller, ifMatch, confirmed) {
      const request = { target: "all", keys: SETTING_KEYS, caller, ifMatch, confirmed };
      const { changed } = await change(request, ({ layers }) =>
        Object.keys(layers.overrides).length === 0 ? undefined : {},
      );
      return changed;
    },

    onChange: (listener) => {
      listeners.push(listener);
    },
    notify,
  };
}

/**
 * Turning off `requireStepUp` or `requireApproval` needs the confirmations that are turned on. `confirmed` says which ones the
 * request had when it was checked, before the row was read.
 *
 * @throws {Problem} conflict if one was turned on since then, and the request would turn one off.
 */
function requireConfirmed(before: SettingValues, after: SettingValues, confirmed: Confirmations | undefined): void {
  const turnsOff = (before.requireStepUp && !after.requireStepUp) || (before.requireApproval && !after.requireApproval);
  if (!confirmed || !turnsOff) return;
  // `<=` of booleans: a confirmation that is turned on must be there.
  if (before.requireStepUp <= confirmed.stepUp && before.requireApproval <= confirmed.approval) return;
  throw new Problem("conflict", "The confirmations that a change needs were changed in the meantime. Send it again.");
}

/**
 * Stores an override of `watchAll` that preserves the behavior of an earlier version, which did not have this setting. Without
 * an earlier version, or if its behavior is the effective value, stores only that this was decided (`watchAllKept`).
 */
async function preserveWatchAll(
  { tables, clock, audit }: SettingsDependencies,
  { values }: State,
  watchedAll: boolean | undefined,
): Promise<Row<SettingsRecord> | undefined> {
  const override: Overrides =
    watchedAll === undefined || watchedAll === values.watchAll
      ? {}
      : { watchAll: { value: watchedAll, updatedAt: clock.now().toISOString(), updatedBy: "system" } };
  const write = () =>
    tables.modify(SettingsRow, SETTINGS_PARTITION, OVERRIDES, (row) =>
      row?.watchAllKept
        ? undefined
        : { ...(row && withoutKeys(row)), overrides: { ...row?.overrides, ...override }, watchAllKept: true },
    );
  if (!override.watchAll) return await write();
  const event = {
    type: "settings.changed",
    caller: { actor: "system", requestId: randomUUID() },
    target: { type: "settings", id: "features/watchAll" },
    before: { watchAll: { value: values.watchAll } },
    after: { watchAll: { value: watchedAll } },
    details: { reason: "an earlier version did so" },
  };
  return await audited(audit, event, write);
}

function requireKey(category: Category, name: string): SettingKey {
  const key = keyIn(category, name);
  if (!key) throw notFound(`The setting ${category}/${name.slice(0, 64)}`);
  return key;
}

/**
 * Returns the overrides without one of them.
 *
 * @throws {Problem} notFound if there is none; conflict if the expiry thresholds conflict without it, and did not before.
 */
function withoutOverride(key: SettingKey, layers: Layers): Overrides {
  if (!layers.overrides[key]) throw notFound(`An override of ${key}`);
  const { [key]: _, ...overrides } = layers.overrides;
  const conflict = thresholdConflict({ ...layers, overrides });
  if (conflict && !thresholdConflict(layers)) {
    throw new Problem("conflict", `${conflictText(conflict)} Change the other one first, or set both with one PUT.`);
  }
  return overrides;
}

/** @throws {Problem} invalidRequest if the expiry thresholds, which are in one category, conflict after a change of the category. */
function requireNoConflict(keys: readonly SettingKey[], layers: Layers): void {
  const conflict = keys.includes("criticalExpiryDays") ? thresholdConflict(layers) : undefined;
  if (!conflict) return;
  const path = conflict.critical.source === "override" ? "body.criticalExpiryDays" : "body.warningExpiryDays";
  const message = conflictText(conflict);
  throw new Problem("invalidRequest", message, { errors: [{ path, message }] });
}

const SOURCE_TEXT: Record<Source, string> = {
  override: "set in the service",
  appConfiguration: "from App Configuration",
  environment: "from an environment variable",
  default: "default",
};

function conflictText({ critical, warning }: NonNullable<ReturnType<typeof thresholdConflict>>): string {
  return `The critical expiry threshold (criticalExpiryDays) would be ${critical.value} days (${SOURCE_TEXT[critical.source]}). It must be less than the warning expiry threshold (warningExpiryDays), which is ${warning.value} days (${SOURCE_TEXT[warning.source]}).`;
}

/** Returns these settings for the audit log. */
const auditView = (keys: readonly SettingKey[], { resolved }: State) =>
  Object.fromEntries(keys.map((key) => [key, { value: resolved[key].value, source: resolved[key].source }]));

const describeSettings = (keys: readonly SettingKey[], state: State): Described<SettingDescription[]> => ({
  etag: etagOf(keys, state),
  settings: describeKeys(keys, state),
});

const describeKeys = (keys: readonly SettingKey[], state: State): SettingDescription[] =>
  keys.map((key) => describeKey(key, state));

function describeKey(key: SettingKey, { layers, resolved }: State): SettingDescription {
  const definition = DEFINITIONS[key];
  const { value, source, ignored } = resolved[key];
  const override = layers.overrides[key];
  return {
    key,
    value,
    source,
    default: definition.default,
    environmentVariable: definition.environmentVariable,
    type: definition.type,
    minimum: definition.type === "integer" ? definition.minimum : null,
    maximum: definition.type === "integer" ? definition.maximum : null,
    allowed: definition.type === "string" ? definition.allowed : null,
    description: definition.description,
    updatedAt: override?.updatedAt ?? null,
    updatedBy: override?.updatedBy ?? null,
    ignored,
  };
}

/** Returns the ETag: 22 characters of a hash (132 bits) of the settings as the API returns them. */
function etagOf(keys: readonly SettingKey[], state: State): string {
  const hash = createHash("sha256").update(JSON.stringify(describeKeys(keys, state)));
  return `"${hash.digest("base64url").slice(0, 22)}"`;
}
