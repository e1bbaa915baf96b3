// Lists of Azure Resource Manager: locations, and the keys and secrets of a vault.

import type { IncomingRequest, ServiceResponse } from "../http.ts";
import { current, type Item, type Version } from "../vaults/items.ts";
import type { Vault } from "../vaults/vault.ts";
import { attributesOf, secretResource } from "./deployment-secrets.ts";
import { type ArmOptions, failure } from "./request-context.ts";

/** Page size of lists of keys and secrets. Azure documents none; lists of Key Vault itself have at most 25 entries. */
const PAGE_SIZE = 25;

const LOCATIONS = [
  { name: "westeurope", displayName: "West Europe", latitude: "52.3667", longitude: "4.9" },
  { name: "northeurope", displayName: "North Europe", latitude: "53.3478", longitude: "-6.2597" },
];

/** Lists the locations of a subscription: https://learn.microsoft.com/rest/api/resources/subscriptions/list-locations */
export const locations = (subscription: string): ServiceResponse => ({
  status: 200,
  body: { value: LOCATIONS.map((one) => ({ id: `/subscriptions/${subscription}/locations/${one.name}`, ...one })) },
});

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
