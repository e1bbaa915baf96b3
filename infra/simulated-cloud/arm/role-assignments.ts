import { ROLES } from "../company/resources.ts";
import type { IncomingRequest } from "../http.ts";
import { guidFrom } from "../vaults/identifiers.ts";
import { type ArmOptions, failure, page, type Route } from "./request-context.ts";
import { subscriptionError } from "./resource-route.ts";
import { appliesTo, type RoleAssignment } from "./vault-access.ts";

const PAGE_SIZE = 100;
const VERSIONS = ["2015-07-01", "2018-01-01-preview", "2020-04-01-preview", "2022-04-01"];
/** Path of the role assignments at a scope. */
const ASSIGNMENTS = /^(\/subscriptions\/([^/]+)(?:\/.+)?)\/providers\/microsoft\.authorization\/roleassignments$/i;
/** Path of a role definition, optionally below a scope. */
const DEFINITION =
  /^(?:\/subscriptions\/([^/]+)(?:\/.+)?)?\/providers\/microsoft\.authorization\/roledefinitions\/([^/]+)$/i;

/**
 * Returns the route of a request for role assignments or a role definition. Undefined for other requests:
 * https://learn.microsoft.com/rest/api/authorization/role-assignments/list-for-scope. With `$filter=atScope()` the list
 * contains assignments at the scope and above, without it also assignments below. `and assignedTo('ID')` returns those of one
 * principal and its groups.
 */
export function roleAssignmentsRoute(
  options: ArmOptions,
  { method, path, query, ...rest }: IncomingRequest,
): Route | undefined {
  if (method !== "GET") return undefined;
  const request = { method, path, query, ...rest };
  const [, scope, subscription] = ASSIGNMENTS.exec(decodeURI(path)) ?? [];
  if (scope !== undefined) {
    const action = "Microsoft.Authorization/roleAssignments/read";
    return {
      name: "arm.listRoleAssignments",
      versions: VERSIONS,
      action,
      subscription: subscription!,
      // A longer scope than a resource group (five segments, the first of which is empty) is a resource.
      ...(scope.split("/").length > 5 && { resource: scope }),
      answer(claims) {
        const error = subscriptionError(options, subscription!, claims, action);
        if (error !== undefined) return error;
        const filter = query.get("$filter") ?? "";
        const [, atScope, principal] =
          /^(?:(atScope\(\))(?: and assignedTo\('([0-9a-f-]{36})'\))?)?$/i.exec(filter) ?? [];
        if (filter !== "" && atScope === undefined)
          return failure(400, "UnsupportedQuery", `The filter '${filter}' is not supported.`);
        if (principal !== undefined)
          return page(options, request, assignedTo(options, scope, subscription!, principal), PAGE_SIZE, (one) => one);
        const matching = options.store.access.assignments.filter(
          (one) => appliesTo(one.scope, scope) || (filter === "" && appliesTo(scope, one.scope)),
        );
        return page(options, request, matching, PAGE_SIZE, roleAssignmentResource);
      },
    };
  }
  const [, subscriptionId, name] = DEFINITION.exec(decodeURI(path)) ?? [];
  if (name === undefined) return undefined;
  const action = "Microsoft.Authorization/roleDefinitions/read";
  return {
    name: "arm.getRoleDefinition",
    versions: VERSIONS,
    action,
    ...(subscriptionId !== undefined && { subscription: subscriptionId }),
    answer(claims) {
      const error =
        subscriptionId === undefined ? undefined : subscriptionError(options, subscriptionId, claims, action);
      if (error !== undefined) return error;
      const [roleName] = Object.entries(ROLES).find(([, id]) => id === name.toLowerCase()) ?? [];
      if (roleName === undefined) {
        return failure(
          404,
          "RoleDefinitionDoesNotExist",
          `The specified role definition with ID '${name}' does not exist.`,
        );
      }
      return {
        status: 200,
        body: {
          id: `${subscriptionId === undefined ? "" : `/subscriptions/${subscriptionId}`}/providers/Microsoft.Authorization/roleDefinitions/${name}`,
          name,
          type: "Microsoft.Authorization/roleDefinitions",
          properties: {
            roleName,
            type: "BuiltInRole",
            description: "",
            assignableScopes: ["/"],
            permissions: PERMISSIONS[roleName] ?? [],
          },
        },
      };
    },
  };
}

/** The assignments of one principal at a scope and above. Only the declared ones with a condition are known. */
function assignedTo({ governance }: ArmOptions, scope: string, subscription: string, principalId: string): object[] {
  const declared = governance.of(subscription).conditions ?? [];
  return declared
    .map((one) => ({ ...one, scope: one.scope ?? `/subscriptions/${subscription}` }))
    .filter((one) => appliesTo(one.scope, scope))
    .map(({ scope: assignedScope, role, condition }) => {
      const name = guidFrom(`${role} of ${principalId} at ${assignedScope}`);
      return {
        id: `${assignedScope}/providers/Microsoft.Authorization/roleAssignments/${name}`,
        name,
        type: "Microsoft.Authorization/roleAssignments",
        properties: { scope: assignedScope, principalId, principalType: "User", condition, conditionVersion: "2.0" },
      };
    });
}

const permission = (actions: string[], dataActions: string[]) => [
  { actions, notActions: [], dataActions, notDataActions: [] },
];
/**
 * Permissions of the built-in roles for vaults:
 * https://learn.microsoft.com/azure/role-based-access-control/built-in-roles/security
 */
const PERMISSIONS: Record<string, object[]> = {
  Owner: permission(["*"], []),
  Contributor: permission(["*"], []),
  Reader: permission(["*/read"], []),
  "Key Vault Administrator": permission(["Microsoft.KeyVault/*/read"], ["Microsoft.KeyVault/vaults/*"]),
  "Key Vault Reader": permission(
    ["Microsoft.KeyVault/*/read"],
    ["Microsoft.KeyVault/vaults/*/read", "Microsoft.KeyVault/vaults/secrets/readMetadata/action"],
  ),
  "Key Vault Secrets User": permission(
    [],
    ["Microsoft.KeyVault/vaults/secrets/getSecret/action", "Microsoft.KeyVault/vaults/secrets/readMetadata/action"],
  ),
  "Key Vault Secrets Officer": permission(["Microsoft.KeyVault/*/read"], ["Microsoft.KeyVault/vaults/secrets/*"]),
  "Key Vault Crypto Service Encryption User": permission(
    ["Microsoft.EventGrid/eventSubscriptions/read"],
    [
      "Microsoft.KeyVault/vaults/keys/read",
      "Microsoft.KeyVault/vaults/keys/wrap/action",
      "Microsoft.KeyVault/vaults/keys/unwrap/action",
    ],
  ),
};

/** Returns a role assignment in the form of the REST API. */
export function roleAssignmentResource({ id, name, ...properties }: RoleAssignment): object {
  return {
    id,
    name,
    type: "Microsoft.Authorization/roleAssignments",
    properties: { ...properties, condition: null, conditionVersion: null },
  };
}
