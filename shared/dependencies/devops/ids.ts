/**
 * IDs of Azure DevOps objects as resources of dependencies, in lower case:
 * `devops:/<organization>/<project ID>/variablegroups/<number>` or `devops:/<organization>/<project
 * ID>/serviceconnections/<ID>`.
 */

const GUID = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}";
const PATTERN = new RegExp(
  `^devops:/([a-z0-9-]+)/(${GUID})/(?:variablegroups/([1-9]\\d{0,9})|serviceconnections/(${GUID}))$`,
);

/** Returns the scope of a project's variable groups, which is the prefix of their IDs. */
export const groupsOf = (organization: string, projectId: string): string =>
  `devops:/${organization}/${projectId}/variablegroups`.toLowerCase();
/** Returns the scope of a project's service connections, which is the prefix of their IDs. */
export const connectionsOf = (organization: string, projectId: string): string =>
  `devops:/${organization}/${projectId}/serviceconnections`.toLowerCase();

export const groupId = (organization: string, projectId: string, id: number): string =>
  `${groupsOf(organization, projectId)}/${id}`;
export const connectionId = (organization: string, projectId: string, id: string): string =>
  `${connectionsOf(organization, projectId)}/${id.toLowerCase()}`;

/** Returns the parts of an ID, with the ID of a group or of a connection. Undefined for other texts. */
export function parseDevopsId(
  id: string,
): { organization: string; projectId: string; groupId?: number; connectionId?: string } | undefined {
  const [, organization, projectId, group, connection] = PATTERN.exec(id) ?? [];
  if (organization === undefined || projectId === undefined) return undefined;
  return connection === undefined
    ? { organization, projectId, groupId: Number(group) }
    : { organization, projectId, connectionId: connection };
}
