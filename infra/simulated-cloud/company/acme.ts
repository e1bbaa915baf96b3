import { acmeApplications, addApplicationSecrets } from "./acme-applications.ts";
import { acmeDevops } from "./acme-devops.ts";
import { addResources } from "./acme-resources.ts";
import { acmeTenants } from "./acme-tenants.ts";
import type {
  Company,
  CompanyCertificate,
  CompanyKey,
  CompanySecret,
  CompanySubscription,
  CompanyVault,
} from "./company.ts";
import { Dice } from "./dice.ts";

/**
 * Returns the company acme, a realistic sample: four subscriptions, 36 vaults of many teams, hundreds of secrets, keys and
 * certificates in every state of health, 40 applications, a customer and a partner tenant, settings that pass and fail each
 * check, and more than 70 resources that use the vaults. The same seed returns the same company.
 */
export function acmeCompany(seed: number): Company {
  const dice = new Dice(seed);
  const subscriptions: CompanySubscription[] = [
    {
      name: "Acme Production",
      tags: { env: "prod" },
      vaults: TEAMS.map((team) => teamVault(dice, team, "prod")),
    },
    {
      name: "Acme Non-Production",
      tags: { env: "test" },
      vaults: TEAMS.slice(0, 10).map((team, index) => teamVault(dice, team, index % 3 === 0 ? "dev" : "test")),
    },
    { name: "Acme Platform", vaults: platformVaults(dice) },
    {
      name: "Acme Finance",
      denied: true,
      vaults: ["ledger", "treasury", "payroll", "tax"].map((team) => teamVault(dice, team, "prod")),
    },
  ];
  return {
    subscriptions: addResources(addApplicationSecrets(subscriptions, TEAMS), TEAMS),
    applications: acmeApplications(TEAMS),
    devops: acmeDevops(TEAMS),
    tenants: acmeTenants,
  };
}

/** Mean month of the Gregorian calendar. */
const DAYS_PER_MONTH = 30.436875;

const TEAMS = [
  "payments",
  "orders",
  "identity",
  "billing",
  "catalog",
  "logistics",
  "hr",
  "analytics",
  "crm",
  "web",
  "mobile",
  "search",
];
const REGIONS = ["westeurope", "northeurope", "germanywestcentral", "eastus2", "uksouth"];
/** Names of items. */
const SECRETS = [
  "sql-password",
  "redis-key",
  "smtp-password",
  "storage-connection",
  "servicebus-connection",
  "cosmos-key",
  "stripe-api-key",
  "sendgrid-api-key",
  "github-token",
  "datadog-api-key",
  "ldap-bind-password",
  "webhook-secret",
  "oauth-client-secret",
  "sftp-password",
  "jwt-signing-key",
  "maps-api-key",
  "slack-token",
  "backup-passphrase",
  "elastic-password",
  "kafka-password",
  "vpn-psk",
  "license-key",
  "cdn-token",
  "session-salt",
];
const KEYS = [
  "data-encryption",
  "token-signing",
  "column-master",
  "document-signing",
  "backup-wrap",
  "disk-encryption",
];
const SITES = ["www", "api", "admin", "auth", "cdn", "gateway", "partners", "status"];

/**
 * Returns a random expiry date: expired, critical, warning or healthy. A range that is listed twice is twice as likely.
 * @param noExpiryOneIn One of this many items has no expiry date.
 */
function expiry(dice: Dice, noExpiryOneIn: number): { expiresInDays?: number } {
  if (dice.oneIn(noExpiryOneIn)) return {};
  const days = dice.pick([
    () => dice.between(-200, -1),
    () => dice.between(0.2, 6.8),
    () => dice.between(8, 29),
    () => dice.between(31, 89),
    () => dice.between(91, 365),
    () => dice.between(91, 365),
    () => dice.between(180, 700),
    () => dice.between(366, 1400),
  ])();
  return { expiresInDays: days };
}

function teamVault(dice: Dice, team: string, env: string): CompanyVault {
  const isProduction = env === "prod";
  const isLegacy = dice.oneIn(4);
  const isSecured = isProduction && dice.oneIn(3);
  return {
    name: `kv-${team}-${env}`,
    resourceGroup: `rg-${team}-${env}`,
    location: dice.pick(REGIONS),
    createdDaysAgo: Math.round(dice.between(200, 1500)),
    tags: {
      env,
      ...(!dice.oneIn(6) && { owner: `${team}@acme.example` }),
      ...(!dice.oneIn(4) && { "cost-centre": String(4000 + Math.floor(dice.between(0, 90)) * 10) }),
    },
    sku: isSecured ? "premium" : "standard",
    rbac: !isLegacy,
    purgeProtection: isProduction ? !isLegacy : dice.oneIn(2),
    softDeleteRetentionDays: isProduction ? 90 : dice.pick([7, 30, 90]),
    ...(isSecured && { publicNetworkAccess: "Disabled" as const, networkDefaultAction: "Deny" as const }),
    ...(!isSecured && dice.oneIn(3) && { networkDefaultAction: "Deny" as const, ipRules: ["198.51.100.0/24"] }),
    privateEndpoints: isSecured ? dice.pick([1, 2]) : 0,
    diagnostics: isProduction
      ? dice.pick(["audit", "allLogs", "audit", "metricsOnly"])
      : dice.pick(["audit", "none", "disabled"]),
    ...itemsOf(dice, team, isProduction ? 14 : 8),
  };
}

function itemsOf(
  dice: Dice,
  team: string,
  size: number,
): Required<Pick<CompanyVault, "secrets" | "keys" | "certificates">> {
  return {
    secrets: dice.sample(SECRETS, size).map((name) => secret(dice, name, team)),
    keys: dice.sample(KEYS, Math.ceil(size / 4)).map((name) => key(dice, name)),
    certificates: dice.sample(SITES, Math.ceil(size / 4)).map((site) => certificate(dice, site, team)),
  };
}

function secret(dice: Dice, name: string, team: string): CompanySecret {
  return {
    name,
    ...expiry(dice, 5),
    createdDaysAgo: Math.round(dice.between(10, 900)),
    ...(dice.oneIn(12) && { enabled: false }),
    ...(dice.oneIn(15) && { activeInDays: dice.between(1, 30) }),
    ...(!dice.oneIn(3) && { contentType: dice.pick(["text/plain", "application/json", "connection-string"]) }),
    ...(!dice.oneIn(3) && {
      tags: {
        owner: dice.pick([`${team}@acme.example`, "platform@acme.example", "José Núñez", "运维团队"]),
        ...(dice.oneIn(4) && { "rotation-runbook": "https://wiki.acme.example/rotate" }),
        ...(dice.oneIn(8) && { note: "Schlüssel für Zürich – nicht löschen ✓" }),
      },
    }),
  };
}

function key(dice: Dice, name: string): CompanyKey {
  return {
    name,
    ...dice.pick([
      { type: "RSA", size: 2048 } as const,
      { type: "RSA", size: 3072 } as const,
      { type: "RSA", size: 4096 } as const,
      { type: "RSA-HSM", size: 2048 } as const,
      { type: "EC", curve: "P-256" } as const,
      { type: "EC", curve: "P-384" } as const,
      { type: "EC", curve: "P-256K" } as const,
    ]),
    ...expiry(dice, 4),
    createdDaysAgo: Math.round(dice.between(10, 1200)),
    ...(dice.oneIn(14) && { enabled: false }),
    ...(dice.oneIn(2) && { rotation: { rotateAfterDays: dice.pick([30, 90, 365]), expiryDays: 730 } }),
  };
}

function certificate(dice: Dice, site: string, team: string): CompanyCertificate {
  const domain = `${site}.${team}.acme.example`;
  const months = dice.pick([3, 6, 12, 12, 13, 24, 36]);
  const lifetimeDays = months * DAYS_PER_MONTH;
  return {
    name: `${site}-${team}`,
    subject: dice.pick([`CN=${domain}`, `CN=${domain}, O=Acme Corporation, C=NL`]),
    dnsNames: dice.oneIn(2) ? [domain] : [domain, `${site}-${team}.acme.example`, `*.${team}.acme.example`],
    issuer: dice.pick(["Self", "Self", "DigiCert", "DigiCert", "GlobalSign", "Unknown"]),
    ...dice.pick([
      { type: "RSA", size: 2048 } as const,
      { type: "RSA", size: 2048 } as const,
      { type: "RSA", size: 4096 } as const,
      { type: "EC", curve: "P-256" } as const,
      { type: "EC", curve: "P-384" } as const,
    ]),
    validityMonths: months,
    expiresInDays: dice.pick([
      () => dice.between(-60, -0.5),
      () => dice.between(0.3, 6.5),
      () => dice.between(8, 29),
      () => dice.between(31, lifetimeDays - 1),
      () => dice.between(31, lifetimeDays - 1),
    ])(),
    renewal: dice.pick([
      { action: "AutoRenew", percentage: 80 } as const,
      { action: "AutoRenew", daysBeforeExpiry: 30 } as const,
      { action: "EmailContacts", daysBeforeExpiry: 45 } as const,
    ]),
    ...(dice.oneIn(15) && { enabled: false }),
    ...(!dice.oneIn(3) && { tags: { owner: `${team}@acme.example` } }),
  };
}

/**
 * Returns the vaults of the subscription that all teams depend on. One vault denies the service's identity, and the firewall of
 * another blocks it.
 */
function platformVaults(dice: Dice): CompanyVault[] {
  const names = ["network", "aks", "ci", "dns", "edge", "backup", "telemetry"];
  const vaults = names.map((name) => ({ ...teamVault(dice, name, "prod"), name: `kv-platform-${name}` }));
  return [
    ...vaults.map((vault) => (vault.name === "kv-platform-backup" ? withOutdatedItems(vault) : vault)),
    { ...teamVault(dice, "hsm-root", "prod"), name: "kv-root-ca", reach: "denied" },
    {
      ...teamVault(dice, "dmz", "prod"),
      name: "kv-dmz",
      reach: "firewalled",
      publicNetworkAccess: "Enabled",
      networkDefaultAction: "Deny",
    },
    {
      name: "kv-lifecycle-service",
      resourceGroup: "rg-lifecycle-service",
      tags: { owner: "security@acme.example", env: "prod" },
      networkDefaultAction: "Deny",
      privateEndpoints: 1,
    },
  ];
}

/** Changes a vault to one from before soft delete became mandatory, with outdated key types and sizes. */
function withOutdatedItems(vault: CompanyVault): CompanyVault {
  const old = { createdDaysAgo: 1400 };
  return {
    ...vault,
    softDelete: false,
    purgeProtection: false,
    keys: [
      ...(vault.keys ?? []),
      { name: "tape-signing", size: 1024, ...old },
      { name: "tape-encryption", type: "oct-HSM", ...old },
    ],
    certificates: [
      ...(vault.certificates ?? []),
      { name: "modem-pool", size: 1024, expiresInDays: 40, validityMonths: 36 },
      { name: "block-chain-pilot", type: "EC", curve: "P-256K", expiresInDays: 70, validityMonths: 6 },
    ],
  };
}
