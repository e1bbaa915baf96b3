// The rules of a subscription that can stop a deployment, which tests declare: permissions, resource providers, policies,
// locks, regions, quotas and names.

/** A policy and its assignment. */
export interface GovernancePolicy {
  /** Name of the assignment and the definition. */
  name: string;
  displayName?: string;
  /** Scope of the assignment. Default: the subscription. A management group applies to every subscription. */
  scope?: string;
  mode?: string;
  /** `if` and `then` of the definition. */
  policyRule: object;
  /** Definitions of parameters: `{ tagName: { type: "String", defaultValue: "owner" } }`. */
  parameters?: Record<string, object>;
  /** Values of parameters in the assignment. */
  values?: Record<string, unknown>;
  enforcementMode?: "Default" | "DoNotEnforce";
  notScopes?: string[];
  overrides?: object[];
  resourceSelectors?: object[];
  /** The policy is assigned as the only policy of an initiative, which has the parameters and passes the values on. */
  initiative?: boolean;
}

/** Declaration of the rules of one subscription. All members have a default, with which every deployment succeeds. */
export interface Governance {
  /** Permissions of the caller by scope. Default: everything at the subscription. */
  permissions?: { scope?: string; actions: string[]; notActions?: string[] }[];
  /** The caller's role assignments that have a condition. */
  conditions?: { scope?: string; role: string; condition: string }[];
  /** Namespaces of resource providers that are not registered. */
  unregistered?: string[];
  /** Resource types that a provider does not offer in a region: `{ "Microsoft.Insights/workbooks": ["westeurope"] }`. */
  missingTypes?: Record<string, string[]>;
  policies?: GovernancePolicy[];
  exemptions?: { policyAssignment: string; expiresOn?: string }[];
  locks?: { name: string; scope?: string; level: "ReadOnly" | "CanNotDelete" }[];
  /** Regions without Flex Consumption. */
  withoutFlexConsumption?: string[];
  /** Regions without availability zones. */
  withoutZones?: string[];
  /** Usage and limit of quotas by name, such as `StorageAccounts`. */
  quotas?: Record<string, { currentValue: number; limit: number }>;
  /** Names that other tenants use. */
  takenNames?: string[];
  /** Deleted vaults and App Configuration stores. */
  deleted?: { type: string; name: string; location: string; id: string; purgeProtection: boolean }[];
  /** Resource groups without resources, or with another region or state. */
  resourceGroups?: { name: string; location: string; state?: string; resources?: { type: string; name: string }[] }[];
}

/** Stores the rules by subscription, in memory. */
export class GovernanceStore {
  readonly #rules = new Map<string, Governance>();

  /** Sets the rules of a subscription. Undefined restores the defaults. */
  set(subscriptionId: string, rules: Governance | undefined): void {
    if (rules === undefined) this.#rules.delete(subscriptionId.toLowerCase());
    else this.#rules.set(subscriptionId.toLowerCase(), rules);
  }

  /** Returns the rules of a subscription. Empty, which means the defaults, if no test set any. */
  rulesOf(subscriptionId: string): Governance {
    return this.#rules.get(subscriptionId.toLowerCase()) ?? {};
  }
}

export interface Region {
  name: string;
  displayName: string;
  latitude: string;
  longitude: string;
}

export const REGIONS: readonly Region[] = [
  { name: "westeurope", displayName: "West Europe", latitude: "52.3667", longitude: "4.9" },
  { name: "northeurope", displayName: "North Europe", latitude: "53.3478", longitude: "-6.2597" },
];

/** Resource types by provider, in Azure's spelling. */
export const PROVIDERS: Readonly<Record<string, readonly string[]>> = {
  "Microsoft.App": ["environments", "containerApps", "managedEnvironments"],
  "Microsoft.AppConfiguration": ["configurationStores"],
  "Microsoft.Authorization": ["roleAssignments", "roleDefinitions", "locks", "policyAssignments"],
  "Microsoft.Communication": ["communicationServices", "emailServices", "emailServices/domains"],
  "Microsoft.EventGrid": ["systemTopics", "systemTopics/eventSubscriptions"],
  "microsoft.insights": ["components", "workbooks", "actionGroups", "scheduledQueryRules", "diagnosticSettings"],
  "Microsoft.KeyVault": ["vaults", "vaults/secrets"],
  "Microsoft.ManagedIdentity": ["userAssignedIdentities"],
  "Microsoft.Network": ["virtualNetworks", "privateEndpoints", "privateDnsZones", "natGateways", "publicIPAddresses"],
  "Microsoft.OperationalInsights": ["workspaces"],
  "Microsoft.PolicyInsights": ["remediations"],
  "Microsoft.Resources": ["subscriptions", "resourceGroups", "deployments"],
  "Microsoft.Storage": ["storageAccounts", "storageAccounts/blobServices"],
  "Microsoft.Web": ["sites", "serverFarms", "sites/config"],
};

/** Types without a region. */
export const GLOBAL_TYPES = new Set([
  "Microsoft.Communication/communicationServices",
  "Microsoft.Communication/emailServices",
  "Microsoft.Network/privateDnsZones",
  "microsoft.insights/actionGroups",
  "Microsoft.EventGrid/systemTopics",
]);
