import type { AssetRecord, AssetSource, AssetType } from "../inventory/asset.ts";
import type { VaultRecord } from "../inventory/vault.ts";
import type { Remediation, Target } from "./remedies/remediation.ts";

/** In the order violations are listed. */
export const SEVERITIES = ["critical", "high", "medium", "low"] as const;
export type Severity = (typeof SEVERITIES)[number];

/** What a pair of check and resource weighs in the score. */
export const WEIGHTS: Record<Severity, number> = { critical: 10, high: 5, medium: 2, low: 1 };

export const RESOURCE_TYPES = ["vault", "secret", "key", "certificate"] as const;
export type ResourceType = (typeof RESOURCE_TYPES)[number];

export interface Evaluation {
  result: "pass" | "fail" | "notApplicable";
  /** The facts the result rests on. It never says how much time is left, so that it stays the same from day to day. */
  evidence: string;
  /** Unix seconds at which time alone may change the result. */
  changesAt?: number;
}

/** The instant and the thresholds results are judged by. */
export interface Context {
  /** Milliseconds since 1970. */
  now: number;
  criticalDays: number;
  warningDays: number;
}

/** What is known of the use of an asset or a vault: references, those that can't be followed in words, and what logs show. */
export interface ReferenceFacts {
  resolved: number;
  unresolved: number;
  examples: string[];
  /** Whether logs that were whole for long enough have seen it read. */
  use?: { unused: boolean; evidence: string };
}

/** An asset, the one thing of its vault that asset checks ask, and what is known of references to it. */
export interface AssetResource {
  asset: AssetRecord;
  vaultUsesRbac: boolean;
  references?: ReferenceFacts | undefined;
}

interface CheckFacts {
  /** Lower-case words with hyphens; violations are ordered by it. */
  id: string;
  /** Stands for the check in stored rows. Never changed, never given to another check. */
  code: number;
  title: string;
  severity: Severity;
  rationale: string;
  /** How to mend it on this resource. */
  remedy(target: Target): Remediation;
  /** Ids of the checks that say its finding in its place once that is worse: a violation that one of them goes on has not ended. */
  successors?: readonly string[];
}

export interface VaultCheck extends CheckFacts {
  resourceType: "vault";
  /** @param references - To the vault as a whole, and to what it does not hold. */
  evaluate(vault: VaultRecord, references?: ReferenceFacts): Evaluation;
}

/** Each is about one type of asset, so that it has one severity and one set of controls. */
export interface AssetCheck extends CheckFacts {
  resourceType: AssetType;
  /** Whose assets it is about; absent: key vaults'. */
  source?: AssetSource;
  /**
   * What makes its result change with time: `expiry`, when the expiry crosses now or one of the policy's lines, which the
   * inventory's index by expiry finds; `age`, at the `changesAt` of its evaluation. Absent: nothing does.
   */
  timed?: "expiry" | "age";
  evaluate(resource: AssetResource, context: Context): Evaluation;
}

export type Check = VaultCheck | AssetCheck;

export const pass = (evidence: string, changesAt?: number): Evaluation => outcome("pass", evidence, changesAt);
export const fail = (evidence: string, changesAt?: number): Evaluation => outcome("fail", evidence, changesAt);
export const notApplicable = (evidence: string, changesAt?: number): Evaluation =>
  outcome("notApplicable", evidence, changesAt);

const outcome = (result: Evaluation["result"], evidence: string, changesAt: number | undefined): Evaluation =>
  changesAt === undefined ? { result, evidence } : { result, evidence, changesAt };

/** Unix seconds as people read them; what no date can hold (after the year 275760) stays a number. */
export function instantText(seconds: number): string {
  const date = new Date(seconds * 1000);
  return Number.isNaN(date.getTime()) ? `second ${seconds}` : date.toISOString().replace(".000Z", "Z");
}

/** Declares a check of enabled assets: a disabled one can't be used, so nothing is asked of it. */
export function assetCheck(check: AssetCheck): AssetCheck {
  return {
    ...check,
    evaluate: (resource, context) =>
      resource.asset.enabled ? check.evaluate(resource, context) : notApplicable("It is disabled."),
  };
}
