// Checks that the subscription accepts deployments, and belongs to the tenant of the signed-in person.

import type { Context } from "../context.ts";
import type { CheckResult, Finding } from "../finding.ts";

export function checkSubscription({ subscription, signedIn }: Context): CheckResult {
  const findings: Finding[] = [];
  // A disabled subscription is read-only: https://learn.microsoft.com/azure/cost-management-billing/manage/subscription-states
  if (subscription.state !== "Enabled") {
    const isReadOnly = subscription.state === "Disabled" || subscription.state === "Deleted";
    findings.push({
      code: "subscription.state",
      severity: isReadOnly ? "stops" : "degrades",
      subject: subscription.name,
      message: `The subscription is in the state ${subscription.state}${isReadOnly ? ", in which it is read-only" : ""}.`,
      remedy: "Ask the account administrator to reactivate it, or choose another subscription.",
      command: `az account subscription enable --subscription-id ${subscription.id}`,
    });
  }
  if (signedIn.tenantId && signedIn.tenantId.toLowerCase() !== subscription.tenantId.toLowerCase()) {
    findings.push({
      code: "subscription.otherTenant",
      severity: "degrades",
      subject: subscription.name,
      message: `You are signed in to tenant ${signedIn.tenantId}, and the subscription belongs to ${subscription.tenantId}. The service's identity would be in the tenant of the subscription.`,
      remedy: "Sign in to the tenant of the subscription.",
      command: `az login --tenant ${subscription.tenantId}`,
    });
  }
  return { summary: `${subscription.name}, ${subscription.state}`, findings };
}
