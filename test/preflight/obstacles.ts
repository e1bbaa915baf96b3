// The obstacles that tests plant in a subscription, each with the finding that preflight must report.

import type { Governance } from "simulated-cloud/arm/governance.ts";
import type { Value } from "../../infra/preflight/values.ts";
import {
  denies,
  GROUP_ID,
  NETWORK_ID,
  OTHER_SUBSCRIPTION,
  OWN_SUBNETS,
  ofType,
  type PlannedSubscription,
  SUBSCRIPTION,
  SUBSCRIPTION_ID,
} from "./planned-subscription.ts";

export interface Obstacle {
  /** The obstacle, as the end of the test's title "finds …". */
  name: string;
  /** Creates the obstacle in the simulated cloud. */
  plant(subscription: PlannedSubscription): void;
  /** Parameters of the deployment, if it needs others than the defaults. */
  parameters?: Record<string, Value>;
  /** The finding: its code, severity, a part of its subject, and a part of its command. */
  expected: [code: string, severity: "stops" | "degrades" | "notChecked", subject: string, command: string];
}

/** Plants rules of the subscription. */
const governed =
  (rules: Governance) =>
  (subscription: PlannedSubscription): void =>
    subscription.plant(rules);
/** Plants a vault to watch. */
const withVault =
  (vault: object) =>
  ({ cloud }: PlannedSubscription): void =>
    cloud.control.putVault(SUBSCRIPTION, { name: "kv-watched", resourceGroup: "rg-watched", ...vault });
/** Permissions of the role Contributor: everything but roles. */
const CONTRIBUTOR = {
  actions: ["*"],
  notActions: ["Microsoft.Authorization/*/Write", "Microsoft.Authorization/*/Delete"],
};
const STORAGE = "Microsoft.Storage/storageAccounts";
const VAULT = "Microsoft.KeyVault/vaults";
/** Plants a deleted vault with the name of the planned one. */
const deletedVault = (subscription: PlannedSubscription, purgeProtection: boolean, group = GROUP_ID) => {
  const name = subscription.nameOf(VAULT);
  const id = `${group}/providers/${VAULT}/${name}`;
  subscription.plant({ deleted: [{ type: VAULT, name, location: "westeurope", id, purgeProtection }] });
};

export const PERMISSION_OBSTACLES: readonly Obstacle[] = [
  {
    name: "Contributor and Role Based Access Control Administrator, who can't create the custom roles",
    plant: governed({
      permissions: [CONTRIBUTOR, { actions: ["Microsoft.Authorization/roleAssignments/write", "*/read"] }],
    }),
    expected: ["permissions.roles", "stops", SUBSCRIPTION_ID, "--role 'User Access Administrator'"],
  },
  {
    name: "only a role on roles",
    plant: governed({ permissions: [{ actions: ["*/read", "Microsoft.Authorization/*"] }] }),
    expected: ["permissions.resources", "stops", SUBSCRIPTION_ID, "--role Contributor"],
  },
  {
    name: "no roles on another watched subscription",
    plant: (subscription) => subscription.plant({ permissions: [CONTRIBUTOR] }, OTHER_SUBSCRIPTION),
    parameters: { watchedSubscriptionIds: [SUBSCRIPTION, OTHER_SUBSCRIPTION] },
    expected: ["permissions.roles", "stops", OTHER_SUBSCRIPTION, `--scope /subscriptions/${OTHER_SUBSCRIPTION}`],
  },
  {
    name: "a condition on the role assignment of the deployer",
    plant: governed({
      conditions: [{ role: "Owner", condition: "@Request[Microsoft.Authorization/roleAssignments:…]" }],
    }),
    expected: ["permissions.condition", "degrades", "roleAssignments/", "condition:condition"],
  },
  {
    name: "no permission to join the subnets of another team",
    plant(subscription) {
      subscription.putNetwork();
      const notActions = ["Microsoft.Network/virtualNetworks/subnets/join/action"];
      subscription.plant({ permissions: [{ actions: ["*"], notActions }] });
    },
    parameters: OWN_SUBNETS,
    expected: ["permissions.resources", "stops", "/subnets/", "--role 'Network Contributor'"],
  },
  {
    name: "a resource provider that is not registered",
    plant: governed({ unregistered: ["Microsoft.Communication"] }),
    expected: ["provider.notRegistered", "degrades", "Microsoft.Communication", "az provider register --namespace"],
  },
  {
    name: "the provider of the subnet's delegation, which no deployment registers",
    plant: governed({ unregistered: ["Microsoft.App"] }),
    parameters: { networkEnabled: true },
    expected: ["provider.notRegistered", "stops", "Microsoft.App", "--wait"],
  },
  {
    name: "a read-only lock on the subscription",
    plant: governed({ locks: [{ name: "frozen", level: "ReadOnly" }] }),
    expected: ["lock.readOnly", "stops", "frozen", "az lock delete --ids"],
  },
  {
    name: "a lock against deletion on the resource group",
    plant: governed({
      resourceGroups: [{ name: "rg-lifecycle", location: "westeurope" }],
      locks: [{ name: "keep", scope: GROUP_ID, level: "CanNotDelete" }],
    }),
    expected: ["lock.cannotDelete", "degrades", "keep", "az lock delete --ids"],
  },
  {
    name: "a read-only lock on the storage account of an earlier deployment",
    plant: (subscription) => {
      const type = "Microsoft.Storage/storageAccounts";
      const name = subscription.nameOf(type);
      subscription.plant({
        resourceGroups: [{ name: "rg-lifecycle", location: "westeurope", resources: [{ type, name }] }],
        locks: [{ name: "frozen", scope: `${GROUP_ID}/providers/${type}/${name}`, level: "ReadOnly" }],
      });
    },
    expected: ["lock.readOnly", "stops", "frozen", "az lock delete --ids"],
  },
  {
    name: "a read-only lock on a resource group of others whose name ends as that of events",
    plant: governed({
      resourceGroups: [{ name: "rg-shop-events", location: "westeurope" }],
      locks: [{ name: "frozen", scope: `${SUBSCRIPTION_ID}/resourceGroups/rg-shop-events`, level: "ReadOnly" }],
    }),
    parameters: { rotationResourceGroupIds: [`${SUBSCRIPTION_ID}/resourceGroups/rg-shop-events`] },
    expected: ["lock.readOnly", "stops", "frozen", "az lock delete --ids"],
  },
  {
    name: "a read-only lock on a resource group whose keys are rotated",
    plant: governed({
      resourceGroups: [{ name: "rg-data", location: "westeurope" }],
      locks: [{ name: "frozen", scope: `${SUBSCRIPTION_ID}/resourceGroups/rg-data`, level: "ReadOnly" }],
    }),
    parameters: { rotationKeyKinds: { [`${SUBSCRIPTION_ID}/resourceGroups/rg-data`]: ["storage"] } },
    expected: ["lock.readOnly", "stops", "frozen", "az lock delete --ids"],
  },
  {
    name: "a disabled subscription",
    plant: ({ cloud }) => void cloud.control.putSubscription({ name: "Platform", id: SUBSCRIPTION, state: "Disabled" }),
    expected: ["subscription.state", "stops", "Platform", "az account subscription enable"],
  },
  {
    name: "a subscription of another tenant, which the deployer sees through Azure Lighthouse",
    plant: ({ cloud }) =>
      void cloud.control.putSubscription({
        name: "Platform",
        id: SUBSCRIPTION,
        tenantId: "99999999-2222-4333-8444-555555555555",
      }),
    expected: ["subscription.otherTenant", "degrades", "Platform", "az login --tenant 99999999-"],
  },
];

export const POLICY_OBSTACLES: readonly Obstacle[] = [
  {
    name: "allowed locations",
    plant: governed({
      policies: [
        denies(
          "locations",
          {
            allOf: [
              { field: "location", notIn: "[parameters('allowed')]" },
              { field: "location", notEquals: "global" },
            ],
          },
          { mode: "Indexed", parameters: { allowed: { type: "Array" } }, values: { allowed: ["northeurope"] } },
        ),
      ],
    }),
    expected: ["policy.denies", "stops", "locations", "--set 'location=northeurope'"],
  },
  {
    name: "a required tag on resource groups",
    plant: governed({
      policies: [
        denies(
          "cost-center",
          ofType("Microsoft.Resources/subscriptions/resourceGroups", {
            field: "[concat('tags[', parameters('tagName'), ']')]",
            exists: "false",
          }),
          { parameters: { tagName: { type: "String" } }, values: { tagName: "costCenter" } },
        ),
      ],
    }),
    expected: ["policy.denies", "stops", "cost-center", `--set 'tags={"costCenter":"VALUE"}'`],
  },
  {
    name: "a required tag with a value, in an initiative of a management group",
    plant: governed({
      policies: [
        denies(
          "environment-tag",
          { not: { field: "[concat('tags[', parameters('tagName'), ']')]", equals: "[parameters('tagValue')]" } },
          {
            mode: "Indexed",
            initiative: true,
            scope: "/providers/Microsoft.Management/managementGroups/acme",
            parameters: { tagName: { type: "String" }, tagValue: { type: "String" } },
            values: { tagName: "environment", tagValue: "production" },
          },
        ),
      ],
    }),
    expected: ["policy.denies", "stops", "environment-tag", `--set 'tags={"environment":"production"}'`],
  },
  {
    name: "allowed resource types, without those for mail",
    plant: governed({
      policies: [denies("no-mail", { field: "type", like: "Microsoft.Communication/*" })],
    }),
    expected: ["policy.denies", "stops", "no-mail", "--set 'mailEnabled=false'"],
  },
  {
    name: "no public network access of storage accounts",
    plant: governed({
      policies: [
        denies("private-storage", ofType(STORAGE, { field: `${STORAGE}/publicNetworkAccess`, notEquals: "Disabled" })),
      ],
    }),
    expected: ["policy.denies", "stops", "private-storage", "--set 'networkEnabled=true'"],
  },
  {
    name: "no public network access of apps",
    plant: governed({
      policies: [
        denies(
          "private-apps",
          ofType("Microsoft.Web/sites", { field: "Microsoft.Web/sites/publicNetworkAccess", notEquals: "Disabled" }),
        ),
      ],
    }),
    expected: ["policy.denies", "stops", "private-apps", ""],
  },
  {
    name: "no subnet without a network security group and a route table",
    plant: governed({
      policies: [
        denies(
          "guarded-subnets",
          ofType("Microsoft.Network/virtualNetworks/subnets", {
            anyOf: ["networkSecurityGroup.id", "routeTable.id"].map((member) => ({
              field: `Microsoft.Network/virtualNetworks/subnets/${member}`,
              exists: "false",
            })),
          }),
        ),
      ],
    }),
    parameters: { networkEnabled: true },
    expected: ["policy.denies", "stops", "guarded-subnets", "az policy exemption create"],
  },
  {
    name: "no private DNS zones in this subscription",
    plant: governed({ policies: [denies("no-zones", { field: "type", equals: "Microsoft.Network/privateDnsZones" })] }),
    parameters: { networkEnabled: true },
    expected: ["policy.denies", "stops", "no-zones", "--set 'privateDnsZonesEnabled=false'"],
  },
  {
    name: "a policy that adds private endpoints to central zones",
    plant: governed({
      policies: [
        {
          ...denies("central-zones", { field: "type", equals: "Microsoft.Network/privateEndpoints" }),
          policyRule: {
            if: { field: "type", equals: "Microsoft.Network/privateEndpoints" },
            // biome-ignore lint/suspicious/noThenProperty: the word of a policy.
            then: {
              effect: "deployIfNotExists",
              details: { type: "Microsoft.Network/privateEndpoints/privateDnsZoneGroups" },
            },
          },
        },
      ],
    }),
    parameters: { networkEnabled: true },
    expected: ["policy.zoneGroups", "degrades", "central-zones", "--set 'privateDnsZonesEnabled=false'"],
  },
  {
    name: "allowed SKUs of storage accounts",
    plant: governed({
      policies: [
        denies(
          "storage-skus",
          ofType(STORAGE, { not: { field: `${STORAGE}/sku.name`, in: ["Standard_LRS", "Standard_GZRS"] } }),
        ),
      ],
    }),
    expected: ["policy.denies", "stops", "storage-skus", "--set 'storageReplication=LRS'"],
  },
  {
    name: "zone redundancy of plans",
    plant: governed({
      policies: [
        denies(
          "zone-redundant",
          ofType("Microsoft.Web/serverfarms", { field: "Microsoft.Web/serverfarms/zoneRedundant", notEquals: true }),
        ),
      ],
    }),
    expected: ["policy.denies", "stops", "zone-redundant", ""],
  },
  {
    name: "customer-managed keys of storage accounts",
    plant: governed({
      policies: [
        denies(
          "storage-cmk",
          ofType(STORAGE, { field: `${STORAGE}/encryption.keySource`, notEquals: "Microsoft.Keyvault" }),
        ),
      ],
    }),
    expected: ["policy.denies", "stops", "storage-cmk", ""],
  },
  {
    name: "a policy with a function that preflight can't evaluate",
    plant: governed({
      policies: [denies("opaque", { value: "[dateTimeAdd(utcNow(), 'P1D')]", greater: "2020-01-01" })],
    }),
    expected: ["policy.notEvaluated", "notChecked", "opaque", "az rest --method get"],
  },
];

export const NAME_OBSTACLES: readonly Obstacle[] = [
  {
    name: "a region without Flex Consumption",
    plant: governed({ withoutFlexConsumption: ["westeurope"] }),
    expected: ["region.noFlexConsumption", "stops", "westeurope", "--set 'location=northeurope'"],
  },
  {
    name: "a region without zones",
    plant: governed({ withoutZones: ["westeurope"] }),
    expected: ["region.noZones", "stops", "westeurope", "--set 'storageReplication=LRS'"],
  },
  {
    name: "a region that the subscription does not have",
    plant: () => undefined,
    parameters: { location: "westeuropa" },
    expected: ["region.unknown", "stops", "westeuropa", "az account list-locations"],
  },
  {
    name: "a region without a resource type",
    plant: governed({ missingTypes: { "microsoft.insights/workbooks": ["westeurope"] } }),
    expected: ["region.type", "stops", "westeurope", "az provider show --namespace Microsoft.Insights"],
  },
  {
    name: "a used-up quota of storage accounts",
    plant: governed({ quotas: { StorageAccounts: { currentValue: 250, limit: 250 } } }),
    expected: ["quota.exceeded", "stops", "StorageAccounts", "az quota create"],
  },
  ...[STORAGE, "Microsoft.Web/sites", "Microsoft.Communication/communicationServices"].map(
    (type): Obstacle => ({
      name: `a taken name of ${type}`,
      plant: (subscription) => subscription.plant({ takenNames: [subscription.nameOf(type)] }),
      expected: ["name.taken", "stops", "", "--set 'environmentName=lifecycle-2'"],
    }),
  ),
  {
    name: "a deleted vault of an earlier deployment, with purge protection",
    plant: (subscription) => deletedVault(subscription, true),
    expected: ["name.deletedProtected", "stops", "kv-", "az keyvault recover --name kv-"],
  },
  {
    name: "a deleted vault of another resource group, with purge protection",
    plant: (subscription) => deletedVault(subscription, true, `${SUBSCRIPTION_ID}/resourceGroups/rg-other`),
    expected: ["name.deletedProtected", "stops", "kv-", "--set 'environmentName=lifecycle-2'"],
  },
  {
    name: "a deleted vault without purge protection",
    plant: (subscription) => deletedVault(subscription, false),
    expected: ["name.deleted", "stops", "kv-", "az keyvault purge --name kv-"],
  },
  {
    name: "a deleted App Configuration store",
    plant(subscription) {
      const type = "Microsoft.AppConfiguration/configurationStores";
      const name = subscription.nameOf(type, { appConfigurationEnabled: true });
      const id = `${GROUP_ID}/providers/${type}/${name}`;
      subscription.plant({ deleted: [{ type, name, location: "westeurope", id, purgeProtection: true }] });
    },
    parameters: { appConfigurationEnabled: true },
    expected: ["name.deletedProtected", "stops", "appcs-lifecycle", "az appconfig recover --name appcs-"],
  },
  {
    name: "a resource group in another region",
    plant: governed({ resourceGroups: [{ name: "rg-lifecycle", location: "northeurope" }] }),
    expected: ["group.otherRegion", "stops", "rg-lifecycle", "--set 'location=northeurope'"],
  },
  {
    name: "a resource group that is being deleted",
    plant: governed({ resourceGroups: [{ name: "rg-lifecycle", location: "westeurope", state: "Deleting" }] }),
    expected: ["group.deleting", "stops", "rg-lifecycle", "az group wait --deleted"],
  },
];

export const NETWORK_OBSTACLES: readonly Obstacle[] = [
  {
    name: "a subnet that does not exist",
    plant: (subscription) => subscription.putNetwork(),
    parameters: { ...OWN_SUBNETS, privateEndpointSubnetResourceId: `${NETWORK_ID}/subnets/absent` },
    expected: ["existing.missing", "stops", "/subnets/absent", "az network vnet subnet list"],
  },
  {
    name: "an app's subnet without delegation",
    plant: (subscription) => subscription.putNetwork({ functions: { delegations: [] } }),
    parameters: OWN_SUBNETS,
    expected: ["network.delegation", "stops", "/subnets/functions", "--delegations Microsoft.App/environments"],
  },
  {
    name: "an app's subnet that is too small",
    plant: (subscription) => subscription.putNetwork({ functions: { addressPrefix: "10.0.0.0/28" } }),
    parameters: OWN_SUBNETS,
    expected: ["network.size", "stops", "/subnets/functions", "--address-prefixes"],
  },
  {
    name: "an app's subnet without the service endpoint of key vaults",
    plant: (subscription) => subscription.putNetwork({ functions: { serviceEndpoints: [] } }),
    parameters: OWN_SUBNETS,
    expected: ["network.serviceEndpoint", "degrades", "/subnets/functions", "--service-endpoints Microsoft.KeyVault"],
  },
  {
    name: "a delegated subnet for private endpoints",
    plant: (subscription) =>
      subscription.putNetwork({
        endpoints: { delegations: [{ name: "web", properties: { serviceName: "Microsoft.Web/serverFarms" } }] },
      }),
    parameters: OWN_SUBNETS,
    expected: ["network.delegatedEndpoints", "stops", "/subnets/endpoints", "--remove delegations"],
  },
  {
    name: "one subnet for the app and the private endpoints",
    plant: (subscription) => subscription.putNetwork(),
    parameters: { ...OWN_SUBNETS, privateEndpointSubnetResourceId: OWN_SUBNETS.functionSubnetResourceId },
    expected: ["network.sameSubnet", "stops", "/subnets/functions", "az network vnet subnet list"],
  },
  {
    name: "a network in another region",
    plant: (subscription) => subscription.putNetwork({ location: "northeurope" }),
    parameters: OWN_SUBNETS,
    expected: ["network.region", "stops", "/subnets/", "--set 'location=northeurope'"],
  },
  {
    name: "a network that is linked to a zone of the same name",
    plant(subscription) {
      subscription.putNetwork();
      subscription.cloud.control.consumers.put(SUBSCRIPTION, {
        type: "Microsoft.Network/privateDnsZones",
        name: "privatelink.vaultcore.azure.net",
        resourceGroup: "rg-dns",
        location: "global",
        children: { virtualNetworkLinks: [{ name: "hub", properties: { virtualNetwork: { id: NETWORK_ID } } }] },
      });
    },
    parameters: OWN_SUBNETS,
    expected: [
      "network.zoneLinked",
      "stops",
      "privatelink.vaultcore.azure.net",
      "--set 'privateDnsZonesEnabled=false'",
    ],
  },
  {
    name: "only one of the two subnets",
    plant: (subscription) => subscription.putNetwork(),
    parameters: { networkEnabled: true, functionSubnetResourceId: OWN_SUBNETS.functionSubnetResourceId },
    expected: ["parameter.oneSubnet", "stops", "functionSubnetResourceId", "--set 'privateEndpointSubnetResourceId="],
  },
  {
    name: "a NAT gateway without the network",
    plant: () => undefined,
    parameters: { natGatewayEnabled: true },
    expected: ["parameter.refused", "stops", "natGatewayEnabled", "--set 'networkEnabled=true'"],
  },
  {
    name: "a NAT gateway with existing subnets",
    plant: (subscription) => subscription.putNetwork(),
    parameters: { ...OWN_SUBNETS, natGatewayEnabled: true },
    expected: ["parameter.refused", "stops", "natGatewayEnabled", "--set 'natGatewayEnabled=false'"],
  },
  {
    name: "existing subnets without the network option",
    plant: (subscription) => subscription.putNetwork(),
    parameters: { ...OWN_SUBNETS, networkEnabled: false },
    expected: ["parameter.ignored", "degrades", "functionSubnetResourceId", "--set 'networkEnabled=true'"],
  },
  {
    name: "a vault behind a firewall",
    plant: withVault({ networkDefaultAction: "Deny" }),
    expected: ["vault.firewall", "degrades", "kv-watched", "az keyvault network-rule add --name kv-watched"],
  },
  {
    name: "a vault without public access",
    plant: withVault({ publicNetworkAccess: "Disabled", privateEndpoints: 1 }),
    expected: ["vault.privateOnly", "degrades", "kv-watched", "az network private-endpoint create"],
  },
  {
    name: "a vault of another tenant",
    plant: withVault({ tenantId: "99999999-2222-4333-8444-555555555555" }),
    expected: ["vault.otherTenant", "degrades", "kv-watched", "az keyvault update --name kv-watched"],
  },
  {
    name: "a vault with access policies",
    plant: withVault({ rbac: false }),
    expected: ["vault.accessPolicies", "degrades", "kv-watched", "az keyvault set-policy --name kv-watched"],
  },
];

/** Workspace of another team. */
const WORKSPACE_ID = `${SUBSCRIPTION_ID}/resourceGroups/rg-logs/providers/Microsoft.OperationalInsights/workspaces/log-central`;
const putWorkspace = ({ cloud }: PlannedSubscription) =>
  cloud.control.consumers.put(SUBSCRIPTION, {
    type: "Microsoft.OperationalInsights/workspaces",
    name: "log-central",
    resourceGroup: "rg-logs",
  });

const KEYS_ID = `${SUBSCRIPTION_ID}/resourceGroups/rg-keys/providers`;
export const CUSTOMER_MANAGED_KEY = {
  customerManagedKey: {
    keyVaultResourceId: `${KEYS_ID}/Microsoft.KeyVault/vaults/kv-watched`,
    keyName: "lifecycle",
    userAssignedIdentityResourceId: `${KEYS_ID}/Microsoft.ManagedIdentity/userAssignedIdentities/id-key`,
  },
};
export const KEY_CLIENT_ID = "cccccccc-cccc-4ccc-8ccc-cccccccccccc";
/** Creates the vault and the identity of CUSTOMER_MANAGED_KEY. */
export function putKeyVault({ cloud }: PlannedSubscription, { purgeProtection = true, identity = true } = {}): void {
  const [resourceGroup, type] = ["rg-keys", "Microsoft.ManagedIdentity/userAssignedIdentities"];
  cloud.control.putVault(SUBSCRIPTION, { name: "kv-watched", resourceGroup, purgeProtection });
  if (identity)
    cloud.control.consumers.put(SUBSCRIPTION, {
      type,
      name: "id-key",
      resourceGroup,
      properties: { clientId: KEY_CLIENT_ID },
    });
}

const CENTRAL_ZONES = {
  networkEnabled: true,
  privateDnsZoneResourceIds: {
    vault: `${SUBSCRIPTION_ID}/resourceGroups/rg-dns/providers/Microsoft.Network/privateDnsZones/privatelink.vaultcore.azure.net`,
  },
};

export const BRING_YOUR_OWN_OBSTACLES: readonly Obstacle[] = [
  {
    name: "a resource group that does not exist",
    plant: () => undefined,
    parameters: { resourceGroupName: "rg-absent" },
    expected: ["group.missing", "stops", "rg-absent", "az group create --name rg-absent"],
  },
  {
    name: "a region without zone-redundant Flex Consumption",
    plant: governed({ withoutZones: ["westeurope"] }),
    parameters: { zoneRedundant: true, storageReplication: "LRS" },
    expected: ["region.noZoneRedundancy", "stops", "westeurope", "--set 'zoneRedundant=false'"],
  },
  {
    name: "a workspace that does not exist",
    plant: governed({ resourceGroups: [{ name: "rg-logs", location: "westeurope" }] }),
    parameters: { logAnalyticsWorkspaceResourceId: WORKSPACE_ID },
    expected: ["existing.missing", "stops", "/workspaces/log-central", "az monitor log-analytics workspace list"],
  },
  {
    name: "no permission on the workspace of another team",
    plant(subscription) {
      putWorkspace(subscription);
      const notActions = ["Microsoft.OperationalInsights/workspaces/sharedKeys/action"];
      subscription.plant({ permissions: [{ actions: ["*"], notActions }] });
    },
    parameters: { logAnalyticsWorkspaceResourceId: WORKSPACE_ID },
    expected: ["permissions.resources", "stops", "/workspaces/log-central", "--role 'Log Analytics Contributor'"],
  },
  {
    name: "a role of a platform team that does not exist",
    plant: () => undefined,
    parameters: {
      inventoryReaderRoleDefinitionId: `${SUBSCRIPTION_ID}/providers/Microsoft.Authorization/roleDefinitions/99999999-2222-4333-8444-555555555555`,
    },
    expected: ["existing.missing", "stops", "/roleDefinitions/99999999-", "az role definition list"],
  },
  {
    name: "a kind of keys that rotations don't regenerate",
    plant: governed({ resourceGroups: [{ name: "rg-data", location: "westeurope" }] }),
    parameters: { rotationKeyKinds: { [`${SUBSCRIPTION_ID}/resourceGroups/rg-data`]: ["storage", "iotHub"] } },
    expected: ["parameter.refused", "stops", "lifecycle", "az deployment sub validate"],
  },
  {
    name: "a private endpoint of the app without the network",
    plant: () => undefined,
    parameters: { appPrivateEndpointEnabled: true },
    expected: ["parameter.refused", "stops", "appPrivateEndpointEnabled", "--set 'networkEnabled=true'"],
  },
  {
    name: "an app that nobody can call",
    plant: () => undefined,
    parameters: { appPublicNetworkAccessEnabled: false },
    expected: [
      "parameter.ignored",
      "degrades",
      "appPublicNetworkAccessEnabled",
      "--set 'appPrivateEndpointEnabled=true'",
    ],
  },
  {
    name: "a customer-managed key in a vault without purge protection",
    plant: (subscription) => putKeyVault(subscription, { purgeProtection: false }),
    parameters: CUSTOMER_MANAGED_KEY,
    expected: ["existing.purgeProtection", "stops", "/vaults/kv-watched", "az keyvault update --name kv-watched"],
  },
  {
    name: "a client ID that is not the one of the identity for the customer-managed key",
    plant: (subscription) => putKeyVault(subscription),
    parameters: {
      customerManagedKey: {
        ...CUSTOMER_MANAGED_KEY.customerManagedKey,
        userAssignedIdentityClientId: "dddddddd-dddd-4ddd-8ddd-dddddddddddd",
      },
    },
    expected: ["existing.clientId", "stops", "/userAssignedIdentities/id-key", "--query clientId"],
  },
  {
    name: "an identity for the customer-managed key that does not exist",
    plant: (subscription) => putKeyVault(subscription, { identity: false }),
    parameters: CUSTOMER_MANAGED_KEY,
    expected: ["existing.missing", "stops", "/userAssignedIdentities/id-key", "az identity list"],
  },
  {
    name: "a private DNS zone that does not exist",
    plant: governed({ resourceGroups: [{ name: "rg-dns", location: "westeurope" }] }),
    parameters: CENTRAL_ZONES,
    expected: ["existing.missing", "stops", "/privateDnsZones/", "az network private-dns zone list"],
  },
  {
    name: "no permission on the private DNS zone of another team",
    plant(subscription) {
      subscription.cloud.control.consumers.put(SUBSCRIPTION, {
        type: "Microsoft.Network/privateDnsZones",
        name: "privatelink.vaultcore.azure.net",
        resourceGroup: "rg-dns",
      });
      subscription.plant({
        permissions: [{ actions: ["*"], notActions: ["Microsoft.Network/privateDnsZones/join/action"] }],
      });
    },
    parameters: CENTRAL_ZONES,
    expected: ["permissions.resources", "stops", "/privateDnsZones/", "--role 'Private DNS Zone Contributor'"],
  },
];
