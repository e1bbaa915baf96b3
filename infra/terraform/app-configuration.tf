# An App Configuration store, in which administrators can change settings without the service's API. The service reads it with its
# identity.
resource "azurerm_app_configuration" "app_configuration" {
  count = var.app_configuration_enabled ? 1 : 0

  name                       = "appcs-${var.environment_name}-${local.suffix}"
  resource_group_name        = local.resource_group_name
  location                   = var.location
  tags                       = local.tags
  sku                        = "standard"
  local_auth_enabled         = false
  purge_protection_enabled   = true
  soft_delete_retention_days = 7
  public_network_access      = var.network_enabled ? "Disabled" : "Enabled"

  dynamic "identity" {
    for_each = local.settings_key_client_ids

    content {
      type         = "UserAssigned"
      identity_ids = [var.customer_managed_key.user_assigned_identity.resource_id]
    }
  }

  dynamic "encryption" {
    for_each = local.settings_key_client_ids

    content {
      key_vault_key_identifier = local.encryption_key_id
      identity_client_id       = encryption.value
    }
  }
}

locals {
  # The client ID of the key's identity in a list, which is empty without a key or a client ID. App Configuration needs the client
  # ID. It is a variable, because a deployer may not be able to read it from the identity.
  settings_key_client_ids = var.customer_managed_key != null ? compact([var.customer_managed_key.user_assigned_identity.client_id]) : []
}

resource "azurerm_role_assignment" "app_configuration_role" {
  count = var.app_configuration_enabled ? 1 : 0

  scope                = azurerm_app_configuration.app_configuration[0].id
  role_definition_name = "App Configuration Data Reader"
  principal_id         = azurerm_user_assigned_identity.identity.principal_id
  principal_type       = "ServicePrincipal"
}

resource "azurerm_monitor_diagnostic_setting" "app_configuration_diagnostics" {
  count = var.diagnostic_settings_enabled && var.app_configuration_enabled ? 1 : 0

  name                       = "all-logs"
  target_resource_id         = azurerm_app_configuration.app_configuration[0].id
  log_analytics_workspace_id = local.log_analytics_workspace_id

  enabled_log {
    category_group = "allLogs"
  }
}
