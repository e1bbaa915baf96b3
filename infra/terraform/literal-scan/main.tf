# What the service may read in one subscription to find copies of secrets in settings. docs/permissions.md says for which call.

# The values of the secrets of every vault that goes by roles.
resource "azurerm_role_assignment" "secrets_user_role" {
  scope                = var.scope
  role_definition_name = "Key Vault Secrets User"
  principal_id         = var.principal_id
  principal_type       = "ServicePrincipal"
}

# The settings of apps with their values (PRO). Website Contributor and Container Apps Contributor would do, but may also
# change and deploy them.
resource "azurerm_role_definition" "literal_scanner_definition" {
  # Unique in the tenant.
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
  role_definition_id = azurerm_role_definition.literal_scanner_definition.role_definition_resource_id
  principal_id       = var.principal_id
  principal_type     = "ServicePrincipal"
}
