/**
 * Return types of the functions that the modules can call, undefined if the type depends on the arguments:
 * https://developer.hashicorp.com/terraform/language/functions
 */
export const FUNCTIONS: Record<string, string | undefined> = {
  alltrue: "bool",
  can: "bool",
  cidrsubnet: "string",
  coalesce: undefined,
  compact: "list",
  concat: "list",
  contains: "bool",
  distinct: "list",
  file: "string",
  flatten: "list",
  join: "string",
  jsondecode: undefined,
  jsonencode: "string",
  keys: "list",
  length: "number",
  lookup: undefined,
  lower: "string",
  merge: "map",
  regex: undefined,
  sha1: "string",
  split: "list",
  substr: "string",
  tonumber: "number",
  toset: "list",
  tostring: "string",
  uuidv5: "string",
  values: "list",
};
