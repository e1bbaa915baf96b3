/** The parts of an Azure resource ID. Azure ignores case when it compares IDs. */
export interface ResourceId {
  subscriptionId: string;
  resourceGroup: string;
  /** In lower case, such as `microsoft.web/sites/slots`. */
  type: string;
  /** Names of the resource and its parents: `["app", "staging"]`. */
  names: string[];
}

/**
 * One segment of an ID: a name that is not only dots, of at most 260 characters. Permits all characters of the name rules:
 * https://learn.microsoft.com/azure/azure-resource-manager/management/resource-name-rules
 */
const SEGMENT = /^(?!\.+$)[\p{L}\p{N}._()~!$'*:@ -]{1,260}$/u;
/** Matches `/subscriptions/<id>/resourceGroups/<group>/providers/<namespace>/<types and names>`. */
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
 * Returns the ID as a URL path for Azure Resource Manager.
 *
 * @param types - The accepted resource types, in lower case.
 * @throws {TypeError} if the ID is not the ID of a resource of one of these types.
 */
export function resourcePath(id: string, ...types: [string, ...string[]]): string {
  const parsed = parseResourceId(id);
  if (!parsed || !types.includes(parsed.type)) throw new TypeError(`Not the resource id of a ${types.join(" or ")}.`);
  return id.split("/").map(encodeURIComponent).join("/");
}

/** Returns the name of a resource for messages, with the names of its parents: `app/staging`. */
export const resourceName = (id: string): string => parseResourceId(id)?.names.join("/") ?? "?";

/** Returns `value` for `value` and for `service/value`, because some services return a name with its parent's name. */
export const nameWithoutParents = (name: string): string => name.slice(name.lastIndexOf("/") + 1);
