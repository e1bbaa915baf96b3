/**
 * A resource of a company beside its vaults, in the shape in which the resource manager answers it. What stands in braces in any
 * text of `properties`, `settings`, `connectionStrings` and `keyValues` is filled in when the cloud starts, since addresses and versions are
 * not known before: `{uri:VAULT}` is a vault's address without a slash at the end, `{id:VAULT}` its resource id,
 * `{version:VAULT/KIND/NAME}` the version that a secret, key or certificate then has, `{value:VAULT/NAME}` a secret's value,
 * `{identity:NAME}` the resource id of a user-assigned identity, `{principal:NAME}` the
 * object id of whoever has a role under that name, `{resource:TYPE/NAME}` the id of a resource of the same subscription and group.
 */
export interface CompanyResource extends CompanyChild {
  /** One of `arm/types.ts`, such as `Microsoft.Web/sites`. */
  type: string;
  /** Default `rg-apps`. */
  resourceGroup?: string;
}

export interface CompanyChild {
  name: string;
  /** Default `westeurope`. */
  location?: string;
  kind?: string;
  tags?: Record<string, string>;
  sku?: Record<string, unknown>;
  /** Left out, it has none. User-assigned identities are named, and made with their first mention. */
  identity?: { system?: boolean; user?: string[] };
  properties?: Record<string, unknown>;
  /**
   * Which vaults its identities may read: they get a role there, or an access policy. Left out: all that its texts refer to.
   */
  mayRead?: string[];
  /** It is seen itself, and everything below it is refused, as by a deny assignment. */
  denied?: boolean;
  /** What is below it, by its name in the address: `slots` of a site, `namedValues` of an API Management service. */
  children?: Record<string, CompanyChild[]>;
  /** App settings of a site or slot. */
  settings?: Record<string, string>;
  connectionStrings?: Record<string, { value: string; type: string }>;
  /** Settings and connection strings of a site that stay with their slot. */
  slotSettings?: string[];
  /** Of an App Configuration store, whose address is `https://NAME.azconfig.localhost:port`. */
  keyValues?: { key: string; value: string; label?: string; contentType?: string }[];
}

/** A role that somebody has who is none of the company's resources. */
export interface CompanyRoleAssignment {
  /** A name to tell them apart by; its object id follows from it. */
  principal: string;
  principalType?: "User" | "Group" | "ServicePrincipal";
  role: RoleName;
  /** A vault's name; left out, the whole subscription. */
  vault?: string;
  /** The name of a management group, which here holds every subscription. */
  managementGroup?: string;
}

export type RoleName = keyof typeof ROLES;

/** https://learn.microsoft.com/azure/role-based-access-control/built-in-roles */
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

/** Who else must take a secret's value for it to work. Without one every value works that the vault's secret ever had. */
export interface CompanyIssuer {
  vault: string;
  secret: string;
}
