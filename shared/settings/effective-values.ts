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

/** The sources of values, in the order of precedence. */
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

/** The unvalidated values of each source. */
export interface Layers {
  overrides: Overrides;
  /** Values as text, by setting key. */
  appConfiguration: ReadonlyMap<string, string>;
  config: Config;
}

/** A valid value and its source. */
export interface Candidate {
  source: Source;
  value: SettingValue;
}

/** A source whose value for a setting is not valid. The value itself is not repeated. */
export interface Ignored {
  source: Source;
  /** The end of a sentence "The value …". */
  reason: string;
}

export interface Resolved extends Candidate {
  ignored: Ignored[];
}

/**
 * Returns the effective value of every setting: the value of the first source that fits the setting's type and limits.
 *
 * `criticalExpiryDays` must be below `warningExpiryDays`. A request that violates this is rejected, but values from different
 * sources can still conflict. Then, of all pairs of valid values, the pair is used that ignores the fewest values. Among such
 * pairs, the one that keeps the value of the higher precedence is used (`criticalExpiryDays` if both are from one source). The
 * other values are shown as ignored.
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

/** Returns the two thresholds of the highest precedence if they conflict. */
export function thresholdConflict(layers: Layers): { critical: Candidate; warning: Candidate } | undefined {
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

/** The defaults are consistent, so a pair is always found. */
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
