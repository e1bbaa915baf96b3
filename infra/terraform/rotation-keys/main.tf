# Permissions of the service in one resource group, so that rotations regenerate the keys of its resources. docs/rotation-key-roles.md says
# what each permission also allows.

locals {
  # /subscriptions/<subscription>/resourceGroups/<name>
  parts = split("/", var.scope)

  # The actions of each kind are those of the table of kinds in shared/rotation/resource-keys. The template checks compare both.
  actions_by_kind = jsondecode(file("${path.module}/../../azure/rotation/key-actions.json"))
  action_lists    = [for kind in var.kinds : local.actions_by_kind[kind]]
}

# Permits listing and regenerating keys (PRO). No built-in role suits all kinds: Storage Account Key Operator Service
# Role, for example, can't read the accounts, and most others can also change the resource.
resource "azurerm_role_definition" "key_rotator_definition" {
  # Role names are unique in the tenant.
  name              = "Credential Lifecycle Key Rotator (${var.environment_name}, ${local.parts[2]}, ${local.parts[4]})"
  description       = "Lists and regenerates keys of Azure resources."
  scope             = var.scope
  assignable_scopes = [var.scope]

  permissions {
    # Two kinds can need the same action.
    actions = distinct(flatten(local.action_lists))
  }
}

resource "azurerm_role_assignment" "key_rotator_role" {
  scope              = var.scope
  role_definition_id = azurerm_role_definition.key_rotator_definition.role_definition_resource_id
  principal_id       = var.principal_id
  principal_type     = "ServicePrincipal"
}
