import * as z from "zod";
import { ASSET_TYPES, type AssetType } from "../../inventory/asset.ts";
import { CloudFailure } from "../../platform/azure/failure.ts";
import type { RoleAssignment, RoleAssignments, RoleDefinition } from "../../platform/azure/role-assignments.ts";
import { type NamedAsset, ofVaultId } from "./key-vault-names.ts";

/** Assets that a principal may read, with the role or access policy that grants it. */
export interface EntitledAsset {
  /** A whole vault, all assets of one type in it, or one asset. */
  asset: NamedAsset;
  /** Name of the role, or `access policy`. */
  role: string;
}

/** Principals that may read values of a subscription's vaults. */
export interface Entitlements {
  /** Principals by object ID in lower case. */
  principals: Map<string, Principal>;
  /** Why some of the assignments could not be read. */
  failures: CloudFailure[];
}

/** A user, a group or a service principal, with the assets that it may read. */
export interface Principal {
  /** `User`, `Group`, `ServicePrincipal` …. Undefined if only an access policy names the principal. */
  type?: string;
  assets: EntitledAsset[];
}

/** The properties of a vault that define access to it. */
export interface VaultAccess {
  id: string;
  properties: unknown;
}

/**
 * Reads who may read the assets of a subscription's vaults: from role assignments at, above and below the subscription for
 * vaults with RBAC, and from access policies for the others. Groups are not resolved into members. Eligible roles (PIM) are not
 * included.
 */
export async function readEntitlements(
  subscriptionId: string,
  vaults: readonly VaultAccess[],
  { roles, definitions }: { roles: RoleAssignments; definitions: (id: string) => Promise<RoleDefinition> },
  signal?: AbortSignal,
): Promise<Entitlements> {
  const found: Entitlements = { principals: new Map(), failures: [] };
  const add = (principalId: string, type: string | undefined, asset: EntitledAsset) => {
    const id = principalId.toLowerCase();
    const principal = found.principals.get(id) ?? { assets: [] };
    if (type !== undefined) principal.type = type;
    principal.assets.push(asset);
    found.principals.set(id, principal);
  };

  // Vaults with RBAC. The access policies of the other vaults are evaluated at once.
  const rbacVaults: { id: string; vaultName: string }[] = [];
  for (const { id, properties } of vaults) {
    const vaultName = ofVaultId(id)?.vaultName;
    const access = accessOf.safeParse(properties).data;
    if (vaultName === undefined || access === undefined) continue;
    if (access.enableRbacAuthorization) rbacVaults.push({ id: id.toLowerCase(), vaultName });
    else addPolicies(vaultName, access.accessPolicies ?? [], add);
  }
  try {
    const { entries, unreadable } = await roles.list(subscriptionId, signal);
    found.failures.push(...unreadable);
    for (const assignment of entries) await addAssignment(assignment, rbacVaults, definitions, add);
  } catch (error) {
    if (!(error instanceof CloudFailure)) throw error;
    found.failures.push(error);
  }
  return found;
}

type Add = (principalId: string, type: string | undefined, asset: EntitledAsset) => void;

const permissions = z.array(z.string()).nullish();
const accessOf = z.object({
  enableRbacAuthorization: z.boolean().nullish(),
  accessPolicies: z
    .array(
      z.object({
        objectId: z.string().regex(/^[0-9a-f-]{36}$/i),
        permissions: z.object({ secrets: permissions, keys: permissions }).nullish(),
      }),
    )
    .nullish(),
});

/** Permissions of access policies that return a secret's value, and those that use a key. */
const GET = /^(get|all)$/i;
const USE_KEY = /^(decrypt|encrypt|sign|unwrapKey|wrapKey|all)$/i;

function addPolicies(
  vaultName: string,
  policies: NonNullable<z.infer<typeof accessOf>["accessPolicies"]>,
  add: Add,
): void {
  for (const { objectId, permissions } of policies) {
    const types = readableTypes({
      secrets: (permissions?.secrets ?? []).some((permission) => GET.test(permission)),
      keys: (permissions?.keys ?? []).some((permission) => USE_KEY.test(permission)),
    });
    for (const asset of assetsOf(vaultName, types)) add(objectId, undefined, { asset, role: "access policy" });
  }
}

async function addAssignment(
  { principalId, principalType, roleDefinitionId, scope }: RoleAssignment,
  vaults: readonly { id: string; vaultName: string }[],
  definitions: (id: string) => Promise<RoleDefinition>,
  add: Add,
): Promise<void> {
  const scopeId = scope.toLowerCase().replace(/\/$/, "");
  // A scope above the subscription is `/` or a management group.
  const isAboveSubscription = !scopeId.startsWith("/subscriptions/");
  const covered = vaults.filter(({ id }) => isAboveSubscription || id === scopeId || id.startsWith(`${scopeId}/`));
  // A scope below a vault is one of its secrets, keys or certificates.
  const containingVault = vaults.find(({ id }) => scopeId.startsWith(`${id}/`));
  if (covered.length === 0 && !containingVault) return;
  // The permissions of a role are evaluated once, not for each vault, because an assignment may cover thousands.
  const { name: role, permissions } = await definitions(roleDefinitionId);
  const types = readableTypes({
    secrets: allows(permissions, "microsoft.keyvault/vaults/secrets/getsecret/action"),
    keys: ["decrypt", "encrypt", "sign", "unwrap", "wrap"].some((use) =>
      allows(permissions, `microsoft.keyvault/vaults/keys/${use}/action`),
    ),
  });
  const assets = containingVault
    ? assetAtScope(containingVault.vaultName, scopeId.slice(containingVault.id.length + 1).split("/"), types)
    : covered.flatMap(({ vaultName }) => assetsOf(vaultName, types));
  for (const asset of assets) add(principalId, principalType, { asset, role });
}

/** Returns the types that can be read. Each certificate has a secret with its private key, so secrets include certificates. */
const readableTypes = ({ secrets, keys }: { secrets: boolean; keys: boolean }): AssetType[] =>
  ASSET_TYPES.filter((type) => (type === "key" ? keys : secrets));

/**
 * Returns the readable parts of a vault: the vault without a type if all types are readable, otherwise one item for each type.
 */
const assetsOf = (vaultName: string, types: readonly AssetType[]): NamedAsset[] =>
  types.length === ASSET_TYPES.length ? [{ vaultName }] : types.map((type) => ({ vaultName, type }));

/** Returns the asset at whose scope a role is assigned. The segments are those below the vault, such as `["secrets", "db"]`. */
function assetAtScope(
  vaultName: string,
  [collection, name]: readonly string[],
  types: readonly AssetType[],
): NamedAsset[] {
  return name ? types.filter((type) => `${type}s` === collection).map((type) => ({ vaultName, type, name })) : [];
}

function allows(permissions: RoleDefinition["permissions"], action: string): boolean {
  return permissions.some(({ dataActions, notDataActions }) => permits(dataActions, notDataActions, action));
}

/**
 * Returns whether a role permits an action.
 *
 * @param patterns - Actions or data actions of the role, such as `Microsoft.KeyVault/vaults/*`.
 * @param exceptions - Its `notActions` or `notDataActions`.
 * @param action - In lower case.
 */
export const permits = (patterns: readonly string[], exceptions: readonly string[], action: string): boolean =>
  patterns.some((pattern) => matches(pattern, action)) && !exceptions.some((pattern) => matches(pattern, action));

/**
 * Returns whether an action matches a pattern in which `*` stands for any text. Compares part by part, because a regular
 * expression with many `*` could take exponential time.
 */
function matches(pattern: string, action: string): boolean {
  const [first = "", ...parts] = pattern.toLowerCase().split("*");
  const last = parts.pop();
  if (last === undefined) return first === action;
  if (!action.startsWith(first)) return false;
  let position = first.length;
  for (const part of parts) {
    const index = action.indexOf(part, position);
    if (index < 0) return false;
    position = index + part.length;
  }
  return action.length - last.length >= position && action.endsWith(last);
}
