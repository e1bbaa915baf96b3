# Tests of existing resources: each one that a platform team passes replaces one that the module would create.
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

run "uses_the_resource_group" {
  command = plan

  variables {
    resource_group_name = "rg-platform"
  }

  assert {
    condition     = length(azurerm_resource_group.resource_group) == 0
    error_message = "No resource group must be created."
  }

  assert {
    condition     = output.service_resource_group_name == "rg-platform" && azurerm_key_vault.vault.resource_group_name == "rg-platform"
    error_message = "Resources must be in the existing group."
  }

  assert {
    condition     = output.service_resource_group_id == "/subscriptions/22222222-2222-4222-8222-222222222222/resourceGroups/rg-platform"
    error_message = "Its id must be the existing group's."
  }
}

run "uses_the_subnets" {
  command = plan

  variables {
    network_enabled                     = true
    function_subnet_resource_id         = "/subscriptions/22222222-2222-4222-8222-222222222222/resourceGroups/rg-platform/providers/Microsoft.Network/virtualNetworks/vnet/subnets/functions"
    private_endpoint_subnet_resource_id = "/subscriptions/22222222-2222-4222-8222-222222222222/resourceGroups/rg-platform/providers/Microsoft.Network/virtualNetworks/vnet/subnets/endpoints"
    private_dns_zones_enabled           = false
  }

  assert {
    condition     = length(azurerm_virtual_network.virtual_network) == 0 && length(azurerm_network_security_group.network_security_group) == 0
    error_message = "No network must be created."
  }

  assert {
    condition     = azurerm_function_app_flex_consumption.function_app.virtual_network_subnet_id == "/subscriptions/22222222-2222-4222-8222-222222222222/resourceGroups/rg-platform/providers/Microsoft.Network/virtualNetworks/vnet/subnets/functions" && azurerm_private_endpoint.private_endpoint["vault"].subnet_id == "/subscriptions/22222222-2222-4222-8222-222222222222/resourceGroups/rg-platform/providers/Microsoft.Network/virtualNetworks/vnet/subnets/endpoints"
    error_message = "The app and the endpoints must use the existing subnets."
  }

  assert {
    condition     = length(azurerm_private_dns_zone.private_dns_zone) == 0 && length(azurerm_private_endpoint.private_endpoint["vault"].private_dns_zone_group) == 0
    error_message = "A policy of the platform team creates the records, so the module must create none."
  }

  assert {
    condition     = output.service_subnet_id == "/subscriptions/22222222-2222-4222-8222-222222222222/resourceGroups/rg-platform/providers/Microsoft.Network/virtualNetworks/vnet/subnets/functions"
    error_message = "The output for firewalls must be the existing subnet."
  }
}

run "uses_the_private_dns_zones" {
  command = plan

  variables {
    network_enabled              = true
    app_private_endpoint_enabled = true
    private_dns_zone_resource_ids = {
      vault = "/subscriptions/22222222-2222-4222-8222-222222222222/resourceGroups/rg-platform/providers/Microsoft.Network/privateDnsZones/privatelink.vaultcore.azure.net"
      sites = "/subscriptions/22222222-2222-4222-8222-222222222222/resourceGroups/rg-platform/providers/Microsoft.Network/privateDnsZones/privatelink.azurewebsites.net"
    }
  }

  assert {
    condition     = length(azurerm_private_dns_zone.private_dns_zone) == 0 && length(azurerm_private_dns_zone.app_private_dns_zone) == 0 && length(azurerm_private_dns_zone_virtual_network_link.virtual_network_link) == 0
    error_message = "No zone must be created or linked."
  }

  assert {
    condition     = one(azurerm_private_endpoint.private_endpoint["vault"].private_dns_zone_group[0].private_dns_zone_ids) == "/subscriptions/22222222-2222-4222-8222-222222222222/resourceGroups/rg-platform/providers/Microsoft.Network/privateDnsZones/privatelink.vaultcore.azure.net" && one(azurerm_private_endpoint.app_private_endpoint[0].private_dns_zone_group[0].private_dns_zone_ids) == "/subscriptions/22222222-2222-4222-8222-222222222222/resourceGroups/rg-platform/providers/Microsoft.Network/privateDnsZones/privatelink.azurewebsites.net"
    error_message = "The endpoints must be added to the existing zones."
  }

  assert {
    condition     = length(azurerm_private_endpoint.private_endpoint["blob"].private_dns_zone_group) == 0
    error_message = "An endpoint without a zone must have no record."
  }
}

run "refuses_what_is_no_private_dns_zone" {
  command = plan

  variables {
    private_dns_zone_resource_ids = { vault = "privatelink.vaultcore.azure.net" }
  }

  expect_failures = [var.private_dns_zone_resource_ids]
}

run "uses_the_workspace" {
  command = plan

  variables {
    log_analytics_workspace_resource_id = "/subscriptions/22222222-2222-4222-8222-222222222222/resourceGroups/rg-platform/providers/Microsoft.OperationalInsights/workspaces/log"
    diagnostic_settings_enabled         = true
  }

  assert {
    condition     = length(azurerm_log_analytics_workspace.log_analytics_workspace) == 0 && length(azurerm_monitor_diagnostic_setting.workspace_diagnostics) == 0
    error_message = "No workspace must be created, and the existing one stays as it is."
  }

  assert {
    condition     = azurerm_application_insights.application_insights.workspace_id == "/subscriptions/22222222-2222-4222-8222-222222222222/resourceGroups/rg-platform/providers/Microsoft.OperationalInsights/workspaces/log" && azurerm_monitor_diagnostic_setting.vault_diagnostics.log_analytics_workspace_id == "/subscriptions/22222222-2222-4222-8222-222222222222/resourceGroups/rg-platform/providers/Microsoft.OperationalInsights/workspaces/log"
    error_message = "Telemetry and audit logs must go to the existing workspace."
  }
}

run "uses_the_roles" {
  command = plan

  variables {
    inventory_reader_role_definition_id  = "/providers/Microsoft.Authorization/roleDefinitions/33333333-3333-4333-8333-333333333333"
    dependency_reader_role_definition_id = "/providers/Microsoft.Authorization/roleDefinitions/33333333-3333-4333-8333-333333333333"
  }

  assert {
    condition     = length(module.watch["22222222-2222-4222-8222-222222222222"].created_role_names) == 0
    error_message = "No custom role must be created."
  }

  assert {
    condition     = module.watch["22222222-2222-4222-8222-222222222222"].assigned_role_ids == ["/providers/Microsoft.Authorization/roleDefinitions/33333333-3333-4333-8333-333333333333", "/providers/Microsoft.Authorization/roleDefinitions/33333333-3333-4333-8333-333333333333"]
    error_message = "The existing roles must be assigned."
  }
}

run "leaves_the_permissions_to_another_team" {
  command = plan

  variables {
    watch_roles_enabled = false
  }

  assert {
    condition     = length(module.watch) == 0
    error_message = "Nothing must be granted on monitored subscriptions."
  }

  assert {
    condition     = azurerm_function_app_flex_consumption.function_app.app_settings["AZURE_SUBSCRIPTION_IDS"] == "22222222-2222-4222-8222-222222222222"
    error_message = "The app must still monitor the subscriptions."
  }
}

run "encrypts_with_the_key" {
  command = plan

  variables {
    customer_managed_key = {
      key_vault_resource_id  = "/subscriptions/22222222-2222-4222-8222-222222222222/resourceGroups/rg-platform/providers/Microsoft.KeyVault/vaults/kv-keys"
      key_name               = "lifecycle"
      user_assigned_identity = { resource_id = "/subscriptions/22222222-2222-4222-8222-222222222222/resourceGroups/rg-platform/providers/Microsoft.ManagedIdentity/userAssignedIdentities/id-key" }
    }
  }

  assert {
    condition     = azurerm_storage_account.storage_account.customer_managed_key[0].key_vault_key_id == "https://kv-keys.vault.azure.net/keys/lifecycle"
    error_message = "The key ID must have no version, so that Azure uses new versions."
  }

  assert {
    condition     = azurerm_storage_account.storage_account.table_encryption_key_type == "Account" && azurerm_storage_account.storage_account.queue_encryption_key_type == "Account"
    error_message = "Tables and queues must use the key too."
  }

  assert {
    condition     = one(azurerm_storage_account.storage_account.identity[0].identity_ids) == "/subscriptions/22222222-2222-4222-8222-222222222222/resourceGroups/rg-platform/providers/Microsoft.ManagedIdentity/userAssignedIdentities/id-key"
    error_message = "Storage must read the key with the given identity."
  }
}

run "encrypts_settings_with_the_key" {
  command = plan

  variables {
    app_configuration_enabled = true
    customer_managed_key = {
      key_vault_resource_id = "/subscriptions/22222222-2222-4222-8222-222222222222/resourceGroups/rg-platform/providers/Microsoft.KeyVault/vaults/kv-keys"
      key_name              = "lifecycle"
      user_assigned_identity = {
        resource_id = "/subscriptions/33333333-3333-4333-8333-333333333333/resourceGroups/rg-platform/providers/Microsoft.ManagedIdentity/userAssignedIdentities/id-key"
        client_id   = "cccccccc-cccc-4ccc-8ccc-cccccccccccc"
      }
    }
  }

  assert {
    condition     = azurerm_app_configuration.app_configuration[0].encryption[0].key_vault_key_identifier == "https://kv-keys.vault.azure.net/keys/lifecycle"
    error_message = "The key ID must have no version, so that Azure uses new versions."
  }

  assert {
    condition     = azurerm_app_configuration.app_configuration[0].encryption[0].identity_client_id == "cccccccc-cccc-4ccc-8ccc-cccccccccccc"
    error_message = "App Configuration must read the key with the given identity."
  }

  assert {
    condition     = one(azurerm_app_configuration.app_configuration[0].identity[0].identity_ids) == var.customer_managed_key.user_assigned_identity.resource_id
    error_message = "App Configuration must have the given identity, which can be in another subscription."
  }
}

run "does_not_encrypt_settings_without_the_client_id" {
  command = plan

  variables {
    app_configuration_enabled = true
    customer_managed_key = {
      key_vault_resource_id  = "/subscriptions/22222222-2222-4222-8222-222222222222/resourceGroups/rg-platform/providers/Microsoft.KeyVault/vaults/kv-keys"
      key_name               = "lifecycle"
      user_assigned_identity = { resource_id = "/subscriptions/22222222-2222-4222-8222-222222222222/resourceGroups/rg-platform/providers/Microsoft.ManagedIdentity/userAssignedIdentities/id-key" }
    }
  }

  assert {
    condition     = length(azurerm_app_configuration.app_configuration[0].encryption) == 0 && length(azurerm_app_configuration.app_configuration[0].identity) == 0
    error_message = "A deployment without the client ID must keep Microsoft's key."
  }
}

run "encrypts_with_one_version_of_the_key" {
  command = plan

  variables {
    customer_managed_key = {
      key_vault_resource_id  = "/subscriptions/22222222-2222-4222-8222-222222222222/resourceGroups/rg-platform/providers/Microsoft.KeyVault/vaults/kv-keys"
      key_name               = "lifecycle"
      key_version            = "0123456789abcdef0123456789abcdef"
      user_assigned_identity = { resource_id = "/subscriptions/22222222-2222-4222-8222-222222222222/resourceGroups/rg-platform/providers/Microsoft.ManagedIdentity/userAssignedIdentities/id-key" }
    }
  }

  assert {
    condition     = azurerm_storage_account.storage_account.customer_managed_key[0].key_vault_key_id == "https://kv-keys.vault.azure.net/keys/lifecycle/0123456789abcdef0123456789abcdef"
    error_message = "The id must name the version."
  }
}

run "locks_what_cannot_be_created_again" {
  command = plan

  variables {
    lock = { kind = "CanNotDelete" }
  }

  assert {
    condition     = azurerm_management_lock.storage_lock[0].lock_level == "CanNotDelete" && startswith(azurerm_management_lock.storage_lock[0].name, "lock-st")
    error_message = "Storage must be locked, under a name of its own."
  }

  assert {
    condition     = azurerm_management_lock.vault_lock[0].lock_level == "CanNotDelete"
    error_message = "The vault must be locked."
  }
}

run "names_the_lock" {
  command = plan

  variables {
    lock = { kind = "CanNotDelete", name = "keep" }
  }

  assert {
    condition     = azurerm_management_lock.vault_lock[0].name == "keep"
    error_message = "The lock must have the given name."
  }
}

run "collects_every_log" {
  command = plan

  variables {
    diagnostic_settings_enabled = true
    network_enabled             = true
    app_configuration_enabled   = true
  }

  assert {
    condition     = length(azurerm_monitor_diagnostic_setting.blob_diagnostics) == 1 && length(azurerm_monitor_diagnostic_setting.queue_diagnostics) == 1 && length(azurerm_monitor_diagnostic_setting.table_diagnostics) == 1 && length(azurerm_monitor_diagnostic_setting.app_diagnostics) == 1
    error_message = "Storage and app must be logged."
  }

  assert {
    condition     = length(azurerm_monitor_diagnostic_setting.communication_diagnostics) == 1 && length(azurerm_monitor_diagnostic_setting.workspace_diagnostics) == 1 && length(azurerm_monitor_diagnostic_setting.network_security_group_diagnostics) == 1 && length(azurerm_monitor_diagnostic_setting.app_configuration_diagnostics) == 1
    error_message = "Mail, workspace, security group and App Configuration must be logged."
  }
}

run "closes_monitoring" {
  command = plan

  variables {
    monitoring_public_network_access_enabled = false
  }

  assert {
    condition     = azurerm_log_analytics_workspace.log_analytics_workspace[0].internet_ingestion_access_type == "Disabled" && azurerm_log_analytics_workspace.log_analytics_workspace[0].internet_query_access_type == "Disabled" && !azurerm_application_insights.application_insights.internet_ingestion_enabled && !azurerm_application_insights.application_insights.internet_query_enabled
    error_message = "Logs must be closed for public networks."
  }
}

run "spreads_over_zones" {
  command = plan

  variables {
    zone_redundant = true
  }

  assert {
    condition     = azurerm_service_plan.plan.zone_balancing_enabled
    error_message = "The plan must be zone redundant."
  }
}
