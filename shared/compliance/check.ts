import type { AssetRecord, AssetSource, AssetType } from "../inventory/asset.ts";
import type { VaultRecord } from "../inventory/vault.ts";
import type { Remediation, Target } from "./remedies/remediation.ts";

/** In the order in which violations are sorted. */
export const SEVERITIES = ["critical", "high", "medium", "low"] as const;
export type Severity = (typeof SEVERITIES)[number];

/** Weight of a check result in the score. */
export const WEIGHTS: Record<Severity, number> = { critical: 10, high: 5, medium: 2, low: 1 };

export const RESOURCE_TYPES = ["vault", "secret", "key", "certificate"] as const;
export type ResourceType = (typeof RESOURCE_TYPES)[number];

export interface Evaluation {
  result: "pass" | "fail" | "notApplicable";
  /** The facts that the result is based on. It never contains the remaining time, so that it does not change daily. */
  evidence: string;
  /** Unix seconds at which the result may change without a change of the resource. */
  changesAt?: number;
}

/** The time and the thresholds of an evaluation. */
export interface Context {
  /** Milliseconds since 1970. */
  now: number;
  criticalDays: number;
  warningDays: number;
}

/** Known use of an asset or vault: Key Vault references, examples of those that don't resolve, and reads in logs. */
export interface ReferenceFacts {
  resolved: number;
  unresolved: number;
  examples: string[];
  /** Whether complete logs contain reads of the secret. */
  use?: { unused: boolean; evidence: string };
}

/** An asset with the property of its vault that asset checks need, and the references to the asset. */
export interface AssetResource {
  asset: AssetRecord;
  vaultUsesRbac: boolean;
  references?: ReferenceFacts | undefined;
}

interface CheckFacts {
  /** Lower-case words with hyphens; violations are ordered by it. */
  id: string;
  /** Identifies the check in stored rows. Never changed or reused. */
  code: number;
  /** The requirement, such as "Enabled secret has not expired". */
  title: string;
  /**
   * The title of a violation, such as "Expired secret is still enabled".
   *
   * @param evidence - The evidence of the violation.
   */
  failureTitle: string | ((evidence: string) => string);
  severity: Severity;
  rationale: string;
  /** Returns the remediation for this resource. */
  remedy(target: Target): Remediation;
  /** IDs of checks that replace this one when the finding gets worse. A violation of one of them continues this one's alert. */
  successors?: readonly string[];
}

export interface VaultCheck extends CheckFacts {
  resourceType: "vault";
  /** @param references - References to the vault as a whole, and to objects that it does not contain. */
  evaluate(vault: VaultRecord, references?: ReferenceFacts): Evaluation;
}

/** A check of one type of asset, with one severity and one set of controls. */
export interface AssetCheck extends CheckFacts {
  resourceType: AssetType;
  /** Source of the assets. Default: key vaults. */
  source?: AssetSource;
  /** Why the result changes over time. `expiry`: the asset expires or reaches a threshold of the policy, found by the inventory's index
   * by expiry. `age`: at the `changesAt` of the evaluation. Undefined: the result does not change over time.
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

/** Returns unix seconds as an ISO 8601 text. Times after the year 275760, which no `Date` supports, stay a number. */
export function instantText(seconds: number): string {
  const date = new Date(seconds * 1000);
  return Number.isNaN(date.getTime()) ? `second ${seconds}` : date.toISOString().replace(".000Z", "Z");
}

/** Declares a check of enabled assets. Disabled assets can't be used, so the check does not apply to them. */
export function assetCheck(check: AssetCheck): AssetCheck {
  return {
    ...check,
    evaluate: (resource, context) =>
      resource.asset.enabled ? check.evaluate(resource, context) : notApplicable("It is disabled."),
  };
}
