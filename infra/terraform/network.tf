# A virtual network with one subnet for the app's instances and one for private endpoints.
resource "azurerm_virtual_network" "virtual_network" {
  count = local.network_created ? 1 : 0

  name                = "vnet-${var.environment_name}"
  resource_group_name = local.resource_group_name
  location            = var.location
  tags                = local.tags
  address_space       = [var.network_address_prefix]
}

locals {
  # Existing subnets are in a network of their owner, who also decides about its NAT gateway. So this module creates neither.
  network_created            = var.network_enabled && var.function_subnet_resource_id == ""
  nat_gateway_created        = var.network_enabled && var.function_subnet_resource_id == "" && var.nat_gateway_enabled
  function_subnet_id         = local.network_created ? azurerm_subnet.function_subnet[0].id : var.function_subnet_resource_id
  private_endpoint_subnet_id = local.network_created ? azurerm_subnet.private_endpoint_subnet[0].id : var.private_endpoint_subnet_resource_id
  virtual_network_id         = local.network_created ? azurerm_virtual_network.virtual_network[0].id : split("/subnets/", var.private_endpoint_subnet_resource_id)[0]

  # Both subnets are a /26, whatever the network's size.
  subnet_bits = 26 - tonumber(split("/", var.network_address_prefix)[1])
}

# The group has no rules of its own: Azure's default rules allow calls inside the network and to the internet, and deny calls from
# the internet.
resource "azurerm_network_security_group" "network_security_group" {
  count = local.network_created ? 1 : 0

  name                = "nsg-${var.environment_name}"
  resource_group_name = local.resource_group_name
  location            = var.location
  tags                = local.tags
}

resource "azurerm_monitor_diagnostic_setting" "network_security_group_diagnostics" {
  count = var.diagnostic_settings_enabled && local.network_created ? 1 : 0

  name                       = "all-logs"
  target_resource_id         = azurerm_network_security_group.network_security_group[0].id
  log_analytics_workspace_id = local.log_analytics_workspace_id

  enabled_log {
    category_group = "allLogs"
  }
}

resource "azurerm_subnet_network_security_group_association" "function_subnet_security" {
  count = local.network_created ? 1 : 0

  subnet_id                 = azurerm_subnet.function_subnet[0].id
  network_security_group_id = azurerm_network_security_group.network_security_group[0].id
}

resource "azurerm_subnet_network_security_group_association" "private_endpoint_subnet_security" {
  count = local.network_created ? 1 : 0

  subnet_id                 = azurerm_subnet.private_endpoint_subnet[0].id
  network_security_group_id = azurerm_network_security_group.network_security_group[0].id
}

# The subnet of the app's instances:
# https://learn.microsoft.com/azure/azure-functions/flex-consumption-how-to#enable-virtual-network-integration
# The service endpoint lets the firewall of a vault allow the subnet. It hides the public address of calls to vaults, so a subnet
# with a NAT gateway gets no service endpoint:
# https://learn.microsoft.com/azure/virtual-network/virtual-network-service-endpoints-overview
resource "azurerm_subnet" "function_subnet" {
  count = local.network_created ? 1 : 0

  name                 = "functions"
  resource_group_name  = local.resource_group_name
  virtual_network_name = azurerm_virtual_network.virtual_network[0].name
  address_prefixes     = [cidrsubnet(var.network_address_prefix, local.subnet_bits, 0)]

  delegation {
    name = "functions"

    service_delegation {
      name    = "Microsoft.App/environments"
      actions = ["Microsoft.Network/virtualNetworks/subnets/join/action"]
    }
  }

  dynamic "service_endpoint" {
    for_each = local.nat_gateway_created ? [] : ["Microsoft.KeyVault"]

    content {
      service = service_endpoint.value
    }
  }
}

resource "azurerm_subnet" "private_endpoint_subnet" {
  count = local.network_created ? 1 : 0

  name                 = "private-endpoints"
  resource_group_name  = local.resource_group_name
  virtual_network_name = azurerm_virtual_network.virtual_network[0].name
  address_prefixes     = [cidrsubnet(var.network_address_prefix, local.subnet_bits, 1)]
  # Without this policy, private endpoints ignore the security group.
  private_endpoint_network_policies = "NetworkSecurityGroupEnabled"
}

# A NAT gateway, so that all calls of the app come from one fixed public address.
resource "azurerm_public_ip" "public_ip_address" {
  count = local.nat_gateway_created ? 1 : 0

  name                = "pip-${var.environment_name}"
  resource_group_name = local.resource_group_name
  location            = var.location
  tags                = local.tags
  sku                 = "Standard"
  allocation_method   = "Static"
}

resource "azurerm_nat_gateway" "nat_gateway" {
  count = local.nat_gateway_created ? 1 : 0

  name                = "ng-${var.environment_name}"
  resource_group_name = local.resource_group_name
  location            = var.location
  tags                = local.tags
  sku_name            = "Standard"
}

resource "azurerm_nat_gateway_public_ip_association" "nat_gateway_address" {
  count = local.nat_gateway_created ? 1 : 0

  nat_gateway_id       = azurerm_nat_gateway.nat_gateway[0].id
  public_ip_address_id = azurerm_public_ip.public_ip_address[0].id
}

resource "azurerm_subnet_nat_gateway_association" "function_subnet_nat_gateway" {
  count = local.nat_gateway_created ? 1 : 0

  subnet_id      = azurerm_subnet.function_subnet[0].id
  nat_gateway_id = azurerm_nat_gateway.nat_gateway[0].id
}
