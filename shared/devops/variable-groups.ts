import { type CallTarget, failure } from "../platform/azure/failure.ts";
import { type Changed, changeResource } from "./change-resource.ts";
import type { DevopsClient } from "./client.ts";
import type { VariableGroup } from "./response-schemas.ts";
import type { VariableLocation } from "./secret-locations.ts";

/**
 * Writes a new value to a secret variable of a variable group. Rotations call it. The service can't verify the value, because
 * DevOps does not return values of secret variables.
 *
 * @throws {CloudFailure} notFound; refused if the group has no such secret variable; conflict, see `changeResource`.
 */
export async function replaceVariable(
  client: DevopsClient,
  location: VariableLocation,
  value: string,
): Promise<Changed> {
  const target = targetOf(location);
  const read = async () => {
    const group = await readGroup(client, location, target);
    requireWritable(group, location, target);
    return group;
  };
  return await changeResource(
    { target, read, ignored: new Set(), write: (group, notAfter) => client.putVariableGroup(group, notAfter) },
    (group) => {
      group.variables![nameIn(group, location.variable)!]!.value = value;
    },
  );
}

/**
 * Returns true if the group contains the secret variable.
 *
 * @throws {CloudFailure} notFound if there is no such group or it is not visible
 */
export async function hasSecretVariable(client: DevopsClient, location: VariableLocation): Promise<boolean> {
  const group = await readGroup(client, location, {
    ...targetOf(location),
    operation: `read the variable ${location.variable}`,
  });
  return group.type === "Vsts" && isSecret(group, location.variable);
}

const targetOf = ({ projectId, groupId, variable }: VariableLocation): CallTarget => ({
  operation: `change the variable ${variable}`,
  resource: `variable group ${groupId} of project ${projectId}`,
});

async function readGroup(client: DevopsClient, location: VariableLocation, target: CallTarget): Promise<VariableGroup> {
  const group = await client.variableGroup(location.projectId, location.groupId);
  if (group) return group;
  throw failure("notFound", target, "there is no such group, or the identity may not see it", {
    remedy: "Check whether it was deleted, and the identity's role in the project's library.",
  });
}

/** Returns true if the group has this variable and it is a secret. */
export function isSecret(group: VariableGroup, variable: string): boolean {
  const name = nameIn(group, variable);
  return name !== undefined && group.variables![name]!.isSecret === true;
}

function requireWritable(group: VariableGroup, location: VariableLocation, target: CallTarget): void {
  const rejection = (reason: string, remedy: string) => failure("refused", target, reason, { remedy });
  if (group.type !== "Vsts") {
    throw rejection(
      "the group has no values of its own",
      "A group that is linked to a key vault reads the key vault itself.",
    );
  }
  const name = nameIn(group, location.variable);
  if (name === undefined) throw rejection("the group has no such variable", "Check whether it was renamed.");
  if (!isSecret(group, name)) {
    throw rejection("the variable is not a secret variable", "Mark it as secret in Azure DevOps first.");
  }
  // DevOps rejects an update without the projects. The service can't list them itself, because it may not have access to all of
  // them.
  if (!group.variableGroupProjectReferences?.length) {
    throw rejection("DevOps does not return its projects", "Change it in Azure DevOps.");
  }
}

/** Returns the variable's name with upper and lower case as in the group. Undefined if the group has no such variable. */
function nameIn({ variables }: VariableGroup, variable: string): string | undefined {
  return Object.keys(variables ?? {}).find((name) => name.toLowerCase() === variable.toLowerCase());
}
