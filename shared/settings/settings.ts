import { createHash, randomUUID } from "node:crypto";
import * as z from "zod";
import type { Audit } from "../audit/audit.ts";
import { audited } from "../audit/audited.ts";
import type { AppConfiguration } from "../platform/azure/app-configuration.ts";
import { CloudFailure } from "../platform/azure/failure.ts";
import type { Config } from "../platform/config/config.ts";
import { requireMatch } from "../platform/http/conditional-requests.ts";
import type { Caller } from "../platform/http/endpoint.ts";
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

export interface Described<T> {
  /** Changes whenever any shown member changes. */
  etag: string;
  settings: T;
}

/** Called with the settings whose override a request changed or removed. */
export type ChangeListener = (keys: SettingKey[]) => Promise<void>;

/** The runtime settings: effective values, overrides, and notifications of changes. */
export interface Settings {
  /**
   * Returns the effective values, at most 20 seconds old, so every instance applies a change within 30 seconds. Costs one table
   * request per load.
   */
  values(): Promise<SettingValues>;
  /**
   * Returns the effective values from a new load. Undefined if App Configuration could not be read, because the values may then
   * be different. Irreversible effects of a setting must use these values.
   */
  fresh(): Promise<SettingValues | undefined>;
  /** Returns the last loaded values without waiting. Undefined before the first load. For the logger's level. */
  current(): SettingValues | undefined;
  /** Reads all categories. */
  describeAll(): Promise<Described<Record<Category, SettingDescription[]>>>;
  /** Reads one category. */
  describe(category: Category): Promise<Described<SettingDescription[]>>;
  /**
   * Sets overrides: all of `changes` or none.
   *
   * @param changes - Any subset of the category's settings.
   * @param ifMatch - ETag of the category on which the change is based.
   * @throws {Problem} invalidRequest if a value is not allowed; preconditionFailed if `ifMatch` is stale.
   */
  update(
    category: Category,
    changes: Record<string, unknown>,
    caller: Caller,
    ifMatch?: string,
  ): Promise<Described<SettingDescription[]>>;
  /**
   * Removes one override and returns the setting with its new value.
   *
   * @throws {Problem} notFound if there is no such setting or it has no override; conflict if the new value would conflict with
   * another setting; preconditionFailed.
   */
  remove(category: Category, key: string, caller: Caller, ifMatch?: string): Promise<SettingDescription>;
  /** Returns the result of `remove` without changing anything. @throws {Problem} notFound; conflict. */
  afterRemoval(category: Category, key: string): Promise<SettingDescription>;
  /** Removes every override and returns them. @throws {Problem} preconditionFailed. */
  removeAll(caller: Caller, ifMatch?: string): Promise<SettingKey[]>;
  /**
   * Adds a listener, which is called after a change is stored and before its request is answered. If a listener fails or the
   * process crashes, the change stays, and `notify` calls the listeners again. So listeners must be idempotent.
   */
  onChange(listener: ChangeListener): void;
  /** Calls the listeners for changes of which they were not all notified. Costs one table request if there are none. */
  notify(): Promise<void>;
}

export interface SettingsDependencies {
  tables: Tables;
  config: Config;
  clock: Clock;
  audit: Audit;
  appConfiguration?: AppConfiguration | undefined;
  /**
   * Returns whether the earlier version that wrote this store watched all subscriptions, which was not a setting then.
   * Undefined if there was no earlier version. Called once per store.
   */
  watchedAllBefore?: () => Promise<boolean | undefined>;
  log: Logger;
}

const SettingsRecord = z.object({
  overrides: z.record(
    z.string(),
    z.object({ value: z.union([z.string(), z.number(), z.boolean()]), updatedAt: z.string(), updatedBy: z.string() }),
  ),
  /** Settings whose listeners were not all notified yet. */
  unnotified: z.array(z.string()).optional(),
  /** True once the upgrade has preserved the earlier value of `watchAll`. */
  watchAllKept: z.boolean().optional(),
});
type SettingsRecord = z.infer<typeof SettingsRecord>;
/** All overrides are in one row, so that one read loads them and a change of several is atomic. */
export const SettingsRow = entity("Settings", SettingsRecord);
export const SETTINGS_PARTITION = "settings";
export const OVERRIDES = "overrides";

/** Milliseconds for which loaded values are used. */
const FRESH_MS = 20_000;

const NOTHING: ReadonlyMap<string, string> = new Map();

interface State {
  layers: Layers;
  resolved: Record<SettingKey, Resolved>;
  values: SettingValues;
}

export function createSettings(deps: SettingsDependencies): Settings {
  const { tables, config, clock, audit, appConfiguration, log } = deps;
  const listeners: ChangeListener[] = [];
  let loaded: { state: State; at: number } | undefined;
  let loading: Promise<State> | undefined;
  /** Counts the changes by this instance: a load that started before a change must not replace its result. */
  let changes = 0;
  let lastRead = NOTHING;
  /** True if the last read of App Configuration failed. */
  let unread = false;
  let warned = new Set<string>();

  function stateOf(overrides: Overrides, fromAppConfiguration: ReadonlyMap<string, string>): State {
    const layers: Layers = { overrides, appConfiguration: fromAppConfiguration, config };
    const resolved = resolve(layers);
    return { layers, resolved, values: valuesOf(resolved) };
  }

  /** If a source can't be read, its last known values stay in use, or before the first read the values of the next source. */
  async function readAppConfiguration(): Promise<ReadonlyMap<string, string>> {
    if (!appConfiguration) return NOTHING;
    try {
      lastRead = await appConfiguration.read();
      unread = false;
    } catch (error) {
      if (!(error instanceof CloudFailure)) throw error;
      unread = true;
      const problem = { code: error.code, problem: error.message, remedy: error.remedy };
      log.warn("App Configuration could not be read; its last known values stay in force", problem);
    }
    return lastRead;
  }

  async function load(): Promise<State> {
    const at = clock.now().getTime();
    const seen = changes;
    const [stored, fromAppConfiguration] = await Promise.all([
      tables.get(SettingsRow, SETTINGS_PARTITION, OVERRIDES),
      readAppConfiguration(),
    ]);
    const { watchedAllBefore } = deps;
    const row =
      watchedAllBefore && !stored?.watchAllKept
        ? await keepWatchAll(stateOf(stored?.overrides ?? {}, fromAppConfiguration), await watchedAllBefore())
        : stored;
    if (loaded && changes !== seen) return loaded.state;
    const state = stateOf(row?.overrides ?? {}, fromAppConfiguration);
    loaded = { state, at };
    warnOfIgnored(state);
    return state;
  }

  /** Stores an override that preserves the behavior of an earlier version, which did not have this setting. */
  async function keepWatchAll(
    { values }: State,
    before: boolean | undefined,
  ): Promise<Row<SettingsRecord> | undefined> {
    const override: Overrides =
      before === undefined || before === values.watchAll
        ? {}
        : { watchAll: { value: before, updatedAt: clock.now().toISOString(), updatedBy: "system" } };
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
      after: { watchAll: { value: before } },
      details: { reason: "an earlier version did so" },
    };
    return await audited(audit, event, write);
  }

  /** Logs once per value and instance, not at every load. */
  function warnOfIgnored({ resolved }: State): void {
    const now = new Set<string>();
    for (const key of SETTING_KEYS) {
      for (const { source, reason } of resolved[key].ignored) {
        const line = `${key} ${source} ${reason}`;
        now.add(line);
        if (!warned.has(line)) log.warn("A setting's value is ignored", { key, source, reason });
      }
    }
    warned = now;
  }

  /** Concurrent callers share one load. */
  function refresh(): Promise<State> {
    if (loading) return loading;
    const started = load();
    const forget = () => {
      if (loading === started) loading = undefined;
    };
    started.then(forget, forget);
    loading = started;
    return started;
  }

  function fresh(): State | undefined {
    const age = loaded ? clock.now().getTime() - loaded.at : Infinity;
    return age >= 0 && age < FRESH_MS ? loaded?.state : undefined;
  }

  /**
   * Changes overrides; all changes use it. `edit` returns the new overrides, or undefined if nothing changes, and is called
   * again after a write conflict. The intent is recorded before the write and the outcome after it.
   */
  async function change(
    request: { target: string; keys: readonly SettingKey[]; caller: Caller; ifMatch: string | undefined },
    edit: (now: State) => Overrides | undefined,
  ): Promise<{ state: State; changed: SettingKey[] }> {
    const { keys, caller } = request;
    const plan = (overrides: Overrides) => {
      const before = stateOf(overrides, lastRead);
      requireMatch(etagOf(keys, before), request.ifMatch, "At least one setting");
      const wanted = edit(before);
      const after = wanted ? stateOf(wanted, lastRead) : before;
      return { before, after, wanted, changed: keys.filter((key) => overrides[key] !== after.layers.overrides[key]) };
    };
    const shownOf = ({ before, after, changed }: ReturnType<typeof plan>) => ({
      before: shown(changed, before),
      after: shown(changed, after),
    });

    const first = plan((await refresh()).layers.overrides);
    if (!first.wanted) {
      await notifyOrLeave(notify);
      return { state: first.before, changed: [] };
    }
    const event = {
      type: "settings.changed",
      caller,
      target: { type: "settings", id: request.target },
      ...shownOf(first),
    };
    const write = async () => {
      let planned = first;
      const stored = await tables.modify(SettingsRow, SETTINGS_PARTITION, OVERRIDES, (row) => {
        planned = plan(row?.overrides ?? {});
        const unnotified = [...new Set([...(row?.unnotified ?? []), ...planned.changed])];
        return planned.wanted && { ...(row && withoutKeys(row)), overrides: { ...planned.wanted }, unnotified };
      });
      // Keep the time of the load it is based on, because App Configuration was not read again.
      loaded = { state: planned.after, at: loaded?.at ?? clock.now().getTime() };
      changes++;
      loading = undefined;
      return { ...planned, stored };
    };
    const planned = await audited(audit, event, write, shownOf);
    await notifyOrLeave(() => notifyOf(planned.stored));
    return { state: planned.after, changed: planned.changed };
  }

  const notify = async () => await notifyOf(await tables.get(SettingsRow, SETTINGS_PARTITION, OVERRIDES));

  async function notifyOf(row: Row<SettingsRecord> | undefined): Promise<void> {
    const keys = SETTING_KEYS.filter((key) => row?.unnotified?.includes(key));
    if (!row || keys.length === 0) return;
    for (const listener of listeners) await listener(keys);
    // If the row was changed meanwhile, the listeners are notified again.
    await undefinedIfChanged(tables.replace(SettingsRow, { ...row, unnotified: undefined }));
  }

  /** A failure to notify does not fail the change: the timer notifies later. */
  async function notifyOrLeave(work: () => Promise<void>): Promise<void> {
    try {
      await work();
    } catch (error) {
      const problem = error instanceof Error ? error.message : String(error);
      log.error("The effects of a changed setting could not be started; the timer retries", { problem });
    }
  }

  return {
    values: async () => (fresh() ?? (await refresh())).values,
    current: () => loaded?.state.values,

    async fresh() {
      // A load in progress may have started before the state that the caller has just seen.
      await loading?.catch(() => {});
      const { values } = await refresh();
      return unread ? undefined : values;
    },

    async describeAll() {
      const state = await refresh();
      const described = CATEGORY_NAMES.map((category) => [category, describeKeys(keysOf(category), state)] as const);
      return {
        etag: etagOf(SETTING_KEYS, state),
        settings: Object.fromEntries(described) as Record<Category, SettingDescription[]>,
      };
    },

    describe: async (category) => described(keysOf(category), await refresh()),

    async update(category, given, caller, ifMatch) {
      const wanted = parse(changesOf(category), given, "body");
      const keys = keysOf(category);
      const { state } = await change({ target: category, keys, caller, ifMatch }, (now) => {
        const override = { updatedAt: clock.now().toISOString(), updatedBy: caller.actor };
        const different = keys.filter(
          (key) => wanted[key] !== undefined && now.layers.overrides[key]?.value !== wanted[key],
        );
        if (different.length === 0) return undefined;
        const overrides = {
          ...now.layers.overrides,
          ...Object.fromEntries(different.map((key) => [key, { ...override, value: wanted[key]! }])),
        };
        requireNoConflict(keys, { ...now.layers, overrides });
        return overrides;
      });
      return described(keys, state);
    },

    async remove(category, name, caller, ifMatch) {
      const key = overridable(category, name);
      const request = { target: `${category}/${key}`, keys: keysOf(category), caller, ifMatch };
      const { state } = await change(request, ({ layers }) => without(key, layers));
      return describeKey(key, state);
    },

    async afterRemoval(category, name) {
      const key = overridable(category, name);
      const { layers } = await refresh();
      return describeKey(key, stateOf(without(key, layers), lastRead));
    },

    async removeAll(caller, ifMatch) {
      const request = { target: "all", keys: SETTING_KEYS, caller, ifMatch };
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

function overridable(category: Category, name: string): SettingKey {
  const key = keyIn(category, name);
  if (!key) throw notFound(`The setting ${category}/${name.slice(0, 64)}`);
  return key;
}

/** Returns the overrides without one of them. @throws {Problem} notFound if there is none; conflict. */
function without(key: SettingKey, layers: Layers): Overrides {
  if (!layers.overrides[key]) throw notFound(`An override of ${key}`);
  const { [key]: _, ...overrides } = layers.overrides;
  const left = thresholdConflict({ ...layers, overrides });
  if (left && !thresholdConflict(layers)) {
    throw new Problem("conflict", `${conflictText(left)} Change the other one first, or set both with one PUT.`);
  }
  return overrides;
}

function requireNoConflict(keys: readonly SettingKey[], layers: Layers): void {
  const found = keys.includes("criticalExpiryDays") ? thresholdConflict(layers) : undefined;
  if (!found) return;
  const path = found.critical.source === "override" ? "body.criticalExpiryDays" : "body.warningExpiryDays";
  const message = conflictText(found);
  throw new Problem("invalidRequest", message, { errors: [{ path, message }] });
}

const SOURCE_TEXT: Record<Source, string> = {
  override: "an override",
  appConfiguration: "App Configuration",
  environment: "the environment",
  default: "the default",
};

function conflictText({ critical, warning }: NonNullable<ReturnType<typeof thresholdConflict>>): string {
  return `criticalExpiryDays would be ${critical.value} (${SOURCE_TEXT[critical.source]}), which is not below warningExpiryDays, ${warning.value} (${SOURCE_TEXT[warning.source]}).`;
}

/** Returns these settings for the audit log. */
const shown = (keys: readonly SettingKey[], { resolved }: State) =>
  Object.fromEntries(keys.map((key) => [key, { value: resolved[key].value, source: resolved[key].source }]));

const described = (keys: readonly SettingKey[], state: State): Described<SettingDescription[]> => ({
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

function etagOf(keys: readonly SettingKey[], state: State): string {
  const hash = createHash("sha256").update(JSON.stringify(describeKeys(keys, state)));
  return `"${hash.digest("base64url").slice(0, 22)}"`;
}
