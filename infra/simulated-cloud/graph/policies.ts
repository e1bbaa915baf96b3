// App management policies: their JSON, and the restrictions that a new secret violates.

import type { PasswordPolicy } from "../company/applications.ts";
import type { Directory } from "./directory.ts";
import { toGraphTime } from "./json.ts";
import type { ApplicationRecord } from "./records.ts";

const DAY_SECONDS = 86_400;

/** Formats a policy's restrictions: https://learn.microsoft.com/graph/api/resources/passwordcredentialconfiguration */
function passwordCredentials(policy: PasswordPolicy | undefined, now: number) {
  const days = policy?.forAppsCreatedInLastDays;
  const createdAfter = days === undefined ? null : toGraphTime(now - days * DAY_SECONDS);
  const restriction = (restrictionType: string, maxLifetime: string | null) => ({
    restrictionType,
    state: "enabled",
    maxLifetime,
    restrictForAppsCreatedAfterDateTime: createdAfter,
  });
  return [
    ...(policy?.additionRefused ? [restriction("passwordAddition", null)] : []),
    ...(policy?.longestDays === undefined ? [] : [restriction("passwordLifetime", `P${policy.longestDays}D`)]),
  ];
}

/** Formats the tenant's policy: https://learn.microsoft.com/graph/api/tenantappmanagementpolicy-get */
export function tenantPolicyJson({ settings, clock }: Directory): Record<string, unknown> {
  const restrictions = passwordCredentials(settings.policy, clock.seconds());
  return {
    id: "00000000-0000-0000-0000-000000000000",
    displayName: "Default app management tenant policy",
    description:
      "Default tenant policy that enforces app management restrictions on applications and service principals.",
    isEnabled: settings.policy !== undefined,
    applicationRestrictions: { passwordCredentials: restrictions, keyCredentials: [] },
    servicePrincipalRestrictions: { passwordCredentials: [], keyCredentials: [] },
  };
}

/**
 * Formats the policy that is assigned to an application: https://learn.microsoft.com/graph/api/resources/appmanagementpolicy
 */
export function assignedPolicyJson({ clock }: Directory, { policy }: ApplicationRecord): Record<string, unknown>[] {
  if (policy === undefined) return [];
  const restrictions = { passwordCredentials: passwordCredentials(policy, clock.seconds()), keyCredentials: [] };
  return [
    {
      id: "db9d58b5-d15c-4da4-8b0f-5d35ae12f9b0",
      displayName: "Assigned policy",
      description: null,
      isEnabled: true,
      restrictions,
    },
  ];
}

/**
 * Returns the restriction that a new secret violates. An assigned policy overrides the tenant's policy, restriction by
 * restriction.
 */
export function violatedRestriction(
  { settings, clock }: Directory,
  application: ApplicationRecord,
  lifetimeSeconds: number,
): "addition" | "lifetime" | undefined {
  const policies = [application.policy, settings.policy].filter(
    (policy): policy is PasswordPolicy =>
      policy !== undefined &&
      (policy.forAppsCreatedInLastDays === undefined ||
        application.createdAt > clock.seconds() - policy.forAppsCreatedInLastDays * DAY_SECONDS),
  );
  if (policies.find((policy) => policy.additionRefused !== undefined)?.additionRefused) return "addition";
  const longestDays = policies.find((policy) => policy.longestDays !== undefined)?.longestDays;
  return longestDays !== undefined && lifetimeSeconds > longestDays * DAY_SECONDS ? "lifetime" : undefined;
}
