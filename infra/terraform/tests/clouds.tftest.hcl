# Tests of the DNS zones and domains in sovereign clouds.
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

run "AzureUSGovernment" {
  command = plan

  variables {
    azure_cloud                  = "AzureUSGovernment"
    app_private_endpoint_enabled = true
    customer_managed_key = {
      key_vault_resource_id  = "/subscriptions/22222222-2222-4222-8222-222222222222/resourceGroups/rg-platform/providers/Microsoft.KeyVault/vaults/kv-keys"
      key_name               = "lifecycle"
      user_assigned_identity = { resource_id = "/subscriptions/22222222-2222-4222-8222-222222222222/resourceGroups/rg-platform/providers/Microsoft.ManagedIdentity/userAssignedIdentities/id-key" }
    }
  }

  assert {
    condition     = endswith(output.service_url, ".azurewebsites.us") && azurerm_function_app_flex_consumption.function_app.app_settings["AZURE_CLOUD"] == "AzureUSGovernment"
    error_message = "The app must have the domain of its cloud."
  }

  assert {
    condition     = azurerm_private_dns_zone.private_dns_zone["vault"].name == "privatelink.vaultcore.usgovcloudapi.net" && azurerm_private_dns_zone.private_dns_zone["blob"].name == "privatelink.blob.core.usgovcloudapi.net" && azurerm_private_dns_zone.app_private_dns_zone[0].name == "privatelink.azurewebsites.us"
    error_message = "The zones must be those of the cloud."
  }

  assert {
    condition     = azurerm_storage_account.storage_account.customer_managed_key[0].key_vault_key_id == "https://kv-keys.vault.usgovcloudapi.net/keys/lifecycle"
    error_message = "The key must be in a vault of the cloud."
  }
}

run "AzureChinaCloud" {
  command = plan

  variables {
    azure_cloud                  = "AzureChinaCloud"
    app_private_endpoint_enabled = true
    customer_managed_key = {
      key_vault_resource_id  = "/subscriptions/22222222-2222-4222-8222-222222222222/resourceGroups/rg-platform/providers/Microsoft.KeyVault/vaults/kv-keys"
      key_name               = "lifecycle"
      user_assigned_identity = { resource_id = "/subscriptions/22222222-2222-4222-8222-222222222222/resourceGroups/rg-platform/providers/Microsoft.ManagedIdentity/userAssignedIdentities/id-key" }
    }
  }

  assert {
    condition     = endswith(output.service_url, ".chinacloudsites.cn") && azurerm_function_app_flex_consumption.function_app.app_settings["AZURE_CLOUD"] == "AzureChinaCloud"
    error_message = "The app must have the domain of its cloud."
  }

  assert {
    condition     = azurerm_private_dns_zone.private_dns_zone["vault"].name == "privatelink.vaultcore.azure.cn" && azurerm_private_dns_zone.private_dns_zone["blob"].name == "privatelink.blob.core.chinacloudapi.cn" && azurerm_private_dns_zone.app_private_dns_zone[0].name == "privatelink.chinacloudsites.cn"
    error_message = "The zones must be those of the cloud."
  }

  assert {
    condition     = azurerm_storage_account.storage_account.customer_managed_key[0].key_vault_key_id == "https://kv-keys.vault.azure.cn/keys/lifecycle"
    error_message = "The key must be in a vault of the cloud."
  }
}
