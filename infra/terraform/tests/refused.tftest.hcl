# Tests of values that the validation of variables rejects before anything is created.
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
}

run "a_short_name" {
  command = plan

  variables {
    environment_name = "x"
  }

  expect_failures = [var.environment_name]
}

run "a_location_that_is_no_region" {
  command = plan

  variables {
    location = "westeurope-1"
  }

  expect_failures = [var.location]
}

run "an_unknown_cloud" {
  command = plan

  variables {
    azure_cloud = "AzureGermanCloud"
  }

  expect_failures = [var.azure_cloud]
}

run "an_unknown_replication" {
  command = plan

  variables {
    storage_replication = "RAGRS"
  }

  expect_failures = [var.storage_replication]
}

run "a_subscription_that_is_no_guid" {
  command = plan

  variables {
    watched_subscription_ids = ["production"]
  }

  expect_failures = [var.watched_subscription_ids]
}

run "a_nat_gateway_without_network" {
  command = plan

  variables {
    nat_gateway_enabled = true
  }

  expect_failures = [var.nat_gateway_enabled]
}

run "a_nat_gateway_with_own_subnets" {
  command = plan

  variables {
    network_enabled                     = true
    nat_gateway_enabled                 = true
    function_subnet_resource_id         = "/subscriptions/22222222-2222-4222-8222-222222222222/resourceGroups/rg-platform/providers/Microsoft.Network/virtualNetworks/vnet/subnets/functions"
    private_endpoint_subnet_resource_id = "/subscriptions/22222222-2222-4222-8222-222222222222/resourceGroups/rg-platform/providers/Microsoft.Network/virtualNetworks/vnet/subnets/endpoints"
  }

  expect_failures = [var.nat_gateway_enabled]
}

run "one_subnet_of_two" {
  command = plan

  variables {
    network_enabled             = true
    function_subnet_resource_id = "/subscriptions/22222222-2222-4222-8222-222222222222/resourceGroups/rg-platform/providers/Microsoft.Network/virtualNetworks/vnet/subnets/functions"
  }

  expect_failures = [var.private_endpoint_subnet_resource_id]
}

run "a_subnet_that_is_no_id" {
  command = plan

  variables {
    network_enabled                     = true
    function_subnet_resource_id         = "functions"
    private_endpoint_subnet_resource_id = "/subscriptions/22222222-2222-4222-8222-222222222222/resourceGroups/rg-platform/providers/Microsoft.Network/virtualNetworks/vnet/subnets/endpoints"
  }

  expect_failures = [var.function_subnet_resource_id]
}

run "an_endpoint_of_the_app_without_network" {
  command = plan

  variables {
    app_private_endpoint_enabled = true
  }

  expect_failures = [var.app_private_endpoint_enabled]
}

run "a_lock_that_refuses_updates" {
  command = plan

  variables {
    lock = { kind = "ReadOnly" }
  }

  expect_failures = [var.lock]
}

run "a_key_vault_that_is_no_id" {
  command = plan

  variables {
    customer_managed_key = {
      key_vault_resource_id  = "kv-keys"
      key_name               = "lifecycle"
      user_assigned_identity = { resource_id = "/subscriptions/22222222-2222-4222-8222-222222222222/resourceGroups/rg-platform/providers/Microsoft.ManagedIdentity/userAssignedIdentities/id-key" }
    }
  }

  expect_failures = [var.customer_managed_key]
}

run "a_workspace_that_is_no_id" {
  command = plan

  variables {
    log_analytics_workspace_resource_id = "log"
  }

  expect_failures = [var.log_analytics_workspace_resource_id]
}

run "a_role_that_is_a_name" {
  command = plan

  variables {
    inventory_reader_role_definition_id = "Reader"
  }

  expect_failures = [var.inventory_reader_role_definition_id]
}

run "a_network_without_length" {
  command = plan

  variables {
    network_enabled        = true
    network_address_prefix = "10.20.0.0"
  }

  expect_failures = [var.network_address_prefix]
}
