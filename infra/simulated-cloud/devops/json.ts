// Formats objects of Azure DevOps as its REST API 7.1 does: https://learn.microsoft.com/rest/api/azure/devops

import { guidFrom } from "../vaults/identifiers.ts";
import { type Connection, MASKED, type Project, type VariableGroup } from "./organization.ts";

const person = (name: string) => ({ displayName: name, id: guidFrom(`person ${name}`) });

export function projectJson({ id, name }: Project, base: string): object {
  return {
    id,
    name,
    url: `${base}/_apis/projects/${id}`,
    state: "wellFormed",
    revision: 12,
    visibility: "private",
    lastUpdateTime: "2026-01-12T09:30:00.000Z",
  };
}

/** Returns a variable group without secret values. */
export function variableGroupJson(group: VariableGroup): object {
  const { projects, modifiedBy, variables, ...rest } = group;
  const visibleVariables = Object.entries(variables).map(([name, variable]) => [
    name,
    variable.isSecret ? { ...variable, value: null } : variable,
  ]);
  return {
    ...rest,
    variables: Object.fromEntries(visibleVariables),
    createdBy: person("Ada Admin"),
    createdOn: "2026-01-12T09:30:00.000Z",
    modifiedBy: person(modifiedBy),
    isShared: projects.length > 1,
    variableGroupProjectReferences: projects.map((projectReference) => ({
      name: group.name,
      description: group.description ?? null,
      projectReference,
    })),
  };
}

/** Returns a service connection without its secret. */
export function connectionJson(connection: Connection): object {
  const { projects, authorization, ...rest } = connection;
  const parameters = Object.entries(authorization.parameters).map(([name, value]) => [
    name,
    MASKED.has(name.toLowerCase()) ? null : value,
  ]);
  return {
    ...rest,
    authorization: { scheme: authorization.scheme, parameters: Object.fromEntries(parameters) },
    description: "",
    createdBy: person("Ada Admin"),
    isShared: projects.length > 1,
    isReady: true,
    isOutdated: false,
    owner: "library",
    serviceEndpointProjectReferences: projects.map((projectReference) => ({
      name: connection.name,
      description: "",
      projectReference,
    })),
  };
}
