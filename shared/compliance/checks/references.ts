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
import { followReference } from "../remedies/vaults.ts";

/** Checks of Key Vault references, by the status that their platform reports. The facts come from dependency discovery. */

const RATIONALE =
  "An app with an unresolved reference runs without the value, or uses the text of the reference as the value.";

function resultOf(facts: ReferenceFacts | undefined): Evaluation {
  const { resolved = 0, unresolved = 0, examples = [] } = facts ?? {};
  if (resolved + unresolved === 0) return notApplicable("No references with a known status were found.");
  if (unresolved === 0) return pass(`${count(resolved)} ${resolved === 1 ? "resolves" : "resolve"}.`);
  const more = unresolved > examples.length ? ` and ${unresolved - examples.length} more` : "";
  return fail(`${count(unresolved)} ${unresolved === 1 ? "does" : "do"} not resolve: ${examples.join("; ")}${more}.`);
}

const count = (number: number): string => (number === 1 ? "1 reference" : `${number} references`);

const ofType = (type: AssetType, code: number): AssetCheck =>
  assetCheck({
    id: `${type}-reference-resolved`,
    code,
    resourceType: type,
    title: `References to the ${type} resolve`,
    failureTitle: `Reference to the ${type} does not resolve`,
    severity: "high",
    rationale: RATIONALE,
    remedy: followReference,
    evaluate: ({ references }) => resultOf(references),
  });

/** There is no check for keys, because no platform reports the status of references to keys. */
export const referenceChecks: AssetCheck[] = [ofType("secret", 121), ofType("certificate", 122)];

export const vaultReferenceCheck: VaultCheck = {
  id: "vault-reference-resolved",
  code: 120,
  title: "References to the key vault and its objects resolve",
  failureTitle: "Reference to the key vault or to a missing object does not resolve",
  severity: "high",
  resourceType: "vault",
  rationale: RATIONALE,
  remedy: followReference,
  evaluate: (_vault, references) => resultOf(references),
};
