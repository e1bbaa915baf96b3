import type { Authorization } from "./authorization.ts";
import type { Answer } from "./http.ts";
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
  answer(claims: Claims): Answer;
}

export function failure(status: number, code: string, message: string): Answer {
  return { status, body: { error: { code, message } } };
}
