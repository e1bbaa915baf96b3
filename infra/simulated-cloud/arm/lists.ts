// Lists of Azure Resource Manager: locations, and the keys and secrets of a vault.

import type { IncomingRequest, ServiceResponse } from "../http.ts";
import { current, type Item, type Version } from "../vaults/items.ts";
import type { Vault } from "../vaults/vault.ts";
import { attributesOf, secretResource } from "./deployment-secrets.ts";
import { type Governance, REGIONS } from "./governance.ts";
import { type ArmOptions, failure } from "./request-context.ts";

/** Page size of lists of keys and secrets. Azure documents none; lists of Key Vault itself have at most 25 entries. */
const PAGE_SIZE = 25;

/** Lists the locations of a subscription: https://learn.microsoft.com/rest/api/resources/subscriptions/list-locations */
export function locations(subscription: string, { withoutZones = [] }: Governance): ServiceResponse {
  const zonesOf = (name: string) =>
    ["1", "2", "3"].map((zone) => ({ logicalZone: zone, physicalZone: `${name}-az${zone}` }));
  const value = REGIONS.map(({ name, displayName, latitude, longitude }) => ({
    id: `/subscriptions/${subscription}/locations/${name}`,
    name,
    type: "Region",
    displayName,
    regionalDisplayName: `(Europe) ${displayName}`,
    latitude,
    longitude,
    metadata: { regionType: "Physical", regionCategory: "Recommended", geography: "Europe", geographyGroup: "Europe" },
    ...(!withoutZones.includes(name) && { availabilityZoneMappings: zonesOf(name) }),
  }));
  return { status: 200, body: { value } };
}

/**
 * Lists a vault's keys or secrets, including the ones that belong to certificates, with the fields that Azure Resource Manager
 * returns: https://learn.microsoft.com/rest/api/keyvault/keyvault/keys/list,
 * https://learn.microsoft.com/rest/api/keyvault/secrets/list
 */
export function vaultItems(
  options: ArmOptions,
  request: IncomingRequest,
  vault: Vault,
  kind: "keys" | "secrets",
): ServiceResponse {
  const from = request.query.get("$skiptoken") ?? undefined;
  const vaultPage = vault.page(kind, from, PAGE_SIZE);
  if (vaultPage === undefined) return failure(400, "InvalidSkipToken", "The provided skip token is not valid.");
  const toResource = kind === "keys" ? keyResource : secretResource;
  const value = vaultPage.items.map(({ item }) => toResource(options, vault, item as Item<Version>));
  if (vaultPage.next === undefined) return { status: 200, body: { value } };
  const query = new URLSearchParams(request.query);
  query.set("$skiptoken", vaultPage.next);
  return { status: 200, body: { value, nextLink: `${options.origin}${request.path}?${query}` } };
}

function keyResource(options: ArmOptions, vault: Vault, key: Item<Version>): object {
  return {
    id: `${vault.id}/keys/${key.name}`,
    name: key.name,
    type: "Microsoft.KeyVault/vaults/keys",
    location: vault.location,
    properties: { attributes: attributesOf(current(key)), keyUri: `${options.vaultUri(vault)}keys/${key.name}` },
  };
}
