import type { Certificate, Secret, SecretVersion } from "../vaults/items.ts";
import type { VaultStore } from "../vaults/vault-store.ts";
import type { ArmStore } from "./resource-store.ts";

/** Result of reading a vault secret on behalf of a resource. */
export type ReadResult =
  | { version: string; value: string }
  | { problem: "noVault" | "unreachable" | "notAllowed" | "noSecret" | "noVersion" | "disabled" };

/**
 * Reads a vault secret with the managed identities of one of the company's resources. A vault with the setting `reach` of
 * `firewalled` or `privateOnly` rejects these identities. The other values of `reach` apply only to the service's own identity.
 *
 * @param principals Object IDs of the identities. Undefined for an identity that can read every vault.
 */
export function readSecret(
  { resources, store }: { resources: VaultStore; store: ArmStore },
  principals: readonly string[] | undefined,
  location: { vault: string; secret: string; version?: string | undefined },
): ReadResult {
  const vault = resources.vault(location.vault);
  if (vault === undefined) return { problem: "noVault" };
  const { reach } = vault.settings;
  if (reach === "privateOnly") return { problem: "unreachable" };
  const canRead = principals === undefined || store.access.mayReadSecrets(principals, vault);
  if (reach === "firewalled" || !canRead) return { problem: "notAllowed" };
  const item = vault.collections.secrets.get(location.secret) ?? vault.collections.certificates.get(location.secret);
  if (item === undefined) return { problem: "noSecret" };
  const version = versionOf(item, location.version);
  if (version === undefined) return { problem: "noVersion" };
  if (!version.enabled) return { problem: "disabled" };
  if (principals?.[0] !== undefined) resources.secretRead(vault, item.name, version.id, principals[0]);
  return { version: version.id, value: version.value };
}

/**
 * Returns the version of a secret with this ID, or the current one. The secret of a certificate has the certificate's versions.
 */
function versionOf(item: Secret | Certificate, id: string | undefined): SecretVersion | undefined {
  const versions = item.versions.map((one) => ({
    ...one,
    value: "value" in one ? one.value : `certificate ${one.id}`,
  }));
  return id === undefined ? versions.at(-1) : versions.find((one) => one.id === id.toLowerCase());
}
