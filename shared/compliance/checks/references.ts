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

/** Checks of what refers to a vault, as the platforms that keep the references say. The facts are the dependencies'. */

const RATIONALE =
  "An app whose reference can't be followed runs without the value, or gets the reference's text in its place.";

function resultOf(facts: ReferenceFacts | undefined): Evaluation {
  const { resolved = 0, unresolved = 0, examples = [] } = facts ?? {};
  if (resolved + unresolved === 0)
    return notApplicable("No reference is known of which a platform says whether it can be followed.");
  if (unresolved === 0) return pass(`${count(resolved)} can be followed.`);
  const more = unresolved > examples.length ? ` and ${unresolved - examples.length} more` : "";
  return fail(`${count(unresolved)} can't be followed: ${examples.join("; ")}${more}.`);
}

const count = (number: number): string => (number === 1 ? "1 reference" : `${number} references`);

const ofType = (type: AssetType, code: number): AssetCheck =>
  assetCheck({
    id: `${type}-reference-resolved`,
    code,
    resourceType: type,
    title: `What refers to the ${type} can follow the reference`,
    severity: "high",
    rationale: RATIONALE,
    remedy: followReference,
    evaluate: ({ references }) => resultOf(references),
  });

/** No platform says of a key whether a reference to it can be followed. */
export const referenceChecks: AssetCheck[] = [ofType("secret", 121), ofType("certificate", 122)];

export const vaultReferenceCheck: VaultCheck = {
  id: "vault-reference-resolved",
  code: 120,
  title: "What refers to the key vault, or to what it should hold, can follow the reference",
  severity: "high",
  resourceType: "vault",
  rationale: RATIONALE,
  remedy: followReference,
  evaluate: (_vault, references) => resultOf(references),
};
