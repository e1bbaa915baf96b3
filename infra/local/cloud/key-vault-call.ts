import type { CertificateMaker } from "./estate/certificates.ts";
import type { Estate } from "./estate/estate.ts";
import type { Vault } from "./estate/vault.ts";
import type { Incoming } from "./http.ts";
import type { KeyVaultShapes } from "./key-vault-shapes.ts";
import type { Tokens } from "./tokens.ts";

/** What Key Vault's data plane is made of. */
export interface KeyVaultOptions {
  estate: Estate;
  tokens: Tokens;
  certificates: CertificateMaker;
  /** Domain of all vaults: `vault.localhost`. Tokens must be for `https://` and this. */
  suffix: string;
  /** `https://login.localhost:port` */
  authority: string;
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
