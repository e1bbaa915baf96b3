import type { AssetType } from "../../inventory/asset.ts";

/** The vault, asset or version that a text in a resource's configuration names. */
export interface NamedAsset {
  vaultName: string;
  type?: AssetType;
  name?: string;
  version?: string;
}

/**
 * Parses the notations in which Azure services reference assets of key vaults. Each method returns undefined for other texts.
 */
export interface KeyVaultNames {
  /** `https://<vault>.<domain>/secrets|keys|certificates/<name>[/<version>][/]`, with the vault domain of this cloud. */
  ofUrl(text: unknown): NamedAsset | undefined;
  /** `https://<vault>.<domain>[/]` */
  ofVaultUrl(text: unknown): NamedAsset | undefined;
  /**
   * App Service references: `@Microsoft.KeyVault(SecretUri=…)` or
   * `@Microsoft.KeyVault(VaultName=…;SecretName=…[;SecretVersion=…])`.
   */
  ofReference(text: unknown): NamedAsset | undefined;
}

/**
 * Longer texts are not references: an address has at most 24 (vault) + 127 (name) + 32 (version) characters plus the domain.
 */
const MAX_CHARACTERS = 2_000;

/**
 * Names of vaults and objects:
 * https://learn.microsoft.com/azure/key-vault/general/about-keys-secrets-certificates#vault-name-and-object-name
 * Azure's limit for vault names is 24 characters. The pattern accepts up to 127, as the IDs of assets in this service do.
 */
export const VAULT_NAME = /^[A-Za-z][0-9A-Za-z-]{1,126}$/;
export const ASSET_NAME = /^[0-9A-Za-z-]{1,127}$/;
const VERSION = /^[0-9a-f]{32}$/i;

const COLLECTIONS: Record<string, AssetType> = { secrets: "secret", keys: "key", certificates: "certificate" };

/**
 * Creates the parser.
 *
 * @param suffix - Domain of the cloud's vaults, such as `vault.azure.net`.
 */
export function keyVaultNames(suffix: string): KeyVaultNames {
  function addressOf(text: unknown): { vaultName: string; segments: string[] } | undefined {
    if (typeof text !== "string" || text.length > MAX_CHARACTERS) return undefined;
    const trimmed = text.trim();
    if (!/^https:\/\//i.test(trimmed) || !URL.canParse(trimmed)) return undefined;
    const { hostname, pathname, search, hash, username } = new URL(trimmed);
    const vaultName = hostname.slice(0, -suffix.length - 1);
    if (hostname !== `${vaultName}.${suffix}` || !VAULT_NAME.test(vaultName)) return undefined;
    if (search || hash || username) return undefined;
    return { vaultName, segments: pathname.replace(/\/$/, "").split("/").slice(1) };
  }

  const names: KeyVaultNames = {
    ofUrl(text) {
      const { vaultName, segments } = addressOf(text) ?? {};
      if (!vaultName || !segments || segments.length < 2 || segments.length > 3) return undefined;
      const [collection, name, version] = segments;
      const type = COLLECTIONS[collection!.toLowerCase()];
      if (!type || !ASSET_NAME.test(name!) || (version !== undefined && !VERSION.test(version))) return undefined;
      return { vaultName, type, name: name!, ...(version && { version }) };
    },

    ofVaultUrl(text) {
      const { vaultName, segments } = addressOf(text) ?? {};
      return vaultName && segments?.length === 0 ? { vaultName } : undefined;
    },

    ofReference(text) {
      if (typeof text !== "string" || text.length > MAX_CHARACTERS) return undefined;
      const inner = /^\s*@Microsoft\.KeyVault\((.*)\)\s*$/is.exec(text)?.[1];
      if (inner === undefined) return undefined;
      const members = new Map<string, string>();
      for (const part of inner.split(";")) {
        const separator = part.indexOf("=");
        const name = part.slice(0, separator).trim().toLowerCase();
        if (part.trim() === "") continue;
        if (separator < 0 || !MEMBERS.has(name) || members.has(name)) return undefined;
        members.set(name, part.slice(separator + 1).trim());
      }
      const uri = members.get("secreturi");
      if (uri !== undefined) {
        const named = members.size === 1 ? names.ofUrl(uri) : undefined;
        return named?.type === "secret" ? named : undefined;
      }
      const [vaultName = "", name = ""] = [members.get("vaultname"), members.get("secretname")];
      const version = members.get("secretversion") || undefined;
      if (!VAULT_NAME.test(vaultName) || !ASSET_NAME.test(name)) return undefined;
      if (version !== undefined && !VERSION.test(version)) return undefined;
      return { vaultName, type: "secret", name, ...(version && { version }) };
    },
  };
  return names;
}

/** Names in a reference of App Service, in lower case. */
const MEMBERS = new Set(["secreturi", "vaultname", "secretname", "secretversion"]);

/** Returns the address, or undefined if it is that of a managed HSM, whose keys are ignored because an HSM is not a vault. */
export const unlessManagedHsm = (address: string | null | undefined): string | undefined =>
  address && !/^https:\/\/[^/]+\.managedhsm\.[^/]+(\/|$)/i.test(address) ? address : undefined;

/** Returns the vault, or the secret of a vault, that an Azure resource ID names. */
export function ofVaultId(text: unknown): NamedAsset | undefined {
  if (typeof text !== "string" || text.length > MAX_CHARACTERS) return undefined;
  const [, vaultName, name] =
    /^\/subscriptions\/[^/]+\/resourceGroups\/[^/]+\/providers\/Microsoft\.KeyVault\/vaults\/([^/]+)(?:\/secrets\/([^/]+))?\/?$/i.exec(
      text.trim(),
    ) ?? [];
  if (!vaultName || !VAULT_NAME.test(vaultName)) return undefined;
  if (name === undefined) return { vaultName };
  return ASSET_NAME.test(name) ? { vaultName, type: "secret", name } : undefined;
}
