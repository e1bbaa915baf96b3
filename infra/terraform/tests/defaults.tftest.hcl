# Tests of the module with its defaults: the resources that it creates, and the options that are off.
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

run "creates_everything_itself" {
  command = plan

  assert {
    condition     = azurerm_resource_group.resource_group[0].name == "rg-lifecycle"
    error_message = "The module must create its resource group."
  }

  assert {
    condition     = length(azurerm_log_analytics_workspace.log_analytics_workspace) == 1
    error_message = "The module must create a workspace."
  }

  assert {
    condition     = length(module.watch) == 1 && length(module.watch["22222222-2222-4222-8222-222222222222"].created_role_names) == 2
    error_message = "The deployment's own subscription must be monitored, with two custom roles."
  }

  assert {
    condition     = azurerm_function_app_flex_consumption.function_app.app_settings["AZURE_SUBSCRIPTION_IDS"] == "22222222-2222-4222-8222-222222222222"
    error_message = "The app must monitor the deployment's own subscription."
  }

  assert {
    condition     = azurerm_function_app_flex_consumption.function_app.app_settings["AZUREWEBJOBSSTORAGE"] == "" && !contains(keys(azurerm_function_app_flex_consumption.function_app.app_settings), "AzureWebJobsStorage")
    error_message = "The name must be in capitals. In the provider's own spelling, each plan would show a change."
  }
}

run "leaves_every_option_out" {
  command = plan

  assert {
    condition     = length(azurerm_virtual_network.virtual_network) == 0 && length(azurerm_private_endpoint.private_endpoint) == 0 && length(azurerm_network_security_group.network_security_group) == 0
    error_message = "There must be no network."
  }

  assert {
    condition     = length(azurerm_private_endpoint.app_private_endpoint) == 0 && length(azurerm_management_lock.storage_lock) == 0 && length(azurerm_management_lock.vault_lock) == 0
    error_message = "There must be no endpoint of the app and no lock."
  }

  assert {
    condition     = length(azurerm_monitor_diagnostic_setting.blob_diagnostics) == 0 && length(azurerm_monitor_diagnostic_setting.app_diagnostics) == 0
    error_message = "Only the vault's audit log must be collected."
  }

  assert {
    condition     = length(azurerm_storage_account.storage_account.customer_managed_key) == 0 && azurerm_storage_account.storage_account.table_encryption_key_type == "Service"
    error_message = "Storage must use Microsoft's keys."
  }

  assert {
    condition     = azurerm_function_app_flex_consumption.function_app.public_network_access_enabled && azurerm_storage_account.storage_account.public_network_access_enabled && !azurerm_service_plan.plan.zone_balancing_enabled
    error_message = "The service must be reachable, in one zone."
  }
}

run "keeps_out_what_is_not_entra" {
  command = plan

  assert {
    condition     = !azurerm_storage_account.storage_account.shared_access_key_enabled && !azurerm_storage_account.storage_account.local_user_enabled && !azurerm_function_app_flex_consumption.function_app.webdeploy_publish_basic_authentication_enabled
    error_message = "Storage and publishing must reject keys."
  }

  assert {
    condition     = azurerm_key_vault.vault.rbac_authorization_enabled && azurerm_key_vault.vault.purge_protection_enabled
    error_message = "Only roles must give access to the vault, and a deleted vault must be recoverable."
  }
}
