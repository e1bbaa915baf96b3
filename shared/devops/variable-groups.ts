import { type CallTarget, failure } from "../azure/failure.ts";
import type { VariableGroup } from "./answers.ts";
import { type Changed, changeWhole } from "./change.ts";
import type { DevopsClient } from "./client.ts";

export interface VariablePlace {
  projectId: string;
  groupId: number;
  /** DevOps makes no difference between upper and lower case. */
  variable: string;
}

/**
 * Gives a secret variable of a group with values of its own another value. Only that DevOps took it is known then: nobody
 * can read it.
 *
 * @throws {CloudFailure} notFound; refused when it is not such a variable; conflict, see `changeWhole`.
 */
export async function replaceVariable(client: DevopsClient, place: VariablePlace, value: string): Promise<Changed> {
  const target: CallTarget = {
    operation: `change the variable ${place.variable}`,
    resource: `variable group ${place.groupId} of project ${place.projectId}`,
  };
  const read = async () => {
    const group = await client.variableGroup(place.projectId, place.groupId);
    if (!group) {
      throw failure("notFound", target, "there is no such group, or the identity may not see it", {
        remedy: "Check whether it was deleted, and the identity's role in the project's library.",
      });
    }
    requireWritable(group, place, target);
    return group;
  };
  return await changeWhole(
    { target, read, ignored: new Set(), write: (group, notAfter) => client.putVariableGroup(group, notAfter) },
    (group) => {
      group.variables![nameIn(group, place.variable)!]!.value = value;
    },
  );
}

function requireWritable(group: VariableGroup, place: VariablePlace, target: CallTarget): void {
  const refused = (reason: string, remedy: string) => failure("refused", target, reason, { remedy });
  if (group.type !== "Vsts") {
    throw refused("the group has no values of its own", "A group that is linked to a key vault reads it by itself.");
  }
  const name = nameIn(group, place.variable);
  if (name === undefined) throw refused("the group has no such variable", "Check whether it was renamed.");
  if (group.variables![name]!.isSecret !== true) {
    throw refused("the variable is not kept secret", "Mark it as secret in Azure DevOps first.");
  }
  // Without them the whole group would be refused, and it may belong to projects that the identity does not see.
  if (!group.variableGroupProjectReferences?.length) {
    throw refused("DevOps does not say which projects it belongs to", "Change it in Azure DevOps.");
  }
}

/** As the group writes it. */
function nameIn({ variables }: VariableGroup, wanted: string): string | undefined {
  return Object.keys(variables ?? {}).find((name) => name.toLowerCase() === wanted.toLowerCase());
}
