/** The parts of a resource ID. Azure compares IDs without regard to case. */
export interface ResourceId {
  subscriptionId: string;
  resourceGroup: string;
  /** In lower case, such as `microsoft.web/sites/slots`. */
  type: string;
  /** Names of the resource and its parents: `["app", "staging"]`. */
  names: string[];
}

/** https://learn.microsoft.com/azure/azure-resource-manager/management/resource-name-rules; none holds more than this. */
const SEGMENT = /^(?!\.+$)[\p{L}\p{N}._()~!$'*:@ -]{1,260}$/u;
const ID =
  /^\/subscriptions\/([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\/resourceGroups\/([^/]+)\/providers\/([A-Za-z0-9.]+)\/(.+)$/i;

/** Returns undefined if the text is not the ID of a resource in a resource group. */
export function parseResourceId(id: string): ResourceId | undefined {
  const [, subscriptionId, resourceGroup, namespace, rest] = (id.length <= 2048 && ID.exec(id)) || [];
  if (!subscriptionId || !resourceGroup || !namespace || !rest) return undefined;
  const segments = rest.split("/");
  if (segments.length % 2 !== 0 || ![resourceGroup, ...segments].every((segment) => SEGMENT.test(segment))) {
    return undefined;
  }
  const types = segments.filter((_, index) => index % 2 === 0);
  return {
    subscriptionId,
    resourceGroup,
    type: [namespace, ...types].join("/").toLowerCase(),
    names: segments.filter((_, index) => index % 2 === 1),
  };
}

/**
 * Returns the ID as a path of the resource manager.
 *
 * @throws {TypeError} if it is not the ID of a resource of these types, in lower case.
 */
export function resourcePath(id: string, ...types: [string, ...string[]]): string {
  const parsed = parseResourceId(id);
  if (!parsed || !types.includes(parsed.type)) throw new TypeError(`Not the resource id of a ${types.join(" or ")}.`);
  return id.split("/").map(encodeURIComponent).join("/");
}

/** Returns the name of a resource for messages, after the names of its parents. */
export const resourceName = (id: string): string => parseResourceId(id)?.names.join("/") ?? "?";

/** Returns the name of a resource without its parents. Some services return `service/value`, others `value`. */
export const ownName = (name: string): string => name.slice(name.lastIndexOf("/") + 1);
