// Reads the role assignments of the Bicep files.

import type { BicepFile } from "./bicep/parse.ts";
import { property, text } from "./expression.ts";
import { bicepNormalizer, snake } from "./parity/normalize.ts";
import { roleOfId } from "./roles.ts";

/** A role assignment of the templates, with the actions of the role. */
export interface Grant {
  role: string;
  /** The principal, as `parity/normalize.ts` writes it: `{identity.principal_id}` is the service. */
  principal: string;
  /**
   * Name of the resource in the templates; `watched` for a subscription or management group, `rotated` for a resource group,
   * `compared` for a subscription whose app settings are compared with secret values.
   */
  scope: string;
  actions: readonly string[];
  dataActions: readonly string[];
}

/** Scopes of the permission files, by folder. */
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
        const own = SCOPE_BY_FOLDER[file.path.split("/").at(-2)!] ?? "watched";
        const on = scope?.kind === "name" ? snake(scope.name) : own;
        const principal = property(body, "properties", "principalId");
        const whose = principal ? bicepNormalizer(bicep, file)(principal) : "";
        const role = property(body, "properties", "roleDefinitionId");
        const id = role?.kind === "call" ? text(role.args.at(-1)) : undefined;
        const builtIn = id === undefined ? undefined : roleOfId(id);
        if (builtIn)
          return {
            role: builtIn.name,
            principal: whose,
            scope: on,
            actions: builtIn.actions,
            dataActions: builtIn.dataActions,
          };
        const definition = file.resources.find(
          ({ name }) => role && bicepNormalizer(bicep, file)(role) === `{${snake(name)}.id}`,
        );
        const permissions = property(definition?.body, "properties", "permissions");
        const first = permissions?.kind === "array" ? permissions.items[0] : undefined;
        return {
          role: definition?.name ?? "",
          principal: whose,
          scope: on,
          actions: texts(property(first, "actions")),
          dataActions: texts(property(first, "dataActions")),
        };
      });
    });
}

function texts(list: ReturnType<typeof property>): string[] {
  return list?.kind === "array" ? list.items.flatMap((item) => text(item) ?? []) : [];
}
