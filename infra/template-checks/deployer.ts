// Checks that the documented roles of a deployer allow everything that the templates deploy.

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

/** Types whose write action has another name than the type. */
const WRITE_ACTIONS: Record<string, string> = {
  "Microsoft.Resources/resourceGroups": "Microsoft.Resources/subscriptions/resourceGroups/write",
};

/**
 * Checks that the roles that the page lists for a deployer allow everything that the templates write: each resource type in
 * both languages, the deployments, and the registration of resource providers.
 */
export function checkDeployerRoles(
  files: InfraFiles,
  bicep: ReadonlyMap<string, BicepFile>,
  modules: readonly TerraformModule[],
): Finding[] {
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

/** Parses `A and B, or C` to `[[A, B], [C]]`. */
const alternativesOf = (cell: string): string[][] => cell.split(/,? or /).map((one) => one.split(" and "));

function allows(name: string, action: string): boolean {
  const role = DEPLOYER_ROLES.find((one) => one.name === name);
  const matches = (patterns: readonly string[] = []) =>
    patterns.some((pattern) =>
      new RegExp(`^${pattern.replaceAll(".", "\\.").replaceAll("*", ".*")}$`, "i").test(action),
    );
  return role !== undefined && matches(role.actions) && !matches(role.notActions);
}
