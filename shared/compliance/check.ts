/**
 * Types of checks. A check is a rule that passes or fails a vault or an asset (a secret, key or certificate). A failed result
 * is a violation. The checks themselves are in checks/.
 */
import type { AssetRecord, AssetSource, AssetType } from "../inventory/asset.ts";
import type { VaultRecord } from "../inventory/vault.ts";
import type { Remediation, Target } from "./remedies/remediation.ts";

/** The severities in the order in which violations are sorted. */
export const SEVERITIES = ["critical", "high", "medium", "low"] as const;
export type Severity = (typeof SEVERITIES)[number];

/** Weight of a check result in the score. */
export const SEVERITY_WEIGHTS: Record<Severity, number> = { critical: 10, high: 5, medium: 2, low: 1 };

export const RESOURCE_TYPES = ["vault", "secret", "key", "certificate"] as const;
export type ResourceType = (typeof RESOURCE_TYPES)[number];

/** The result of a check for one resource. */
export interface Evaluation {
  result: "pass" | "fail" | "notApplicable";
  /** The facts that the result is based on. It never contains the remaining time, so that it does not change daily. */
  evidence: string;
  /** Unix seconds from which the result may differ although the resource did not change. */
  changesAt?: number;
}

/** The time and the thresholds of an evaluation. */
export interface Context {
  /** Milliseconds since 1970. */
  now: number;
  /** Days before its expiry in which an asset is critical, from the settings of the compliance policy. */
  criticalDays: number;
  /** Days before its expiry in which an asset has the status warning, unless it is critical. */
  warningDays: number;
}

/**
 * Known use of an asset or vault. `resolved` and `unresolved` count the Key Vault references to it whose platform reports that
 * status. `examples` describes some references that don't resolve.
 */
export interface ReferenceFacts {
  resolved: number;
  unresolved: number;
  examples: string[];
  /** Whether complete logs contain reads of the secret. */
  use?: { unused: boolean; evidence: string };
}

/** The input of an asset check: the asset, one property of its vault, and the references to the asset. */
export interface AssetResource {
  asset: AssetRecord;
  vaultUsesRbac: boolean;
  references?: ReferenceFacts | undefined;
}

/** The members that all checks have. */
interface CheckFacts {
  /** Lower-case words with hyphens, such as `secret-expired`. Violations of the same severity are sorted by it. */
  id: string;
  /** Identifies the check in stored rows. Must never be changed or reused. */
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
  /**
   * The resources of the type that the check evaluates, for docs/compliance.md: "with an expiration date". Empty if it evaluates
   * all enabled assets of the type. No check evaluates disabled assets.
   */
  onlyFor: string;
  rationale: string;
  /** Returns the remediation for this resource. */
  remedy(target: Target): Remediation;
  /**
   * IDs of checks that a resource fails instead of this one when its state gets worse, such as `secret-expired` for
   * `secret-near-expiry-critical`. An alert of this check continues while the resource fails one of them.
   */
  successors?: readonly string[];
}

/** A check of key vaults. */
export interface VaultCheck extends CheckFacts {
  resourceType: "vault";
  /**
   * Evaluates a vault.
   *
   * @param references - References to the vault as a whole, and to objects that it does not contain.
   */
  evaluate(vault: VaultRecord, references?: ReferenceFacts): Evaluation;
}

/** A check of one type of asset, with one severity and one set of controls. */
export interface AssetCheck extends CheckFacts {
  resourceType: AssetType;
  /** Source of the assets. Default: key vaults. */
  source?: AssetSource;
  /**
   * Why the result changes over time. `expiry`: the asset expires or passes a threshold of the policy, which the inventory's
   * index by expiry finds. `age`: another reason; the asset is evaluated again at the `changesAt` of its last evaluation.
   * Undefined: the result does not change over time.
   */
  timed?: "expiry" | "age";
  evaluate(resource: AssetResource, context: Context): Evaluation;
}

export type Check = VaultCheck | AssetCheck;

export const pass = (evidence: string, changesAt?: number): Evaluation => createEvaluation("pass", evidence, changesAt);
export const fail = (evidence: string, changesAt?: number): Evaluation => createEvaluation("fail", evidence, changesAt);
export const notApplicable = (evidence: string, changesAt?: number): Evaluation =>
  createEvaluation("notApplicable", evidence, changesAt);

const createEvaluation = (result: Evaluation["result"], evidence: string, changesAt: number | undefined): Evaluation =>
  changesAt === undefined ? { result, evidence } : { result, evidence, changesAt };

/** Returns Unix seconds as an ISO 8601 text. Times after the year 275760, which no `Date` supports, stay a number. */
export function dateText(seconds: number): string {
  const date = new Date(seconds * 1000);
  return Number.isNaN(date.getTime()) ? `second ${seconds}` : date.toISOString().replace(".000Z", "Z");
}

/** Returns the check with a result of `notApplicable` for disabled assets, which can't be used. */
export function assetCheck(check: AssetCheck): AssetCheck {
  return {
    ...check,
    evaluate: (resource, context) =>
      resource.asset.enabled ? check.evaluate(resource, context) : notApplicable("It is disabled."),
  };
}

/** Returns the title of a check's failures without their evidence. */
export const failureTitleOf = ({ failureTitle }: Pick<Check, "failureTitle">): string =>
  typeof failureTitle === "string" ? failureTitle : failureTitle("");
