import { toQueryLiteral } from "../../platform/azure/resource-graph.ts";
import type { Finder } from "./finder.ts";
import { FINDERS } from "./finders.ts";

/** Queries for Resource Graph: https://learn.microsoft.com/azure/governance/resource-graph/concepts/query-language */

const VAULTS = "microsoft.keyvault/vaults";
const CONNECTIONS = "microsoft.web/connections";
export const USER_ASSIGNED = "microsoft.managedidentity/userassignedidentities";

/** Returns a list of values for `in~ (…)`. */
const list = (texts: readonly string[]): string => texts.map(toQueryLiteral).join(", ");

/**
 * Returns the resource types whose finders need these properties. `namingVault`: all properties, but only of resources whose
 * properties contain the text `vault`. The other resources of such a type are not queried, because they reference no vault.
 */
const typesWith = (properties: Finder["properties"]): readonly string[] =>
  FINDERS.filter((finder) => finder.properties === properties).flatMap(({ types }) => types);

/** Columns of a `ResourceRow`, except its properties. */
const ROW = "id, type, kind, tags, sku = tostring(sku.name)";

/** Queries resources without their properties, which are large. */
export const RESOURCES_WITHOUT_PROPERTIES = `resources
| where type in~ (${list(typesWith("none"))})
| project ${ROW}
| order by id asc`;

/**
 * Queries resources with their properties. Uses `contains`, because `has` compares whole terms: `has 'vault'` would not find
 * `Microsoft.KeyVault`.
 */
export const RESOURCES_WITH_PROPERTIES = `resources
| where type in~ (${list(typesWith("all"))}) or (type in~ (${list(typesWith("namingVault"))}) and tostring(properties) contains 'vault')
| project ${ROW}, properties
| order by id asc`;

/** Queries resources of these types, given in lower case. */
export const resourcesOfTypes = (types: readonly string[], { properties = false } = {}): string => `resources
| where type in~ (${list(types)})
| project ${ROW}${properties ? ", properties" : ""}
| order by id asc`;

/** Queries the vaults, for access to them, and the Logic Apps connections, for the vaults they open. */
export const VAULTS_AND_CONNECTIONS = `resources
| where type in~ (${list([VAULTS, CONNECTIONS])})
| project id, type, properties
| order by id asc`;

/** Queries the host names of web apps, function apps and slots, with the thumbprints of their certificates. */
export const SITE_HOSTS = `resources
| where type in~ (${list(["microsoft.web/sites", "microsoft.web/sites/slots"])})
| project id, hosts = properties.hostNameSslStates
| order by id asc`;

/**
 * Queries the managed identities with these object IDs: resources with a system-assigned identity, and user-assigned
 * identities.
 *
 * @param principalIds - At most 200.
 */
export const managedIdentities = (principalIds: readonly string[]): string => `resources
| where tostring(identity.principalId) in~ (${list(principalIds)}) or (type =~ ${toQueryLiteral(USER_ASSIGNED)} and tostring(properties.principalId) in~ (${list(principalIds)}))
| project id, type, system = tostring(identity.principalId), user = tostring(properties.principalId)
| order by id asc`;

/** Queries resources with their properties by ID. @param ids - At most 200. */
export const resourcesById = (ids: readonly string[]): string => `resources
| where id in~ (${list(ids)})
| project ${ROW}, properties
| order by id asc`;

/** Queries changes: https://learn.microsoft.com/azure/governance/resource-graph/changes/get-resource-changes */
export const changesSince = (since: Date): string => `resourcechanges
| extend target = tostring(properties.targetResourceId), changeType = tostring(properties.changeType)
| where todatetime(properties.changeAttributes.timestamp) >= datetime(${since.toISOString()})
| where tostring(properties.targetResourceType) in~ (${list([VAULTS, ...FINDERS.flatMap(({ types, childTypes = [] }) => [...types, ...childTypes])])})
| project id, target, changeType, at = tostring(properties.changeAttributes.timestamp)
| order by id asc`;

export const isVault = (type: string): boolean => type.toLowerCase() === VAULTS;
