# Logs and metrics of the service, and a workbook to view them. The service writes them with its identity, because local
# authentication is off.
resource "azurerm_log_analytics_workspace" "log_analytics_workspace" {
  count = var.log_analytics_workspace_resource_id == "" ? 1 : 0

  name                         = "log-${var.environment_name}"
  resource_group_name          = local.resource_group_name
  location                     = var.location
  tags                         = local.tags
  sku                          = "PerGB2018"
  retention_in_days            = var.log_retention_days
  local_authentication_enabled = false
  # Permits a person who may read a resource to read its logs. This is the provider's default, but not Azure's.
  allow_resource_only_permissions = true
  internet_ingestion_access_type  = var.monitoring_public_network_access_enabled ? "Enabled" : "Disabled"
  internet_query_access_type      = var.monitoring_public_network_access_enabled ? "Enabled" : "Disabled"
}

locals {
  log_analytics_workspace_id = var.log_analytics_workspace_resource_id == "" ? azurerm_log_analytics_workspace.log_analytics_workspace[0].id : var.log_analytics_workspace_resource_id
}

# Logs each query of the workspace with the person who ran it. For an existing workspace, its owner decides about such logs.
resource "azurerm_monitor_diagnostic_setting" "workspace_diagnostics" {
  count = var.diagnostic_settings_enabled && var.log_analytics_workspace_resource_id == "" ? 1 : 0

  name                       = "all-logs"
  target_resource_id         = azurerm_log_analytics_workspace.log_analytics_workspace[0].id
  log_analytics_workspace_id = azurerm_log_analytics_workspace.log_analytics_workspace[0].id

  enabled_log {
    category_group = "allLogs"
  }
}

resource "azurerm_application_insights" "application_insights" {
  name                         = "appi-${var.environment_name}"
  resource_group_name          = local.resource_group_name
  location                     = var.location
  tags                         = local.tags
  application_type             = "web"
  workspace_id                 = local.log_analytics_workspace_id
  local_authentication_enabled = false
  internet_ingestion_enabled   = var.monitoring_public_network_access_enabled
  internet_query_enabled       = var.monitoring_public_network_access_enabled
}

resource "azurerm_role_assignment" "telemetry_role" {
  scope                = azurerm_application_insights.application_insights.id
  role_definition_name = "Monitoring Metrics Publisher"
  principal_id         = azurerm_user_assigned_identity.identity.principal_id
  principal_type       = "ServicePrincipal"
}

resource "azurerm_application_insights_workbook" "workbook" {
  name                = uuidv5("url", azurerm_application_insights.application_insights.id)
  resource_group_name = local.resource_group_name
  location            = var.location
  tags                = local.tags
  display_name        = "Credential and Secret Lifecycle Service"
  category            = "workbook"
  source_id           = lower(azurerm_application_insights.application_insights.id)
  data_json           = file("${path.module}/../azure/workbook.json")
}
