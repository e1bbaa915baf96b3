// Replaces the placeholders in the declaration of a company's resources, such as `{uri:kv-main}` by the address of the vault
// kv-main.

import { guidFrom } from "../vaults/identifiers.ts";
import { current } from "../vaults/items.ts";
import type { Vault } from "../vaults/vault.ts";
import type { VaultStore } from "../vaults/vault-store.ts";

/** The objects that placeholders can refer to. */
interface PlaceholderSources {
  resources: VaultStore;
  vaultUri(vault: Vault): string;
  identityId(name: string): string;
  /** Finds a resource by `TYPE/NAME`. */
  resourceId(typeAndName: string): string;
}

const PLACEHOLDER = /\{(uri|id|version|value|identity|principal|resource):([^}]+)\}/g;

/**
 * Returns a copy of a value with its placeholders replaced (see `company/resources.ts`).
 * @throws {Error} if a placeholder names something unknown.
 */
export function replacePlaceholders<T>(declaration: T, sources: PlaceholderSources): T {
  if (typeof declaration === "string")
    return declaration.replace(PLACEHOLDER, (_, kind, reference) => replacementOf(kind, reference, sources)) as T;
  if (Array.isArray(declaration)) return declaration.map((one) => replacePlaceholders(one, sources)) as T;
  if (typeof declaration !== "object" || declaration === null) return declaration;
  return Object.fromEntries(
    Object.entries(declaration).map(([name, value]) => [name, replacePlaceholders(value, sources)]),
  ) as T;
}

/** Returns the text that replaces `{kind:reference}`. */
function replacementOf(
  kind: string,
  reference: string,
  { resources, vaultUri, identityId, resourceId }: PlaceholderSources,
): string {
  if (kind === "identity") return identityId(reference);
  if (kind === "resource") return resourceId(reference);
  if (kind === "principal") return guidFrom(`principal ${reference}`);
  const [name = "", ...rest] = reference.split("/");
  const vault = resources.vault(name);
  if (vault === undefined) throw new Error(`{${kind}:${reference}} names an unknown vault`);
  if (kind === "uri") return vaultUri(vault).replace(/\/$/, "");
  if (kind === "id") return vault.id;
  if (kind === "value") {
    const secret = vault.collections.secrets.get(rest[0] ?? "");
    if (secret === undefined) throw new Error(`{value:${reference}} names an unknown secret`);
    return current(secret).value;
  }
  const [itemKind, item = ""] = rest;
  if (itemKind !== "secrets" && itemKind !== "keys" && itemKind !== "certificates")
    throw new Error(`{version:${reference}} names an unknown kind`);
  // The secret and the key of a certificate have the certificate's versions.
  const versioned = vault.collections[itemKind].get(item) ?? vault.collections.certificates.get(item);
  if (versioned === undefined) throw new Error(`{version:${reference}} names an unknown item`);
  return versioned.versions.at(-1)!.id;
}

/** Returns the vaults that a value's placeholders refer to. A `{value:…}` placeholder is plain text and refers to no vault. */
export function vaultsInPlaceholders(declaration: unknown): Set<string> {
  const json = JSON.stringify(declaration);
  return new Set([
    ...[...json.matchAll(/\{(?:uri|id|version):([^/}]+)/g)].map(([, vault]) => vault!),
    ...[...json.matchAll(/vaultname\s*=\s*([\w-]+)/gi)].map(([, vault]) => vault!),
  ]);
}
