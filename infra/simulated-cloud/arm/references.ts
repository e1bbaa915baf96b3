import type { Resources } from "../resources/resources.ts";
import { principalsOf } from "./identities.ts";
import type { ArmResource, ArmStore } from "./store.ts";
import { readSecret } from "./vault-reading.ts";

/**
 * The states of a Key Vault reference, as `ResolveStatus` of the App Service API names them:
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

/** What App Service keeps of a reference from one fetch to the next. */
export interface Fetched {
  status: ReferenceStatus;
  /** With the status `Resolved`. */
  version?: string;
  value?: string;
}

interface Place {
  vault: string;
  secret: string;
  version?: string;
}

const REFERENCE = /^\s*@Microsoft\.KeyVault\(\s*(.*?)\s*\)\s*$/i;
const PAIRS = /^(?:\s*(?:vaultname|secretname|secretversion)\s*=\s*[\w-]*\s*(?:;|$))+$/i;

/** Whether a setting's text is meant as a reference, well written or not. */
export const isReference = (text: string): boolean => /^\s*@Microsoft\.KeyVault\b/i.test(text);

/**
 * What a reference names: `@Microsoft.KeyVault(SecretUri=…)` or `@Microsoft.KeyVault(VaultName=…;SecretName=…[;SecretVersion=…])`,
 * https://learn.microsoft.com/azure/app-service/app-service-key-vault-references. Undefined when it is not well written.
 */
export function placeOf(text: string): Place | undefined {
  const inner = REFERENCE.exec(text)?.[1];
  if (inner === undefined) return undefined;
  const uri = /^secreturi\s*=\s*(\S+)$/i.exec(inner)?.[1];
  if (uri !== undefined) return placeOfUri(uri);
  if (!PAIRS.test(inner)) return undefined;
  const member = (name: string) => new RegExp(`(?:^|;)\\s*${name}\\s*=\\s*([\\w-]+)`, "i").exec(inner)?.[1];
  const [vault, secret, version] = [member("vaultname"), member("secretname"), member("secretversion")];
  if (vault === undefined || secret === undefined) return undefined;
  return { vault, secret, ...(version !== undefined && { version }) };
}

/** What `https://VAULT.…/secrets/NAME[/VERSION][/]` names. */
export function placeOfUri(uri: string): Place | undefined {
  const match = /^https:\/\/([a-z0-9-]+)\.[^/]+\/secrets\/([0-9a-z-]+)(?:\/([0-9a-f]{32}))?\/?$/i.exec(uri);
  if (match === null) return undefined;
  const [, vault, secret, version] = match;
  return { vault: vault!, secret: secret!, ...(version !== undefined && { version }) };
}

/** Follows a reference for a site or slot now. */
export function follow(parts: { resources: Resources; store: ArmStore }, site: ArmResource, text: string): Fetched {
  const place = placeOf(text);
  if (place === undefined) return { status: "InvalidSyntax" };
  const chosen = chosenIdentity(site);
  const principals = principalsOf(site.identity, chosen);
  if (principals.length === 0) return { status: chosen === undefined ? "MSINotEnabled" : "UnauthorizedClient" };
  const reading = readSecret(parts, principals, place);
  return "problem" in reading ? { status: STATUS[reading.problem] } : { status: "Resolved", ...reading };
}

const STATUS = {
  noVault: "VaultNotFound",
  unreachable: "FetchTimedOut",
  notAllowed: "AccessToKeyVaultDenied",
  noSecret: "SecretNotFound",
  noVersion: "SecretVersionNotFound",
  disabled: "OtherReasons",
} as const;

/** The resource id of the user-assigned identity that follows a site's references; undefined for its own. */
export function chosenIdentity({ properties }: ArmResource): string | undefined {
  const chosen = properties.keyVaultReferenceIdentity;
  return typeof chosen === "string" && chosen.includes("/") ? chosen : undefined;
}
