import type { CompanyApplication } from "./applications.ts";
import type { CompanyDevops } from "./devops.ts";
import type { CompanyIssuer, CompanyResource, CompanyRoleAssignment } from "./resources.ts";
import type { CompanyTenant } from "./tenants.ts";

/**
 * A company as a person writes it down: what the cloud holds when it starts. Everything but names has a default, so a
 * test says only what it is about. Days are counted from the moment the cloud first started on its data folder, may be
 * fractions, and are negative for the past where that makes sense (`expiresInDays: -3` expired three days ago).
 */
export interface Company {
  subscriptions: CompanySubscription[];
  /** Of the tenant that the service is in. */
  applications?: CompanyApplication[];
  /** Left out, it is `acme` and has no projects. */
  devops?: CompanyDevops;
  issuers?: CompanyIssuer[];
  /** Others that it has beside that one. */
  tenants?: CompanyTenant[];
}

export interface CompanySubscription {
  name: string;
  /** A GUID; by default one that follows from the name. */
  id?: string;
  state?: "Enabled" | "Disabled" | "Warned" | "PastDue";
  /** The identity sees the subscription but may not list what is in it. */
  denied?: boolean;
  tags?: Record<string, string>;
  vaults?: CompanyVault[];
  /** What it has beside vaults. */
  resources?: CompanyResource[];
  roleAssignments?: CompanyRoleAssignment[];
  /** This many sites more, computed when asked for. */
  generate?: { sites?: number };
}

export interface CompanyVault {
  /** 3 to 24 letters, digits and dashes; unique in the whole company, as in all of Azure. */
  name: string;
  resourceGroup?: string;
  /** Default `westeurope`. */
  location?: string;
  tags?: Record<string, string>;
  createdDaysAgo?: number;
  /** What the vault itself answers the identity, whatever its settings say. Default `open`. */
  reach?: "open" | "denied" | "firewalled" | "privateOnly";
  /** Kinds the identity may not list although the vault is open to it. */
  deniedKinds?: AssetKind[];
  /** Where the resource manager says the vault is, instead of its true address. */
  vaultUri?: string;

  sku?: "standard" | "premium";
  /** Default true. */
  softDelete?: boolean;
  /** 7 to 90, default 90. */
  softDeleteRetentionDays?: number;
  /** Default true. */
  purgeProtection?: boolean;
  /** Role based access (default) or, when false, access policies. */
  rbac?: boolean;
  publicNetworkAccess?: "Enabled" | "Disabled";
  networkDefaultAction?: "Allow" | "Deny";
  ipRules?: string[];
  /** How many approved private endpoint connections it has. Default 0. */
  privateEndpoints?: number;
  /** What its diagnostic setting collects: the audit category (default), all log groups, metrics only, logs switched off, or no setting. */
  diagnostics?: "audit" | "allLogs" | "metricsOnly" | "disabled" | "none";

  secrets?: CompanySecret[];
  keys?: CompanyKey[];
  certificates?: CompanyCertificate[];
  /** This many more of each, computed when asked for rather than kept, for measuring at size. */
  generate?: Partial<Record<AssetKind, number>>;
}

export type AssetKind = "secrets" | "keys" | "certificates";

interface CompanyItem {
  /** 1 to 127 letters, digits and dashes. */
  name: string;
  /** Default true. */
  enabled?: boolean;
  /** Default 30. */
  createdDaysAgo?: number;
  /** Default: when it was created. */
  updatedDaysAgo?: number;
  /** Not before; left out, there is none (a certificate's is when it was created). */
  activeInDays?: number;
  /** Left out, there is no expiry (a certificate's follows from its validity). */
  expiresInDays?: number;
  tags?: Record<string, string>;
}

export interface CompanySecret extends CompanyItem {
  contentType?: string;
  /** Default: a value that follows from the name and says it is one. */
  value?: string;
}

export interface KeyShape {
  /** Default `RSA`. `oct-HSM`, a symmetric key, is for keys alone; the API names it, but only a managed HSM makes one. */
  type?: "RSA" | "RSA-HSM" | "EC" | "EC-HSM" | "oct-HSM";
  /** Bits of an RSA key: 2048 (default), 3072, 4096, or the 1024 that Key Vault makes no more. */
  size?: number;
  /** Curve of an EC key, default `P-256`. */
  curve?: "P-256" | "P-256K" | "P-384" | "P-521";
}

export interface CompanyKey extends CompanyItem, KeyShape {
  /** Left out, the key has the policy Key Vault gives every key: notify 30 days before expiry. */
  rotation?: { rotateAfterDays?: number; rotateBeforeExpiryDays?: number; expiryDays?: number };
}

export interface CompanyCertificate extends CompanyItem, KeyShape {
  /** Default `CN=<name>.acme.example`. */
  subject?: string;
  dnsNames?: string[];
  /** `Self` (default), `Unknown`, or an integrated authority such as `DigiCert`. */
  issuer?: string;
  /** Default 12. */
  validityMonths?: number;
  /** Default `AutoRenew` at 80 percent of its life. */
  renewal?: { action: "AutoRenew" | "EmailContacts"; percentage?: number; daysBeforeExpiry?: number };
  exportable?: boolean;
}

/** A company of a size rather than of names. */
export interface SizedCompany {
  vaults: number;
  /** In each vault. */
  secrets?: number;
  keys?: number;
  certificates?: number;
  /** Secrets of one more vault, `kv-big`. */
  bigVault?: number;
  /** Over how many subscriptions the vaults are spread. Default 1. */
  subscriptions?: number;
  /** Sites, over all subscriptions. */
  sites?: number;
  applications?: number;
  /** Secrets and certificates of all applications together. Default one each. */
  credentials?: number;
}
