import type { Assignment } from "../authorization.ts";
import { ROLES } from "../company/resources.ts";
import { type IncomingRequest, jsonObject, type ServiceResponse } from "../http.ts";
import type { Claims } from "../tokens.ts";
import { guidFrom } from "../vaults/identifiers.ts";
import { type ArmOptions, failure, page, type Route } from "./request-context.ts";
import { subscriptionError } from "./resource-route.ts";
import { appliesTo, type RoleAssignment } from "./vault-access.ts";

const PAGE_SIZE = 100;
const VERSIONS = ["2015-07-01", "2018-01-01-preview", "2020-04-01-preview", "2022-04-01"];
/** Path of the role assignments at a scope. */
const ASSIGNMENTS = /^(\/subscriptions\/([^/]+)(?:\/.+)?)\/providers\/microsoft\.authorization\/roleassignments$/i;
/** Path of one role assignment: its scope, the subscription in it, and its name. */
const ASSIGNMENT =
  /^(\/subscriptions\/([^/]+)(?:\/.+)?)\/providers\/microsoft\.authorization\/roleassignments\/([0-9a-f-]{36})$/i;
/** Path of a role definition, optionally below a scope. */
const DEFINITION =
  /^(?:\/subscriptions\/([^/]+)(?:\/.+)?)?\/providers\/microsoft\.authorization\/roledefinitions\/([^/]+)$/i;

/**
 * Returns the route of a request for role assignments or a role definition. Undefined for other requests:
 * https://learn.microsoft.com/rest/api/authorization/role-assignments/list-for-scope. With `$filter=atScope()` the list
 * contains assignments at the scope and above, without it also assignments below. With `assignedTo('…')` it contains only those of
 * a principal and its groups. The service has its roles through a group, so that only this filter lists them. With both, it
 * contains those of a principal at the scope and above.
 */
export function roleAssignmentsRoute(
  options: ArmOptions,
  { method, path, query, ...rest }: IncomingRequest,
): Route | undefined {
  const single = assignmentRoute(options, { method, path, query, ...rest });
  if (single !== undefined || method !== "GET") return single;
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
        const [, assignee] = /^assignedTo\('([0-9a-f-]{36})'\)$/i.exec(filter) ?? [];
        if (assignee !== undefined) {
          const assigned =
            assignee === claims.oid
              ? options.authorization.assignmentsIn(subscription!).map((one) => ownAssignment(one, subscription!))
              : options.store.access.assignments.filter(
                  (one) => one.principalId === assignee && (appliesTo(one.scope, scope) || appliesTo(scope, one.scope)),
                );
          return page(options, request, assigned, PAGE_SIZE, roleAssignmentResource);
        }
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
      const testAssignment = options.authorization
        .assignmentsIn(subscriptionId ?? "")
        .find((one) => roleIdOf(one) === name.toLowerCase());
      const [roleName] = Object.entries(ROLES).find(([, id]) => id === name.toLowerCase()) ?? [
        testAssignment && "Own role",
      ];
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
            permissions: testAssignment
              ? permission([...testAssignment.actions], [...testAssignment.dataActions])
              : (PERMISSIONS[roleName] ?? []),
          },
        },
      };
    },
  };
}

const GROUP = guidFrom("group of the service");

/** ID of the custom role with the permissions of an assignment that a test set. */
const roleIdOf = (assignment: Assignment): string => guidFrom(`role ${JSON.stringify(assignment)}`);

function ownAssignment(assignment: Assignment, subscriptionId: string): RoleAssignment {
  const [name, definition] = [guidFrom(`assignment ${JSON.stringify(assignment)}`), roleIdOf(assignment)];
  return {
    id: `${assignment.scope}/providers/Microsoft.Authorization/roleAssignments/${name}`,
    name,
    scope: assignment.scope,
    principalId: GROUP,
    principalType: "Group",
    roleDefinitionId: `/subscriptions/${subscriptionId}/providers/Microsoft.Authorization/roleDefinitions/${definition}`,
  };
}

/**
 * Returns the route of a request that reads, writes or deletes one role assignment.
 * https://learn.microsoft.com/rest/api/authorization/role-assignments
 */
function assignmentRoute(options: ArmOptions, request: IncomingRequest): Route | undefined {
  const [, scope, subscription, name] = ASSIGNMENT.exec(decodeURI(request.path)) ?? [];
  const verb = { GET: "read", PUT: "write", DELETE: "delete" }[request.method];
  if (name === undefined || verb === undefined) return undefined;
  const { assignments } = options.store.access;
  const action = `Microsoft.Authorization/roleAssignments/${verb}`;
  return {
    name: `arm.${verb}RoleAssignment`,
    versions: VERSIONS,
    action,
    subscription: subscription!,
    ...(scope!.split("/").length > 5 && { resource: scope! }),
    answer(claims): ServiceResponse {
      const error = subscriptionError(options, subscription!, claims, action);
      if (error !== undefined) return error;
      const index = assignments.findIndex(
        (one) => one.name === name.toLowerCase() && one.scope.toLowerCase() === scope!.toLowerCase(),
      );
      if (verb === "write")
        return write(options, { scope: scope!, name: name.toLowerCase() }, claims, jsonObject(request));
      if (index < 0) {
        return verb === "delete"
          ? { status: 204 }
          : failure(404, "RoleAssignmentNotFound", `The role assignment '${name}' is not found.`);
      }
      const [assignment] = verb === "delete" ? assignments.splice(index, 1) : [assignments[index]];
      return { status: 200, body: roleAssignmentResource(assignment!) };
    },
  };
}

/** Creates or overwrites a role assignment, and records who did. Azure rejects a change of the role or the principal. */
function write(
  { store, consumers }: ArmOptions,
  { scope, name }: { scope: string; name: string },
  { oid }: Claims,
  body: Record<string, unknown> | undefined,
): ServiceResponse {
  const requested = (body?.properties ?? {}) as Pick<
    RoleAssignment,
    "principalId" | "principalType" | "roleDefinitionId" | "description"
  >;
  const existing = store.access.assignments.find((one) => one.name === name && one.scope === scope);
  const now = new Date(consumers.now()).toISOString();
  const written: RoleAssignment = {
    id: `${scope}/providers/Microsoft.Authorization/roleAssignments/${name}`,
    name,
    scope,
    ...requested,
    createdBy: existing?.createdBy ?? oid,
    createdOn: existing?.createdOn ?? now,
    updatedBy: oid,
    updatedOn: now,
  };
  if (existing) Object.assign(existing, written);
  else store.access.assignments.push(written);
  return { status: 201, body: roleAssignmentResource(written) };
}

/** Returns a principal's role assignments at a scope and above. They are those that a test declared with a condition. */
function assignedTo({ governance }: ArmOptions, scope: string, subscription: string, principalId: string): object[] {
  const declared = governance.rulesOf(subscription).conditions ?? [];
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
