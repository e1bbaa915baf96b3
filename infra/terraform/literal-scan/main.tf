# Permissions of the service in one subscription to find settings of apps whose value is a copy of a secret in a vault.
# docs/permissions.md lists the Azure calls that need each permission.

# Permits reading the values of the secrets of every vault that uses Azure RBAC.
resource "azurerm_role_assignment" "secrets_user_role" {
  scope                = var.scope
  role_definition_name = "Key Vault Secrets User"
  principal_id         = var.principal_id
  principal_type       = "ServicePrincipal"
}

# Permits reading the settings of apps with their values (PRO). The built-in roles Website Contributor and Container Apps
# Contributor would suffice, but they can also change and deploy apps.
resource "azurerm_role_definition" "literal_scanner_definition" {
  count = var.literal_scanner_role_definition_id == "" ? 1 : 0

  # Role names are unique in the tenant.
  name              = "Credential Lifecycle Literal Scanner (${var.environment_name}, ${var.scope_name})"
  description       = "Lists the settings of web apps, function apps, Container Apps and jobs with their values."
  scope             = var.scope
  assignable_scopes = [var.scope]

  permissions {
    actions = [
      "Microsoft.Web/sites/config/list/action",
      "Microsoft.Web/sites/slots/config/list/action",
      "Microsoft.App/containerApps/listSecrets/action",
      "Microsoft.App/jobs/listSecrets/action",
    ]
  }
}

resource "azurerm_role_assignment" "literal_scanner_role" {
  scope              = var.scope
  role_definition_id = var.literal_scanner_role_definition_id == "" ? azurerm_role_definition.literal_scanner_definition[0].role_definition_resource_id : var.literal_scanner_role_definition_id
  principal_id       = var.principal_id
  principal_type     = "ServicePrincipal"
}
