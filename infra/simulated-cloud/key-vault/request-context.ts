// Types that all operations of the simulated Key Vault share.

import type { IncomingRequest } from "../http.ts";
import type { Workspaces } from "../logs/workspaces.ts";
import type { Tokens } from "../tokens.ts";
import type { CertificateMaker } from "../vaults/certificates.ts";
import type { Vault } from "../vaults/vault.ts";
import type { VaultStore } from "../vaults/vault-store.ts";
import type { KeyVaultJson } from "./json.ts";
import type { KeyVaultTraffic } from "./traffic.ts";

/** Dependencies of Key Vault's data plane. */
export interface KeyVaultOptions {
  resources: VaultStore;
  tokens: Tokens;
  certificates: CertificateMaker;
  /** Domain of all vaults: `vault.localhost`. The audience of tokens is `https://` plus this domain. */
  suffix: string;
  /** `https://login.localhost:port` */
  authority: string;
  /** The workspaces that log requests. */
  workspaces: Workspaces;
  traffic: KeyVaultTraffic;
}

/** Arguments of an operation's handler. */
export interface VaultCall {
  options: KeyVaultOptions;
  vault: Vault;
  /** Formats items as JSON. */
  json: KeyVaultJson;
  request: IncomingRequest;
  /** Name of the item in the path. Empty for lists. */
  name: string;
  version: string | undefined;
}
