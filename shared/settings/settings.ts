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
  contradiction,
  type Ignored,
  type Layers,
  type Overrides,
  type Resolved,
  resolve,
  type Source,
  valuesOf,
} from "./resolve.ts";

export type { SettingKey, SettingValues } from "./definitions.ts";

/** One setting as the API shows it; null where a member does not apply. */
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
  /** ISO 8601; of the override. */
  updatedAt: string | null;
  updatedBy: string | null;
  ignored: Ignored[];
}

export interface Described<T> {
  /** Changes whenever anything that is shown does. */
  etag: string;
  settings: T;
}

/** Told of the settings whose override a request set to another value or removed. */
export type ChangeListener = (keys: SettingKey[]) => Promise<void>;

export interface Settings {
  /** The values in force, at most 20 seconds old: every instance feels a change within 30. One table request a load. */
  values(): Promise<SettingValues>;
  /**
   * The values in force, read by a load that begins now; undefined where App Configuration could not be read, so that they
   * may be others. What follows from a setting for good goes by these.
   */
  fresh(): Promise<SettingValues | undefined>;
  /** The values last loaded, at once; undefined before the first load. For the logger's level. */
  current(): SettingValues | undefined;
  /** All categories, read now. */
  describeAll(): Promise<Described<Record<Category, SettingDescription[]>>>;
  /** One category, read now. */
  describe(category: Category): Promise<Described<SettingDescription[]>>;
  /**
   * Sets overrides: all of `changes` or nothing.
   *
   * @param changes - Any subset of the category's settings.
   * @param ifMatch - The etag of the category's description that the change is based on.
   * @throws {Problem} invalidRequest when a value does not fit; preconditionFailed when `ifMatch` is stale.
   */
  update(
    category: Category,
    changes: Record<string, unknown>,
    caller: Caller,
    ifMatch?: string,
  ): Promise<Described<SettingDescription[]>>;
  /**
   * Removes one override and answers what holds now.
   *
   * @throws {Problem} notFound when there is no such setting or it has no override; conflict when what would hold then
   * contradicts another setting; preconditionFailed.
   */
  remove(category: Category, key: string, caller: Caller, ifMatch?: string): Promise<SettingDescription>;
  /** What `remove` would answer; nothing is changed. @throws {Problem} notFound; conflict. */
  afterRemoval(category: Category, key: string): Promise<SettingDescription>;
  /** Removes every override and answers which there were. @throws {Problem} preconditionFailed. */
  removeAll(caller: Caller, ifMatch?: string): Promise<SettingKey[]>;
  /**
   * Adds a listener, called after a change is stored and before its request is answered. Where a listener fails or the
   * process dies, the change holds all the same and `notify` calls the listeners again: they must bear to hear of a change
   * twice.
   */
  onChange(listener: ChangeListener): void;
  /** Tells the listeners of changes they have not all been told of. One table request where there are none. */
  notify(): Promise<void>;
}

export interface SettingsDependencies {
  tables: Tables;
  config: Config;
  clock: Clock;
  audit: Audit;
  appConfiguration?: AppConfiguration | undefined;
  /**
   * Whether the earlier version that wrote this store watched all subscriptions, which no setting said then; undefined
   * where none did. Asked once a store.
   */
  watchedAllBefore?: () => Promise<boolean | undefined>;
  log: Logger;
}

const SettingsRecord = z.object({
  overrides: z.record(
    z.string(),
    z.object({ value: z.union([z.string(), z.number(), z.boolean()]), updatedAt: z.string(), updatedBy: z.string() }),
  ),
  /** Settings whose change the listeners have not all been told of. */
  unnotified: z.array(z.string()).optional(),
  /** True once it was seen to that an upgrade leaves `watchAll` as it was in force. */
  watchAllKept: z.boolean().optional(),
});
type SettingsRecord = z.infer<typeof SettingsRecord>;
/** All overrides are one row, so that one read loads them and any change of several is atomic. */
export const SettingsRow = entity("Settings", SettingsRecord);
export const SETTINGS_PARTITION = "settings";
export const OVERRIDES = "overrides";

/** Milliseconds that loaded values serve. */
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
  let known: { state: State; at: number } | undefined;
  let loading: Promise<State> | undefined;
  /** Counts the changes made here: a load that began before one may not replace what it left. */
  let changes = 0;
  let lastRead = NOTHING;
  /** Whether the last reading of App Configuration failed. */
  let unread = false;
  let warned = new Set<string>();

  function stateOf(overrides: Overrides, fromAppConfiguration: ReadonlyMap<string, string>): State {
    const layers: Layers = { overrides, appConfiguration: fromAppConfiguration, config };
    const resolved = resolve(layers);
    return { layers, resolved, values: valuesOf(resolved) };
  }

  /** An unreachable store leaves its last known values in force, and before there are any, those of the next source. */
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
    if (known && changes !== seen) return known.state;
    const state = stateOf(row?.overrides ?? {}, fromAppConfiguration);
    known = { state, at };
    warnOfIgnored(state);
    return state;
  }

  /** An earlier version knew no such setting: what it did goes on, as an override. */
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

  /** Once per value and instance, not at every load. */
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

  /** Concurrent loads are one. */
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
    const age = known ? clock.now().getTime() - known.at : Infinity;
    return age >= 0 && age < FRESH_MS ? known?.state : undefined;
  }

  /**
   * The one way overrides change. `edit` gives the wanted overrides, or undefined when they are as wanted already; it may
   * run again when another writer came between. The intent is entered before the write and the outcome after it.
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
      // No younger than the load it builds on: App Configuration was not read again.
      known = { state: planned.after, at: known?.at ?? clock.now().getTime() };
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
    // Where the row was changed meanwhile, the listeners hear of these once more.
    await undefinedIfChanged(tables.replace(SettingsRow, { ...row, unnotified: undefined }));
  }

  /** The change holds whether or not the listeners hear of it now: the timer tells them later. */
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
    current: () => known?.state.values,

    async fresh() {
      // What is under way may have begun before what the caller has just seen.
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
        refuseContradiction(keys, { ...now.layers, overrides });
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

/** The overrides without one of them. @throws {Problem} notFound when there is none; conflict. */
function without(key: SettingKey, layers: Layers): Overrides {
  if (!layers.overrides[key]) throw notFound(`An override of ${key}`);
  const { [key]: _, ...overrides } = layers.overrides;
  const left = contradiction({ ...layers, overrides });
  if (left && !contradiction(layers)) {
    throw new Problem("conflict", `${contradictionText(left)} Change the other one first, or set both with one PUT.`);
  }
  return overrides;
}

function refuseContradiction(keys: readonly SettingKey[], layers: Layers): void {
  const found = keys.includes("criticalExpiryDays") ? contradiction(layers) : undefined;
  if (!found) return;
  const path = found.critical.source === "override" ? "body.criticalExpiryDays" : "body.warningExpiryDays";
  const message = contradictionText(found);
  throw new Problem("invalidRequest", message, { errors: [{ path, message }] });
}

const SOURCE_TEXT: Record<Source, string> = {
  override: "an override",
  appConfiguration: "App Configuration",
  environment: "the environment",
  default: "the default",
};

function contradictionText({ critical, warning }: NonNullable<ReturnType<typeof contradiction>>): string {
  return `criticalExpiryDays would be ${critical.value} (${SOURCE_TEXT[critical.source]}), which is not below warningExpiryDays, ${warning.value} (${SOURCE_TEXT[warning.source]}).`;
}

/** What the audit log says of these settings. */
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
