// Checks that the role IDs in the templates match the role names next to them, and that the documentation lists the assigned
// roles.

import type { BicepFile } from "./bicep/parse.ts";
import { children, type Expression, type Finding, property, text } from "./expression.ts";
import type { InfraFiles } from "./files.ts";
import { grantsOf } from "./grants.ts";
import { BUILT_IN_ROLES, roleOfId, roleOfName } from "./roles.ts";

/** Pages that list the permissions. The second lists the permissions of optional features. */
const PERMISSION_PAGES = ["docs/permissions.md", "docs/permissions-options.md"];

/** Checks that every assigned role and every action of a custom role is on one of the permission pages. */
export function checkPermissionsPage(files: InfraFiles, bicep: ReadonlyMap<string, BicepFile>): Finding[] {
  const [file] = PERMISSION_PAGES as [string];
  const page = PERMISSION_PAGES.map((name) => files.text.get(name) ?? "").join("\n");
  return grantsOf(bicep).flatMap(({ role, actions }) => {
    const named = BUILT_IN_ROLES.some(({ name }) => name === role) ? [role] : actions;
    return named
      .filter((one) => !page.includes(one))
      .map((one) => ({ file, line: 1, message: `does not list ${one}, which the templates assign` }));
  });
}

/** Checks that docs/remove.md says how to remove each custom role, whose definition outlives the service. */
export function checkRemovePage(files: InfraFiles, bicep: ReadonlyMap<string, BicepFile>): Finding[] {
  const file = "docs/remove.md";
  const page = files.text.get(file) ?? "";
  const definitions = [...bicep.values()].flatMap(({ resources }) =>
    resources.filter(({ type }) => type === "Microsoft.Authorization/roleDefinitions"),
  );
  // The name is `guid(scope, environment, 'Name of the role')`.
  const names = definitions.flatMap(({ body }) => {
    const name = property(body, "name");
    return (name?.kind === "call" && text(name.args.at(-1))) || [];
  });
  return [...new Set(names)]
    .filter((name) => !page.includes(`az role definition delete --name "${name} (`))
    .map((name) => ({ file, line: 1, message: `does not remove the custom role ${name}` }));
}

/**
 * Checks that the name of each assignment whose role a parameter can change depends on the parameter too: Azure does not change
 * the role of an existing assignment (RoleAssignmentUpdateNotPermitted).
 */
export function checkAssignmentNames(bicep: ReadonlyMap<string, BicepFile>): Finding[] {
  return [...bicep.values()].flatMap(({ path: file, parameters, resources }) =>
    resources
      .filter(({ type }) => type === "Microsoft.Authorization/roleAssignments")
      .flatMap(({ name: assignment, line, body }) => {
        const [name, role] = [property(body, "name"), property(body, "properties", "roleDefinitionId")];
        return parameters
          .filter((one) => role && mentions(role, one.name) && !(name && mentions(name, one.name)))
          .map((one) => ({
            file,
            line,
            message: `${assignment}: its name must depend on ${one.name}, as its role does`,
          }));
      }),
  );
}

const mentions = (expression: Expression, name: string): boolean =>
  (expression.kind === "name" && expression.name === name) || children(expression).some((one) => mentions(one, name));

/** Checks that every role ID matches the role name next to it, and that every role name exists. */
export function checkRoleNames(files: InfraFiles): Finding[] {
  return [...files.text].flatMap(([file, source]) =>
    source.split("\n").flatMap((line, index): Finding[] => {
      const finding = (message: string): Finding[] => [{ file, line: index + 1, message }];
      // An ID at the end of a line, with the role name in a comment after it. `id[2]` is the name.
      const id = /'([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})'(?: \/\/ (.+))?$/.exec(line);
      if (file.endsWith(".bicep") && id) {
        const role = roleOfId(id[1]!);
        if (!role) return finding(`${id[2] ?? "The role"} (${id[1]}) is not a role in infra/template-checks/roles.ts`);
        if (role.name !== id[2]) return finding(`${id[1]} is ${role.name}, not ${id[2] ?? "named"}`);
      }
      const name = file.endsWith(".tf") ? /role_definition_name\s*=\s*"(.+)"/.exec(line)?.[1] : undefined;
      return name !== undefined && !roleOfName(name)
        ? finding(`${name} is not a role in infra/template-checks/roles.ts`)
        : [];
    }),
  );
}
