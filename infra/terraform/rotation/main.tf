# What the service may do in one resource group, so that what is in it takes a rotated value. docs/permissions.md says for which call.

locals {
  # /subscriptions/<subscription>/resourceGroups/<name>
  parts = split("/", var.scope)
}

# What has an app or a named value read its secret again (PRO). Website Contributor and API Management Service Contributor would
# do, but may also deploy, delete and read secrets. It reads nothing: that is what the Dependency Reader may do.
resource "azurerm_role_definition" "rotation_operator_definition" {
  # Unique in the tenant.
  name              = "Credential Lifecycle Rotation Operator (${var.environment_name}, ${local.parts[2]}, ${local.parts[4]})"
  description       = "Has apps and named values of API Management take the current version of their secrets."
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
  role_definition_id = azurerm_role_definition.rotation_operator_definition.role_definition_resource_id
  principal_id       = var.principal_id
  principal_type     = "ServicePrincipal"
}
