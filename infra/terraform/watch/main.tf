# Permissions of the service in one subscription, or in every subscription of a management group, also future ones.
# docs/permissions.md lists the Azure calls that need each permission.

# Permits reading vaults and the properties of their contents, but not the values of secrets.
resource "azurerm_role_assignment" "key_vault_reader_role" {
  scope                = var.scope
  role_definition_name = "Key Vault Reader"
  principal_id         = var.principal_id
  principal_type       = "ServicePrincipal"
}

# A custom role, because the built-in roles that can read subscriptions or diagnostic settings can read everything in the scope.
resource "azurerm_role_definition" "inventory_reader_definition" {
  count = var.inventory_reader_role_definition_id == "" ? 1 : 0

  # Role names are unique in the tenant.
  name              = "Credential Lifecycle Inventory Reader (${var.environment_name}, ${var.scope_name})"
  description       = "Reads the subscription, its key vaults and the diagnostic settings of its resources."
  scope             = var.scope
  assignable_scopes = [var.scope]

  permissions {
    actions = [
      "Microsoft.Resources/subscriptions/read",
      "Microsoft.KeyVault/vaults/read",
      "Microsoft.Insights/diagnosticSettings/read",
    ]
  }
}

resource "azurerm_role_assignment" "inventory_reader_role" {
  scope              = var.scope
  role_definition_id = var.inventory_reader_role_definition_id == "" ? azurerm_role_definition.inventory_reader_definition[0].role_definition_resource_id : var.inventory_reader_role_definition_id
  principal_id       = var.principal_id
  principal_type     = "ServicePrincipal"
}

# Permits reading the consumers of the vaults, which are the apps and other resources that use their secrets (PRO), but not the
# values of settings and secrets. The built-in role Reader would suffice, but it can read everything in the scope.
resource "azurerm_role_definition" "dependency_reader_definition" {
  count = var.dependency_reader_role_definition_id == "" ? 1 : 0

  # Role names are unique in the tenant.
  name              = "Credential Lifecycle Dependency Reader (${var.environment_name}, ${var.scope_name})"
  description       = "Reads the resources that may use key vaults, and who may read which vault."
  scope             = var.scope
  assignable_scopes = [var.scope]

  permissions {
    actions = [
      "Microsoft.ResourceGraph/resources/read",
      "Microsoft.Resources/changes/read",
      "Microsoft.Authorization/roleAssignments/read",
      "Microsoft.Authorization/roleDefinitions/read",
      "Microsoft.Web/sites/read",
      "Microsoft.Web/sites/slots/read",
      "Microsoft.Web/sites/config/read",
      "Microsoft.Web/sites/slots/config/read",
      "Microsoft.Web/certificates/read",
      "Microsoft.Web/connections/read",
      "Microsoft.Logic/workflows/read",
      "Microsoft.App/containerApps/read",
      "Microsoft.App/containerApps/revisions/read",
      "Microsoft.App/containerApps/revisions/replicas/read",
      "Microsoft.App/jobs/read",
      "Microsoft.App/managedEnvironments/certificates/read",
      "Microsoft.ApiManagement/service/read",
      "Microsoft.ApiManagement/service/namedValues/read",
      "Microsoft.ApiManagement/service/certificates/read",
      "Microsoft.Network/applicationGateways/read",
      "Microsoft.Cdn/profiles/read",
      "Microsoft.Cdn/profiles/secrets/read",
      "Microsoft.DataFactory/factories/read",
      "Microsoft.DataFactory/factories/linkedservices/read",
      "Microsoft.AppConfiguration/configurationStores/read",
      "Microsoft.Storage/storageAccounts/read",
      "Microsoft.Sql/servers/read",
      "Microsoft.Sql/servers/encryptionProtector/read",
      "Microsoft.Compute/diskEncryptionSets/read",
      "Microsoft.Compute/virtualMachines/read",
      "Microsoft.Compute/virtualMachines/extensions/read",
      "Microsoft.Compute/virtualMachineScaleSets/read",
      "Microsoft.ContainerService/managedClusters/read",
      "Microsoft.MachineLearningServices/workspaces/read",
      "Microsoft.ManagedIdentity/userAssignedIdentities/read",
      "Microsoft.Insights/metrics/read",
    ]
  }
}

resource "azurerm_role_assignment" "dependency_reader_role" {
  scope              = var.scope
  role_definition_id = var.dependency_reader_role_definition_id == "" ? azurerm_role_definition.dependency_reader_definition[0].role_definition_resource_id : var.dependency_reader_role_definition_id
  principal_id       = var.principal_id
  principal_type     = "ServicePrincipal"
}
