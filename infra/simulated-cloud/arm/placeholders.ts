// Replaces the placeholders in the declaration of a company's resources.

import { guidFrom } from "../vaults/identifiers.ts";
import { current } from "../vaults/items.ts";
import type { Vault } from "../vaults/vault.ts";
import type { VaultStore } from "../vaults/vault-store.ts";

interface Known {
  resources: VaultStore;
  vaultUri(vault: Vault): string;
  identityId(name: string): string;
  /** Finds a resource by `TYPE/NAME`. */
  resourceId(typeAndName: string): string;
}

const BRACES = /\{(uri|id|version|value|identity|principal|resource):([^}]+)\}/g;

/**
 * Returns a copy of a value with its placeholders replaced (see `company/resources.ts`).
 * @throws {Error} if a placeholder names something unknown.
 */
export function replacePlaceholders<T>(given: T, known: Known): T {
  if (typeof given === "string") return given.replace(BRACES, (_, what, of) => text(what, of, known)) as T;
  if (Array.isArray(given)) return given.map((one) => replacePlaceholders(one, known)) as T;
  if (typeof given !== "object" || given === null) return given;
  return Object.fromEntries(
    Object.entries(given).map(([name, value]) => [name, replacePlaceholders(value, known)]),
  ) as T;
}

function text(what: string, of: string, { resources, vaultUri, identityId, resourceId }: Known): string {
  if (what === "identity") return identityId(of);
  if (what === "resource") return resourceId(of);
  if (what === "principal") return guidFrom(`principal ${of}`);
  const [name = "", ...rest] = of.split("/");
  const vault = resources.vault(name);
  if (vault === undefined) throw new Error(`{${what}:${of}} names an unknown vault`);
  if (what === "uri") return vaultUri(vault).replace(/\/$/, "");
  if (what === "id") return vault.id;
  if (what === "value") {
    const secret = vault.collections.secrets.get(rest[0] ?? "");
    if (secret === undefined) throw new Error(`{value:${of}} names an unknown secret`);
    return current(secret).value;
  }
  const [kind, item = ""] = rest;
  if (kind !== "secrets" && kind !== "keys" && kind !== "certificates")
    throw new Error(`{version:${of}} names an unknown kind`);
  // The secret and the key of a certificate have the certificate's versions.
  const found = vault.collections[kind].get(item) ?? vault.collections.certificates.get(item);
  if (found === undefined) throw new Error(`{version:${of}} names an unknown object`);
  return found.versions.at(-1)!.id;
}

/** Returns the vaults that a value's placeholders refer to. A `{value:…}` placeholder is plain text and refers to no vault. */
export function vaultsInPlaceholders(given: unknown): Set<string> {
  const all = JSON.stringify(given);
  return new Set([
    ...[...all.matchAll(/\{(?:uri|id|version):([^/}]+)/g)].map(([, vault]) => vault!),
    ...[...all.matchAll(/vaultname\s*=\s*([\w-]+)/gi)].map(([, vault]) => vault!),
  ]);
}
