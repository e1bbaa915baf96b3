// Types and helpers that all routes of the simulated Azure Resource Manager share.

import type { Authorization } from "../authorization.ts";
import type { DnsZones } from "../dns/zones.ts";
import type { IncomingRequest, ServiceResponse } from "../http.ts";
import type { Claims, Tokens } from "../tokens.ts";
import type { Vault } from "../vaults/vault.ts";
import type { VaultStore } from "../vaults/vault-store.ts";
import type { Consumers } from "./consumers.ts";
import type { GovernanceStore } from "./governance.ts";
import type { Operations } from "./operations.ts";
import type { ResourceKeys } from "./resource-keys.ts";
import type { ArmStore } from "./resource-store.ts";

/** Dependencies of the routes of Azure Resource Manager. */
export interface ArmOptions {
  resources: VaultStore;
  authorization: Authorization;
  tokens: Tokens;
  /** `https://management.localhost:port`, also the audience of its tokens. */
  origin: string;
  /** `https://login.localhost:port` */
  authority: string;
  vaultUri(vault: Vault): string;
  store: ArmStore;
  consumers: Consumers;
  operations: Operations;
  /** Keys of storage accounts and other resources that have two. */
  keys: ResourceKeys;
  zones: DnsZones;
  /** Returns the URL of a host of this cloud. */
  originOf(host: string): string;
  /** Rules of the subscriptions for deployments. */
  governance: GovernanceStore;
  pageSizes: { subscriptions: number; vaults: number };
}

/**
 * The stable versions whose vault lists contain all properties: https://learn.microsoft.com/rest/api/keyvault/keyvault/vaults.
 */
export const KEY_VAULT_VERSIONS = [
  "2015-06-01",
  "2016-10-01",
  "2018-02-14",
  "2019-09-01",
  "2021-10-01",
  "2022-07-01",
  "2022-11-01",
  "2023-02-01",
  "2023-07-01",
  "2024-11-01",
  "2025-05-01",
  "2026-02-01",
];

/** An operation of Azure Resource Manager that a request calls. resource-manager.ts checks the token and the API version. */
export interface Route {
  /** Name of the operation, such as `arm.listVaults`. */
  name: string;
  /** Accepted API versions. Empty to accept all. */
  versions: readonly string[];
  subscription?: string;
  vault?: string;
  /** The resource ID in the request's path, in the client's spelling. */
  resource?: string;
  /** The name of a setting or of another part of the resource. */
  item?: string;
  /** The action that a role must allow, if it does not follow from the operation's name. */
  action?: string;
  answer(claims: Claims): ServiceResponse;
}

/** Creates an error response in the format of Azure Resource Manager. */
export function failure(status: number, code: string, message: string): ServiceResponse {
  return { status, body: { error: { code, message } } };
}

/** Returns a page of a list. Its `nextLink` repeats the query and adds a skip token. */
export function page<T>(
  options: Pick<ArmOptions, "origin">,
  request: IncomingRequest,
  entries: readonly T[],
  size: number,
  toResource: (entry: T) => object,
): ServiceResponse {
  const token = request.query.get("$skiptoken");
  const start = token === null ? 0 : Number(Buffer.from(token, "base64url").toString("utf8"));
  if (!Number.isInteger(start) || start < 0) {
    return failure(400, "InvalidSkipToken", "The provided skip token is not valid.");
  }
  const value = entries.slice(start, start + size).map(toResource);
  if (start + size >= entries.length) return { status: 200, body: { value } };
  const query = new URLSearchParams(request.query);
  query.set("$skiptoken", Buffer.from(String(start + size)).toString("base64url"));
  return { status: 200, body: { value, nextLink: `${options.origin}${request.path}?${query}` } };
}
