import * as z from "zod";
import type { Route } from "../platform/azure/calls.ts";

// Schemas of the Azure DevOps responses that this service reads (https://learn.microsoft.com/rest/api/azure/devops, version
// 7.1). Members that no schema names are kept, because an update must send them back unchanged.

/** IDs are validated strictly, because they become parts of URLs and storage keys. */
const guid = z.string().regex(/^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i);
const name = z.string().max(1024);

const user = z.looseObject({ authenticatedUser: z.looseObject({ id: guid, providerDisplayName: name.nullish() }) });
export type ConnectionData = z.infer<typeof user>;

const project = z.looseObject({ id: guid, name });
export type Project = z.infer<typeof project>;

const references = z.array(z.looseObject({ projectReference: z.looseObject({ id: guid }) })).nullish();

const variable = z.looseObject({
  /** Null for secrets. */
  value: z.string().nullish(),
  isSecret: z.boolean().nullish(),
  /** For linked groups: whether the vault's secret is enabled. */
  enabled: z.boolean().nullish(),
});
const variableGroup = z.looseObject({
  id: z.int().positive(),
  name,
  /** `AzureKeyVault`: linked to a vault, whose secrets are its variables. `Vsts`: with values of its own. */
  type: z.string().max(64),
  variables: z.record(z.string(), variable).nullish(),
  providerData: z.looseObject({ vault: z.string().max(256).nullish() }).nullish(),
  variableGroupProjectReferences: references,
  modifiedOn: z.string().max(64).nullish(),
});
export type VariableGroup = z.infer<typeof variableGroup>;

const serviceConnection = z.looseObject({
  id: guid,
  name,
  type: z.string().max(256),
  url: z.string().max(2048).nullish(),
  authorization: z.looseObject({
    scheme: z.string().max(256),
    /** Upper and lower case of the parameters' names differ between connections. */
    parameters: z.record(z.string(), z.unknown()).nullish(),
  }),
  data: z.record(z.string(), z.unknown()).nullish(),
  serviceEndpointProjectReferences: references,
});
export type ServiceConnection = z.infer<typeof serviceConnection>;

const proxied = z.looseObject({ statusCode: z.string().max(64) });
export type Proxied = z.infer<typeof proxied>;

/** A page of a list, without validating its entries. */
export const page = z.looseObject({ value: z.array(z.unknown()) });
export type Page<T> = { value: T[] };

// Roles that an operation needs, as parts of remedies.
const LIBRARY = "in the project's library the role Reader of the variable groups, or Administrator to change them";
const CONNECTIONS =
  "in the project's settings the role Reader of the service connections, or Administrator to change them";

/** Returns the operation and the response schema for a path below an organization. Undefined for other paths. */
export function devopsRoute(path: string, organization: string): Route | undefined {
  const route = (operation: string, answer: z.ZodType, options: Partial<Route> & { grant?: string } = {}): Route => {
    const { grant, ...others } = options;
    return { target: { operation, resource: organization, ...(grant !== undefined && { grant }) }, answer, ...others };
  };
  const list = { paged: true };
  if (path === "/_apis/connectionData") return route("sign in to Azure DevOps", user);
  if (path === "/_apis/projects") return route("list projects", page, { ...list, entry: project });
  // Matches `/{project}/_apis/{area}/{resource}/{id}`, where project and ID are optional.
  const [, projectPath = "", resource = "", id] = /^(\/[^/]+)?\/_apis\/([^/]+\/[^/]+)(\/[^/]+)?$/.exec(path) ?? [];
  const grant = resource.startsWith("distributedtask") ? LIBRARY : CONNECTIONS;
  switch (`${projectPath === "" ? "" : "project "}${resource}${id === undefined ? "" : "/ID"}`) {
    case "project distributedtask/variablegroups":
      return route("list variable groups", page, { ...list, entry: variableGroup, grant });
    case "project distributedtask/variablegroups/ID":
      return route("read a variable group", variableGroup.nullable(), { grant });
    case "distributedtask/variablegroups/ID":
      return route("change a variable group", variableGroup, { grant });
    case "project serviceendpoint/endpoints":
      return route("list service connections", page, { ...list, entry: serviceConnection, grant });
    case "project serviceendpoint/endpoints/ID":
      return route("read a service connection", serviceConnection.nullable(), { grant });
    case "serviceendpoint/endpoints/ID":
      return route("change a service connection", serviceConnection, { grant });
    case "project serviceendpoint/endpointproxy":
      return route("test a service connection", proxied, { grant });
    default:
      return undefined;
  }
}

/** Returns a connection's parameter by its name in lower case, in any spelling. Undefined if it is not text. */
export function parameterOf(
  connection: ServiceConnection,
  lowerCaseName: string,
): { name: string; value: string | undefined } | undefined {
  for (const [name, value] of Object.entries(connection.authorization.parameters ?? {})) {
    if (name.toLowerCase() === lowerCaseName) return { name, value: typeof value === "string" ? value : undefined };
  }
  return undefined;
}
