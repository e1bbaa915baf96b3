# Permissions of the service in one Log Analytics workspace, to find out who reads the key vaults and which applications sign
# in. docs/permissions.md lists the Azure calls that need each permission.

locals {
  # /subscriptions/<subscription>/resourceGroups/<name>/providers/Microsoft.OperationalInsights/workspaces/<workspace>
  parts             = split("/", var.workspace_id)
  resource_group_id = "/subscriptions/${local.parts[2]}/resourceGroups/${local.parts[4]}"
}

# Permits queries of three tables (PRO). The built-in role Log Analytics Data Reader would suffice, but it can read every table of
# the workspace.
resource "azurerm_role_definition" "log_reader_definition" {
  # Role names are unique in the tenant.
  name              = "Credential Lifecycle Log Reader (${var.environment_name}, ${local.parts[2]}, ${local.parts[4]})"
  description       = "Queries who reads key vaults and which applications sign in."
  scope             = local.resource_group_id
  assignable_scopes = [local.resource_group_id]

  permissions {
    actions = [
      "Microsoft.OperationalInsights/workspaces/read",
      "Microsoft.OperationalInsights/workspaces/query/read",
      "Microsoft.OperationalInsights/workspaces/query/AZKVAuditLogs/read",
      "Microsoft.OperationalInsights/workspaces/query/AzureDiagnostics/read",
      "Microsoft.OperationalInsights/workspaces/query/AADServicePrincipalSignInLogs/read",
    ]
  }
}

resource "azurerm_role_assignment" "log_reader_role" {
  scope              = var.workspace_id
  role_definition_id = azurerm_role_definition.log_reader_definition.role_definition_resource_id
  principal_id       = var.principal_id
  principal_type     = "ServicePrincipal"
}
