# A private endpoint and its DNS record for each service that the app uses.
locals {
  # Group ids and zones: https://learn.microsoft.com/azure/private-link/private-endpoint-dns
  endpoints = merge(
    {
      blob  = { resource_id = azurerm_storage_account.storage_account.id, zone = "privatelink.blob.${local.cloud.storageDomain}" }
      table = { resource_id = azurerm_storage_account.storage_account.id, zone = "privatelink.table.${local.cloud.storageDomain}" }
      queue = { resource_id = azurerm_storage_account.storage_account.id, zone = "privatelink.queue.${local.cloud.storageDomain}" }
      vault = { resource_id = azurerm_key_vault.vault.id, zone = local.cloud.vaultZone }
    },
    var.app_configuration_enabled ? { configurationStores = { resource_id = azurerm_app_configuration.app_configuration[0].id, zone = local.cloud.appConfigurationZone } } : {}
  )
  # Existing zones belong to another team, which also links them.
  private_dns_zones_created = var.private_dns_zones_enabled && var.private_dns_zone_resource_ids == null
  existing_zones            = { for group_id, id in coalesce(var.private_dns_zone_resource_ids, {}) : group_id => id if id != null }

  enabled_endpoints = { for group_id, endpoint in local.endpoints : group_id => endpoint if var.network_enabled }
  enabled_zones     = { for group_id, endpoint in local.endpoints : group_id => endpoint if local.private_dns_zones_created && var.network_enabled }
}

resource "azurerm_private_dns_zone" "private_dns_zone" {
  for_each = local.enabled_zones

  name                = each.value.zone
  resource_group_name = local.resource_group_name
  tags                = local.tags
}

# A monitored vault or another store with a private endpoint elsewhere has no record in these zones. Its public address is used
# then (https://learn.microsoft.com/azure/dns/private-dns-fallback).
resource "azurerm_private_dns_zone_virtual_network_link" "virtual_network_link" {
  for_each = local.enabled_zones

  name                 = var.environment_name
  private_dns_zone_id  = azurerm_private_dns_zone.private_dns_zone[each.key].id
  virtual_network_id   = local.virtual_network_id
  registration_enabled = false
  resolution_policy    = "NxDomainRedirect"
  tags                 = local.tags
}

resource "azurerm_private_endpoint" "private_endpoint" {
  for_each = local.enabled_endpoints

  name                = "pe-${var.environment_name}-${each.key}"
  resource_group_name = local.resource_group_name
  location            = var.location
  tags                = local.tags
  subnet_id           = local.private_endpoint_subnet_id

  private_service_connection {
    name                           = each.key
    private_connection_resource_id = each.value.resource_id
    subresource_names              = [each.key]
    is_manual_connection           = false
  }

  dynamic "private_dns_zone_group" {
    for_each = local.private_dns_zones_created ? [azurerm_private_dns_zone.private_dns_zone[each.key].id] : compact([lookup(local.existing_zones, each.key, null)])

    content {
      name                 = "default"
      private_dns_zone_ids = [private_dns_zone_group.value]
    }
  }

  # Without private_dns_zones_enabled, a policy adds the zone group after the creation. The next apply must not remove it.
  lifecycle {
    ignore_changes = [private_dns_zone_group]
  }
}
