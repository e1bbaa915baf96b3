# Permissions of the policy in the service's own resource group. docs/permissions.md lists the call for each.
data "azurerm_client_config" "current" {}

# Allows each new topic to send to the queue. The condition forbids assigning any other role.
resource "azurerm_role_assignment" "policy_access_role" {
  scope                = var.vault_events_queue_id
  role_definition_name = "Role Based Access Control Administrator"
  principal_id         = var.principal_id
  principal_type       = "ServicePrincipal"
  condition            = file("${path.module}/../../../azure/events-policy/sender-only.txt")
  condition_version    = "2.0"
}

# The deployment that assigns that role runs in this resource group, and specifying a queue as a destination needs write access
# to its account: https://learn.microsoft.com/azure/event-grid/security-authorization
resource "azurerm_role_definition" "event_deployer_definition" {
  # Role names are unique in the tenant.
  name              = "Credential Lifecycle Event Deployer (${var.environment_name}, ${data.azurerm_client_config.current.subscription_id})"
  description       = "Allows the policy for key vault events to specify the queue of the service as their destination."
  scope             = var.scope
  assignable_scopes = [var.scope]

  permissions {
    actions = [
      "Microsoft.Resources/deployments/read",
      "Microsoft.Resources/deployments/write",
      "Microsoft.Resources/deployments/validate/action",
      "Microsoft.Resources/deployments/operations/read",
      "Microsoft.Resources/deployments/operationStatuses/read",
      "Microsoft.Storage/storageAccounts/read",
      "Microsoft.Storage/storageAccounts/write",
      "Microsoft.Storage/storageAccounts/queueServices/queues/read",
    ]
  }
}

resource "azurerm_role_assignment" "event_deployer_role" {
  scope              = var.scope
  role_definition_id = azurerm_role_definition.event_deployer_definition.role_definition_resource_id
  principal_id       = var.principal_id
  principal_type     = "ServicePrincipal"
}
