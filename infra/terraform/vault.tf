# The service's own key vault: its signing keys, the first administrator's password, webhook addresses and the audit anchor (the
# hash of the newest audit log digest).
resource "azurerm_key_vault" "vault" {
  name                          = "kv-${local.suffix}"
  resource_group_name           = local.resource_group_name
  location                      = var.location
  tags                          = local.tags
  tenant_id                     = data.azurerm_client_config.current.tenant_id
  sku_name                      = "standard"
  rbac_authorization_enabled    = true
  soft_delete_retention_days    = 90
  purge_protection_enabled      = true
  public_network_access_enabled = var.network_enabled ? false : true

  network_acls {
    default_action = var.network_enabled ? "Deny" : "Allow"
    bypass         = "AzureServices"
  }
}

resource "azurerm_management_lock" "vault_lock" {
  count = var.lock != null ? 1 : 0

  name       = coalesce(var.lock.name, "lock-kv-${local.suffix}")
  scope      = azurerm_key_vault.vault.id
  lock_level = var.lock.kind
  notes      = "Holds the keys with which the service signs its data."
}

resource "azurerm_role_assignment" "vault_role" {
  scope                = azurerm_key_vault.vault.id
  role_definition_name = "Key Vault Secrets Officer"
  principal_id         = azurerm_user_assigned_identity.identity.principal_id
  principal_type       = "ServicePrincipal"
}

# Logs of reads and writes of the service's own secrets.
resource "azurerm_monitor_diagnostic_setting" "vault_diagnostics" {
  name                       = "audit"
  target_resource_id         = azurerm_key_vault.vault.id
  log_analytics_workspace_id = local.log_analytics_workspace_id

  enabled_log {
    category = "AuditEvent"
  }
}
