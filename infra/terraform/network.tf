# A virtual network with one subnet for the app's instances and one for private endpoints.
resource "azurerm_virtual_network" "virtual_network" {
  count = var.network_enabled ? 1 : 0

  name                = "vnet-${var.environment_name}"
  resource_group_name = azurerm_resource_group.resource_group.name
  location            = var.location
  tags                = local.tags
  address_space       = [var.network_address_prefix]
}

locals {
  # Both subnets are a /26, whatever the network's size.
  subnet_bits = 26 - tonumber(split("/", var.network_address_prefix)[1])
}

# The subnet of the app's instances:
# https://learn.microsoft.com/azure/azure-functions/flex-consumption-how-to#enable-virtual-network-integration
resource "azurerm_subnet" "function_subnet" {
  count = var.network_enabled ? 1 : 0

  name                 = "functions"
  resource_group_name  = azurerm_resource_group.resource_group.name
  virtual_network_name = azurerm_virtual_network.virtual_network[0].name
  address_prefixes     = [cidrsubnet(var.network_address_prefix, local.subnet_bits, 0)]

  delegation {
    name = "functions"

    service_delegation {
      name    = "Microsoft.App/environments"
      actions = ["Microsoft.Network/virtualNetworks/subnets/join/action"]
    }
  }
}

resource "azurerm_subnet" "private_endpoint_subnet" {
  count = var.network_enabled ? 1 : 0

  name                 = "private-endpoints"
  resource_group_name  = azurerm_resource_group.resource_group.name
  virtual_network_name = azurerm_virtual_network.virtual_network[0].name
  address_prefixes     = [cidrsubnet(var.network_address_prefix, local.subnet_bits, 1)]
}
