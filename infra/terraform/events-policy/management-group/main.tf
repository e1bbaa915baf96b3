# An Azure Policy that makes every key vault below a management group send its events to the service. It applies to new vaults when
# they are created. Existing vaults need a remediation, which docs/deploy.md explains: Azure does not evaluate a new policy of a
# management group immediately. docs/permissions.md lists the permissions.
locals {
  policy = jsondecode(file("${path.module}/../../../azure/events-policy/policy.json"))
}

resource "azurerm_policy_definition" "management_group_policy" {
  name                = "vault-events-${var.environment_name}"
  policy_type         = "Custom"
  mode                = "Indexed"
  display_name        = "Key vaults send their events to Credential Lifecycle (${var.environment_name})"
  description         = "Creates an Event Grid topic for each key vault, which delivers to the queue of the service with one identity."
  management_group_id = var.scope
  parameters          = jsonencode(local.policy.parameters)
  policy_rule         = jsonencode(local.policy.policyRule)
}

resource "azurerm_management_group_policy_assignment" "management_group_policy_assignment" {
  name                 = "evt-${var.environment_name}"
  display_name         = "Key vaults send their events to Credential Lifecycle (${var.environment_name})"
  location             = var.location
  management_group_id  = var.scope
  policy_definition_id = azurerm_policy_definition.management_group_policy.id

  parameters = jsonencode({
    environmentName  = { value = var.environment_name }
    storageAccountId = { value = var.storage_account_id }
    eventIdentityId  = { value = var.event_identity_id }
  })

  identity {
    type = "SystemAssigned"
  }
}

# Permits the policy to create Event Grid topics for the vaults.
resource "azurerm_role_assignment" "management_group_topics_role" {
  scope                = var.scope
  role_definition_name = "EventGrid Contributor"
  principal_id         = azurerm_management_group_policy_assignment.management_group_policy_assignment.identity[0].principal_id
  principal_type       = "ServicePrincipal"
}

module "roles" {
  source = "../roles"

  scope              = var.resource_group_id
  storage_account_id = var.storage_account_id
  event_identity_id  = var.event_identity_id
  principal_id       = azurerm_management_group_policy_assignment.management_group_policy_assignment.identity[0].principal_id
  environment_name   = var.environment_name
}
