# A private endpoint of the app itself, with its DNS record, for callers in your network. It is separate from the endpoints in
# private-endpoints.tf, so that those do not wait for the app.
locals {
  app_private_endpoint_created = var.network_enabled && var.app_private_endpoint_enabled
}

# The zone group adds the names of the app and of its deployment site (scm).
resource "azurerm_private_dns_zone" "app_private_dns_zone" {
  count = local.private_dns_zones_created && local.app_private_endpoint_created ? 1 : 0

  name                = "privatelink.${local.cloud.appDomain}"
  resource_group_name = local.resource_group_name
  tags                = local.tags
}

# The zone has no record of apps with a private endpoint elsewhere. The redirect then uses their public address.
resource "azurerm_private_dns_zone_virtual_network_link" "app_virtual_network_link" {
  count = local.private_dns_zones_created && local.app_private_endpoint_created ? 1 : 0

  name                 = var.environment_name
  private_dns_zone_id  = azurerm_private_dns_zone.app_private_dns_zone[0].id
  virtual_network_id   = local.virtual_network_id
  registration_enabled = false
  resolution_policy    = "NxDomainRedirect"
  tags                 = local.tags
}

resource "azurerm_private_endpoint" "app_private_endpoint" {
  count = local.app_private_endpoint_created ? 1 : 0

  name                = "pe-${var.environment_name}-sites"
  resource_group_name = local.resource_group_name
  location            = var.location
  tags                = local.tags
  subnet_id           = local.private_endpoint_subnet_id

  private_service_connection {
    name                           = "sites"
    private_connection_resource_id = azurerm_function_app_flex_consumption.function_app.id
    subresource_names              = ["sites"]
    is_manual_connection           = false
  }

  dynamic "private_dns_zone_group" {
    for_each = local.private_dns_zones_created ? [azurerm_private_dns_zone.app_private_dns_zone[0].id] : compact([lookup(local.existing_zones, "sites", null)])

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
