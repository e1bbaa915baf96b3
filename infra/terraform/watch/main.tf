# What the service may read in one subscription, or in every subscription of a management group, later ones too.
# docs/permissions.md says for which call.

# Vaults, and the properties of what is in them. No value of a secret.
resource "azurerm_role_assignment" "key_vault_reader_role" {
  scope                = var.scope
  role_definition_name = "Key Vault Reader"
  principal_id         = var.principal_id
  principal_type       = "ServicePrincipal"
}

# The built-in roles that may read the first and the last may read everything in the scope.
resource "azurerm_role_definition" "inventory_reader_definition" {
  # Unique in the tenant.
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
  role_definition_id = azurerm_role_definition.inventory_reader_definition.role_definition_resource_id
  principal_id       = var.principal_id
  principal_type     = "ServicePrincipal"
}
