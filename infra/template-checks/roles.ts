// The built-in Azure roles that the templates use.

export interface Role {
  id: string;
  name: string;
  actions: readonly string[];
  dataActions: readonly string[];
}

const STORAGE = "Microsoft.Storage/storageAccounts";

/**
 * IDs, names and permissions as of https://learn.microsoft.com/azure/role-based-access-control/built-in-roles. `actions` are
 * operations on Azure resources, `dataActions` on the data in them.
 */
export const BUILT_IN_ROLES: readonly Role[] = [
  {
    id: "befefa01-2a29-4197-83a8-272ff33ce314",
    name: "DNS Zone Contributor",
    actions: [
      "Microsoft.Authorization/*/read",
      "Microsoft.Insights/alertRules/*",
      "Microsoft.Network/dnsZones/*",
      "Microsoft.ResourceHealth/availabilityStatuses/read",
      "Microsoft.Resources/deployments/*",
      "Microsoft.Resources/subscriptions/resourceGroups/read",
      "Microsoft.Support/*",
    ],
    dataActions: [],
  },
  {
    id: "a4417e6f-fecd-4de8-b567-7b0420556985",
    name: "Key Vault Certificates Officer",
    actions: [
      "Microsoft.Authorization/*/read",
      "Microsoft.Insights/alertRules/*",
      "Microsoft.Resources/deployments/*",
      "Microsoft.Resources/subscriptions/resourceGroups/read",
      "Microsoft.Support/*",
      "Microsoft.KeyVault/checkNameAvailability/read",
      "Microsoft.KeyVault/deletedVaults/read",
      "Microsoft.KeyVault/locations/*/read",
      "Microsoft.KeyVault/vaults/*/read",
      "Microsoft.KeyVault/operations/read",
    ],
    dataActions: [
      "Microsoft.KeyVault/vaults/certificatecas/*",
      "Microsoft.KeyVault/vaults/certificates/*",
      "Microsoft.KeyVault/vaults/certificatecontacts/write",
    ],
  },
  {
    id: "b7e6dc6d-f1e8-4753-8033-0f276bb0955b",
    name: "Storage Blob Data Owner",
    actions: [`${STORAGE}/blobServices/containers/*`, `${STORAGE}/blobServices/generateUserDelegationKey/action`],
    dataActions: [`${STORAGE}/blobServices/containers/blobs/*`],
  },
  {
    id: "974c5e8b-45b9-4653-ba55-5f855dd0fb88",
    name: "Storage Queue Data Contributor",
    actions: ["delete", "read", "write"].map((verb) => `${STORAGE}/queueServices/queues/${verb}`),
    dataActions: ["delete", "read", "write", "process/action"].map(
      (verb) => `${STORAGE}/queueServices/queues/messages/${verb}`,
    ),
  },
  {
    id: "c6a89b2d-59bc-44d0-9896-0f6e12d7b80a",
    name: "Storage Queue Data Message Sender",
    actions: [],
    dataActions: [`${STORAGE}/queueServices/queues/messages/add/action`],
  },
  {
    id: "1e241071-0855-49ea-94dc-649edcd759de",
    name: "EventGrid Contributor",
    actions: [
      "Microsoft.Authorization/*/read",
      "Microsoft.EventGrid/*",
      "Microsoft.Insights/alertRules/*",
      "Microsoft.Resources/deployments/*",
      "Microsoft.Resources/subscriptions/resourceGroups/read",
      "Microsoft.Support/*",
    ],
    dataActions: [],
  },
  {
    id: "f1a07417-d97a-45cb-824c-7a7467783830",
    name: "Managed Identity Operator",
    actions: [
      "Microsoft.ManagedIdentity/userAssignedIdentities/*/read",
      "Microsoft.ManagedIdentity/userAssignedIdentities/*/assign/action",
      "Microsoft.Authorization/*/read",
      "Microsoft.Insights/alertRules/*",
      "Microsoft.Resources/deployments/*",
      "Microsoft.Resources/subscriptions/resourceGroups/read",
      "Microsoft.Support/*",
    ],
    dataActions: [],
  },
  {
    id: "f58310d9-a9f6-439a-9e8d-f62e7b41a168",
    name: "Role Based Access Control Administrator",
    actions: [
      "Microsoft.Authorization/roleAssignments/write",
      "Microsoft.Authorization/roleAssignments/delete",
      "*/read",
      "Microsoft.Support/*",
    ],
    dataActions: [],
  },
  {
    id: "0a9a7e1f-b9d0-4cc4-a60d-0319b160aaa3",
    name: "Storage Table Data Contributor",
    actions: ["read", "write", "delete"].map((verb) => `${STORAGE}/tableServices/tables/${verb}`),
    dataActions: ["read", "write", "delete", "add/action", "update/action"].map(
      (verb) => `${STORAGE}/tableServices/tables/entities/${verb}`,
    ),
  },
  {
    id: "b86a8fe4-44ce-4948-aee5-eccb2c155cd7",
    name: "Key Vault Secrets Officer",
    actions: [
      "Microsoft.Authorization/*/read",
      "Microsoft.Insights/alertRules/*",
      "Microsoft.Resources/deployments/*",
      "Microsoft.Resources/subscriptions/resourceGroups/read",
      "Microsoft.Support/*",
      "Microsoft.KeyVault/checkNameAvailability/read",
      "Microsoft.KeyVault/deletedVaults/read",
      "Microsoft.KeyVault/locations/*/read",
      "Microsoft.KeyVault/vaults/*/read",
      "Microsoft.KeyVault/operations/read",
    ],
    dataActions: ["Microsoft.KeyVault/vaults/secrets/*"],
  },
  {
    id: "4633458b-17de-408a-b874-0445c86b69e6",
    name: "Key Vault Secrets User",
    actions: [],
    dataActions: [
      "Microsoft.KeyVault/vaults/secrets/getSecret/action",
      "Microsoft.KeyVault/vaults/secrets/readMetadata/action",
    ],
  },
  {
    id: "21090545-7ca7-4776-b22c-e363652d74d2",
    name: "Key Vault Reader",
    actions: [
      "Microsoft.Authorization/*/read",
      "Microsoft.Insights/alertRules/*",
      "Microsoft.Resources/deployments/*",
      "Microsoft.Resources/subscriptions/resourceGroups/read",
      "Microsoft.Support/*",
      "Microsoft.KeyVault/checkNameAvailability/read",
      "Microsoft.KeyVault/deletedVaults/read",
      "Microsoft.KeyVault/locations/*/read",
      "Microsoft.KeyVault/vaults/*/read",
      "Microsoft.KeyVault/operations/read",
    ],
    dataActions: ["Microsoft.KeyVault/vaults/*/read", "Microsoft.KeyVault/vaults/secrets/readMetadata/action"],
  },
  {
    id: "3913510d-42f4-4e42-8a64-420c390055eb",
    name: "Monitoring Metrics Publisher",
    actions: [
      "Microsoft.Insights/Register/Action",
      "Microsoft.Support/*",
      "Microsoft.Resources/subscriptions/resourceGroups/read",
    ],
    dataActions: ["Microsoft.Insights/Metrics/Write", "Microsoft.Insights/Telemetry/Write"],
  },
  {
    id: "09976791-48a7-449e-bb21-39d1a415f350",
    name: "Communication and Email Service Owner",
    actions: ["Microsoft.Communication/CommunicationServices/*", "Microsoft.Communication/EmailServices/*"],
    dataActions: [],
  },
  {
    id: "516239f1-63e1-4d78-a4de-a74fb236a071",
    name: "App Configuration Data Reader",
    actions: [],
    dataActions: ["Microsoft.AppConfiguration/configurationStores/*/read"],
  },
];

export const roleOfId = (id: string): Role | undefined => BUILT_IN_ROLES.find((role) => role.id === id);
export const roleOfName = (name: string): Role | undefined => BUILT_IN_ROLES.find((role) => role.name === name);
