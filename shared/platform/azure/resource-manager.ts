import type { KeyVaultManagementClient, Vault } from "@azure/arm-keyvault";
import type { Subscription, SubscriptionClient } from "@azure/arm-resources-subscriptions";
import { systemRandomness } from "../runtime.ts";
import { createArm, samePath } from "./arm.ts";
import { CALL_LIMITS, clientOptions } from "./calls.ts";
import { type CallTarget, CloudFailure, malformedAnswer } from "./failure.ts";
import { type CloudServices, parsedByClient } from "./key-vault.ts";
import { parseResourceId, resourceName, resourcePath } from "./resource-id.ts";
import {
  diagnosticSettingsAnswer,
  nameOfVault,
  requireSubscription,
  requireVault,
} from "./resource-manager-answers.ts";
import { INVENTORY_READER } from "./watch-roles.ts";

// Reads subscriptions, vaults and their diagnostic settings from Azure Resource Manager.

export interface SubscriptionResource {
  subscriptionId: string;
  displayName: string;
  /** `Enabled`, `Warned`, `PastDue`, `Disabled` or `Deleted`. */
  state: string;
  tenantId?: string;
}

/** A vault as Azure Resource Manager describes it. Missing members have their documented defaults. */
export interface VaultResource {
  /** ARM resource ID. */
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
  /** `Disabled` also for a vault in a network security perimeter, because only the perimeter grants access. */
  publicNetworkAccess: "Enabled" | "Disabled";
  networkDefaultAction: "Allow" | "Deny";
  /** Number of approved connections. */
  privateEndpoints: number;
  /** ISO 8601. */
  createdOn?: string;
  updatedOn?: string;
}

/** One diagnostic setting, which exports a vault's logs. */
export interface DiagnosticSetting {
  name: string;
  /** True if the setting exports audit events, by their category or by a group that includes it. */
  auditEvents: boolean;
  allMetrics: boolean;
  /** Days for which the setting retains audit events. 0 for an unlimited time, undefined if the destination decides. */
  retentionDays?: number;
  workspaceId?: string;
  storageAccountId?: string;
  eventHubAuthorizationRuleId?: string;
  marketplacePartnerId?: string;
}

/** A page of a subscription's vaults. */
export interface VaultPage {
  vaults: VaultResource[];
  /** Entries that do not match the service's documentation. If the name is not readable, the entry can be any vault. */
  unreadable: { name: string | undefined; failure: CloudFailure }[];
}

/**
 * Reads subscriptions, key vaults and their diagnostic settings. The methods throw `CloudFailure`, with the code `timedOut`
 * when their signal is aborted.
 */
export interface ResourceManager {
  /** Lists the subscriptions that the identity can see, and the failure of each unreadable entry. */
  subscriptions(signal?: AbortSignal): Promise<{ subscriptions: SubscriptionResource[]; unreadable: CloudFailure[] }>;
  subscription(subscriptionId: string, signal?: AbortSignal): Promise<SubscriptionResource>;
  /** Lists the vaults of a subscription. The list is complete only if the iteration ends without an error. */
  vaults(subscriptionId: string, signal?: AbortSignal): AsyncGenerator<VaultPage>;
  /**
   * Returns one vault. A deleted vault that can be recovered is `notFound`.
   *
   * @throws {TypeError} if the ID is not the resource ID of a vault.
   */
  vault(vaultResourceId: string, signal?: AbortSignal): Promise<VaultResource>;
  diagnosticSettings(vaultResourceId: string, signal?: AbortSignal): Promise<DiagnosticSetting[]>;
}

/** Vaults per page: the most that the resource manager's lists return. */
const VAULTS_PER_PAGE = 1000;

/** https://learn.microsoft.com/rest/api/monitor/diagnostic-settings/list */
const DIAGNOSTIC_SETTINGS_VERSION = "2021-05-01-preview";

const VAULT_TYPE = "microsoft.keyvault/vaults";

export function createResourceManager(services: CloudServices): ResourceManager {
  const { config, identity, log, randomness = systemRandomness(), limits } = services;
  const endpoint = config.cloud.resourceManager;
  const scope = `${endpoint}/.default`;
  const arm = createArm(services);

  /** Creates the options of a client for one list or one call. Links of a list must lead to the same path. */
  const optionsFor = async (target: CallTarget, path: string, signal?: AbortSignal) => ({
    ...(await clientOptions({
      origin: new URL(endpoint).origin,
      scope,
      identity,
      route: (requested) => (samePath(requested, path) ? { target, answer: "parsedByClient", paged: true } : undefined),
      resource: target.resource,
      signal,
      log,
      randomness,
      limits: { ...CALL_LIMITS, ...limits },
    })),
    endpoint,
    credentials: { scopes: [scope] },
  });

  async function subscriptionClient(
    target: CallTarget,
    path: string,
    signal?: AbortSignal,
  ): Promise<SubscriptionClient> {
    const { SubscriptionClient } = await import("@azure/arm-resources-subscriptions");
    return new SubscriptionClient(await identity.credential(), await optionsFor(target, path, signal));
  }

  async function vaultClient(
    subscriptionId: string,
    target: CallTarget,
    path: string,
    signal?: AbortSignal,
  ): Promise<KeyVaultManagementClient> {
    const { KeyVaultManagementClient } = await import("@azure/arm-keyvault");
    const options = await optionsFor(target, path, signal);
    return new KeyVaultManagementClient(await identity.credential(), subscriptionId, options);
  }

  return {
    async subscriptions(signal) {
      const subscriptions: SubscriptionResource[] = [];
      const unreadable: CloudFailure[] = [];
      const target = { operation: "list subscriptions", resource: "the resource manager", grant: INVENTORY_READER };
      const client = await subscriptionClient(target, "/subscriptions", signal);
      for await (const entries of pagesOf(target, client.subscriptions.list())) {
        for (const entry of entries) {
          try {
            subscriptions.push(subscriptionResource(entry));
          } catch (error) {
            if (!(error instanceof CloudFailure)) throw error;
            unreadable.push(error);
          }
        }
      }
      return { subscriptions, unreadable };
    },

    async subscription(subscriptionId, signal) {
      const target = {
        operation: "read the subscription",
        resource: `subscription ${subscriptionId}`,
        grant: INVENTORY_READER,
      };
      const path = `/subscriptions/${encodeURIComponent(subscriptionId)}`;
      const client = await subscriptionClient(target, path, signal);
      return subscriptionResource(await parsedByClient(target, () => client.subscriptions.get(subscriptionId)));
    },

    async *vaults(subscriptionId, signal) {
      const target = {
        operation: "list vaults",
        resource: `subscription ${subscriptionId}`,
        grant: INVENTORY_READER,
      };
      try {
        const path = `/subscriptions/${encodeURIComponent(subscriptionId)}/providers/Microsoft.KeyVault/vaults`;
        const client = await vaultClient(subscriptionId, target, path, signal);
        const pages = client.vaults.listBySubscription({ top: VAULTS_PER_PAGE });
        for await (const entries of pagesOf(target, pages)) yield vaultPage(entries, subscriptionId);
      } catch (error) {
        // A provider can't be unregistered while it has resources, so this subscription has no vaults:
        // https://learn.microsoft.com/azure/azure-resource-manager/management/resource-providers-and-types
        if (!(error instanceof CloudFailure && error.cloudCode === "MissingSubscriptionRegistration")) throw error;
      }
    },

    async vault(vaultResourceId, signal) {
      const path = resourcePath(vaultResourceId, VAULT_TYPE);
      const { subscriptionId, resourceGroup, names } = parseResourceId(vaultResourceId)!;
      const [name] = names as [string];
      const target = { operation: "read the description", resource: `key vault ${name}`, grant: INVENTORY_READER };
      const client = await vaultClient(subscriptionId, target, path, signal);
      const vault = await parsedByClient(target, () => client.vaults.get(resourceGroup, name));
      const resource = vaultResource(vault, subscriptionId.toLowerCase());
      if (resource.id.toLowerCase() !== vaultResourceId.toLowerCase()) {
        throw malformedAnswer(target, "the response describes another vault");
      }
      return resource;
    },

    async diagnosticSettings(vaultResourceId, signal) {
      const path = `${resourcePath(vaultResourceId, VAULT_TYPE)}/providers/Microsoft.Insights/diagnosticSettings`;
      const resource = `key vault ${resourceName(vaultResourceId)}`;
      const target = { operation: "read the diagnostic settings", resource, grant: INVENTORY_READER };
      const call = { path, apiVersion: DIAGNOSTIC_SETTINGS_VERSION, target, signal };
      return (await arm.call(call, diagnosticSettingsAnswer)).value.map(diagnosticSetting);
    },
  };
}

/** Reads a list page by page. @throws {CloudFailure} */
async function* pagesOf<T>(
  target: CallTarget,
  list: { byPage(): AsyncIterableIterator<T[]> },
): AsyncGenerator<T[], void> {
  const pages = list.byPage();
  for (;;) {
    const { done, value } = await parsedByClient(target, () => pages.next());
    if (done) return;
    yield value;
  }
}

/** @throws {CloudFailure} badResponse if a member is not what the service documents. */
function subscriptionResource(answer: Subscription): SubscriptionResource {
  const { subscriptionId, displayName, state, tenantId } = requireSubscription(answer);
  return {
    subscriptionId,
    displayName: displayName ?? "",
    state: state ?? "Enabled",
    ...(tenantId ? { tenantId } : {}),
  };
}

/** Returns a page of a subscription's vaults from the entries that the SDK's client parsed. */
export function vaultPage(entries: readonly Vault[], subscriptionId: string): VaultPage {
  const page: VaultPage = { vaults: [], unreadable: [] };
  for (const entry of entries) {
    try {
      page.vaults.push(vaultResource(entry, subscriptionId));
    } catch (error) {
      if (!(error instanceof CloudFailure)) throw error;
      page.unreadable.push({ name: nameOfVault(entry), failure: error });
    }
  }
  return page;
}

/**
 * Defaults: https://learn.microsoft.com/rest/api/keyvault/keyvault/vaults/list-by-subscription
 * @throws {CloudFailure} badResponse if a member is not what the service documents.
 */
function vaultResource(answer: Vault, subscriptionId: string): VaultResource {
  const { id, name, location, tags, systemData, properties } = requireVault(answer);
  const resource: VaultResource = {
    id,
    name,
    location: location ?? "",
    subscriptionId,
    resourceGroup: /\/resourceGroups\/([^/]+)/i.exec(id)?.[1] ?? "",
    tenantId: properties.tenantId ?? "",
    vaultUri: properties.vaultUri,
    sku: properties.sku.name,
    tags: Object.fromEntries(
      Object.entries(tags ?? {}).filter((tag): tag is [string, string] => typeof tag[1] === "string"),
    ),
    softDelete: properties.enableSoftDelete ?? true,
    purgeProtection: properties.enablePurgeProtection ?? false,
    rbacAuthorization: properties.enableRbacAuthorization ?? false,
    publicNetworkAccess: /^enabled$/i.test(properties.publicNetworkAccess ?? "Enabled") ? "Enabled" : "Disabled",
    networkDefaultAction: /^deny$/i.test(properties.networkAcls?.defaultAction ?? "Allow") ? "Deny" : "Allow",
    privateEndpoints: (properties.privateEndpointConnections ?? []).filter(
      (connection) => connection.privateLinkServiceConnectionState?.status === "Approved",
    ).length,
  };
  const createdOn = isoTime(systemData?.createdAt);
  const updatedOn = isoTime(systemData?.lastModifiedAt);
  if (properties.softDeleteRetentionInDays != null) {
    resource.softDeleteRetentionDays = properties.softDeleteRetentionInDays;
  }
  if (createdOn) resource.createdOn = createdOn;
  if (updatedOn) resource.updatedOn = updatedOn;
  return resource;
}

/** Returns a UTC time with milliseconds, or undefined for an invalid date. */
const isoTime = (date: Date | null | undefined): string | undefined =>
  date && !Number.isNaN(date.getTime()) ? date.toISOString() : undefined;

/**
 * Groups that include AuditEvent:
 * https://learn.microsoft.com/azure/azure-monitor/essentials/diagnostic-settings#category-groups
 */
const AUDIT_GROUPS = new Set(["audit", "alllogs"]);

type DiagnosticSettingEntry = ReturnType<typeof diagnosticSettingsAnswer.parse>["value"][number];

function diagnosticSetting({ name, properties }: DiagnosticSettingEntry): DiagnosticSetting {
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
