import * as z from "zod";
import type { Arm, ListResult } from "./arm.ts";
import { unlessMissing } from "./failure.ts";
import { DEPENDENCY_READER } from "./watch-roles.ts";

/** A role that a principal has at a scope and below it. */
export interface RoleAssignment {
  principalId: string;
  /** `User`, `Group`, `ServicePrincipal` … */
  principalType?: string;
  /** Resource ID of the role definition. */
  roleDefinitionId: string;
  /** The scope: a resource's ID, `/subscriptions/<id>`, a management group's ID, or `/`. */
  scope: string;
}

/** Who wrote a role assignment, and when, as Azure Resource Manager records it. */
export interface AssignmentRecord {
  scope: string;
  description?: string | undefined;
  /** Object IDs of the identities that created and last changed the assignment. */
  createdBy?: string | undefined;
  updatedBy?: string | undefined;
  /** Time of the last change, ISO 8601. */
  updatedOn?: string | undefined;
}

/** The permissions of a role. An action can contain `*`. */
export interface RoleDefinition {
  /** The display name. */
  name: string;
  permissions: { actions: string[]; notActions: string[]; dataActions: string[]; notDataActions: string[] }[];
}

/** Reads who has which role. Every method throws `CloudFailure`. https://learn.microsoft.com/rest/api/authorization */
export interface RoleAssignments {
  /**
   * Lists the assignments at the subscription, above it (management groups) and below it, without eligible assignments.
   *
   * @param assignedTo - Object ID of a principal: lists only its own assignments and those of its groups.
   */
  list(subscriptionId: string, signal?: AbortSignal, assignedTo?: string): Promise<ListResult<RoleAssignment>>;
  definition(roleDefinitionId: string, signal?: AbortSignal): Promise<RoleDefinition>;
}

/** The permission to read role assignments on the service's own key vault is part of this role. */
const VAULT_GRANT = "the role Key Vault Secrets Officer on the service's own key vault";

const API_VERSION = "2022-04-01";

/** Matches the resource ID of a role definition, with or without `/subscriptions/<id>` at its start. */
const DEFINITION_ID =
  /^(?:\/subscriptions\/[0-9a-f-]{36})?\/providers\/Microsoft\.Authorization\/roleDefinitions\/[0-9a-f-]{36}$/i;

const assignment = z.object({
  properties: z.object({
    principalId: z.guid(),
    principalType: z.string().nullish(),
    roleDefinitionId: z.string().regex(DEFINITION_ID),
    scope: z.string().max(2048),
  }),
});
const record = z.object({
  properties: z.object({
    scope: z.string(),
    description: z.string().nullish(),
    createdBy: z.string().nullish(),
    updatedBy: z.string().nullish(),
    updatedOn: z.string().nullish(),
  }),
});
const actions = z.array(z.string()).nullish();
const definition = z.object({
  properties: z.object({
    roleName: z.string(),
    permissions: z.array(z.object({ actions, notActions: actions, dataActions: actions, notDataActions: actions })),
  }),
});

/**
 * Reads who wrote a role assignment on the service's own key vault. Undefined if it does not exist.
 * https://learn.microsoft.com/rest/api/authorization/role-assignments/get
 * @param id - Resource ID of the assignment.
 * @throws {CloudFailure}
 */
export async function readAssignmentRecord(arm: Arm, id: string): Promise<AssignmentRecord | undefined> {
  const target = { operation: "read the role assignment", resource: id, grant: VAULT_GRANT };
  const answer = await unlessMissing(arm.call({ path: id, apiVersion: API_VERSION, target }, record));
  if (!answer) return undefined;
  const { scope, description, createdBy, updatedBy, updatedOn } = answer.properties;
  return {
    scope,
    description: description ?? undefined,
    createdBy: createdBy ?? undefined,
    updatedBy: updatedBy ?? undefined,
    updatedOn: updatedOn ?? undefined,
  };
}

export function createRoleAssignments(arm: Arm): RoleAssignments {
  return {
    async list(subscriptionId, signal, assignedTo) {
      const resource = `subscription ${subscriptionId}`;
      const { entries, unreadable } = await arm.list(
        {
          path: `/subscriptions/${encodeURIComponent(subscriptionId)}/providers/Microsoft.Authorization/roleAssignments`,
          apiVersion: API_VERSION,
          // https://learn.microsoft.com/azure/role-based-access-control/role-assignments-list-rest
          ...(assignedTo !== undefined && { query: { $filter: `assignedTo('${assignedTo}')` } }),
          target: { operation: "list the role assignments", resource, grant: DEPENDENCY_READER },
          signal,
        },
        assignment,
      );
      return {
        entries: entries.map(({ properties: { principalType, ...rest } }) => ({
          ...rest,
          ...(principalType && { principalType }),
        })),
        unreadable,
      };
    },

    async definition(roleDefinitionId, signal) {
      if (!DEFINITION_ID.test(roleDefinitionId)) throw new TypeError("Not the resource ID of a role definition.");
      const target = { operation: "read the role definition", resource: roleDefinitionId, grant: DEPENDENCY_READER };
      const call = { path: roleDefinitionId, apiVersion: API_VERSION, target, signal };
      const { properties } = await arm.call(call, definition);
      return {
        name: properties.roleName,
        permissions: properties.permissions.map(({ actions, notActions, dataActions, notDataActions }) => ({
          actions: actions ?? [],
          notActions: notActions ?? [],
          dataActions: dataActions ?? [],
          notDataActions: notDataActions ?? [],
        })),
      };
    },
  };
}
