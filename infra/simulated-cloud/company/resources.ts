/**
 * Declaration of a resource other than a vault, in Azure Resource Manager's format. Placeholders in texts of `properties`,
 * `settings`, `connectionStrings` and `keyValues` are replaced at the start, when addresses and versions are known:
 * - `{uri:VAULT}`: a vault's address without a trailing slash; `{id:VAULT}`: its resource ID
 * - `{version:VAULT/KIND/NAME}`: the current version of a secret, key or certificate
 * - `{value:VAULT/NAME}`: a secret's value
 * - `{identity:NAME}`: the resource ID of a user-assigned identity
 * - `{principal:NAME}`: the object ID of the principal with this name in a role assignment
 * - `{resource:TYPE/NAME}`: the ID of a resource in the same subscription and resource group
 */
export interface CompanyResource extends CompanyChild {
  /** A type in `arm/resource-types.ts`, such as `Microsoft.Web/sites`. */
  type: string;
  /** Resource group. Default `rg-apps`. */
  resourceGroup?: string;
}

/** Declaration of a child resource, and the members that all resources have. */
export interface CompanyChild {
  name: string;
  /** Default `westeurope`. */
  location?: string;
  kind?: string;
  tags?: Record<string, string>;
  sku?: Record<string, unknown>;
  /** Managed identities. Default: none. User-assigned identities are created when a resource names them. */
  identity?: { system?: boolean; user?: string[] };
  properties?: Record<string, unknown>;
  /** Vaults that the identities can read, by role assignment or access policy. Default: all vaults that the texts refer to. */
  mayRead?: string[];
  /** The resource is readable, but its configuration and child resources are denied, as by a deny assignment. */
  denied?: boolean;
  /** Child resources by their path segment: `slots` of a site, `namedValues` of an API Management service. */
  children?: Record<string, CompanyChild[]>;
  /** App settings of a site or slot. */
  settings?: Record<string, string>;
  connectionStrings?: Record<string, { value: string; type: string }>;
  /** Names of slot settings: settings and connection strings that stay with their slot. */
  slotSettings?: string[];
  /** Key-values of an App Configuration store, whose address is `https://NAME.azconfig.localhost:port`. */
  keyValues?: { key: string; value: string; label?: string; contentType?: string }[];
}

/** A role assignment of a principal that is no resource of the company. */
export interface CompanyRoleAssignment {
  /** Name of the principal. Its object ID follows from the name. */
  principal: string;
  principalType?: "User" | "Group" | "ServicePrincipal";
  role: RoleName;
  /** Name of a vault. Default: the whole subscription. */
  vault?: string;
  /** Name of a management group. It contains every subscription of the company. */
  managementGroup?: string;
}

export type RoleName = keyof typeof ROLES;

/** Role names and IDs: https://learn.microsoft.com/azure/role-based-access-control/built-in-roles */
export const ROLES = {
  Owner: "8e3af657-a8ff-443c-a75c-2fe8c4bcb635",
  Contributor: "b24988ac-6180-42a0-ab88-20f7382dd24c",
  Reader: "acdd72a7-3385-48ef-bd42-f606fba81ae7",
  "Key Vault Administrator": "00482a5a-887f-4fb3-b363-3b7fe8e74483",
  "Key Vault Reader": "21090545-7ca7-4776-b22c-e363652d74d2",
  "Key Vault Secrets User": "4633458b-17de-408a-b874-0445c86b69e6",
  "Key Vault Secrets Officer": "b86a8fe4-44ce-4948-aee5-eccb2c155cd7",
  "Key Vault Crypto Service Encryption User": "e147488a-f6f5-4113-8e2d-b22465e65bf6",
} as const;

/**
 * Names a secret whose values a system issues, such as a database. A value works only while its issuer accepts it. For a secret
 * without an issuer, every current or former value works.
 */
export interface CompanyIssuer {
  vault: string;
  secret: string;
}
