// Write operations of the simulated Key Vault: set, update, delete, recover and purge secrets.

import { randomBytes } from "node:crypto";
import { jsonObject, type ServiceResponse } from "../http.ts";
import { current, type SecretVersion } from "../vaults/items.ts";
import { badParameter, forbidden, missing } from "./errors.ts";
import type { VaultCall } from "./request-context.ts";

/**
 * Limits of Key Vault: https://learn.microsoft.com/azure/key-vault/secrets/about-secrets and
 * …/general/about-keys-secrets-certificates
 */
const MAX_VALUE_BYTES = 25_600;
const MAX_TAGS = 15;
const NAME = /^[0-9a-zA-Z-]{1,127}$/;

/** Sets a secret and creates a new version. */
export function setSecret({ options, vault, json, request, name }: VaultCall): ServiceResponse {
  if (!NAME.test(name)) return badParameter(`The request URI contains an invalid name: ${name}`);
  const body = jsonObject(request);
  if (body === undefined) return badParameter("The request body is not a JSON object.");
  if (typeof body.value !== "string") return badParameter("Property 'value' is required and must be a string.");
  if (Buffer.byteLength(body.value) > MAX_VALUE_BYTES) return badParameter("Secret value is too long.");
  if (vault.deletedSecrets.has(name.toLowerCase())) {
    return conflict(
      `Secret ${name} is currently in a deleted but recoverable state, and its name cannot be reused; in this state, the secret can only be recovered or purged.`,
      "ObjectIsDeletedButRecoverable",
    );
  }
  if (vault.collections.certificates.get(name) !== undefined) return managedSecretError(name);
  const changes = parseChanges(body);
  if (typeof changes === "string") return badParameter(changes);

  const existing = vault.collections.secrets.get(name);
  const now = options.resources.now();
  const id = randomBytes(16).toString("hex");
  const version: SecretVersion = { id, enabled: true, created: now, updated: now, value: body.value, ...changes };
  const secret = { name: existing?.name ?? name, versions: [...(existing?.versions ?? []), version] };
  options.resources.putItem(vault.name, "secrets", secret);
  return { status: 200, body: json.secretBundle(secret, version.id) };
}

/** Changes attributes, tags or content type of a version. Omitted members stay. The value can't be changed. */
export function updateSecret({ options, vault, json, request, name, version: id }: VaultCall): ServiceResponse {
  const secret = vault.collections.secrets.get(name);
  const version = id ? secret?.versions.find((one) => one.id === id) : secret && current(secret);
  if (secret === undefined || version === undefined) {
    if (vault.collections.certificates.get(name) !== undefined) return managedSecretError(name);
    return missing("SecretNotFound", `A secret with (name/id) ${name} was not found in this key vault.`);
  }
  const body = jsonObject(request);
  if (body === undefined) return badParameter("The request body is not a JSON object.");
  const changes = parseChanges(body);
  if (typeof changes === "string") return badParameter(changes);
  const updated = { ...version, updated: options.resources.now(), ...changes };
  const versions = secret.versions.map((one) => (one.id === version.id ? updated : one));
  options.resources.putItem(vault.name, "secrets", { ...secret, versions });
  // The response to an update contains everything except the value.
  return { status: 200, body: withoutValue(json.secretBundle({ ...secret, versions }, version.id)) };
}

/** Deletes a secret. It is recoverable until it is purged. */
export function deleteSecret({ options, vault, json, name }: VaultCall): ServiceResponse {
  const secret = vault.collections.secrets.get(name);
  if (secret === undefined) {
    if (vault.collections.certificates.get(name) !== undefined) return managedSecretError(name);
    return missing("SecretNotFound", `A secret with (name/id) ${name} was not found in this key vault.`);
  }
  if (vault.settings.softDelete === false) {
    options.resources.remove(vault.name, "secrets", name);
    return { status: 200, body: json.secretBundle(secret, current(secret).id) };
  }
  options.resources.deleteSecret(vault.name, name);
  return { status: 200, body: json.deletedSecretItem(vault.deletedSecrets.get(name.toLowerCase())!) };
}

/** Recovers a deleted secret with all its versions. The response does not contain its value. */
export function recoverSecret({ options, vault, json, name }: VaultCall): ServiceResponse {
  const deleted = vault.deletedSecrets.get(name.toLowerCase());
  if (deleted === undefined) return missing("SecretNotFound", `Deleted Secret not found: ${name}`);
  options.resources.recoverSecret(vault.name, name);
  return { status: 200, body: withoutValue(json.secretBundle(deleted.secret, current(deleted.secret).id)) };
}

/** Deletes a deleted secret permanently, unless the vault has purge protection, which is the default here. */
export function purgeSecret({ options, vault, name }: VaultCall): ServiceResponse {
  if (!vault.deletedSecrets.has(name.toLowerCase())) {
    return missing("SecretNotFound", `Deleted Secret not found: ${name}`);
  }
  if (vault.settings.purgeProtection !== false) {
    return forbidden(
      'Operation "purge" is not allowed because purge protection is enabled for this vault. Key Vault service will automatically purge it after the retention period has passed.\r\nVault: ' +
        `${vault.name};location=${vault.location}`,
      "ForbiddenByPolicy",
    );
  }
  options.resources.purgeSecret(vault.name, name);
  return { status: 204 };
}

function withoutValue(bundle: object): object {
  const { value: _, ...rest } = bundle as { value?: string };
  return rest;
}

interface Changes {
  enabled?: boolean;
  notBefore?: number;
  expires?: number;
  tags?: Record<string, string>;
  contentType?: string;
}

/** Parses the attributes, tags and content type in the body of a set or update request, or returns the error. */
function parseChanges(body: Record<string, unknown>): Changes | string {
  const { attributes = {}, tags, contentType } = body;
  if (!isRecord(attributes)) return "Property 'attributes' must be an object.";
  const { enabled, nbf, exp } = attributes;
  if (enabled !== undefined && typeof enabled !== "boolean") return "Property 'enabled' must be a boolean.";
  if (nbf !== undefined && !Number.isInteger(nbf)) return "Property 'nbf' must be a number of seconds.";
  if (exp !== undefined && !Number.isInteger(exp)) return "Property 'exp' must be a number of seconds.";
  if (tags !== undefined && !(isRecord(tags) && Object.values(tags).every((tag) => typeof tag === "string"))) {
    return "Property 'tags' must be an object of strings.";
  }
  if (tags !== undefined && Object.keys(tags).length > MAX_TAGS) return `There can be at most ${MAX_TAGS} tags.`;
  if (contentType !== undefined && typeof contentType !== "string") return "Property 'contentType' must be a string.";
  return {
    ...(typeof enabled === "boolean" && { enabled }),
    ...(typeof nbf === "number" && { notBefore: nbf }),
    ...(typeof exp === "number" && { expires: exp }),
    ...(tags !== undefined && { tags: tags as Record<string, string> }),
    ...(typeof contentType === "string" && { contentType }),
  };
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function conflict(message: string, inner: string): ServiceResponse {
  return { status: 409, body: { error: { code: "Conflict", message, innererror: { code: inner } } } };
}

/** Returns the error for a secret that belongs to a certificate. */
function managedSecretError(name: string): ServiceResponse {
  return forbidden(`Secret ${name} belongs to a certificate and can only be changed with it.`, "ManagedSecret");
}
