import { type ArmCall, createArm } from "./arm.ts";
import { CloudFailure, malformedAnswer } from "./failure.ts";
import type { CloudServices } from "./key-vault.ts";
import { parseResourceId, resourceName, resourcePath } from "./resource-id.ts";
import {
  type AnsweredSubscription,
  type AnsweredVault,
  diagnosticSettingsAnswer,
  nameOfVault,
  readSubscriptionEntry,
  readVaultEntry,
  subscriptionAnswer,
  vaultAnswer,
} from "./resource-manager-answers.ts";
import { INVENTORY_READER } from "./watch-roles.ts";

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

/** A page of a subscription's vaults. */
export interface VaultPage {
  vaults: VaultResource[];
  /** Those whose description is not what the service documents. Without a name it may be any vault. */
  unreadable: { name: string | undefined; failure: CloudFailure }[];
}

/** Every method throws `CloudFailure`; `timedOut` once its signal is aborted. */
export interface ResourceManager {
  /** All that the identity may see, and why an entry of the list could not be read. */
  subscriptions(signal?: AbortSignal): Promise<{ subscriptions: SubscriptionResource[]; unreadable: CloudFailure[] }>;
  subscription(subscriptionId: string, signal?: AbortSignal): Promise<SubscriptionResource>;
  /** Page by page; it has seen every vault only when it ends without an error. */
  vaults(subscriptionId: string, signal?: AbortSignal): AsyncGenerator<VaultPage>;
  /**
   * One vault; `notFound` also while it is deleted and can be recovered.
   *
   * @throws {TypeError} when the id is not that of a vault.
   */
  vault(vaultResourceId: string, signal?: AbortSignal): Promise<VaultResource>;
  diagnosticSettings(vaultResourceId: string, signal?: AbortSignal): Promise<DiagnosticSetting[]>;
}

/** Vaults per page: the most that the resource manager's lists give. */
const VAULTS_PER_PAGE = 1000;

/** https://learn.microsoft.com/rest/api/resources/subscriptions */
const SUBSCRIPTIONS_VERSION = "2022-12-01";

/** https://learn.microsoft.com/rest/api/keyvault/keyvault/vaults/list-by-subscription, and `get` beside it. */
const VAULTS_VERSION = "2026-02-01";

/** https://learn.microsoft.com/rest/api/monitor/diagnostic-settings/list */
const DIAGNOSTIC_SETTINGS_VERSION = "2021-05-01-preview";

const VAULT_TYPE = "microsoft.keyvault/vaults";

export function createResourceManager(services: CloudServices): ResourceManager {
  const arm = createArm(services);

  return {
    async subscriptions(signal) {
      const subscriptions: SubscriptionResource[] = [];
      const unreadable: CloudFailure[] = [];
      const target = { operation: "list subscriptions", resource: "the resource manager", grant: INVENTORY_READER };
      for await (const entries of arm.pages({
        path: "/subscriptions",
        apiVersion: SUBSCRIPTIONS_VERSION,
        target,
        signal,
      })) {
        for (const entry of entries) {
          try {
            subscriptions.push(subscriptionResource(readSubscriptionEntry(entry)));
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
      const answer = await arm.call({ path, apiVersion: SUBSCRIPTIONS_VERSION, target, signal }, subscriptionAnswer);
      return subscriptionResource(answer);
    },

    async *vaults(subscriptionId, signal) {
      const list: ArmCall = {
        path: `/subscriptions/${encodeURIComponent(subscriptionId)}/providers/Microsoft.KeyVault/vaults`,
        apiVersion: VAULTS_VERSION,
        query: { $top: String(VAULTS_PER_PAGE) },
        target: { operation: "list vaults", resource: `subscription ${subscriptionId}`, grant: INVENTORY_READER },
        signal,
      };
      try {
        for await (const entries of arm.pages(list)) yield vaultPage(entries, subscriptionId);
      } catch (error) {
        // A provider can't be unregistered while any of its resources exist, so this subscription has no vault:
        // https://learn.microsoft.com/azure/azure-resource-manager/management/resource-providers-and-types
        if (!(error instanceof CloudFailure && error.cloudCode === "MissingSubscriptionRegistration")) throw error;
      }
    },

    async vault(vaultResourceId, signal) {
      const path = resourcePath(vaultResourceId, VAULT_TYPE);
      const resource = `key vault ${resourceName(vaultResourceId)}`;
      const target = { operation: "read the description", resource, grant: INVENTORY_READER };
      const answer = await arm.call({ path, apiVersion: VAULTS_VERSION, target, signal }, vaultAnswer);
      // An answer about another vault is no description of this one.
      if (answer.id.toLowerCase() !== vaultResourceId.toLowerCase()) {
        throw malformedAnswer(target, "the answer is about another vault");
      }
      return vaultResource(answer, parseResourceId(answer.id)!.subscriptionId.toLowerCase());
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

const subscriptionResource = (found: AnsweredSubscription): SubscriptionResource => ({
  subscriptionId: found.subscriptionId,
  displayName: found.displayName ?? "",
  state: found.state ?? "Enabled",
  ...(found.tenantId ? { tenantId: found.tenantId } : {}),
});

/** A page of a subscription's vaults from the entries of the answer. */
export function vaultPage(entries: readonly unknown[], subscriptionId: string): VaultPage {
  const page: VaultPage = { vaults: [], unreadable: [] };
  for (const entry of entries) {
    try {
      page.vaults.push(vaultResource(readVaultEntry(entry), subscriptionId));
    } catch (error) {
      if (!(error instanceof CloudFailure)) throw error;
      page.unreadable.push({ name: nameOfVault(entry), failure: error });
    }
  }
  return page;
}

/** Defaults: https://learn.microsoft.com/rest/api/keyvault/keyvault/vaults/list-by-subscription */
function vaultResource({ id, name, location, tags, systemData, properties }: AnsweredVault, subscriptionId: string) {
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
      (connection) => connection.properties?.privateLinkServiceConnectionState?.status === "Approved",
    ).length,
  };
  const createdOn = instant(systemData?.createdAt);
  const updatedOn = instant(systemData?.lastModifiedAt);
  if (properties.softDeleteRetentionInDays != null) {
    resource.softDeleteRetentionDays = properties.softDeleteRetentionInDays;
  }
  if (createdOn) resource.createdOn = createdOn;
  if (updatedOn) resource.updatedOn = updatedOn;
  return resource;
}

/** A time in UTC with milliseconds; undefined when the text is none. */
function instant(text: string | null | undefined): string | undefined {
  const date = text ? new Date(text) : undefined;
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
