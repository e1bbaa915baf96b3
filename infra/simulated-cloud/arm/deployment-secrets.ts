import { randomBytes } from "node:crypto";
import { type IncomingRequest, jsonObject, type ServiceResponse } from "../http.ts";
import { current, type Item, type Version } from "../vaults/items.ts";
import type { Vault } from "../vaults/vault.ts";
import { type ArmOptions, failure, KEY_VAULT_VERSIONS, type Route } from "./request-context.ts";

/** Path of a vault secret: subscription, resource group, vault and secret. */
const SECRET_PATH =
  /^\/subscriptions\/([^/]+)\/resourcegroups\/([^/]+)\/providers\/microsoft\.keyvault\/vaults\/([^/]+)\/secrets\/([^/]+)$/i;

/**
 * Returns the route of a request that reads or writes a vault secret through Azure Resource Manager, as deployments do.
 * Undefined for other requests. https://learn.microsoft.com/rest/api/keyvault/secrets. Responses do not contain the value of a
 * secret.
 */
export function deploymentRoute(options: ArmOptions, { method, path, ...request }: IncomingRequest): Route | undefined {
  const [, subscription, group, name, secret] = SECRET_PATH.exec(path) ?? [];
  if (secret === undefined || (method !== "GET" && method !== "PUT")) return undefined;
  const answer = (): ServiceResponse => {
    const vault = options.resources.vault(name!);
    const [, , subscriptionId, , resourceGroup] = vault?.id.split("/") ?? [];
    if (
      vault === undefined ||
      subscriptionId !== subscription ||
      resourceGroup!.toLowerCase() !== group!.toLowerCase()
    ) {
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

/** Returns the secret without its value. */
function read(options: ArmOptions, vault: Vault, name: string): ServiceResponse {
  const stored = vault.collections.secrets.get(name);
  if (stored === undefined)
    return failure(404, "SecretNotFound", `The secret ${name} was not found in this key vault.`);
  return { status: 200, body: secretResource(options, vault, stored) };
}

/** Creates the secret or a new version of it, even if the value is the same. */
function write(
  options: ArmOptions,
  vault: Vault,
  name: string,
  body: Record<string, unknown> | undefined,
): ServiceResponse {
  const { value } = (body?.properties ?? {}) as { value?: unknown };
  if (!/^[0-9a-zA-Z-]{1,127}$/.test(name))
    return failure(400, "BadParameter", `The secret's name ${name} is not valid.`);
  if (typeof value !== "string") return failure(400, "BadParameter", "The property properties.value is required.");
  if (vault.deletedSecrets.has(name.toLowerCase())) {
    const message = `Secret ${name} is currently in a deleted but recoverable state, and its name cannot be reused; in this state, the secret can only be recovered or purged.`;
    return failure(409, "ObjectIsDeletedButRecoverable", message);
  }
  const existing = vault.collections.secrets.get(name);
  const createdAt = Math.floor(options.consumers.now() / 1000);
  const version = { id: randomBytes(16).toString("hex"), enabled: true, created: createdAt, updated: createdAt, value };
  const secret = { name: existing?.name ?? name, versions: [...(existing?.versions ?? []), version] };
  options.resources.putItem(vault.name, "secrets", secret);
  return { status: existing === undefined ? 201 : 200, body: secretResource(options, vault, secret) };
}

/** Returns a secret in the form of Azure Resource Manager, without its value. */
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

/** Returns the attributes of a version in the form of Azure Resource Manager. */
export const attributesOf = ({ enabled, created, updated, notBefore, expires }: Version): object => ({
  enabled,
  ...(notBefore !== undefined && { nbf: notBefore }),
  ...(expires !== undefined && { exp: expires }),
  created,
  updated,
});
