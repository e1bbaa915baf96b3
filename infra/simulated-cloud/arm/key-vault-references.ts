// Parses and resolves App Service's Key Vault references.

import type { VaultStore } from "../vaults/vault-store.ts";
import { principalsOf } from "./identities.ts";
import { readSecret } from "./read-secret.ts";
import type { ArmResource, ArmStore } from "./resource-store.ts";

/**
 * Statuses of a Key Vault reference, as in `ResolveStatus` of the App Service API:
 * https://learn.microsoft.com/rest/api/appservice/web-apps/get-app-settings-key-vault-references
 */
export const REFERENCE_STATUSES = [
  "Initialized",
  "Resolved",
  "InvalidSyntax",
  "MSINotEnabled",
  "VaultNotFound",
  "SecretNotFound",
  "SecretVersionNotFound",
  "AccessToKeyVaultDenied",
  "OtherReasons",
  "FetchTimedOut",
  "UnauthorizedClient",
] as const;
export type ReferenceStatus = (typeof REFERENCE_STATUSES)[number];

/** Result of the last fetch of a reference. */
export interface FetchedReference {
  status: ReferenceStatus;
  /** Version and value of the secret. Only with the status `Resolved`. */
  version?: string;
  value?: string;
}

interface SecretLocation {
  vault: string;
  secret: string;
  version?: string;
}

/** `@Microsoft.KeyVault(…)`. Group 1 is the text in the parentheses. */
const REFERENCE = /^\s*@Microsoft\.KeyVault\(\s*(.*?)\s*\)\s*$/i;
/** `VaultName=…;SecretName=…;SecretVersion=…` in any order. */
const PAIRS = /^(?:\s*(?:vaultname|secretname|secretversion)\s*=\s*[\w-]*\s*(?:;|$))+$/i;

/** Returns whether a setting's text is a Key Vault reference, valid or not. */
export const isReference = (text: string): boolean => /^\s*@Microsoft\.KeyVault\b/i.test(text);

/**
 * Parses a reference: `@Microsoft.KeyVault(SecretUri=…)` or `@Microsoft.KeyVault(VaultName=…;SecretName=…[;SecretVersion=…])`,
 * https://learn.microsoft.com/azure/app-service/app-service-key-vault-references. Returns undefined if the syntax is invalid.
 */
export function parseReference(text: string): SecretLocation | undefined {
  const content = REFERENCE.exec(text)?.[1];
  if (content === undefined) return undefined;
  const uri = /^secreturi\s*=\s*(\S+)$/i.exec(content)?.[1];
  if (uri !== undefined) return parseSecretUri(uri);
  if (!PAIRS.test(content)) return undefined;
  const member = (name: string) => new RegExp(`(?:^|;)\\s*${name}\\s*=\\s*([\\w-]+)`, "i").exec(content)?.[1];
  const [vault, secret, version] = [member("vaultname"), member("secretname"), member("secretversion")];
  if (vault === undefined || secret === undefined) return undefined;
  return { vault, secret, ...(version !== undefined && { version }) };
}

/** Parses `https://VAULT.…/secrets/NAME[/VERSION][/]`. */
export function parseSecretUri(uri: string): SecretLocation | undefined {
  const match = /^https:\/\/([a-z0-9-]+)\.[^/]+\/secrets\/([0-9a-z-]+)(?:\/([0-9a-f]{32}))?\/?$/i.exec(uri);
  if (match === null) return undefined;
  const [, vault, secret, version] = match;
  return { vault: vault!, secret: secret!, ...(version !== undefined && { version }) };
}

/** Resolves a reference for a site or slot. */
export function resolveReference(
  parts: { resources: VaultStore; store: ArmStore },
  site: ArmResource,
  text: string,
): FetchedReference {
  const location = parseReference(text);
  if (location === undefined) return { status: "InvalidSyntax" };
  const identityId = referenceIdentity(site);
  const principals = principalsOf(site.identity, identityId);
  if (principals.length === 0) return { status: identityId === undefined ? "MSINotEnabled" : "UnauthorizedClient" };
  const reading = readSecret(parts, principals, location);
  return "problem" in reading ? { status: STATUS[reading.problem] } : { status: "Resolved", ...reading };
}

/** Status of a reference by the problem of reading its secret. */
const STATUS = {
  noVault: "VaultNotFound",
  unreachable: "FetchTimedOut",
  notAllowed: "AccessToKeyVaultDenied",
  noSecret: "SecretNotFound",
  noVersion: "SecretVersionNotFound",
  disabled: "OtherReasons",
} as const;

/**
 * Returns the resource ID of the user-assigned identity that resolves a site's references. Undefined for the system-assigned
 * identity.
 */
export function referenceIdentity({ properties }: ArmResource): string | undefined {
  // The other possible value is the text `SystemAssigned`.
  const identityId = properties.keyVaultReferenceIdentity;
  return typeof identityId === "string" && identityId.includes("/") ? identityId : undefined;
}
