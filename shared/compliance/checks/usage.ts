import { type AssetCheck, assetCheck, fail, notApplicable, pass } from "../check.ts";
import { disableUnused } from "../remedies/key-vault.ts";

/** Checks of whether assets are used. Dependency discovery finds reads of an asset in the vaults' logs. */
export const usageChecks: AssetCheck[] = [
  assetCheck({
    id: "secret-unused",
    code: 123,
    resourceType: "secret",
    title: "Secret is in use",
    failureTitle: "Secret is unused",
    severity: "low",
    onlyFor: "whose vault has a complete log for `unusedSecretDays`",
    rationale: "An unused secret can still be stolen and must still be rotated.",
    remedy: disableUnused,
    evaluate: ({ references }) => {
      const { use } = references ?? {};
      if (!use) return notApplicable("No complete log covers a long enough period.");
      return use.unused ? fail(use.evidence) : pass(use.evidence);
    },
  }),
];
