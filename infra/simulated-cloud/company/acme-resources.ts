// Resources of the sample company acme that use its vaults.

import { initialKey } from "../arm/resource-keys.ts";
import { platformResources } from "./acme-platform-resources.ts";
import {
  type NamePicker,
  pinnedReference,
  referenceByName,
  referenceByUri,
  referenceWithoutSlash,
  referenceWithSpaces,
  webApp,
} from "./acme-web-apps.ts";
import type { AssetKind, CompanySecret, CompanySubscription, CompanyVault } from "./company.ts";
import type { CompanyResource } from "./resources.ts";

const SYSTEM = { system: true };

/**
 * Adds resources that use the vaults to the subscriptions of the company acme, and for each type a resource that uses no vault
 * although it looks similar.
 */
export function addResources(
  subscriptions: readonly CompanySubscription[],
  teams: readonly string[],
): CompanySubscription[] {
  const vaults = subscriptions.flatMap((subscription) => subscription.vaults ?? []);
  const pick: NamePicker = (vault, position = 0, kind = "secrets") => enabledIn(vaults, vault, kind, position);
  const [production, testing, platform, finance, ...rest] = subscriptions as [
    CompanySubscription,
    CompanySubscription,
    CompanySubscription,
    CompanySubscription,
  ];
  // The teams whose vault has a secret of an importer (`secretsOf` in acme-applications.ts).
  const importers = teams.filter((_, index) => index % 3 !== 1);
  return [
    {
      ...production,
      vaults: production.vaults?.map(withStorageKey) ?? [],
      resources: [
        ...teams.map((team, index) => teamApp(team, index, pick)),
        ...importers.map((team, index) => importerApp(team, index)),
        ...paymentsApps(),
        ...storageKeyResources(),
        ...unresolvableApps(pick),
        ...resourcesWithoutVaults(),
      ],
      roleAssignments: [
        {
          principal: "Payments team",
          principalType: "Group",
          role: "Key Vault Secrets Officer",
          vault: "kv-payments-prod",
        },
        { principal: "Security audit", principalType: "Group", role: "Key Vault Reader" },
        { principal: "deployment", role: "Key Vault Secrets User", vault: "kv-orders-prod" },
        { principal: "Ann Operator", principalType: "User", role: "Reader" },
        { principal: "secrets provider of aks-main", role: "Key Vault Secrets User", vault: "kv-logistics-prod" },
      ],
    },
    {
      ...testing,
      resources: teams.slice(0, 10).map((team, index) => testApp(team, testing.vaults![index]!.name, pick)),
    },
    { ...platform, resources: platformResources(pick) },
    {
      ...finance,
      resources: [webApp("app-ledger", { LEDGER: referenceByName("kv-ledger-prod", pick("kv-ledger-prod")) })],
    },
    ...rest,
  ];
}

/** Returns the name of the enabled asset at a position of a vault, from 0. After the last asset, the first one follows. */
function enabledIn(vaults: readonly CompanyVault[], vault: string, kind: AssetKind, position: number): string {
  const assets: CompanySecret[] = vaults.find(({ name }) => name === vault)?.[kind] ?? [];
  // Skips the client secrets of applications, whose values are declared. They are selected by name.
  const enabled = assets.filter(({ enabled = true, value }) => enabled && value === undefined);
  const selected = enabled[position % enabled.length];
  if (selected === undefined) throw new Error(`${vault} has no enabled ${kind}`);
  return selected.name;
}

const ORDERS_VAULT = "kv-orders-prod";
const ORDERS_ACCOUNT = "stacmeorders";
const ORDERS_KEY = "orders-storage-key";

/** Adds a secret that stores a key of a storage account to the vault of the orders team. */
function withStorageKey(vault: CompanyVault): CompanyVault {
  if (vault.name !== ORDERS_VAULT) return vault;
  const secret: CompanySecret = {
    name: ORDERS_KEY,
    value: initialKey("Microsoft.Storage/storageAccounts", ORDERS_ACCOUNT, "key1"),
    expiresInDays: 5,
    createdDaysAgo: 85,
    tags: { owner: "orders@acme.example" },
  };
  return { ...vault, secrets: [...(vault.secrets ?? []), secret] };
}

/** Returns the storage account whose key the vault of the orders team stores, and the app that uses the key. */
function storageKeyResources(): CompanyResource[] {
  const placed = { resourceGroup: "rg-orders-prod", tags: { env: "prod" } };
  return [
    { type: "Microsoft.Storage/storageAccounts", name: ORDERS_ACCOUNT, kind: "StorageV2", ...placed },
    { ...webApp("app-orders-archive", { STORAGE_KEY: referenceByName(ORDERS_VAULT, ORDERS_KEY) }), ...placed },
  ];
}

/** Returns the web app of a team. It uses the client secret of its application and another secret of its vault. */
function teamApp(team: string, index: number, pick: NamePicker): CompanyResource {
  const vault = `kv-${team}-prod`;
  const toReference = [referenceByUri, referenceByName, referenceWithSpaces, referenceWithoutSlash][index % 4]!;
  const clientSecret = `${team}-api-client-secret`;
  const otherSecret = pick(vault);
  const staging = team === "payments" || team === "orders" || team === "catalog";
  return {
    ...webApp(`app-${team}`, {
      API_CLIENT_SECRET: toReference(vault, clientSecret),
      // One reference is pinned to a version.
      PARTNER_KEY:
        team === "catalog" || team === "hr" ? pinnedReference(vault, otherSecret) : toReference(vault, otherSecret),
      FEATURE_FLAGS: "beta,fast-checkout",
    }),
    resourceGroup: `rg-${team}-prod`,
    tags: { env: "prod", ...(index % 3 === 0 && { "managed-by": "terraform" }) },
    slotSettings: ["FEATURE_FLAGS"],
    ...(index % 4 === 2 && {
      connectionStrings: { Main: { value: toReference(vault, pick(vault, 1)), type: "SQLAzure" } },
    }),
    ...(staging && {
      children: {
        slots: [
          {
            name: "staging",
            kind: "app,linux",
            identity: SYSTEM,
            tags: { env: "staging" },
            settings: { API_CLIENT_SECRET: toReference(vault, clientSecret), FEATURE_FLAGS: "beta" },
          },
        ],
      },
    }),
  };
}

/** Returns a team's function app. Every second app has the shared identity `id-importers`, and the others have their own. */
function importerApp(team: string, index: number): CompanyResource {
  const vault = `kv-${team}-prod`;
  const shared = index % 2 === 0;
  return {
    ...webApp(`func-${team}-importer`, {
      FUNCTIONS_EXTENSION_VERSION: "~4",
      IMPORT_SECRET: referenceByUri(vault, `${team}-importer`),
    }),
    kind: "functionapp,linux",
    resourceGroup: `rg-${team}-prod`,
    tags: { environment: "production" },
    identity: shared ? { user: ["id-importers"] } : SYSTEM,
    properties: {
      state: "Running",
      enabled: true,
      keyVaultReferenceIdentity: shared ? "{identity:id-importers}" : "SystemAssigned",
    },
  };
}

/** Returns apps that all use one secret: the client secret of the payments team's application. */
function paymentsApps(): CompanyResource[] {
  const [vault, secret] = ["kv-payments-prod", "payments-api-client-secret"];
  const keyVaultUrl = `{uri:${vault}}/secrets/${secret}`;
  const template = {
    containers: [
      {
        name: "main",
        image: "acme.azurecr.io/checkout:4.2",
        env: [{ name: "CLIENT_SECRET", secretRef: "client-secret" }],
      },
    ],
  };
  const app = (name: string, mode: string, url: string): CompanyResource => ({
    type: "Microsoft.App/containerApps",
    name,
    resourceGroup: "rg-payments-prod",
    tags: { env: "prod" },
    identity: SYSTEM,
    properties: {
      configuration: {
        activeRevisionsMode: mode,
        secrets: [{ name: "client-secret", keyVaultUrl: url, identity: "system" }],
      },
      template,
    },
  });
  return [
    app("ca-checkout", "Single", keyVaultUrl),
    app("ca-refunds", "Multiple", keyVaultUrl),
    app("ca-disputes", "Single", `${keyVaultUrl}/{version:${vault}/secrets/${secret}}`),
    {
      type: "Microsoft.App/jobs",
      name: "job-settlement",
      resourceGroup: "rg-payments-prod",
      tags: { env: "prod" },
      identity: SYSTEM,
      properties: {
        configuration: {
          triggerType: "Schedule",
          secrets: [{ name: "client-secret", keyVaultUrl, identity: "system" }],
        },
        template,
      },
    },
    {
      ...webApp("func-payments-webhook", {
        CLIENT_SECRET: referenceByUri(vault, secret),
        FUNCTIONS_EXTENSION_VERSION: "~4",
      }),
      kind: "functionapp",
      resourceGroup: "rg-payments-prod",
      tags: { env: "prod" },
    },
    {
      type: "Microsoft.ApiManagement/service",
      name: "apim-acme",
      resourceGroup: "rg-payments-prod",
      sku: { name: "Premium", capacity: 1 },
      identity: SYSTEM,
      properties: {
        hostnameConfigurations: [{ type: "Proxy", hostName: "api.acme.example", certificateSource: "Managed" }],
      },
      children: {
        namedValues: [
          {
            name: "payments-client-secret",
            properties: {
              displayName: "payments-client-secret",
              secret: true,
              keyVault: { secretIdentifier: keyVaultUrl },
            },
          },
          {
            name: "stripe-account",
            properties: { displayName: "stripe-account", secret: true, value: "acct-of-acme" },
          },
          { name: "backend-region", properties: { displayName: "backend-region", secret: false, value: "westeurope" } },
        ],
      },
    },
    // The setting contains the value itself. Only a client that reads the settings can detect that.
    webApp("app-payments-legacy", { CLIENT_SECRET: `{value:${vault}/${secret}}`, CLIENT_ID: "in-the-portal" }),
  ];
}

/**
 * Returns apps with references that the platform can't resolve, each for a different reason, and an app whose configuration is
 * not readable.
 */
function unresolvableApps(pick: NamePicker): CompanyResource[] {
  const secret = pick("kv-crm-prod");
  return [
    // No such vault.
    webApp("app-intranet", { TOKEN: referenceByName("kv-intranet-old", "token") }),
    // No such secret.
    webApp("app-crm-classic", { TOKEN: referenceByName("kv-crm-prod", "a-secret-of-last-year") }),
    // No access to the vault.
    webApp("app-crm-reports", { TOKEN: referenceByUri("kv-crm-prod", secret) }, { mayRead: [] }),
    // No identity.
    webApp("app-crm-kiosk", { TOKEN: referenceByUri("kv-crm-prod", secret) }, { identity: {} }),
    // Invalid syntax: `secret` instead of `secrets`.
    webApp("app-crm-export", { TOKEN: `@Microsoft.KeyVault(SecretUri={uri:kv-crm-prod}/secret/${secret})` }),
    // No such version.
    webApp("app-crm-import", {
      TOKEN: `@Microsoft.KeyVault(SecretUri={uri:kv-crm-prod}/secrets/${secret}/00000000000000000000000000000000)`,
    }),
    // The configuration is not readable.
    webApp("app-crm-sealed", { TOKEN: referenceByUri("kv-crm-prod", secret) }, { denied: true }),
  ];
}

/** Returns sites, container apps and jobs that use no vault secret. The settings of some look like references to a vault. */
function resourcesWithoutVaults(): CompanyResource[] {
  return [
    webApp("app-brochure", { HELP_URL: "https://docs.acme.example/vault/secrets/how-to" }),
    webApp("app-flags", {
      THEME: "@Microsoft.AppConfiguration(Endpoint=https://appcs-acme.azconfig.io; Key=theme)",
    }),
    { ...webApp("func-cleanup", { FUNCTIONS_EXTENSION_VERSION: "~4" }), kind: "functionapp" },
    {
      type: "Microsoft.App/containerApps",
      name: "ca-static",
      properties: {
        configuration: { secrets: [{ name: "registry-password", value: "written-out-for-nobody" }] },
        template: {
          containers: [
            {
              name: "main",
              image: "acme.azurecr.io/static:1.0",
              env: [{ name: "HASHICORP_VAULT", value: "https://vault.acme.example/v1/secret/data/static" }],
            },
          ],
        },
      },
    },
    {
      type: "Microsoft.App/jobs",
      name: "job-thumbnails",
      properties: { configuration: { triggerType: "Manual", secrets: [] }, template: { containers: [] } },
    },
  ];
}

/** Returns the web app of a team in the test subscription. */
function testApp(team: string, vault: string, pick: NamePicker): CompanyResource {
  return {
    ...webApp(`app-${team}-test`, { PARTNER_KEY: referenceByName(vault, pick(vault)), LOG_LEVEL: "debug" }),
    resourceGroup: `rg-${team}-test`,
    tags: { env: "test" },
  };
}
