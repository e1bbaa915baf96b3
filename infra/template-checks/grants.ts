import type { BicepFile } from "./bicep/parse.ts";
import { property, text } from "./expression.ts";
import { bicepNormal, snake } from "./parity/normal.ts";
import { roleOfId } from "./roles.ts";

/** A role that the templates assign, with what it allows. */
export interface Grant {
  role: string;
  /** Whose it is, as `Normal` writes it: `{identity.principal_id}` is the service itself. */
  principal: string;
  /**
   * The resource's name in the templates; `watched` for a subscription or management group, `rotated` for a resource group,
   * `compared` for a subscription whose settings are compared with the values of secrets.
   */
  scope: string;
  actions: readonly string[];
  dataActions: readonly string[];
}

/** The scope that a file of permissions is deployed to, by its folder. */
const OWN: Record<string, Grant["scope"]> = { rotation: "rotated", "literal-scan": "compared" };

/** Every role assignment of the Bicep files; those of a subscription stand for a management group's, which are the same. */
export function grantsOf(bicep: ReadonlyMap<string, BicepFile>): Grant[] {
  return [...bicep.values()]
    .filter(({ scope }) => scope !== "managementGroup")
    .flatMap((file) => {
      const assigned = file.resources.filter(({ type }) => type === "Microsoft.Authorization/roleAssignments");
      return assigned.map(({ body }): Grant => {
        const scope = property(body, "scope");
        const own = OWN[file.path.split("/").at(-2)!] ?? "watched";
        const on = scope?.kind === "name" ? snake(scope.name) : own;
        const principal = property(body, "properties", "principalId");
        const whose = principal ? bicepNormal(bicep, file)(principal) : "";
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
          ({ name }) => role && bicepNormal(bicep, file)(role) === `{${snake(name)}.id}`,
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
