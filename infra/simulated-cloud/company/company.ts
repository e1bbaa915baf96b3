import type { CompanyApplication } from "./applications.ts";
import type { CompanyDevops } from "./devops.ts";
import type { CompanyIssuer, CompanyResource, CompanyRoleAssignment } from "./resources.ts";
import type { CompanyTenant } from "./tenants.ts";

/**
 * Declaration of a company: the initial content of the simulated cloud. All members except names have a default. Days count
 * from the start of the cloud, or with a data folder from the first start with this company. They can be fractions. Negative
 * days are in the past: `expiresInDays: -3` expired three days ago.
 */
export interface Company {
  subscriptions: CompanySubscription[];
  /** Applications of the service's own tenant. */
  applications?: CompanyApplication[];
  /** The Azure DevOps organization. Default: `acme` without projects. */
  devops?: CompanyDevops;
  /** Systems that check the values of secrets. */
  issuers?: CompanyIssuer[];
  /** Other tenants of the company. */
  tenants?: CompanyTenant[];
}

export interface CompanySubscription {
  name: string;
  /** A GUID. Default: derived from the name. */
  id?: string;
  state?: "Enabled" | "Disabled" | "Warned" | "PastDue";
  /** Tenant that it belongs to, if the caller sees it through Azure Lighthouse. Default: the tenant of the service. */
  tenantId?: string;
  /** Whether the service's identity can see the subscription but can't list its resources. */
  denied?: boolean;
  tags?: Record<string, string>;
  vaults?: CompanyVault[];
  /** Resources other than vaults. */
  resources?: CompanyResource[];
  roleAssignments?: CompanyRoleAssignment[];
  dnsZones?: CompanyDnsZone[];
  /** Number of additional web apps that are generated on demand, for load tests. */
  generate?: { sites?: number };
}

/** A public DNS zone of Azure DNS. */
export interface CompanyDnsZone {
  /** Such as `acme.example`. */
  name: string;
  resourceGroup: string;
  /** Record sets besides the zone's name servers. Names are relative to the zone. */
  records?: { name: string; type: "A" | "CNAME" | "TXT"; values: string[] }[];
}

export interface CompanyVault {
  /** 3 to 24 letters, digits and hyphens. Unique in the whole company, as in all of Azure. */
  name: string;
  resourceGroup?: string;
  /** Default `westeurope`. */
  location?: string;
  tags?: Record<string, string>;
  createdDaysAgo?: number;
  /** How the vault responds to the service's identity, independent of its settings. Default `open`. */
  reach?: "open" | "denied" | "firewalled" | "privateOnly";
  /** Kinds that the service's identity can't list although the vault is open. */
  deniedKinds?: AssetKind[];
  /** Vault URI that Azure Resource Manager reports instead of the true one. */
  vaultUri?: string;

  sku?: "standard" | "premium";
  /** Default true. */
  softDelete?: boolean;
  /** 7 to 90, default 90. */
  softDeleteRetentionDays?: number;
  /** Default true. */
  purgeProtection?: boolean;
  /** Azure role-based access control (default) or, when false, access policies. */
  rbac?: boolean;
  publicNetworkAccess?: "Enabled" | "Disabled";
  networkDefaultAction?: "Allow" | "Deny";
  ipRules?: string[];
  /** IDs of subnets that the firewall allows. */
  virtualNetworkRules?: string[];
  /** Tenant that the vault trusts. Default: the tenant of the subscription. */
  tenantId?: string;
  /** Number of approved private endpoint connections. Default 0. */
  privateEndpoints?: number;
  /**
   * Content of its diagnostic setting: the audit category (default), all log groups, metrics only, disabled logs, or no
   * setting.
   */
  diagnostics?: "audit" | "allLogs" | "metricsOnly" | "disabled" | "none";

  secrets?: CompanySecret[];
  keys?: CompanyKey[];
  certificates?: CompanyCertificate[];
  /** Number of additional items of each kind that are generated on demand, for load tests. */
  generate?: Partial<Record<AssetKind, number>>;
}

/** Kinds of items in a vault. */
export type AssetKind = "secrets" | "keys" | "certificates";

interface CompanyItem {
  /** 1 to 127 letters, digits and hyphens. */
  name: string;
  /** Default true. */
  enabled?: boolean;
  /** Days since creation. Default 30. */
  createdDaysAgo?: number;
  /** Days since the last change. Default: when it was created. */
  updatedDaysAgo?: number;
  /** Days until the activation date. Default: none; for a certificate, its creation. */
  activeInDays?: number;
  /** Days until expiry. Default: none; for a certificate, its validity decides. */
  expiresInDays?: number;
  tags?: Record<string, string>;
}

export interface CompanySecret extends CompanyItem {
  contentType?: string;
  /** Default: a value derived from the name that is recognizable as a sample. */
  value?: string;
}

export interface KeySpec {
  /**
   * Default `RSA`. `oct-HSM`, a symmetric key, exists for keys only. The API defines it, but only a managed HSM creates one.
   */
  type?: "RSA" | "RSA-HSM" | "EC" | "EC-HSM" | "oct-HSM";
  /** Size of an RSA key in bits: 2048 (default), 3072, 4096, or 1024, which Key Vault no longer creates. */
  size?: number;
  /** Curve of an EC key. Default `P-256`. */
  curve?: "P-256" | "P-256K" | "P-384" | "P-521";
}

export interface CompanyKey extends CompanyItem, KeySpec {
  /** Rotation policy. Default: Key Vault's default policy, which notifies 30 days before expiry. */
  rotation?: { rotateAfterDays?: number; rotateBeforeExpiryDays?: number; expiryDays?: number };
}

export interface CompanyCertificate extends CompanyItem, KeySpec {
  /** Default `CN=<name>.acme.example`. */
  subject?: string;
  dnsNames?: string[];
  /** `Self` (default), `Unknown`, or an integrated certificate authority such as `DigiCert`. */
  issuer?: string;
  /** Validity in months that the policy orders, and that is issued unless `validityDays` is set. Default 12. */
  validityMonths?: number;
  /** Validity that the authority issued, in days. */
  validityDays?: number;
  /**
   * The authority that signed the certificate, if the policy's issuer is `Unknown`: Let's Encrypt, or the company's own
   * (default).
   */
  authority?: "LetsEncrypt" | "Acme";
  /** Earlier versions with the same validity: their number, and the days between two of them. Default: none. */
  renewals?: { count: number; everyDays: number };
  /** DER of a certificate that another program issued, in base64. Its dates apply. */
  der?: string;
  /** Action before expiry. Default `AutoRenew` at 80 percent of the lifetime. */
  renewal?: { action: "AutoRenew" | "EmailContacts"; percentage?: number; daysBeforeExpiry?: number };
  exportable?: boolean;
}

/** A generated company, declared by size instead of by names. */
export interface SizedCompany {
  vaults: number;
  /** Number of items in each vault. */
  secrets?: number;
  keys?: number;
  certificates?: number;
  /** Number of secrets of one additional vault, `kv-big`. */
  bigVault?: number;
  /** Number of subscriptions that the vaults are spread over. Default 1. */
  subscriptions?: number;
  /** Number of sites over all subscriptions. */
  sites?: number;
  applications?: number;
  /** Number of secrets and certificates of all applications together. Default one each. */
  credentials?: number;
}
