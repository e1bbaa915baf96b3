// Reads the fields of Azure Policy from a planned resource.

import type { PlannedResource } from "../plan.ts";
import { isObject, memberOf, UNKNOWN, type Value } from "../values.ts";

/** Members of a resource outside of `properties` that aliases name, in lower case. */
const TOP_LEVEL = new Set(["sku", "identity", "zones", "kind", "plan", "extendedlocation"]);

/**
 * Returns the values of a field: one, or one for each element if the field names a list with `[*]`. An absent field has the
 * value undefined. UNKNOWN if the plan does not know it.
 * https://learn.microsoft.com/azure/governance/policy/concepts/definition-structure-policy-rule#fields
 */
export function fieldValues(resource: PlannedResource, field: string): Value[] {
  const { type, name, id, location, body } = resource;
  const lower = field.toLowerCase();
  const tag = /^tags\[(?:'([^']+)'|([^\]]+))\]$|^tags\.(.+)$/i.exec(field);
  if (tag) return [memberOf(memberOf(body, "tags"), (tag[1] ?? tag[2] ?? tag[3])!)];
  switch (lower) {
    case "type":
      return [type];
    case "name":
      return [name ?? UNKNOWN];
    case "fullname":
      return [UNKNOWN];
    case "id":
      return [id ?? UNKNOWN];
    case "location":
      return [location];
    case "kind":
      return [memberOf(body, "kind")];
    case "tags":
      return [memberOf(body, "tags")];
    case "identity.type":
      return [memberOf(memberOf(body, "identity"), "type")];
    default:
      return lower.startsWith(`${type.toLowerCase()}/`) ? aliasValues(body, field.slice(type.length + 1)) : [undefined];
  }
}

/** Returns the values of an alias without its type, such as `networkAcls.ipRules[*].value`. */
function aliasValues(body: Value, alias: string): Value[] {
  const segments = alias.split(/[./]/).flatMap((one) => one.split(/(?=\[\*\])/));
  // An alias of a child resource of another type has no value here: the plan has the child as a resource of its own.
  const start = TOP_LEVEL.has(segments[0]!.toLowerCase()) ? body : memberOf(body, "properties");
  let values: Value[] = [start];
  for (const segment of segments) {
    if (segment === "[*]") {
      values = values.flatMap((one) => (Array.isArray(one) ? one : one === UNKNOWN ? [UNKNOWN] : []));
    } else values = values.map((one) => (isObject(one) || one === UNKNOWN ? memberOf(one, segment) : undefined));
  }
  return values;
}
