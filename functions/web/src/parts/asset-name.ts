/**
 * The names of assets, the same in all views and mails: `vault/name` for an asset in a vault, `application/credential` for a
 * credential of an application. A table with a column for the vault shows only `name`.
 */
import type { Schemas } from "../api/client.ts";
import { isolated } from "./isolated.ts";

type Named = Pick<Schemas["Asset"], "name" | "credential">;

/** Returns the name of an asset beside its vault. A credential is in no vault, so its application is part of its name. */
export function assetName({ name, credential }: Named): string {
  if (credential === undefined) return name;
  const { applicationName, displayName, keyId } = credential;
  const parts = [applicationName, displayName || keyId].flatMap((part) => part || []);
  return parts.map(isolated).join("/") || name;
}

/** Returns the name of an asset with its vault or application. */
export const assetTitle = ({ vaultName, ...asset }: Named & Pick<Schemas["Asset"], "vaultName">): string =>
  vaultName === null ? assetName(asset) : `${vaultName}/${asset.name}`;

/** The ID of an asset in a vault. The second part of a credential's ID is a tenant. */
const VAULT_ASSET_ID = /^([^.]+)\.(?:secret|key|certificate)\.([^.]+)$/;

/**
 * Returns the name of an asset by its ID: `vault/name` for an asset in a vault.
 *
 * @param credentialName - The result for a credential, whose ID contains no names. Default: the ID.
 */
export function titleOfId(assetId: string, credentialName?: string): string {
  const [, vaultName, name] = VAULT_ASSET_ID.exec(assetId) ?? [];
  if (vaultName !== undefined) return `${vaultName}/${name}`;
  return credentialName === undefined ? assetId : isolated(credentialName);
}

/** Shown for a credential whose name is not known. */
export const UNNAMED_CREDENTIAL = "Credential of an application";

/**
 * Returns the name of a changed asset. The name of a credential consists of IDs, so its title at the time of the change is used.
 * Changes that an earlier version recorded have none.
 */
export const changedName = ({
  source,
  name,
  title,
}: Pick<Schemas["AssetChange"], "source" | "name" | "title">): string =>
  source === "keyVault" ? name : title === null ? UNNAMED_CREDENTIAL : isolated(title);

/** Returns where an asset is stored: its vault, or the tenant of a credential, which is in no vault. */
export const vaultOrTenant = ({ vaultName, credential }: Pick<Schemas["Asset"], "vaultName" | "credential">): string =>
  vaultName ?? credential?.tenantDomain ?? "Entra application";
