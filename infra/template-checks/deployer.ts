// Checks that the roles in the section "Who deploys" of docs/permissions.md allow everything that the templates deploy.

import type { BicepFile } from "./bicep/parse.ts";
import { deployedParts } from "./deployed-parts.ts";
import type { Finding } from "./expression.ts";
import type { InfraFiles } from "./files.ts";
import { cellsOf, sectionOf } from "./markdown-sections.ts";
import { namespacesOf } from "./providers.ts";
import type { Role } from "./roles.ts";
import { BUILT_IN_ROLES } from "./roles.ts";
import type { TerraformModule } from "./terraform/check.ts";

const PAGE = "docs/permissions.md";
const HEADING = "## Who deploys";

/**
 * Roles of people and pipelines that deploy. No template assigns them.
 * https://learn.microsoft.com/azure/role-based-access-control/built-in-roles/privileged
 */
const DEPLOYER_ROLES: readonly (Pick<Role, "name" | "actions"> & { notActions?: readonly string[] })[] = [
  { name: "Owner", actions: ["*"] },
  {
    name: "Contributor",
    actions: ["*"],
    notActions: [
      "Microsoft.Authorization/*/Delete",
      "Microsoft.Authorization/*/Write",
      "Microsoft.Authorization/elevateAccess/Action",
      "Microsoft.Blueprint/blueprintAssignments/write",
      "Microsoft.Blueprint/blueprintAssignments/delete",
      "Microsoft.Compute/galleries/share/action",
      "Microsoft.Purview/consents/write",
      "Microsoft.Purview/consents/delete",
      "Microsoft.Resources/deploymentStacks/manageDenySetting/action",
      "Microsoft.Subscription/cancel/action",
      "Microsoft.Subscription/enable/action",
    ],
  },
  { name: "User Access Administrator", actions: ["*/read", "Microsoft.Authorization/*", "Microsoft.Support/*"] },
  ...BUILT_IN_ROLES.filter(({ name }) => name === "Role Based Access Control Administrator"),
];

/** Resource types whose write action does not start with the type. */
const WRITE_ACTIONS: Record<string, string> = {
  "Microsoft.Resources/resourceGroups": "Microsoft.Resources/subscriptions/resourceGroups/write",
};

/**
 * Checks the roles that the page lists for each part: they must allow writing each resource type of the part, creating
 * deployments, and registering resource providers.
 */
export function checkDeployerRoles(
  files: InfraFiles,
  bicep: ReadonlyMap<string, BicepFile>,
  modules: readonly TerraformModule[],
): Finding[] {
  // A row has three cells: the templates of a part, the scope of the deployment, and the roles.
  const rows = sectionOf(files.text.get(PAGE) ?? "", HEADING)
    .map(({ text, line }) => ({ line, cells: cellsOf(text) }))
    .filter(({ cells }) => cells.length === 3);
  return deployedParts(bicep, modules).flatMap(({ name, types, hasBicep }): Finding[] => {
    const row = rows.find(({ cells }) => cells[0]!.includes(`\`${name}\``));
    if (!row) return [{ file: PAGE, line: 1, message: `"Who deploys" does not name the roles for ${name}` }];
    const actions = [
      ...[...types].map((type) => WRITE_ACTIONS[type] ?? `${type}/write`),
      ...(hasBicep ? ["Microsoft.Resources/deployments/write"] : []),
      ...namespacesOf([...types]).map((namespace) => `${namespace}/register/action`),
    ];
    return alternativesOf(row.cells[2]!).flatMap((roles) =>
      [...new Set(actions)]
        .filter((action) => !roles.some((role) => allows(role, action)))
        .map((action) => ({
          file: PAGE,
          line: row.line,
          message: `${roles.join(" and ") || "no role"} does not allow ${action}, which ${name} needs`,
        })),
    );
  });
}

/** Parses alternative sets of roles: `A and B, or C` becomes `[[A, B], [C]]`. */
const alternativesOf = (cell: string): string[][] => cell.split(/,? or /).map((one) => one.split(" and "));

/** Returns whether a role allows an action. Patterns such as `Microsoft.Support/*` ignore case. */
function allows(name: string, action: string): boolean {
  const role = DEPLOYER_ROLES.find((one) => one.name === name);
  const matches = (patterns: readonly string[] = []) =>
    patterns.some((pattern) =>
      new RegExp(`^${pattern.replaceAll(".", "\\.").replaceAll("*", ".*")}$`, "i").test(action),
    );
  return role !== undefined && matches(role.actions) && !matches(role.notActions);
}
