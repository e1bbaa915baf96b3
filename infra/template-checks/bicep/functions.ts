/**
 * Bicep functions that the templates can call. `returns` is missing if the type depends on the arguments. Calling another
 * function is a finding. https://learn.microsoft.com/azure/azure-resource-manager/bicep/bicep-functions
 */
export const FUNCTIONS: Record<string, { minArguments: number; maxArguments: number; returns?: string }> = {
  cidrSubnet: { minArguments: 3, maxArguments: 3, returns: "string" },
  concat: { minArguments: 1, maxArguments: Number.POSITIVE_INFINITY },
  contains: { minArguments: 2, maxArguments: 2, returns: "bool" },
  deployer: { minArguments: 0, maxArguments: 0, returns: "object" },
  empty: { minArguments: 1, maxArguments: 1, returns: "bool" },
  environment: { minArguments: 0, maxArguments: 0, returns: "object" },
  fail: { minArguments: 1, maxArguments: 1 },
  flatten: { minArguments: 1, maxArguments: 1, returns: "array" },
  guid: { minArguments: 1, maxArguments: Number.POSITIVE_INFINITY, returns: "string" },
  items: { minArguments: 1, maxArguments: 1, returns: "array" },
  join: { minArguments: 2, maxArguments: 2, returns: "string" },
  last: { minArguments: 1, maxArguments: 1 },
  loadJsonContent: { minArguments: 1, maxArguments: 3 },
  loadTextContent: { minArguments: 1, maxArguments: 2, returns: "string" },
  managementGroup: { minArguments: 0, maxArguments: 1, returns: "object" },
  reference: { minArguments: 1, maxArguments: 3, returns: "object" },
  resourceGroup: { minArguments: 0, maxArguments: 2, returns: "object" },
  resourceId: { minArguments: 2, maxArguments: Number.POSITIVE_INFINITY, returns: "string" },
  split: { minArguments: 2, maxArguments: 2, returns: "array" },
  subscription: { minArguments: 0, maxArguments: 1, returns: "object" },
  subscriptionResourceId: { minArguments: 2, maxArguments: Number.POSITIVE_INFINITY, returns: "string" },
  tenantResourceId: { minArguments: 2, maxArguments: Number.POSITIVE_INFINITY, returns: "string" },
  toLower: { minArguments: 1, maxArguments: 1, returns: "string" },
  union: { minArguments: 2, maxArguments: Number.POSITIVE_INFINITY },
  uniqueString: { minArguments: 1, maxArguments: Number.POSITIVE_INFINITY, returns: "string" },
};

/**
 * Members of the objects that functions such as `subscription()` return, with their types. Only those that the templates use:
 * another member is a finding.
 */
export const DEPLOYMENT_MEMBERS: Record<string, Record<string, string>> = {
  deployer: { objectId: "string", tenantId: "string" },
  environment: { name: "string", suffixes: "object" },
  managementGroup: { id: "string", name: "string" },
  resourceGroup: { id: "string", name: "string", location: "string" },
  subscription: { id: "string", subscriptionId: "string", tenantId: "string", displayName: "string" },
};

/** Decorators of parameters, with the parameter types to which they apply. Any other decorator is a finding. */
export const DECORATORS: Record<string, readonly string[]> = {
  description: ["string", "int", "bool", "object", "array"],
  metadata: ["string", "int", "bool", "object", "array"],
  allowed: ["string", "int"],
  minLength: ["string", "array"],
  maxLength: ["string", "array"],
  minValue: ["int"],
  maxValue: ["int"],
};
