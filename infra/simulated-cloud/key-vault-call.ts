import type { Incoming } from "./http.ts";
import type { KeyVaultShapes } from "./key-vault-shapes.ts";
import type { Workspaces } from "./logs/workspaces.ts";
import type { CertificateMaker } from "./resources/certificates.ts";
import type { Resources } from "./resources/resources.ts";
import type { Vault } from "./resources/vault.ts";
import type { Tokens } from "./tokens.ts";

/** What Key Vault's data plane is made of. */
export interface KeyVaultOptions {
  resources: Resources;
  tokens: Tokens;
  certificates: CertificateMaker;
  /** Domain of all vaults: `vault.localhost`. Tokens must be for `https://` and this. */
  suffix: string;
  /** `https://login.localhost:port` */
  authority: string;
  /** Where requests are logged. */
  workspaces: Workspaces;
}

/** What a handler of one operation gets to know. */
export interface VaultCall {
  options: KeyVaultOptions;
  vault: Vault;
  shapes: KeyVaultShapes;
  request: Incoming;
  /** The name in the path, "" for lists. */
  name: string;
  version: string | undefined;
}
