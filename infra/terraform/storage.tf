# The service's state (tables), its work (queues) and its package (one blob container). Accessible with Entra identities only.
resource "azurerm_storage_account" "storage_account" {
  name                            = "st${local.suffix}"
  resource_group_name             = azurerm_resource_group.resource_group.name
  location                        = var.location
  tags                            = local.tags
  account_kind                    = "StorageV2"
  account_tier                    = "Standard"
  account_replication_type        = var.storage_replication
  access_tier                     = "Hot"
  allow_nested_items_to_be_public = false
  shared_access_key_enabled       = false
  local_user_enabled              = false
  default_to_oauth_authentication = true
  min_tls_version                 = "TLS1_2"
  https_traffic_only_enabled      = true
  public_network_access_enabled   = var.network_enabled ? false : true

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

# Blobs contain the host's locks and the platform's package.
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
