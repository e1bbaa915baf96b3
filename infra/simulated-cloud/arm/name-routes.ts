// Simulates the requests that check whether a name is available, and that read deleted vaults and App Configuration stores.

import type { ServiceResponse } from "../http.ts";
import { REGIONS } from "./governance.ts";
import { type GovernanceCall, governedRoute, noSuchLocation, textMembers } from "./governance-call.ts";
import { failure, KEY_VAULT_VERSIONS, type Route } from "./request-context.ts";

interface NameService {
  /** Path of the check, in lower case. */
  path: string;
  /** Type that the body of a request must have. */
  type: string;
  versions: readonly string[];
  /** Path segment of deleted resources. */
  deleted?: string;
  action: string;
  /** The rule for names: https://learn.microsoft.com/azure/azure-resource-manager/management/resource-name-rules */
  pattern: RegExp;
}

/** https://learn.microsoft.com/rest/api/azure: the operations `Check Name Availability` and `Get Deleted` of each service */
const SERVICES: readonly NameService[] = [
  {
    path: "providers/microsoft.storage/checknameavailability",
    type: "Microsoft.Storage/storageAccounts",
    versions: ["2023-05-01", "2024-01-01", "2025-01-01"],
    action: "Microsoft.Storage/checknameavailability/read",
    pattern: /^[a-z0-9]{3,24}$/,
  },
  {
    path: "providers/microsoft.keyvault/checknameavailability",
    type: "Microsoft.KeyVault/vaults",
    versions: KEY_VAULT_VERSIONS,
    deleted: "deletedvaults",
    action: "Microsoft.KeyVault/checkNameAvailability/read",
    pattern: /^[A-Za-z](?!.*--)[A-Za-z0-9-]{1,22}[A-Za-z0-9]$/,
  },
  {
    path: "providers/microsoft.web/checknameavailability",
    type: "Microsoft.Web/sites",
    versions: ["2023-12-01", "2024-04-01", "2024-11-01"],
    action: "Microsoft.Web/checknameavailability/read",
    pattern: /^[A-Za-z0-9][A-Za-z0-9-]{0,58}[A-Za-z0-9]$/,
  },
  {
    path: "providers/microsoft.appconfiguration/checknameavailability",
    type: "Microsoft.AppConfiguration/configurationStores",
    versions: ["2023-03-01", "2024-05-01", "2024-06-01"],
    deleted: "deletedconfigurationstores",
    action: "Microsoft.AppConfiguration/checkNameAvailability/read",
    pattern: /^[A-Za-z0-9-]{5,50}$/,
  },
  {
    path: "providers/microsoft.communication/checknameavailability",
    type: "Microsoft.Communication/communicationServices",
    versions: ["2023-04-01", "2025-05-01"],
    action: "Microsoft.Communication/CheckNameAvailability/action",
    pattern: /^[A-Za-z0-9-]{1,63}$/,
  },
];

/** Returns the route of a request about an available name or a deleted resource. Undefined for other requests. */
export function nameRoute(call: GovernanceCall): Route | undefined {
  const { request, path } = call;
  const service = SERVICES.find((one) => one.path === path);
  if (service && request.method === "POST") {
    const { versions, action } = service;
    return governedRoute(call, { name: "arm.checkName", versions, action }, () => checkName(call, service));
  }
  const [, namespace, location, kind, name] =
    /^providers\/([^/]+)\/locations\/([^/]+)\/(deleted\w+)\/([^/]+)$/.exec(path) ?? [];
  const owner = SERVICES.find((one) => one.deleted === kind && one.path.startsWith(`providers/${namespace}/`));
  if (owner === undefined || request.method !== "GET") return undefined;
  const action = `${owner.type.split("/")[0]}/locations/${kind}/read`;
  return governedRoute(call, { name: "arm.getDeleted", versions: owner.versions, action }, () =>
    readDeleted(call, owner, location!, name!),
  );
}

function checkName({ options, request, rules }: GovernanceCall, { type, pattern }: NameService): ServiceResponse {
  const body = textMembers(request, "name", "type");
  if (body === undefined || body.type!.toLowerCase() !== type.toLowerCase())
    return failure(400, "InvalidRequestContent", `The body must have the members 'name' and 'type' (${type}).`);
  const name = body.name!;
  if (!pattern.test(name)) return unavailable("AccountNameInvalid", `${name} is not a valid name.`);
  const lower = name.toLowerCase();
  const isUsed =
    [...options.store.all()].some((one) => one.type.type === type && one.name.toLowerCase() === lower) ||
    (type === "Microsoft.KeyVault/vaults" && options.resources.vault(name) !== undefined) ||
    rules.takenNames?.some((one) => one.toLowerCase() === lower) ||
    rules.deleted?.some((one) => one.type === type && one.name.toLowerCase() === lower);
  return isUsed
    ? unavailable("AlreadyExists", `The name '${name}' is already in use.`)
    : { status: 200, body: { nameAvailable: true } };
}

const unavailable = (reason: string, message: string): ServiceResponse => ({
  status: 200,
  body: { nameAvailable: false, reason, message },
});

function readDeleted(
  { subscription, rules }: GovernanceCall,
  { type, deleted }: NameService,
  location: string,
  name: string,
): ServiceResponse {
  if (!REGIONS.some((region) => region.name === location)) return noSuchLocation(location);
  const deletedResource = rules.deleted?.find(
    (one) => one.type === type && one.name.toLowerCase() === name && one.location === location,
  );
  if (deletedResource === undefined)
    return failure(404, "ResourceNotFound", `The deleted resource '${name}' was not found in '${location}'.`);
  const namespace = type.split("/")[0]!;
  return {
    status: 200,
    body: {
      id: `/subscriptions/${subscription}/providers/${namespace}/locations/${location}/${deleted}/${deletedResource.name}`,
      name: deletedResource.name,
      type: `${namespace}/${deleted}`,
      properties: {
        [type === "Microsoft.KeyVault/vaults" ? "vaultId" : "configurationStoreId"]: deletedResource.id,
        location,
        deletionDate: "2026-11-01T00:00:00Z",
        scheduledPurgeDate: "2027-01-30T00:00:00Z",
        purgeProtectionEnabled: deletedResource.purgeProtection,
      },
    },
  };
}
