// Checks that the signed-in person may write every resource type of the templates, at the scope that the templates write it to.

import * as z from "zod";
import { CloudFailure } from "../../../shared/platform/azure/failure.ts";
import { type Context, existingScope, notChecked, textParameter } from "../context.ts";
import { type CheckResult, counted, type Finding, listOf, quote } from "../finding.ts";
import { isObject } from "../values.ts";

/** https://learn.microsoft.com/rest/api/authorization/permissions */
const VERSION = "2022-04-01";
const Permission = z.object({ actions: z.array(z.string()).nullish(), notActions: z.array(z.string()).nullish() });
type Permission = z.infer<typeof Permission>;
const RoleAssignment = z.object({
  id: z.string(),
  properties: z.object({ scope: z.string().nullish(), condition: z.string().nullish() }),
});

/** Actions on existing resources, by the parameter that names the resource. */
const ACTIONS_ON_EXISTING: Readonly<Record<string, string>> = {
  functionSubnetResourceId: "Microsoft.Network/virtualNetworks/subnets/join/action",
  privateEndpointSubnetResourceId: "Microsoft.Network/virtualNetworks/subnets/join/action",
  // Diagnostic settings and Application Insights send to the workspace.
  logAnalyticsWorkspaceResourceId: "Microsoft.OperationalInsights/workspaces/sharedKeys/action",
};

export async function checkPermissions(context: Context): Promise<CheckResult> {
  const findings: Finding[] = [];
  const required = requiredActions(context);
  for (const [scope, actions] of required) {
    try {
      const permissions = await permissionsAt(context, scope);
      const missing = [...actions].filter((action) => !permissions.some((one) => allows(one, action)));
      findings.push(...missingFindings(context, scope, missing));
      // Conditions are only read at subscriptions and resource groups: `/subscriptions/GUID/resourceGroups/NAME` has five parts.
      if (actions.has("Microsoft.Authorization/roleAssignments/write") && scope.split("/").length <= 5)
        findings.push(...(await conditionFindings(context, scope)));
    } catch (error) {
      if (!(error instanceof CloudFailure)) throw error;
      const command = `az role assignment list --assignee ${context.signedIn.objectId} --include-inherited --include-groups --scope ${quote(scope)}`;
      findings.push(notChecked("permissions.unreadable", scope, error, command));
    }
  }
  const count = [...required.values()].reduce((sum, { size }) => sum + size, 0);
  return { summary: `${counted(count, "action")} at ${counted(required.size, "scope")}`, findings };
}

/** Returns the actions that the deployment needs, by scope. */
function requiredActions(context: Context): Map<string, Set<string>> {
  const required = new Map<string, Set<string>>();
  const add = (scope: string, action: string) => {
    const existing = existingScope(context, scope);
    required.set(existing, (required.get(existing) ?? new Set()).add(action));
  };
  for (const { type, scope } of context.plan.resources) add(scope, `${type}/write`);
  if (context.language === "bicep") {
    for (const scope of context.plan.scopes) {
      add(scope, "Microsoft.Resources/deployments/write");
      add(scope, "Microsoft.Resources/deployments/validate/action");
    }
  }
  // npm run make-secrets writes the first secrets through the resource manager.
  for (const verb of ["read", "write"]) add(context.group.id, `Microsoft.KeyVault/vaults/secrets/${verb}`);
  for (const [name, action] of Object.entries(ACTIONS_ON_EXISTING)) {
    const id = textParameter(context, name);
    if (id) add(id, action);
  }
  const zones = context.parameters.values.privateDnsZoneResourceIds;
  for (const id of isObject(zones) ? Object.values(zones) : [])
    if (typeof id === "string") add(id, "Microsoft.Network/privateDnsZones/join/action");
  return required;
}

/** Returns whether the person may do an action at a scope. True if their permissions can't be read. */
export async function isPermitted(context: Context, scope: string, action: string): Promise<boolean> {
  try {
    return (await permissionsAt(context, scope)).some((one) => allows(one, action));
  } catch (error) {
    if (error instanceof CloudFailure) return true;
    throw error;
  }
}

async function permissionsAt({ arm }: Context, scope: string): Promise<Permission[]> {
  const path = `${scope}/providers/Microsoft.Authorization/permissions`;
  const target = { operation: "list your permissions", resource: scope };
  const { entries, unreadable } = await arm.list({ path, apiVersion: VERSION, target }, Permission);
  if (unreadable[0]) throw unreadable[0];
  return entries;
}

/** Returns whether a permission allows an action. Actions can have the wildcard `*`, and ignore case. */
function allows({ actions, notActions }: Permission, action: string): boolean {
  const matches = (patterns: string[] | null | undefined) =>
    patterns?.some((pattern) =>
      new RegExp(`^${pattern.replace(/[.\\^$+?()[\]{}|]/g, "\\$&").replaceAll("*", ".*")}$`, "i").test(action),
    ) ?? false;
  return matches(actions) && !matches(notActions);
}

function missingFindings(context: Context, scope: string, missing: string[]): Finding[] {
  const isRoleAction = (action: string) => /^Microsoft\.Authorization\//i.test(action);
  const groups = [
    {
      code: "permissions.roles",
      actions: missing.filter(isRoleAction),
      role: "User Access Administrator",
      remedy: `Ask for User Access Administrator, or Owner. Role Based Access Control Administrator does not suffice: it can't create the custom roles.${
        context.hasParameter("inventoryReaderRoleDefinitionId")
          ? " Or name roles that a platform team created (docs/bring-your-own.md)."
          : ""
      }`,
    },
    {
      code: "permissions.resources",
      actions: missing.filter((action) => !isRoleAction(action)),
      role: roleFor(scope),
      remedy: `Ask the owner of the scope for the role.${
        scope === `/subscriptions/${context.subscription.id}` && context.hasParameter("resourceGroupName")
          ? " If you may deploy to one resource group only, see docs/bring-your-own.md."
          : ""
      }`,
    },
  ];
  return groups
    .filter(({ actions }) => actions.length > 0)
    .map(({ code, actions, role, remedy }) => ({
      code,
      severity: "stops",
      subject: scope,
      message: `You may not: ${listOf(actions)}.`,
      remedy,
      command: `az role assignment create --assignee ${context.signedIn.objectId} --role ${quote(role)} --scope ${quote(scope)}`,
    }));
}

function roleFor(scope: string): string {
  if (/\/subnets\//i.test(scope)) return "Network Contributor";
  if (/\/privateDnsZones\//i.test(scope)) return "Private DNS Zone Contributor";
  return /\/Microsoft\.OperationalInsights\//i.test(scope) ? "Log Analytics Contributor" : "Contributor";
}

/** Finds conditions of the person's own role assignments. A condition can limit the roles that the person may assign. */
async function conditionFindings(context: Context, scope: string): Promise<Finding[]> {
  const { entries } = await context.arm.list(
    {
      path: `${scope}/providers/Microsoft.Authorization/roleAssignments`,
      apiVersion: VERSION,
      query: { $filter: `atScope() and assignedTo('${context.signedIn.objectId}')` },
      target: { operation: "list your role assignments", resource: scope },
    },
    RoleAssignment,
  );
  return entries
    .filter(({ properties }) => properties.condition)
    .map(({ id }) => ({
      code: "permissions.condition",
      severity: "degrades",
      subject: id,
      message: `Your role assignment has a condition, which preflight does not evaluate. It must permit you to assign: ${listOf(context.assignedRoles, 20)}, and the custom roles of the templates.`,
      remedy:
        "Compare the condition with these roles. If it excludes one, ask for an assignment without the condition.",
      command: `az role assignment list --assignee ${context.signedIn.objectId} --scope ${quote(scope)} --include-inherited --query '[].{role:roleDefinitionName,condition:condition}'`,
    }));
}
