/** Commands of the Azure CLI for one asset, to copy. The service itself never runs them. */
import type { Schemas } from "../api/client.ts";

type Asset = Schemas["AssetDetails"];

/**
 * Matches texts that stay one argument in every shell, once quoted: in POSIX shells, in PowerShell, and in `cmd`, which runs the
 * Azure CLI on Windows. A text that starts with a dash would be taken for an option, and one that starts with `@` for a file.
 */
const SAFE_TEXT = /^[\p{L}\p{N}_][\p{L}\p{M}\p{N}_ .,:/@+-]*$/u;
export const isSafeText = (text: string): boolean => SAFE_TEXT.test(text);

/**
 * Returns whether a command can contain the tags of an asset. Anyone who can change an asset can set its tags, so a command
 * must not contain tags that a shell or the Azure CLI would interpret.
 */
export const hasSafeTags = ({ tags }: Pick<Asset, "tags">): boolean =>
  // A value follows its name, so its first character has no meaning of its own.
  Object.entries(tags).every(([tag, value]) => isSafeText(tag) && isSafeText(`_${value}`));

/** Quotes a text for a POSIX shell. */
const quoted = (text: string): string => (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`);

/** Returns an option with its value. A value that starts with a dash would be taken for another option. */
const option = (name: string, value: string): string => `--${name}${value.startsWith("-") ? "=" : " "}${quoted(value)}`;

/** Returns the command that signs in to a B2C tenant first. Empty for other assets. */
const signIn = ({ source, credential }: Asset): string =>
  source === "b2c" && credential ? `az login --tenant ${quoted(credential.tenantId)} --allow-no-subscriptions\n` : "";

/** Returns the command that renews an asset. Undefined if the Azure CLI has none, such as for an identity provider. */
export function renewCommand(asset: Asset): string | undefined {
  const { type, name, vaultName, credential } = asset;
  if (vaultName !== null) {
    const target = `${option("vault-name", vaultName)} ${option("name", name)}`;
    if (type === "key") return `az keyvault key rotate ${target}`;
    if (type === "secret") return `az keyvault secret set ${target} --file '<file with the new value>'`;
    return [
      // The comment contains no quotation mark. An interactive zsh runs comments as commands by default, and would wait for the
      // closing quotation mark.
      "# Creates a version with the policy of the certificate:",
      `az keyvault certificate show ${target} --query policy > policy.json`,
      `az keyvault certificate create ${target} --policy @policy.json`,
    ].join("\n");
  }
  if (credential?.appId === undefined || (credential.kind ?? "application") !== "application") return undefined;
  const command = `az ad ${credential.of === "servicePrincipal" ? "sp" : "app"} credential reset --id ${quoted(credential.appId)} --append`;
  return `${signIn(asset)}# Adds a new one. The old one stays valid until you delete it.\n${command}${type === "certificate" ? " --cert '@<certificate.pem>'" : ""}`;
}

/** Returns the command that deletes a client secret of an application. */
export const deleteSecretCommand = (appId: string, keyId: string): string =>
  `az ad app credential delete --id ${quoted(appId)} --key-id ${quoted(keyId)}`;

/**
 * Returns the command that assigns an owner: the owner tag of a vault asset, or an owner of the application. Undefined if the
 * asset can't have an owner, or if its tags are not safe (see `hasSafeTags`).
 *
 * @param ownerTag - Name of the tag that names the owner.
 * @param owner - The new owner as the user typed it. Empty: a placeholder.
 */
export function ownerCommand(asset: Asset, ownerTag: string, owner: string): string | undefined {
  const { type, name, vaultName, credential, tags } = asset;
  if (vaultName !== null) {
    if (!hasSafeTags(asset)) return undefined;
    // The command replaces all tags, so it contains the existing ones.
    const all = Object.entries({ ...tags, [ownerTag]: owner || "<owner>" }).map(([tag, value]) =>
      quoted(`${tag}=${value}`),
    );
    return `az keyvault ${type} set-attributes ${option("vault-name", vaultName)} ${option("name", name)} --tags ${all.join(" ")}`;
  }
  if (credential?.appId === undefined || credential.of === "servicePrincipal") return undefined;
  if ((credential.kind ?? "application") !== "application") return undefined;
  const user = option("id", owner || "<sign-in name>");
  return `${signIn(asset)}az ad app owner add --id ${quoted(credential.appId)} --owner-object-id "$(az ad user show ${user} --query id --output tsv)"`;
}
