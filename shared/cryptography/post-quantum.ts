import { type AssetRecord, assetId } from "../inventory/asset.ts";
import { DAY_MS, SECOND_MS } from "../platform/time.ts";
import { type Algorithm, algorithmOf, isQuantumVulnerable } from "./algorithm.ts";
import { type Rule, rulesFor, type StandardId } from "./rules.ts";

/** Judges one key or certificate by the dates of the standards, and ranks assets. Pure functions of the stored facts. */

export const PROTECTION_SOURCES = ["tag", "expiry", "setting"] as const;
type ProtectionSource = (typeof PROTECTION_SOURCES)[number];
export const QUANTUM_STATES = ["vulnerable", "unknown", "safe"] as const;
export type QuantumState = (typeof QUANTUM_STATES)[number];
export const RULE_STATES = ["allowed", "deprecated", "disallowed"] as const;

/** The dates of a standard for an asset, and their state at a time. */
interface Verdict extends Pick<Rule, "deprecatedAfter" | "disallowedAfter" | "text"> {
  standard: StandardId;
  state: (typeof RULE_STATES)[number];
}

/** An asset with the dates of the standards. */
export interface PostQuantum {
  asset: AssetRecord;
  id: string;
  owner: string | undefined;
  /** Undefined if the details of the asset are not known. */
  algorithm: Algorithm | undefined;
  quantum: QuantumState;
  /** The last day on which what the asset protects must stay protected. */
  protectUntil: string;
  protectUntilSource: ProtectionSource;
  /** Whether the tag has a value that is neither a year nor a date. */
  hasInvalidTag: boolean;
  /** Number of consumers. Undefined if consumers are not known. */
  consumers: number | undefined;
  verdicts: Verdict[];
  /** The earliest day after which a standard disallows the algorithm. Undefined without one. */
  firstDisallowedAfter: string | undefined;
  /** Days from that day to `protectUntil`, at least 0. Undefined without that day. */
  exposedDays: number | undefined;
}

/** The settings that decide until when an asset must protect. */
export interface ProtectionRules {
  /** Name of the tag. */
  tag: string;
  /** Years of a key without the tag. */
  years: number;
}

const YEAR = /^[1-9]\d{3}$/;
const DATE = /^[1-9]\d{3}-\d{2}-\d{2}$/;
const dayOf = (ms: number): string => new Date(ms).toISOString().slice(0, 10);

/** Returns the day that a tag's value names. A year means its last day. Undefined if the value is neither a year nor a date. */
export function dayOfTag(value: string): string | undefined {
  const text = value.trim();
  if (YEAR.test(text)) return `${text}-12-31`;
  if (!DATE.test(text)) return undefined;
  const time = Date.parse(`${text}T00:00:00Z`);
  // A day that a month does not have, such as February 30, is another day.
  return Number.isNaN(time) || dayOf(time) !== text ? undefined : text;
}

/**
 * Returns until when the asset must protect. The tag decides. Without it, a certificate protects until it expires, because its
 * signatures prove who answers now, and a key for the years of the setting, because recorded data can be decrypted later.
 */
function protectionOf(
  { type, tags, expiresOn }: AssetRecord,
  { tag, years }: ProtectionRules,
  now: number,
): Pick<PostQuantum, "protectUntil" | "protectUntilSource" | "hasInvalidTag"> {
  const value = tags && Object.hasOwn(tags, tag) ? tags[tag]! : undefined;
  const tagged = value === undefined ? undefined : dayOfTag(value);
  if (tagged !== undefined) return { protectUntil: tagged, protectUntilSource: "tag", hasInvalidTag: false };
  const hasInvalidTag = value !== undefined;
  if (type === "certificate" && expiresOn !== undefined)
    return { protectUntil: dayOf(expiresOn * SECOND_MS), protectUntilSource: "expiry", hasInvalidTag };
  const end = new Date(now);
  end.setUTCFullYear(end.getUTCFullYear() + years);
  return { protectUntil: dayOf(end.getTime()), protectUntilSource: "setting", hasInvalidTag };
}

/**
 * Returns the dates of the standards for an asset.
 *
 * @param now - Milliseconds since 1970.
 */
export function postQuantumOf(
  asset: AssetRecord,
  context: { now: number; owner: string | undefined; consumers: number | undefined; protection: ProtectionRules },
): PostQuantum {
  const { now, owner, consumers, protection } = context;
  const algorithm = algorithmOf(asset);
  const today = dayOf(now);
  const verdicts = algorithm ? rulesFor(algorithm, asset.type).map((rule) => verdictOf(rule, today)) : [];
  const firstDisallowedAfter = verdicts.flatMap(({ disallowedAfter = [] }) => disallowedAfter).sort()[0];
  const protectedUntil = protectionOf(asset, protection, now);
  const days =
    firstDisallowedAfter && (Date.parse(protectedUntil.protectUntil) - Date.parse(firstDisallowedAfter)) / DAY_MS;
  return {
    asset,
    id: assetId(asset),
    owner,
    algorithm,
    quantum: !algorithm ? "unknown" : isQuantumVulnerable(algorithm) ? "vulnerable" : "safe",
    ...protectedUntil,
    consumers,
    verdicts,
    firstDisallowedAfter,
    exposedDays: typeof days === "number" ? Math.max(0, days) : undefined,
  };
}

function verdictOf({ standard, deprecatedAfter, disallowedAfter, neverAllowed, text }: Rule, today: string): Verdict {
  const isOver = (day: string | undefined) => day !== undefined && day < today;
  const state =
    neverAllowed || isOver(disallowedAfter) ? "disallowed" : isOver(deprecatedAfter) ? "deprecated" : "allowed";
  return {
    standard,
    state,
    text,
    ...(deprecatedAfter && { deprecatedAfter }),
    ...(disallowedAfter && { disallowedAfter }),
  };
}

/** The rank of an asset: lower is more urgent. */
export type Rank = [quantum: number, protectUntil: string, consumers: number, id: string];
export const rankOf = ({ quantum, protectUntil, consumers, id }: PostQuantum): Rank => [
  QUANTUM_STATES.indexOf(quantum),
  protectUntil,
  consumers ?? 0,
  id,
];

/**
 * Compares ranks: first assets that a quantum computer breaks, then those of unknown algorithms. Among them those that must
 * protect the longest come first, then those with the most consumers.
 */
export function compareRanks(a: Rank, b: Rank): number {
  if (a[0] !== b[0]) return a[0] - b[0];
  if (a[1] !== b[1]) return a[1] > b[1] ? -1 : 1;
  if (a[2] !== b[2]) return b[2] - a[2];
  return a[3] === b[3] ? 0 : a[3] < b[3] ? -1 : 1;
}
