# Permissions of the policy in the service's own resource group. docs/permissions-options.md lists the call for each. None of them
# allows the policy to assign a role.
data "azurerm_client_config" "current" {}

# Allows the policy to give each topic that it creates the identity with which the topic delivers events.
resource "azurerm_role_assignment" "identity_operator_role" {
  scope                = var.event_identity_id
  role_definition_name = "Managed Identity Operator"
  principal_id         = var.principal_id
  principal_type       = "ServicePrincipal"
}

# Specifying a queue as a destination needs write access to its account:
# https://learn.microsoft.com/azure/event-grid/security-authorization
resource "azurerm_role_definition" "event_deployer_definition" {
  # Role names are unique in the tenant.
  name              = "Credential Lifecycle Event Deployer (${var.environment_name}, ${data.azurerm_client_config.current.subscription_id})"
  description       = "Allows the policy for key vault events to specify the queue of the service as their destination."
  scope             = var.scope
  assignable_scopes = [var.scope]

  permissions {
    actions = [
      "Microsoft.Storage/storageAccounts/read",
      "Microsoft.Storage/storageAccounts/write",
      "Microsoft.Storage/storageAccounts/queueServices/queues/read",
    ]
  }
}

resource "azurerm_role_assignment" "event_deployer_role" {
  scope              = var.storage_account_id
  role_definition_id = azurerm_role_definition.event_deployer_definition.role_definition_resource_id
  principal_id       = var.principal_id
  principal_type     = "ServicePrincipal"
}
