import { randomBytes } from "node:crypto";
import { type Answer, type Incoming, jsonObject } from "../http.ts";
import { current, type Item, type Version } from "../vaults/items.ts";
import type { Vault } from "../vaults/vault.ts";
import { type ArmOptions, failure, KEY_VAULT_VERSIONS, type Route } from "./request-context.ts";

const SECRET =
  /^\/subscriptions\/([^/]+)\/resourcegroups\/([^/]+)\/providers\/microsoft\.keyvault\/vaults\/([^/]+)\/secrets\/([^/]+)$/i;

/**
 * Reads and writes vault secrets through Azure Resource Manager, as deployments do:
 * https://learn.microsoft.com/rest/api/keyvault/secrets. Responses never contain a secret's value.
 */
export function deploymentRoute(options: ArmOptions, { method, path, ...request }: Incoming): Route | undefined {
  const [, subscription, group, name, secret] = SECRET.exec(path) ?? [];
  if (secret === undefined || (method !== "GET" && method !== "PUT")) return undefined;
  const answer = (): Answer => {
    const vault = options.resources.vault(name!);
    const [, , id, , owner] = vault?.id.split("/") ?? [];
    if (vault === undefined || id !== subscription || owner!.toLowerCase() !== group!.toLowerCase()) {
      return failure(404, "ResourceNotFound", `The Resource 'Microsoft.KeyVault/vaults/${name}' was not found.`);
    }
    return method === "GET"
      ? read(options, vault, secret)
      : write(options, vault, secret, jsonObject({ ...request, method, path }));
  };
  return {
    name: method === "GET" ? "arm.getSecret" : "arm.putSecret",
    versions: KEY_VAULT_VERSIONS,
    subscription: subscription!,
    vault: name!,
    answer,
  };
}

function read(options: ArmOptions, vault: Vault, name: string): Answer {
  const found = vault.collections.secrets.get(name);
  if (found === undefined) return failure(404, "SecretNotFound", `The secret ${name} was not found in this key vault.`);
  return { status: 200, body: secretResource(options, vault, found) };
}

function write(options: ArmOptions, vault: Vault, name: string, body: Record<string, unknown> | undefined): Answer {
  const { value } = (body?.properties ?? {}) as { value?: unknown };
  if (!/^[0-9a-zA-Z-]{1,127}$/.test(name))
    return failure(400, "BadParameter", `The secret's name ${name} is not valid.`);
  if (typeof value !== "string") return failure(400, "BadParameter", "The property properties.value is required.");
  if (vault.deletedSecrets.has(name.toLowerCase())) {
    const message = `Secret ${name} is currently in a deleted but recoverable state, and its name cannot be reused; in this state, the secret can only be recovered or purged.`;
    return failure(409, "ObjectIsDeletedButRecoverable", message);
  }
  const before = vault.collections.secrets.get(name);
  const now = Math.floor(Date.now() / 1000);
  const version = { id: randomBytes(16).toString("hex"), enabled: true, created: now, updated: now, value };
  const secret = { name: before?.name ?? name, versions: [...(before?.versions ?? []), version] };
  options.resources.putItem(vault.name, "secrets", secret);
  return { status: before === undefined ? 201 : 200, body: secretResource(options, vault, secret) };
}

export function secretResource(options: ArmOptions, vault: Vault, secret: Item<Version>): object {
  const version = current(secret);
  const secretUri = `${options.vaultUri(vault)}secrets/${secret.name}`;
  return {
    id: `${vault.id}/secrets/${secret.name}`,
    name: secret.name,
    type: "Microsoft.KeyVault/vaults/secrets",
    location: vault.location,
    properties: { attributes: attributesOf(version), secretUri, secretUriWithVersion: `${secretUri}/${version.id}` },
  };
}

export const attributesOf = ({ enabled, created, updated, notBefore, expires }: Version): object => ({
  enabled,
  ...(notBefore !== undefined && { nbf: notBefore }),
  ...(expires !== undefined && { exp: expires }),
  created,
  updated,
});
