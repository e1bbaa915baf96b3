# Permissions of the service in one resource group, so that its resources load a rotated value. docs/permissions.md lists the
# Azure calls that need each permission.

locals {
  # /subscriptions/<subscription>/resourceGroups/<name>
  parts = split("/", var.scope)
}

# Permits making an app or a named value of API Management load its secret again (PRO). The built-in roles Website Contributor and
# API Management Service Contributor would suffice, but they can also deploy, delete and read secrets. The permission to read these
# resources is in the Dependency Reader role (watch/main.tf).
resource "azurerm_role_definition" "rotation_operator_definition" {
  count = var.rotation_operator_role_definition_id == "" ? 1 : 0

  # Role names are unique in the tenant.
  name              = "Credential Lifecycle Rotation Operator (${var.environment_name}, ${local.parts[2]}, ${local.parts[4]})"
  description       = "Makes apps and named values of API Management load the current version of their secrets."
  scope             = var.scope
  assignable_scopes = [var.scope]

  permissions {
    actions = [
      "Microsoft.Web/sites/config/write",
      "Microsoft.Web/sites/slots/config/write",
      "Microsoft.Web/sites/restart/action",
      "Microsoft.Web/sites/slots/restart/action",
      "Microsoft.ApiManagement/service/namedValues/refreshSecret/action",
    ]
  }
}

resource "azurerm_role_assignment" "rotation_operator_role" {
  scope              = var.scope
  role_definition_id = var.rotation_operator_role_definition_id == "" ? azurerm_role_definition.rotation_operator_definition[0].role_definition_resource_id : var.rotation_operator_role_definition_id
  principal_id       = var.principal_id
  principal_type     = "ServicePrincipal"
}
