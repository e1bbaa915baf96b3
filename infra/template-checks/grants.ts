// Reads the role assignments of the Bicep files: who gets which role on what. Checks of the documentation and tests use them.

import type { BicepFile } from "./bicep/parse.ts";
import { property, text } from "./expression.ts";
import { bicepNormalizer, snake } from "./parity/normalize.ts";
import { roleOfId } from "./roles.ts";

/** A role assignment of the templates, with the actions of the role. */
export interface Grant {
  /** Name of a built-in role, or the symbolic name of a custom role in its Bicep file. */
  role: string;
  /** The principal, as `parity/normalize.ts` writes it: `{identity.principal_id}` is the service. */
  principal: string;
  /**
   * Name of the resource in the templates. `watched`: a subscription or management group. `rotated`: a resource group.
   * `compared`: a subscription whose app settings are compared with secret values.
   */
  scope: string;
  actions: readonly string[];
  dataActions: readonly string[];
}

/** `Grant.scope` of assignments that name no resource, by the folder of the file. Default: `watched`. */
const SCOPE_BY_FOLDER: Record<string, Grant["scope"]> = { rotation: "rotated", "literal-scan": "compared" };

/**
 * Returns every role assignment of the Bicep files. Assignments at a management group are the same as those at a subscription
 * and are omitted.
 */
export function grantsOf(bicep: ReadonlyMap<string, BicepFile>): Grant[] {
  return [...bicep.values()]
    .filter(({ scope }) => scope !== "managementGroup")
    .flatMap((file) => {
      const assigned = file.resources.filter(({ type }) => type === "Microsoft.Authorization/roleAssignments");
      return assigned.map(({ body }): Grant => {
        const scope = property(body, "scope");
        // The name of the folder that contains the file, such as `rotation`.
        const defaultScope = SCOPE_BY_FOLDER[file.path.split("/").at(-2)!] ?? "watched";
        const grantScope = scope?.kind === "name" ? snake(scope.name) : defaultScope;
        const principalId = property(body, "properties", "principalId");
        const principal = principalId ? bicepNormalizer(bicep, file)(principalId) : "";
        const role = property(body, "properties", "roleDefinitionId");
        // The role ID is the last argument: `subscriptionResourceId('…/roleDefinitions', '<role ID>')`.
        const id = role?.kind === "call" ? text(role.args.at(-1)) : undefined;
        const builtIn = id === undefined ? undefined : roleOfId(id);
        if (builtIn)
          return {
            role: builtIn.name,
            principal,
            scope: grantScope,
            actions: builtIn.actions,
            dataActions: builtIn.dataActions,
          };
        // Otherwise the role is a custom role that the same file declares. A parameter can name an existing role instead:
        // `empty(parameter) ? definition.id : parameter`. The custom role is returned for that expression too, because the
        // existing role must have the same actions.
        const roleText = role ? bicepNormalizer(bicep, file)(role) : "";
        const definition = file.resources.find(({ name }) => roleText.endsWith(`{${snake(name)}.id}`));
        const permissions = property(definition?.body, "properties", "permissions");
        // Each custom role of the templates has one permission.
        const permission = permissions?.kind === "array" ? permissions.items[0] : undefined;
        return {
          role: definition?.name ?? "",
          principal,
          scope: grantScope,
          actions: texts(property(permission, "actions")),
          dataActions: texts(property(permission, "dataActions")),
        };
      });
    });
}

/** Returns the texts of an array. Empty if the property is missing. */
function texts(list: ReturnType<typeof property>): string[] {
  return list?.kind === "array" ? list.items.flatMap((item) => text(item) ?? []) : [];
}
