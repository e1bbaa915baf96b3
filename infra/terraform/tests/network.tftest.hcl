# Tests of the private network that the module creates.
mock_provider "azurerm" {
  mock_data "azurerm_client_config" {
    defaults = {
      tenant_id       = "11111111-1111-4111-8111-111111111111"
      subscription_id = "22222222-2222-4222-8222-222222222222"
    }
  }
}

variables {
  environment_name         = "lifecycle"
  location                 = "westeurope"
  operator_email_addresses = ["platform@example.com"]
  network_enabled          = true
}

run "closes_storage_and_vault" {
  command = plan

  assert {
    condition     = !azurerm_storage_account.storage_account.public_network_access_enabled && !azurerm_key_vault.vault.public_network_access_enabled
    error_message = "Public access must be off."
  }

  assert {
    condition     = toset(keys(azurerm_private_endpoint.private_endpoint)) == toset(["blob", "queue", "table", "vault"])
    error_message = "Each service must have an endpoint."
  }

  assert {
    condition     = alltrue([for link in azurerm_private_dns_zone_virtual_network_link.virtual_network_link : link.resolution_policy == "NxDomainRedirect"])
    error_message = "Monitored vaults with an endpoint elsewhere must stay readable."
  }

  assert {
    condition     = length(azurerm_network_security_group.network_security_group) == 1 && length(azurerm_subnet_network_security_group_association.function_subnet_security) == 1 && length(azurerm_subnet_network_security_group_association.private_endpoint_subnet_security) == 1
    error_message = "Both subnets must have the security group."
  }

  assert {
    condition     = azurerm_subnet.function_subnet[0].delegation[0].service_delegation[0].name == "Microsoft.App/environments"
    error_message = "Flex Consumption needs the delegation."
  }

  assert {
    condition     = tolist(azurerm_subnet.function_subnet[0].service_endpoint)[0].service == "Microsoft.KeyVault" && length(azurerm_nat_gateway.nat_gateway) == 0
    error_message = "Without a gateway, firewalls allow the subnet."
  }
}

run "has_one_address_with_a_nat_gateway" {
  command = plan

  variables {
    nat_gateway_enabled = true
  }

  assert {
    condition     = length(azurerm_subnet.function_subnet[0].service_endpoint) == 0 && length(azurerm_nat_gateway.nat_gateway) == 1 && length(azurerm_subnet_nat_gateway_association.function_subnet_nat_gateway) == 1
    error_message = "A service endpoint would hide the address."
  }
}

run "gives_the_app_an_endpoint" {
  command = plan

  variables {
    app_private_endpoint_enabled      = true
    app_public_network_access_enabled = false
  }

  assert {
    condition     = length(azurerm_private_endpoint.app_private_endpoint) == 1 && azurerm_private_dns_zone.app_private_dns_zone[0].name == "privatelink.azurewebsites.net"
    error_message = "The app must have an endpoint and a zone."
  }

  assert {
    condition     = !azurerm_function_app_flex_consumption.function_app.public_network_access_enabled
    error_message = "The app must answer only through the endpoint."
  }
}

run "includes_app_configuration" {
  command = plan

  variables {
    app_configuration_enabled = true
  }

  assert {
    condition     = length(azurerm_private_endpoint.private_endpoint) == 5 && azurerm_app_configuration.app_configuration[0].public_network_access == "Disabled"
    error_message = "The store must have an endpoint, and no public access."
  }
}
