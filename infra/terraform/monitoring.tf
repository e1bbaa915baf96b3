# Logs and metrics of the service, and a workbook to view them. Written with the service's identity: local authentication is
# off.
resource "azurerm_log_analytics_workspace" "log_analytics_workspace" {
  name                         = "log-${var.environment_name}"
  resource_group_name          = azurerm_resource_group.resource_group.name
  location                     = var.location
  tags                         = local.tags
  sku                          = "PerGB2018"
  retention_in_days            = var.log_retention_days
  local_authentication_enabled = false
  # Who may read a resource may read its logs. The provider's default, but not Azure's.
  allow_resource_only_permissions = true
}

resource "azurerm_application_insights" "application_insights" {
  name                         = "appi-${var.environment_name}"
  resource_group_name          = azurerm_resource_group.resource_group.name
  location                     = var.location
  tags                         = local.tags
  application_type             = "web"
  workspace_id                 = azurerm_log_analytics_workspace.log_analytics_workspace.id
  local_authentication_enabled = false
}

resource "azurerm_role_assignment" "telemetry_role" {
  scope                = azurerm_application_insights.application_insights.id
  role_definition_name = "Monitoring Metrics Publisher"
  principal_id         = azurerm_user_assigned_identity.identity.principal_id
  principal_type       = "ServicePrincipal"
}

resource "azurerm_application_insights_workbook" "workbook" {
  name                = uuidv5("url", azurerm_application_insights.application_insights.id)
  resource_group_name = azurerm_resource_group.resource_group.name
  location            = var.location
  tags                = local.tags
  display_name        = "Credential and Secret Lifecycle Service"
  category            = "workbook"
  source_id           = lower(azurerm_application_insights.application_insights.id)
  data_json           = file("${path.module}/../azure/workbook.json")
}
