/*
 * The tools that read one endpoint. Each is named for a question. Its arguments are parameters of the endpoint, with their schemas.
 */

/** A tool that reads one endpoint. */
export interface EndpointTool {
  name: string;
  title: string;
  /** When to use the tool, for the assistant. */
  description: string;
  /** Name of the endpoint. */
  endpoint: string;
  /** The parameters of the endpoint that the tool has. */
  parameters: readonly string[];
  /** Parameters that the endpoint does not require, but the tool. */
  required?: readonly string[];
  /** Parameters of the query that the tool sets. */
  fixed?: Readonly<Record<string, string>>;
}

const PAGE = ["limit", "cursor"];

export const ENDPOINT_TOOLS: readonly EndpointTool[] = [
  {
    name: "what_expires",
    title: "Expiring assets",
    description:
      "Lists secrets, keys, certificates and credentials that expire before a date, the earliest first. Already expired ones are included unless expiresAfter is given.",
    endpoint: "listAssets",
    parameters: ["expiresBefore", "expiresAfter", "type", "vault", "subscription", "owner", "hasOwner", ...PAGE],
    required: ["expiresBefore"],
    fixed: { sort: "expiresOn" },
  },
  {
    name: "find_assets",
    title: "Find assets",
    description:
      "Lists secrets, keys, certificates and credentials by type, status, vault, owner, tag or part of the name.",
    endpoint: "listAssets",
    parameters: ["search", "type", "status", "vault", "subscription", "source", "enabled", "tag", "owner", ...PAGE],
  },
  {
    name: "asset_details",
    title: "Asset details",
    description:
      "Returns one secret, key, certificate or credential with its dates, tags, owner and compliance. Never a value.",
    endpoint: "getAsset",
    parameters: ["asset_id"],
  },
  {
    name: "inventory_summary",
    title: "Inventory summary",
    description: "Returns how many assets there are, by type and status, and what expires soon.",
    endpoint: "getAssetSummary",
    parameters: ["type", "subscription", "source"],
  },
  {
    name: "what_changed",
    title: "Recent changes",
    description: "Lists assets that were added, changed or removed in a period, the newest first.",
    endpoint: "listAssetChanges",
    parameters: ["since", "until", "change", "type", "vault", "subscription", ...PAGE],
  },
  {
    name: "what_is_unread",
    title: "Coverage gaps",
    description:
      "Returns which subscriptions, vaults and applications the service could not read, why, and how to fix it. Use it before you say that something does not exist.",
    endpoint: "getCoverage",
    parameters: [],
  },
  {
    name: "list_vaults",
    title: "List vaults",
    description: "Lists key vaults with the number of their assets and the outcome of their last scan.",
    endpoint: "listVaults",
    parameters: ["subscription", "failing", "search", ...PAGE],
  },
  {
    name: "search",
    title: "Search",
    description: "Finds assets, vaults, applications, violations, alert rules and users by a part of their name.",
    endpoint: "search",
    parameters: ["q"],
  },
  {
    name: "why_is_this_critical",
    title: "Why is this critical?",
    description:
      "Returns the blast radius of a secret: the consumers that fail if it expires or is replaced, and the unknown ones (PRO).",
    endpoint: "getBlastRadius",
    parameters: ["secret_id"],
  },
  {
    name: "who_uses_this",
    title: "Consumers of an asset",
    description: "Lists the resources that use assets: apps, pipelines, gateways. Filter by asset or vault (PRO).",
    endpoint: "listDependencies",
    parameters: ["assetId", "vault", "kind", "environment", "resolved", ...PAGE],
  },
  {
    name: "compliance_violations",
    title: "Compliance violations",
    description: "Lists failed compliance checks with their severity and remedy.",
    endpoint: "listViolations",
    parameters: ["severity", "framework", "check", "vault", "subscription", "resource", "owner", "exempted", ...PAGE],
  },
  {
    name: "compliance_score",
    title: "Compliance score",
    description: "Returns the compliance score, with its history if requested.",
    endpoint: "getComplianceScore",
    parameters: ["history"],
  },
  {
    name: "owners",
    title: "Owners",
    description: "Lists the owners of assets with the number of their violations.",
    endpoint: "listComplianceOwners",
    parameters: [],
  },
  {
    name: "certificate_renewals_due",
    title: "Certificate renewals due",
    description: "Lists certificates with who renews them, when the renewal is due, and which ones have no renewer.",
    endpoint: "listCertificateReadiness",
    parameters: ["vault", "subscription", "failing", ...PAGE],
  },
  {
    name: "post_quantum",
    title: "Post-quantum readiness",
    description: "Lists keys and certificates with the dates after which standards disallow their algorithm.",
    endpoint: "listPostQuantum",
    parameters: ["quantum", "type", "vault", "subscription", ...PAGE],
  },
  {
    name: "rotations",
    title: "Rotations",
    description: "Lists rotations of secrets and keys with their status, the newest first (PRO).",
    endpoint: "listRotations",
    parameters: ["status", "appId", "assetId", "resourceId", "credentialId", "start_date", "end_date", ...PAGE],
  },
  {
    name: "rotatable_credentials",
    title: "Credentials that can be rotated",
    description:
      "Lists keys of resources and logins of databases that the service can rotate, with when they are due (PRO).",
    endpoint: "listRotationCredentials",
    parameters: ["kind", "vaultName", "resourceId", "assetId", "search", "due", "idle", ...PAGE],
  },
  {
    name: "secretless_report",
    title: "Secretless report",
    description:
      "Returns whether a managed identity or federation can replace the client secrets of an application (PRO).",
    endpoint: "getSecretless",
    parameters: ["app_id"],
  },
  {
    name: "alert_summary",
    title: "Alert summary",
    description: "Returns the open alerts by rule and urgency.",
    endpoint: "getAlertSummary",
    parameters: [],
  },
  {
    name: "audit_entries",
    title: "Audit entries",
    description: "Lists who did what in the service, the newest first. Needs the role auditor.",
    endpoint: "listAuditEntries",
    parameters: ["start_date", "end_date", "event_type", "actor", "search", ...PAGE],
  },
  {
    name: "who_am_i",
    title: "Who am I?",
    description: "Returns the user and the role of the token.",
    endpoint: "getMe",
    parameters: [],
  },
];
