# The storage account of the service: its data (tables), its messages (queues) and its deployment package (one blob container).
# Only Entra identities can access it.
resource "azurerm_storage_account" "storage_account" {
  name                            = "st${local.suffix}"
  resource_group_name             = local.resource_group_name
  location                        = var.location
  tags                            = local.tags
  account_kind                    = "StorageV2"
  account_tier                    = "Standard"
  account_replication_type        = var.storage_replication
  access_tier                     = "Hot"
  queue_encryption_key_type       = var.customer_managed_key != null ? "Account" : "Service"
  table_encryption_key_type       = var.customer_managed_key != null ? "Account" : "Service"
  allow_nested_items_to_be_public = false
  shared_access_key_enabled       = false
  local_user_enabled              = false
  default_to_oauth_authentication = true
  min_tls_version                 = "TLS1_2"
  https_traffic_only_enabled      = true
  public_network_access_enabled   = var.network_enabled ? false : true

  dynamic "identity" {
    for_each = var.customer_managed_key != null ? [var.customer_managed_key.user_assigned_identity.resource_id] : []

    content {
      type         = "UserAssigned"
      identity_ids = [identity.value]
    }
  }

  # A key without a version is rotated automatically. Tables and queues use it only if the account was created with it.
  dynamic "customer_managed_key" {
    for_each = var.customer_managed_key != null ? [var.customer_managed_key.user_assigned_identity.resource_id] : []

    content {
      key_vault_key_id          = local.encryption_key_id
      user_assigned_identity_id = customer_managed_key.value
    }
  }

  network_rules {
    default_action = var.network_enabled ? "Deny" : "Allow"
    bypass         = ["AzureServices"]
  }

  blob_properties {
    delete_retention_policy {
      days = 7
    }
  }
}

locals {
  encryption_key_id = var.customer_managed_key != null ? join("/", concat(
    ["https://${split("/", var.customer_managed_key.key_vault_resource_id)[8]}.${local.cloud.vaultDomain}/keys", var.customer_managed_key.key_name],
    var.customer_managed_key.key_version == null ? [] : [var.customer_managed_key.key_version]
  )) : ""
}

resource "azurerm_management_lock" "storage_lock" {
  count = var.lock != null ? 1 : 0

  name       = coalesce(var.lock.name, "lock-st${local.suffix}")
  scope      = azurerm_storage_account.storage_account.id
  lock_level = var.lock.kind
  notes      = "Holds the data of the service."
}

resource "azurerm_monitor_diagnostic_setting" "blob_diagnostics" {
  count = var.diagnostic_settings_enabled ? 1 : 0

  name                       = "all-logs"
  target_resource_id         = "${azurerm_storage_account.storage_account.id}/blobServices/default"
  log_analytics_workspace_id = local.log_analytics_workspace_id

  enabled_log {
    category_group = "allLogs"
  }
}

resource "azurerm_monitor_diagnostic_setting" "queue_diagnostics" {
  count = var.diagnostic_settings_enabled ? 1 : 0

  name                       = "all-logs"
  target_resource_id         = "${azurerm_storage_account.storage_account.id}/queueServices/default"
  log_analytics_workspace_id = local.log_analytics_workspace_id

  enabled_log {
    category_group = "allLogs"
  }
}

resource "azurerm_monitor_diagnostic_setting" "table_diagnostics" {
  count = var.diagnostic_settings_enabled ? 1 : 0

  name                       = "all-logs"
  target_resource_id         = "${azurerm_storage_account.storage_account.id}/tableServices/default"
  log_analytics_workspace_id = local.log_analytics_workspace_id

  enabled_log {
    category_group = "allLogs"
  }
}

resource "azurerm_storage_container" "deployment_container" {
  name                  = "deployments"
  storage_account_id    = azurerm_storage_account.storage_account.id
  container_access_type = "private"
}

# The service creates its queues itself, but Event Grid needs this one before the service has run.
resource "azurerm_storage_queue" "vault_events_queue" {
  name               = "vault-events"
  storage_account_id = azurerm_storage_account.storage_account.id
}

# The Functions host stores its locks in blobs, and the platform reads the deployment package from a blob.
resource "azurerm_role_assignment" "blob_role" {
  scope                = azurerm_storage_account.storage_account.id
  role_definition_name = "Storage Blob Data Owner"
  principal_id         = azurerm_user_assigned_identity.identity.principal_id
  principal_type       = "ServicePrincipal"
}

resource "azurerm_role_assignment" "queue_role" {
  scope                = azurerm_storage_account.storage_account.id
  role_definition_name = "Storage Queue Data Contributor"
  principal_id         = azurerm_user_assigned_identity.identity.principal_id
  principal_type       = "ServicePrincipal"
}

resource "azurerm_role_assignment" "table_role" {
  scope                = azurerm_storage_account.storage_account.id
  role_definition_name = "Storage Table Data Contributor"
  principal_id         = azurerm_user_assigned_identity.identity.principal_id
  principal_type       = "ServicePrincipal"
}
