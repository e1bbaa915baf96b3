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

// Computes the effective value of each setting from its sources.

/** The sources of values, highest precedence first. */
export const SOURCES = ["override", "appConfiguration", "environment", "default"] as const;
export type Source = (typeof SOURCES)[number];

/** A value that an administrator set through the API. */
export interface Override {
  value: string | number | boolean;
  /** Time of the change, ISO 8601. */
  updatedAt: string;
  updatedBy: string;
}
export type Overrides = { readonly [key: string]: Override };

/** The values of each source. Only the values of the environment were already validated, when the process started. */
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

/** A source whose value for a setting is ignored. It does not contain the value, which may be a secret entered by mistake. */
export interface Ignored {
  source: Source;
  /** The end of a sentence "The value …". */
  reason: string;
}

/** The effective value of a setting, its source, and the ignored sources. */
export interface Resolved extends Candidate {
  ignored: Ignored[];
}

/**
 * Returns the effective value of each setting: the value of the first source whose value has the setting's type and limits.
 *
 * `criticalExpiryDays` must be below `warningExpiryDays`. A request that violates this is rejected, but values from different
 * sources can still conflict. Then the pair of values is used that ignores the fewest values. Among several such pairs, the
 * pair with the value of the highest precedence is used, and if the precedence is equal, the pair that keeps
 * `criticalExpiryDays`. The ignored values are reported.
 */
export function resolve(layers: Layers): Record<SettingKey, Resolved> {
  const candidatesByKey = candidatesOf(layers);
  const chosen = Object.fromEntries(
    SETTING_KEYS.map((key) => [key, { ...candidatesByKey[key].candidates[0]!, ignored: candidatesByKey[key].ignored }]),
  ) as Record<SettingKey, Resolved>;
  return { ...chosen, ...settleThresholds(candidatesByKey) };
}

/** Returns the effective values without their sources. */
export const valuesOf = (resolved: Record<SettingKey, Resolved>): SettingValues =>
  Object.fromEntries(SETTING_KEYS.map((key) => [key, resolved[key].value])) as unknown as SettingValues;

/** Returns the two thresholds of the highest precedence if they conflict. */
export function thresholdConflict(layers: Layers): { critical: Candidate; warning: Candidate } | undefined {
  const candidatesByKey = candidatesOf(layers);
  const critical = candidatesByKey.criticalExpiryDays.candidates[0]!;
  const warning = candidatesByKey.warningExpiryDays.candidates[0]!;
  return critical.value < warning.value ? undefined : { critical, warning };
}

type CandidatesByKey = Record<SettingKey, { candidates: Candidate[]; ignored: Ignored[] }>;

function candidatesOf(layers: Layers): CandidatesByKey {
  return Object.fromEntries(SETTING_KEYS.map((key) => [key, candidatesFor(key, layers)])) as CandidatesByKey;
}

function candidatesFor(key: SettingKey, { overrides, appConfiguration, config }: Layers): CandidatesByKey[SettingKey] {
  const definition = DEFINITIONS[key];
  const override = overrides[key];
  const appConfigurationText = appConfiguration.get(key);
  const environmentValue = config[definition.environmentVariable];
  const candidates: Candidate[] = [];
  const ignored: Ignored[] = [];
  const addValue = (source: Source, value: SettingValue | undefined) => {
    if (value === undefined) ignored.push({ source, reason: `must be ${expectation(definition)}` });
    else candidates.push({ source, value });
  };
  if (override !== undefined) addValue("override", validValue(key, override.value));
  if (appConfigurationText !== undefined) addValue("appConfiguration", validText(key, appConfigurationText));
  if (environmentValue !== undefined) addValue("environment", validValue(key, environmentValue));
  addValue("default", definition.default);
  return { candidates, ignored };
}

/** Returns the pair of thresholds to use: see `resolve`. There always is such a pair, because the defaults don't conflict. */
function settleThresholds(candidatesByKey: CandidatesByKey): {
  criticalExpiryDays: Resolved;
  warningExpiryDays: Resolved;
} {
  const { criticalExpiryDays: critical, warningExpiryDays: warning } = candidatesByKey;
  // The indexes are also the numbers of values with higher precedence that the pair ignores.
  const pairs = critical.candidates.flatMap((criticalValue, criticalIndex) =>
    warning.candidates
      .map((warningValue, warningIndex) => ({
        criticalValue,
        warningValue,
        criticalIndex,
        warningIndex,
        ignoredCount: criticalIndex + warningIndex,
        highestRank: Math.min(rank(criticalValue), rank(warningValue)),
      }))
      .filter((pair) => pair.criticalValue.value < pair.warningValue.value),
  );
  // The sort keeps the order of equal pairs, and `flatMap` lists pairs with a smaller `criticalIndex` first.
  const [best] = pairs.sort((a, b) => a.ignoredCount - b.ignoredCount || a.highestRank - b.highestRank) as [
    (typeof pairs)[number],
  ];
  const asIgnored = (candidates: Candidate[], reason: string) => candidates.map(({ source }) => ({ source, reason }));
  return {
    criticalExpiryDays: {
      ...best.criticalValue,
      ignored: [
        ...critical.ignored,
        ...asIgnored(
          critical.candidates.slice(0, best.criticalIndex),
          "must be less than the warning expiry threshold (warningExpiryDays)",
        ),
      ],
    },
    warningExpiryDays: {
      ...best.warningValue,
      ignored: [
        ...warning.ignored,
        ...asIgnored(
          warning.candidates.slice(0, best.warningIndex),
          "must be more than the critical expiry threshold (criticalExpiryDays)",
        ),
      ],
    },
  };
}

/** Returns the precedence of a value's source: 0 is the highest. */
const rank = ({ source }: Candidate): number => SOURCES.indexOf(source);
