// The table of all checks, in the order of the report.

import { CloudFailure } from "../../shared/platform/azure/failure.ts";
import { checkCombinations } from "./checks/combinations.ts";
import { checkLocks } from "./checks/locks.ts";
import { checkNames } from "./checks/names.ts";
import { checkNetwork } from "./checks/network.ts";
import { checkPermissions } from "./checks/permissions.ts";
import { checkPolicies } from "./checks/policies.ts";
import { checkProviders } from "./checks/providers.ts";
import { checkQuota } from "./checks/quota.ts";
import { checkRegion } from "./checks/region.ts";
import { checkSubscription } from "./checks/subscription.ts";
import { checkVaults } from "./checks/vaults.ts";
import { type Context, notChecked } from "./context.ts";
import type { CheckResult, Finding } from "./finding.ts";

interface Check {
  name: string;
  /** Returns the command that shows the answer to a person, if the cloud does not let preflight read it. */
  byHand(context: Context): string;
  run(context: Context): Promise<CheckResult> | CheckResult;
}

const inSubscription = (command: string) => (context: Context) =>
  `${command} --subscription ${context.subscription.id}`;

const CHECKS: readonly Check[] = [
  { name: "Parameters", run: checkCombinations, byHand: () => "npm run check:infra" },
  { name: "Subscription", run: checkSubscription, byHand: inSubscription("az account show") },
  { name: "Permissions", run: checkPermissions, byHand: inSubscription("az role assignment list --all") },
  { name: "Region", run: checkRegion, byHand: inSubscription("az functionapp list-flexconsumption-locations") },
  {
    name: "Resource providers",
    run: checkProviders,
    byHand: inSubscription("az provider list --query '[].[namespace,registrationState]' -o tsv"),
  },
  {
    name: "Policies",
    run: checkPolicies,
    byHand: inSubscription("az policy assignment list --disable-scope-strict-match"),
  },
  { name: "Locks", run: checkLocks, byHand: inSubscription("az lock list") },
  { name: "Quotas", run: checkQuota, byHand: inSubscription("az quota list") },
  { name: "Names", run: checkNames, byHand: inSubscription("az keyvault list-deleted") },
  { name: "Existing resources", run: checkNetwork, byHand: inSubscription("az network vnet list") },
  { name: "Vaults to watch", run: checkVaults, byHand: inSubscription("az keyvault list") },
];

/** The result of a check with its name. */
export interface NamedResult extends CheckResult {
  name: string;
}

/** Runs all checks one after the other, because later checks use parameters that earlier ones propose. */
export async function runChecks(context: Context): Promise<NamedResult[]> {
  const results: NamedResult[] = [];
  for (const { name, run, byHand } of CHECKS) {
    try {
      results.push({ name, ...(await run(context)) });
    } catch (error) {
      if (!(error instanceof CloudFailure)) throw error;
      const finding: Finding = notChecked("check.failed", name, error, byHand(context));
      results.push({ name, summary: "could not be read", findings: [finding] });
    }
  }
  return results;
}
