import { quoted } from "../../platform/azure/resource-graph.ts";
import type { Finder } from "./finder.ts";
import { FINDERS } from "./finders.ts";

/** What Resource Graph is asked: https://learn.microsoft.com/azure/governance/resource-graph/concepts/query-language */

const VAULTS = "microsoft.keyvault/vaults";
const CONNECTIONS = "microsoft.web/connections";

const list = (texts: readonly string[]): string => texts.map(quoted).join(", ");
const typesWith = (properties: Finder["properties"]): readonly string[] =>
  FINDERS.filter((finder) => finder.properties === properties).flatMap(({ types }) => types);

const ROW = "id, type, kind, tags, sku = tostring(sku.name)";

/** Resources that are asked without their properties, which are long. */
export const RESOURCES_WITHOUT_PROPERTIES = `resources
| where type in~ (${list(typesWith("none"))})
| project ${ROW}
| order by id asc`;

/** Resources with their properties. `has` finds whole terms only, and no vault in `Microsoft.KeyVault`. */
export const RESOURCES_WITH_PROPERTIES = `resources
| where type in~ (${list(typesWith("all"))}) or (type in~ (${list(typesWith("namingVault"))}) and tostring(properties) contains 'vault')
| project ${ROW}, properties
| order by id asc`;

/** Resources of these types, in lower case. */
export const resourcesOfTypes = (types: readonly string[], { properties = false } = {}): string => `resources
| where type in~ (${list(types)})
| project ${ROW}${properties ? ", properties" : ""}
| order by id asc`;

/** The vaults, for who may read them, and the connections of Logic Apps, for which vault they open. */
export const VAULTS_AND_CONNECTIONS = `resources
| where type in~ (${list([VAULTS, CONNECTIONS])})
| project id, type, properties
| order by id asc`;

/** @param ids - At most 200. */
export const resourcesById = (ids: readonly string[]): string => `resources
| where id in~ (${list(ids)})
| project ${ROW}, properties
| order by id asc`;

/** https://learn.microsoft.com/azure/governance/resource-graph/changes/get-resource-changes */
export const changesSince = (since: Date): string => `resourcechanges
| extend target = tostring(properties.targetResourceId), changeType = tostring(properties.changeType)
| where todatetime(properties.changeAttributes.timestamp) >= datetime(${since.toISOString()})
| where tostring(properties.targetResourceType) in~ (${list([VAULTS, ...FINDERS.flatMap(({ types, parts = [] }) => [...types, ...parts])])})
| project id, target, changeType, at = tostring(properties.changeAttributes.timestamp)
| order by id asc`;

export const isVault = (type: string): boolean => type.toLowerCase() === VAULTS;
