// Checks that the role IDs in the templates match the role names next to them, and that the documentation lists the assigned
// roles.

import type { BicepFile } from "./bicep/parse.ts";
import type { Finding } from "./expression.ts";
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

/** Checks that every role ID matches the role name next to it, and that every role name exists. */
export function checkRoleNames(files: InfraFiles): Finding[] {
  return [...files.text].flatMap(([file, source]) =>
    source.split("\n").flatMap((line, index): Finding[] => {
      const finding = (message: string): Finding[] => [{ file, line: index + 1, message }];
      // An ID at the end of a line, with the role name in a comment after it. `id[2]` is the name.
      const id = /'([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})'(?: \/\/ (.+))?$/.exec(line);
      if (file.endsWith(".bicep") && id) {
        const role = roleOfId(id[1]!);
        if (!role) return finding(`${id[1]} is not a role in infra/template-checks/roles.ts`);
        if (role.name !== id[2]) return finding(`${id[1]} is ${role.name}, not ${id[2] ?? "named"}`);
      }
      const name = file.endsWith(".tf") ? /role_definition_name\s*=\s*"(.+)"/.exec(line)?.[1] : undefined;
      return name !== undefined && !roleOfName(name)
        ? finding(`${name} is not a role in infra/template-checks/roles.ts`)
        : [];
    }),
  );
}
