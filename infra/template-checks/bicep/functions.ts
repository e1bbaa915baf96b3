/**
 * Return types of the functions that the templates can call. Undefined if the type depends on the arguments.
 * https://learn.microsoft.com/azure/azure-resource-manager/bicep/bicep-functions
 */
export const FUNCTIONS: Record<string, { least: number; most: number; returns?: string }> = {
  cidrSubnet: { least: 3, most: 3, returns: "string" },
  concat: { least: 1, most: Number.POSITIVE_INFINITY },
  empty: { least: 1, most: 1, returns: "bool" },
  environment: { least: 0, most: 0, returns: "object" },
  guid: { least: 1, most: Number.POSITIVE_INFINITY, returns: "string" },
  join: { least: 2, most: 2, returns: "string" },
  loadJsonContent: { least: 1, most: 3 },
  loadTextContent: { least: 1, most: 2, returns: "string" },
  managementGroup: { least: 0, most: 1, returns: "object" },
  reference: { least: 1, most: 3, returns: "object" },
  resourceGroup: { least: 0, most: 2, returns: "object" },
  resourceId: { least: 2, most: Number.POSITIVE_INFINITY, returns: "string" },
  split: { least: 2, most: 2, returns: "array" },
  subscription: { least: 0, most: 1, returns: "object" },
  subscriptionResourceId: { least: 2, most: Number.POSITIVE_INFINITY, returns: "string" },
  tenantResourceId: { least: 2, most: Number.POSITIVE_INFINITY, returns: "string" },
  toLower: { least: 1, most: 1, returns: "string" },
  union: { least: 2, most: Number.POSITIVE_INFINITY },
  uniqueString: { least: 1, most: Number.POSITIVE_INFINITY, returns: "string" },
};

/** Members of functions that describe the deployment, such as `subscription()`. */
export const DEPLOYMENT_MEMBERS: Record<string, Record<string, string>> = {
  environment: { name: "string", suffixes: "object" },
  managementGroup: { id: "string", name: "string" },
  resourceGroup: { id: "string", name: "string", location: "string" },
  subscription: { id: "string", subscriptionId: "string", tenantId: "string", displayName: "string" },
};

/** Decorators with the parameter types to which they apply. */
export const DECORATORS: Record<string, readonly string[]> = {
  description: ["string", "int", "bool", "object", "array"],
  allowed: ["string", "int"],
  minLength: ["string", "array"],
  maxLength: ["string", "array"],
  minValue: ["int"],
  maxValue: ["int"],
};
