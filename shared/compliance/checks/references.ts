/**
 * Checks of Key Vault references: settings of apps and other resources that name a secret or certificate. Their platform
 * reports whether a reference resolves, and dependency discovery reads that status.
 */
import type { AssetType } from "../../inventory/asset.ts";
import {
  type AssetCheck,
  assetCheck,
  type Evaluation,
  fail,
  notApplicable,
  pass,
  type ReferenceFacts,
  type VaultCheck,
} from "../check.ts";
import { fixReference } from "../remedies/vaults.ts";

const RATIONALE =
  "An app with an unresolved reference runs without the value, or uses the text of the reference as the value.";

function evaluateReferences(facts: ReferenceFacts | undefined): Evaluation {
  const { resolved = 0, unresolved = 0, examples = [] } = facts ?? {};
  if (resolved + unresolved === 0) return notApplicable("No references with a known status were found.");
  if (unresolved === 0) return pass(`${countText(resolved)} ${resolved === 1 ? "resolves" : "resolve"}.`);
  const unlistedText = unresolved > examples.length ? ` and ${unresolved - examples.length} more` : "";
  return fail(
    `${countText(unresolved)} ${unresolved === 1 ? "does" : "do"} not resolve: ${examples.join("; ")}${unlistedText}.`,
  );
}

const countText = (number: number): string => (number === 1 ? "1 reference" : `${number} references`);

const referenceCheck = (type: AssetType, code: number): AssetCheck =>
  assetCheck({
    id: `${type}-reference-resolved`,
    code,
    resourceType: type,
    title: `References to the ${type} resolve`,
    failureTitle: `Reference to the ${type} does not resolve`,
    severity: "high",
    onlyFor: "with a reference whose platform reports its state",
    rationale: RATIONALE,
    remedy: fixReference,
    evaluate: ({ references }) => evaluateReferences(references),
  });

/** There is no check for keys, because no platform reports the status of references to keys. */
export const referenceChecks: AssetCheck[] = [referenceCheck("secret", 121), referenceCheck("certificate", 122)];

export const vaultReferenceCheck: VaultCheck = {
  id: "vault-reference-resolved",
  code: 120,
  title: "References to the key vault and its objects resolve",
  failureTitle: "Reference to the key vault or to a missing object does not resolve",
  severity: "high",
  resourceType: "vault",
  onlyFor: "with such a reference to the vault itself, or to an object that it does not contain",
  rationale: RATIONALE,
  remedy: fixReference,
  evaluate: (_vault, references) => evaluateReferences(references),
};
