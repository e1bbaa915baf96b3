import { type AssetCheck, assetCheck, fail, notApplicable, pass } from "../check.ts";
import { disableUnused } from "../remedies/key-vault.ts";

/** Checks of who uses an asset, as the logs of its vault say. The facts are the dependencies'. */
export const usageChecks: AssetCheck[] = [
  assetCheck({
    id: "secret-unused",
    code: 123,
    resourceType: "secret",
    title: "Secret is in use",
    severity: "low",
    rationale: "What nobody reads can still be stolen, and has to be rotated all the same.",
    remedy: disableUnused,
    evaluate: ({ references }) => {
      const { use } = references ?? {};
      if (!use) return notApplicable("No log that was whole for long enough tells who reads it.");
      return use.unused ? fail(use.evidence) : pass(use.evidence);
    },
  }),
];
