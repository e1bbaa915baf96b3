import type { Vault } from "@azure/arm-keyvault";
import { systemRandomness } from "../runtime.ts";
import { CALL_LIMITS, clientOptions } from "./calls.ts";
import { CloudFailure } from "./failure.ts";
import type { CloudServices } from "./key-vault.ts";
import { diagnosticSettingsAnswer, resourceManagerRoute, VAULT_ID_PATTERN } from "./resource-manager-answers.ts";

export interface SubscriptionResource {
  subscriptionId: string;
  displayName: string;
  /** `Enabled`, `Warned`, `PastDue`, `Disabled` or `Deleted`. */
  state: string;
  tenantId?: string;
}

/** A vault as the resource manager describes it; what its answer leaves out stands as the documentation's default. */
export interface VaultResource {
  /** ARM resource id. */
  id: string;
  name: string;
  location: string;
  subscriptionId: string;
  resourceGroup: string;
  tenantId: string;
  vaultUri: string;
  /** `standard` or `premium`. */
  sku: string;
  tags: Record<string, string>;
  softDelete: boolean;
  softDeleteRetentionDays?: number;
  purgeProtection: boolean;
  rbacAuthorization: boolean;
  /** A vault secured by a network perimeter counts as `Disabled`: only the perimeter lets anyone in. */
  publicNetworkAccess: "Enabled" | "Disabled";
  networkDefaultAction: "Allow" | "Deny";
  /** Approved connections. */
  privateEndpoints: number;
  /** ISO 8601. */
  createdOn?: string;
  updatedOn?: string;
}

/** One diagnostic setting: where a vault's logs go. */
export interface DiagnosticSetting {
  name: string;
  /** It keeps the vault's audit events, by that category or by a group that holds it. */
  auditEvents: boolean;
  allMetrics: boolean;
  /** Days the audit events are kept by the setting itself; 0 for ever, absent when the destination decides. */
  retentionDays?: number;
  workspaceId?: string;
  storageAccountId?: string;
  eventHubAuthorizationRuleId?: string;
  marketplacePartnerId?: string;
}

/** Every method throws `CloudFailure`. */
export interface ResourceManager {
  /** All that the identity may see. */
  subscriptions(signal?: AbortSignal): Promise<SubscriptionResource[]>;
  subscription(subscriptionId: string, signal?: AbortSignal): Promise<SubscriptionResource>;
  /** Page by page; it has seen every vault only when it ends without an error. */
  vaults(subscriptionId: string, signal?: AbortSignal): AsyncGenerator<VaultResource[]>;
  diagnosticSettings(vaultResourceId: string, signal?: AbortSignal): Promise<DiagnosticSetting[]>;
}

/** Vaults per page: the most that the resource manager's lists give. */
const VAULTS_PER_PAGE = 1000;

/** https://learn.microsoft.com/rest/api/monitor/diagnostic-settings/list */
const DIAGNOSTIC_SETTINGS_VERSION = "2021-05-01-preview";

export function createResourceManager({
  config,
  identity,
  log,
  randomness = systemRandomness(),
  limits,
}: CloudServices): ResourceManager {
  const endpoint = config.cloud.resourceManager;
  const scope = `${endpoint}/.default`;
  // A policy knows one list only, so each call has its own client; the connections are shared.
  const options = () => ({
    endpoint,
    credentials: { scopes: [scope] },
    ...clientOptions({
      origin: new URL(endpoint).origin,
      scope,
      identity,
      route: resourceManagerRoute,
      resource: "the resource manager",
      log,
      randomness,
      limits: { ...CALL_LIMITS, ...limits },
    }),
  });
  const subscriptionClient = async () => {
    const { SubscriptionClient } = await import("@azure/arm-resources-subscriptions");
    return new SubscriptionClient(await identity.credential(), options());
  };
  const vaultClient = async (subscriptionId: string) => {
    const { KeyVaultManagementClient } = await import("@azure/arm-keyvault");
    return new KeyVaultManagementClient(await identity.credential(), subscriptionId, options());
  };

  return {
    async subscriptions(signal) {
      const found: SubscriptionResource[] = [];
      for await (const page of (await subscriptionClient()).subscriptions.list(calling(signal)).byPage()) {
        found.push(...page.map(subscriptionResource));
      }
      return found;
    },

    async subscription(subscriptionId, signal) {
      return subscriptionResource(
        await (await subscriptionClient()).subscriptions.get(subscriptionId, calling(signal)),
      );
    },

    async *vaults(subscriptionId, signal) {
      const { vaults } = await vaultClient(subscriptionId);
      try {
        for await (const page of vaults.listBySubscription({ top: VAULTS_PER_PAGE, ...calling(signal) }).byPage()) {
          yield page.map((vault) => vaultResource(vault, subscriptionId));
        }
      } catch (error) {
        // A provider can't be unregistered while any of its resources exist, so this subscription has no vault:
        // https://learn.microsoft.com/azure/azure-resource-manager/management/resource-providers-and-types
        if (!(error instanceof CloudFailure && error.cloudCode === "MissingSubscriptionRegistration")) throw error;
      }
    },

    async diagnosticSettings(vaultResourceId, signal) {
      if (!VAULT_ID_PATTERN.test(vaultResourceId)) throw new TypeError("Not the resource id of a key vault.");
      const { createDefaultHttpClient, createPipelineRequest } = await import("@azure/core-rest-pipeline");
      // No SDK has this operation; the vault client's pipeline carries it.
      const { pipeline } = await vaultClient("");
      const path = vaultResourceId.split("/").map(encodeURIComponent).join("/");
      const url = `${endpoint}${path}/providers/Microsoft.Insights/diagnosticSettings?api-version=${DIAGNOSTIC_SETTINGS_VERSION}`;
      const request = createPipelineRequest({ url, ...calling(signal) });
      const response = await pipeline.sendRequest(createDefaultHttpClient(), request);
      return diagnosticSettingsAnswer.parse(JSON.parse(response.bodyAsText ?? "")).value.map(diagnosticSetting);
    },
  };
}

const calling = (signal: AbortSignal | undefined) => (signal ? { abortSignal: signal } : {});

function subscriptionResource(found: {
  subscriptionId?: string;
  displayName?: string;
  state?: string;
  tenantId?: string;
}): SubscriptionResource {
  return {
    subscriptionId: found.subscriptionId ?? "",
    displayName: found.displayName ?? "",
    state: found.state ?? "Enabled",
    ...(found.tenantId ? { tenantId: found.tenantId } : {}),
  };
}

/** Defaults: https://learn.microsoft.com/rest/api/keyvault/keyvault/vaults/list-by-subscription */
function vaultResource(vault: Vault, subscriptionId: string): VaultResource {
  const { properties, systemData } = vault;
  const createdOn = instant(systemData?.createdAt);
  const updatedOn = instant(systemData?.lastModifiedAt);
  return {
    id: vault.id ?? "",
    name: vault.name ?? "",
    location: vault.location ?? "",
    subscriptionId,
    resourceGroup: /\/resourceGroups\/([^/]+)/i.exec(vault.id ?? "")?.[1] ?? "",
    tenantId: properties.tenantId ?? "",
    vaultUri: properties.vaultUri ?? "",
    sku: properties.sku?.name ?? "standard",
    tags: Object.fromEntries(Object.entries(vault.tags ?? {}).filter(([, value]) => typeof value === "string")),
    softDelete: properties.enableSoftDelete ?? true,
    ...(properties.softDeleteRetentionInDays != null
      ? { softDeleteRetentionDays: properties.softDeleteRetentionInDays }
      : {}),
    purgeProtection: properties.enablePurgeProtection ?? false,
    rbacAuthorization: properties.enableRbacAuthorization ?? false,
    publicNetworkAccess: /^enabled$/i.test(properties.publicNetworkAccess ?? "Enabled") ? "Enabled" : "Disabled",
    networkDefaultAction: /^deny$/i.test(properties.networkAcls?.defaultAction ?? "Allow") ? "Deny" : "Allow",
    privateEndpoints: (properties.privateEndpointConnections ?? []).filter(
      ({ privateLinkServiceConnectionState }) => privateLinkServiceConnectionState?.status === "Approved",
    ).length,
    ...(createdOn ? { createdOn } : {}),
    ...(updatedOn ? { updatedOn } : {}),
  };
}

function instant(date: Date | undefined): string | undefined {
  return date && !Number.isNaN(date.getTime()) ? date.toISOString() : undefined;
}

/** Groups that hold AuditEvent: https://learn.microsoft.com/azure/azure-monitor/essentials/diagnostic-settings#category-groups */
const AUDIT_GROUPS = new Set(["audit", "alllogs"]);

type Answered = ReturnType<typeof diagnosticSettingsAnswer.parse>["value"][number];

function diagnosticSetting({ name, properties }: Answered): DiagnosticSetting {
  const { logs, metrics, workspaceId, storageAccountId, eventHubAuthorizationRuleId, marketplacePartnerId } =
    properties;
  const audit = (logs ?? []).find(
    ({ category, categoryGroup, enabled }) =>
      enabled && (category?.toLowerCase() === "auditevent" || AUDIT_GROUPS.has(categoryGroup?.toLowerCase() ?? "")),
  );
  const retention = audit?.retentionPolicy;
  return {
    name,
    auditEvents: audit !== undefined,
    allMetrics: (metrics ?? []).some(({ category, enabled }) => enabled && category?.toLowerCase() === "allmetrics"),
    ...(retention?.enabled ? { retentionDays: retention.days ?? 0 } : {}),
    ...(workspaceId ? { workspaceId } : {}),
    ...(storageAccountId ? { storageAccountId } : {}),
    ...(eventHubAuthorizationRuleId ? { eventHubAuthorizationRuleId } : {}),
    ...(marketplacePartnerId ? { marketplacePartnerId } : {}),
  };
}
