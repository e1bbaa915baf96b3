// Checks the actions of the custom roles against the permission pages and against the calls that the service makes
// (shared/doctor/calls). The parity check does not find an action that is missing in all templates.

import { CALLS } from "../../shared/doctor/calls.ts";
import type { BicepFile } from "./bicep/parse.ts";
import { type Expression, type Finding, property, text } from "./expression.ts";
import type { InfraFiles } from "./files.ts";
import { grantsOf } from "./grants.ts";
import { cellsOf } from "./markdown-sections.ts";
import { snake } from "./parity/normalize.ts";
import { argumentOf, blocks, type TerraformModule } from "./terraform/check.ts";

const PAGES = ["docs/permissions.md", "docs/permissions-options.md"];

/** A custom role as one file declares it. */
interface CustomRole {
  /** Name of the declaration in snake_case. */
  symbol: string;
  /** Title without the names of the deployment, as the pages write it. */
  title: string;
  actions: string[];
  file: string;
  line: number;
}

/** Returns the start of the sentence that lists all actions of a role, for roles whose rows in the tables are abbreviated. */
const listOf = (title: string) => `The ${title.replace("Credential Lifecycle ", "")} contains exactly:`;

/** Checks each custom role in each file, except the role whose actions depend on a parameter (key-actions.ts). */
export function checkRoleActions(
  files: InfraFiles,
  bicep: ReadonlyMap<string, BicepFile>,
  modules: readonly TerraformModule[],
): Finding[] {
  const roles = [...bicepRoles(bicep), ...terraformRoles(modules)];
  const missing = new Set(
    roles.flatMap(({ title, actions }) =>
      [...documentedActions(files, title)].filter((action) => !actions.includes(action)),
    ),
  );
  return [...roles.flatMap((role) => checkRole(files, role)), ...checkCalls(bicep, roles, missing)];
}

/** Checks that a role has exactly the actions that the pages list for it. */
function checkRole(files: InfraFiles, { title, actions, file, line, symbol }: CustomRole): Finding[] {
  const documented = documentedActions(files, title);
  const finding = (message: string): Finding => ({ file, line, message: `${symbol}: ${message}` });
  if (documented.size === 0) return [finding(`${PAGES.join(" and ")} do not list the actions of ${title}`)];
  return [
    ...[...documented]
      .filter((one) => !actions.includes(one))
      .map((one) => finding(`lacks ${one}, which the pages list`)),
    ...actions.filter((one) => !documented.has(one)).map((one) => finding(`has ${one}, which the pages don't list`)),
    ...actions.filter((one, index) => actions.indexOf(one) !== index).map((one) => finding(`lists ${one} twice`)),
  ];
}

/** Returns the actions that the pages list for a role: in a sentence, or in the rows of the tables that name the role. */
function documentedActions(files: InfraFiles, title: string): Set<string> {
  const pages = PAGES.map((page) => files.text.get(page) ?? "");
  const sentence = pages.flatMap((page) => page.split("\n\n").filter((part) => part.startsWith(listOf(title))));
  const rows = pages
    .flatMap((page) => page.split("\n"))
    .filter((line) => cellsOf(line).some((cell) => cell.startsWith(`${title} (custom)`)));
  return new Set(
    (sentence.length > 0 ? sentence : rows).flatMap((one) =>
      [...one.matchAll(/`(Microsoft\.[\w/]+)`/g)].map(([, action]) => action!),
    ),
  );
}

/**
 * Checks that the roles that the templates grant to the service permit each of its calls in Azure. A finding is reported at the
 * custom role with the other actions of the call. If there is none, at the role with the most similar action.
 *
 * @param missing - Documented actions that a role lacks, which `checkRole` already reports.
 */
function checkCalls(
  bicep: ReadonlyMap<string, BicepFile>,
  roles: readonly CustomRole[],
  missing: ReadonlySet<string>,
): Finding[] {
  const granted = grantsOf(bicep)
    .filter(({ principal }) => principal === "{identity.principal_id}" || principal === "{principal_id}")
    .flatMap(({ actions, dataActions }) => [...actions, ...dataActions]);
  const permits = (action: string) =>
    granted.some((pattern) =>
      new RegExp(`^${pattern.replaceAll(".", "\\.").replaceAll("*", ".*")}$`, "i").test(action),
    );
  return CALLS.flatMap(({ id, permissions }) =>
    permissions
      .filter((permission) => /^Microsoft\.\w+\//.test(permission) && !permits(permission) && !missing.has(permission))
      .flatMap((permission) => {
        const owners = roles.filter(({ actions }) => permissions.some((other) => actions.includes(other)));
        const nearest = owners.length > 0 ? owners : [mostSimilar(roles, permission)];
        return nearest.map(({ file, line, symbol }) => ({
          file,
          line,
          message: `no role of the service permits ${permission}, which the call ${id} needs: ${symbol} may lack it`,
        }));
      }),
  );
}

/** Returns the role with the action that has the most segments in common with another action. */
function mostSimilar(roles: readonly CustomRole[], action: string): CustomRole {
  const segments = action.split("/");
  const likeness = ({ actions }: CustomRole) =>
    Math.max(0, ...actions.map((one) => segments.filter((segment) => one.split("/").includes(segment)).length));
  return [...roles].sort((one, other) => likeness(other) - likeness(one))[0]!;
}

/** Returns the texts of a list. Undefined for an expression that depends on a parameter. */
const textsIn = (list: Expression | undefined): string[] | undefined =>
  list?.kind === "array" ? list.items.flatMap((item) => text(item) ?? []) : undefined;

/** Returns the text before the parenthesis of `Title (${…})`. */
function titleIn(name: Expression | undefined): string {
  const first = name?.kind === "template" ? text(name.parts[0]) : text(name);
  return (first ?? "").replace(/ \($/, "");
}

function bicepRoles(bicep: ReadonlyMap<string, BicepFile>): CustomRole[] {
  return [...bicep.values()].flatMap(({ path: file, resources }) =>
    resources
      .filter(({ type }) => type === "Microsoft.Authorization/roleDefinitions")
      .flatMap(({ name, body, line }) => {
        const permissions = property(body, "properties", "permissions");
        const first = permissions?.kind === "array" ? permissions.items[0] : undefined;
        const actions = textsIn(property(first, "actions"));
        const title = titleIn(property(body, "properties", "roleName"));
        return actions ? [{ symbol: snake(name), title, actions, file, line }] : [];
      }),
  );
}

function terraformRoles(modules: readonly TerraformModule[]): CustomRole[] {
  return modules.flatMap((module) =>
    blocks(module, "resource")
      .filter(({ block }) => block.labels[0] === "azurerm_role_definition")
      .flatMap(({ block, file }) => {
        const actions = textsIn(argumentOf(block, "permissions.actions"));
        const title = titleIn(block.attributes.get("name")?.value);
        return actions ? [{ symbol: block.labels[1]!, title, actions, file, line: block.line }] : [];
      }),
  );
}
