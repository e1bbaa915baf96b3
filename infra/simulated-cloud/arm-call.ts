import type { Consumers } from "./arm/consumers.ts";
import type { Operations } from "./arm/operations.ts";
import type { ArmStore } from "./arm/store.ts";
import type { Authorization } from "./authorization.ts";
import type { Answer, Incoming } from "./http.ts";
import type { Resources } from "./resources/resources.ts";
import type { Vault } from "./resources/vault.ts";
import type { Claims, Tokens } from "./tokens.ts";

export interface ArmOptions {
  resources: Resources;
  authorization: Authorization;
  tokens: Tokens;
  /** `https://management.localhost:port`: also the audience its tokens must have. */
  origin: string;
  /** `https://login.localhost:port` */
  authority: string;
  vaultUri(vault: Vault): string;
  store: ArmStore;
  consumers: Consumers;
  operations: Operations;
  pageSizes: { subscriptions: number; vaults: number };
}

/** https://learn.microsoft.com/rest/api/keyvault/keyvault/vaults, the stable versions that list vaults with all their properties. */
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
export interface Route {
  name: string;
  versions: readonly string[];
  subscription?: string;
  vault?: string;
  /** The id of the resource that is asked, as the client wrote it. */
  resource?: string;
  /** A setting's or another part's name. */
  item?: string;
  /** What a role must allow for it, where that does not follow from the name. */
  action?: string;
  answer(claims: Claims): Answer;
}

export function failure(status: number, code: string, message: string): Answer {
  return { status, body: { error: { code, message } } };
}

/** A page of a list, with a `nextLink` that repeats the question and says where to go on. */
export function page<T>(
  options: Pick<ArmOptions, "origin">,
  request: Incoming,
  all: readonly T[],
  size: number,
  resource: (one: T) => object,
): Answer {
  const token = request.query.get("$skiptoken");
  const start = token === null ? 0 : Number(Buffer.from(token, "base64url").toString("utf8"));
  if (!Number.isInteger(start) || start < 0) {
    return failure(400, "InvalidSkipToken", "The provided skip token is not valid.");
  }
  const value = all.slice(start, start + size).map(resource);
  if (start + size >= all.length) return { status: 200, body: { value } };
  const query = new URLSearchParams(request.query);
  query.set("$skiptoken", Buffer.from(String(start + size)).toString("base64url"));
  return { status: 200, body: { value, nextLink: `${options.origin}${request.path}?${query}` } };
}
