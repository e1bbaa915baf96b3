import type { Config } from "../platform/config/config.ts";
import {
  DEFINITIONS,
  expectation,
  SETTING_KEYS,
  type SettingKey,
  type SettingValue,
  type SettingValues,
  validText,
  validValue,
} from "./definitions.ts";

/** Where a value may come from, the first taking precedence. */
export const SOURCES = ["override", "appConfiguration", "environment", "default"] as const;
export type Source = (typeof SOURCES)[number];

/** A value that an administrator set through the API. */
export interface Override {
  value: string | number | boolean;
  /** ISO 8601. */
  updatedAt: string;
  updatedBy: string;
}
export type Overrides = { readonly [key: string]: Override };

/** What each source says, unchecked. */
export interface Layers {
  overrides: Overrides;
  /** Text by setting key. */
  appConfiguration: ReadonlyMap<string, string>;
  config: Config;
}

export interface Candidate {
  source: Source;
  value: SettingValue;
}

/** A source that has a value for the setting which can't be used; the value itself is not repeated. */
export interface Ignored {
  source: Source;
  /** Completes "The value …". */
  reason: string;
}

export interface Resolved extends Candidate {
  ignored: Ignored[];
}

/**
 * The value in force of every setting: that of the first source whose value fits the setting's type and bounds.
 *
 * Two settings are bound to each other: `criticalExpiryDays` must be below `warningExpiryDays`. A request that would
 * break this is refused, but sources can come to contradict each other without one. Then, of all pairs of values that
 * fit, the one holds that leaves out the fewest values, and between such pairs the one that keeps the value of higher
 * precedence (`criticalExpiryDays` where both come from one source). What is left out is shown as ignored.
 */
export function resolve(layers: Layers): Record<SettingKey, Resolved> {
  const found = candidatesOf(layers);
  const chosen = Object.fromEntries(
    SETTING_KEYS.map((key) => [key, { ...found[key].candidates[0]!, ignored: found[key].ignored }]),
  ) as Record<SettingKey, Resolved>;
  return { ...chosen, ...settleThresholds(found) };
}

export const valuesOf = (resolved: Record<SettingKey, Resolved>): SettingValues =>
  Object.fromEntries(SETTING_KEYS.map((key) => [key, resolved[key].value])) as unknown as SettingValues;

/** The thresholds that the sources of highest precedence ask for, if they contradict each other. */
export function contradiction(layers: Layers): { critical: Candidate; warning: Candidate } | undefined {
  const found = candidatesOf(layers);
  const critical = found.criticalExpiryDays.candidates[0]!;
  const warning = found.warningExpiryDays.candidates[0]!;
  return critical.value < warning.value ? undefined : { critical, warning };
}

type Found = Record<SettingKey, { candidates: Candidate[]; ignored: Ignored[] }>;

function candidatesOf(layers: Layers): Found {
  return Object.fromEntries(SETTING_KEYS.map((key) => [key, candidatesFor(key, layers)])) as Found;
}

function candidatesFor(key: SettingKey, { overrides, appConfiguration, config }: Layers): Found[SettingKey] {
  const definition = DEFINITIONS[key];
  const override = overrides[key];
  const text = appConfiguration.get(key);
  const set = config[definition.environmentVariable];
  const candidates: Candidate[] = [];
  const ignored: Ignored[] = [];
  const offer = (source: Source, value: SettingValue | undefined) => {
    if (value === undefined) ignored.push({ source, reason: `must be ${expectation(definition)}` });
    else candidates.push({ source, value });
  };
  if (override !== undefined) offer("override", validValue(key, override.value));
  if (text !== undefined) offer("appConfiguration", validText(key, text));
  if (set !== undefined) offer("environment", validValue(key, set));
  offer("default", definition.default);
  return { candidates, ignored };
}

/** The defaults fit each other, so a pair is always found. */
function settleThresholds(found: Found): { criticalExpiryDays: Resolved; warningExpiryDays: Resolved } {
  const { criticalExpiryDays: critical, warningExpiryDays: warning } = found;
  const pairs = critical.candidates.flatMap((c, i) =>
    warning.candidates
      .map((w, j) => ({ c, w, i, j, leftOut: i + j, best: Math.min(rank(c), rank(w)) }))
      .filter((pair) => pair.c.value < pair.w.value),
  );
  const [{ c, w, i, j }] = pairs.sort((a, b) => a.leftOut - b.leftOut || a.best - b.best) as [(typeof pairs)[number]];
  const leftOut = (candidates: Candidate[], reason: string) => candidates.map(({ source }) => ({ source, reason }));
  return {
    criticalExpiryDays: {
      ...c,
      ignored: [
        ...critical.ignored,
        ...leftOut(critical.candidates.slice(0, i), "must be below the value of warningExpiryDays"),
      ],
    },
    warningExpiryDays: {
      ...w,
      ignored: [
        ...warning.ignored,
        ...leftOut(warning.candidates.slice(0, j), "must be above the value of criticalExpiryDays"),
      ],
    },
  };
}

const rank = ({ source }: Candidate): number => SOURCES.indexOf(source);
