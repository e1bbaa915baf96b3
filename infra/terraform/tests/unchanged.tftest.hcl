# Applies the module with a mocked provider, and plans again with the same variables: the second plan must change nothing.
# terraform test can't assert that: `npm run check:infra` reads the plan of the last run.
# The mocked ids are real in form, because the provider checks each id that an argument gets.
mock_provider "azurerm" {
  mock_data "azurerm_client_config" {
    defaults = {
      tenant_id       = "11111111-1111-4111-8111-111111111111"
      subscription_id = "22222222-2222-4222-8222-222222222222"
      object_id       = "77777777-7777-4777-8777-777777777777"
    }
  }

  mock_resource "azurerm_resource_group" {
    defaults = {
      id = "/subscriptions/22222222-2222-4222-8222-222222222222/resourceGroups/rg-lifecycle"
    }
  }

  mock_resource "azurerm_user_assigned_identity" {
    defaults = {
      id           = "/subscriptions/22222222-2222-4222-8222-222222222222/resourceGroups/rg-lifecycle/providers/Microsoft.ManagedIdentity/userAssignedIdentities/id"
      principal_id = "33333333-3333-4333-8333-333333333333"
      client_id    = "44444444-4444-4444-8444-444444444444"
    }
  }

  mock_resource "azurerm_storage_account" {
    defaults = {
      id                     = "/subscriptions/22222222-2222-4222-8222-222222222222/resourceGroups/rg-lifecycle/providers/Microsoft.Storage/storageAccounts/stlifecycle"
      primary_blob_endpoint  = "https://stlifecycle.blob.core.windows.net/"
      primary_queue_endpoint = "https://stlifecycle.queue.core.windows.net/"
      primary_table_endpoint = "https://stlifecycle.table.core.windows.net/"
    }
  }

  mock_resource "azurerm_storage_queue" {
    defaults = {
      id = "/subscriptions/22222222-2222-4222-8222-222222222222/resourceGroups/rg-lifecycle/providers/Microsoft.Storage/storageAccounts/stlifecycle/queueServices/default/queues/vault-events"
    }
  }

  mock_resource "azurerm_key_vault" {
    defaults = {
      id        = "/subscriptions/22222222-2222-4222-8222-222222222222/resourceGroups/rg-lifecycle/providers/Microsoft.KeyVault/vaults/kv-lifecycle"
      vault_uri = "https://kv-lifecycle.vault.azure.net/"
    }
  }

  mock_resource "azurerm_log_analytics_workspace" {
    defaults = {
      id = "/subscriptions/22222222-2222-4222-8222-222222222222/resourceGroups/rg-lifecycle/providers/Microsoft.OperationalInsights/workspaces/log"
    }
  }

  mock_resource "azurerm_application_insights" {
    defaults = {
      id                = "/subscriptions/22222222-2222-4222-8222-222222222222/resourceGroups/rg-lifecycle/providers/Microsoft.Insights/components/appi"
      connection_string = "InstrumentationKey=00000000-0000-4000-8000-000000000000"
    }
  }

  mock_resource "azurerm_monitor_action_group" {
    defaults = {
      id = "/subscriptions/22222222-2222-4222-8222-222222222222/resourceGroups/rg-lifecycle/providers/Microsoft.Insights/actionGroups/ag"
    }
  }

  mock_resource "azurerm_communication_service" {
    defaults = {
      id       = "/subscriptions/22222222-2222-4222-8222-222222222222/resourceGroups/rg-lifecycle/providers/Microsoft.Communication/communicationServices/acs"
      hostname = "acs.europe.communication.azure.com"
    }
  }

  mock_resource "azurerm_email_communication_service" {
    defaults = {
      id = "/subscriptions/22222222-2222-4222-8222-222222222222/resourceGroups/rg-lifecycle/providers/Microsoft.Communication/emailServices/mail"
    }
  }

  mock_resource "azurerm_email_communication_service_domain" {
    defaults = {
      id                      = "/subscriptions/22222222-2222-4222-8222-222222222222/resourceGroups/rg-lifecycle/providers/Microsoft.Communication/emailServices/mail/domains/AzureManagedDomain"
      mail_from_sender_domain = "mail.example"
    }
  }

  mock_resource "azurerm_app_configuration" {
    defaults = {
      id       = "/subscriptions/22222222-2222-4222-8222-222222222222/resourceGroups/rg-lifecycle/providers/Microsoft.AppConfiguration/configurationStores/appcs"
      endpoint = "https://appcs.azconfig.io"
    }
  }

  mock_resource "azurerm_service_plan" {
    defaults = {
      id = "/subscriptions/22222222-2222-4222-8222-222222222222/resourceGroups/rg-lifecycle/providers/Microsoft.Web/serverFarms/plan"
    }
  }

  mock_resource "azurerm_function_app_flex_consumption" {
    defaults = {
      id = "/subscriptions/22222222-2222-4222-8222-222222222222/resourceGroups/rg-lifecycle/providers/Microsoft.Web/sites/func"
    }
  }

  mock_resource "azurerm_virtual_network" {
    defaults = {
      id = "/subscriptions/22222222-2222-4222-8222-222222222222/resourceGroups/rg-lifecycle/providers/Microsoft.Network/virtualNetworks/vnet"
    }
  }

  mock_resource "azurerm_subnet" {
    defaults = {
      id = "/subscriptions/22222222-2222-4222-8222-222222222222/resourceGroups/rg-lifecycle/providers/Microsoft.Network/virtualNetworks/vnet/subnets/subnet"
    }
  }

  mock_resource "azurerm_network_security_group" {
    defaults = {
      id = "/subscriptions/22222222-2222-4222-8222-222222222222/resourceGroups/rg-lifecycle/providers/Microsoft.Network/networkSecurityGroups/nsg"
    }
  }

  mock_resource "azurerm_public_ip" {
    defaults = {
      id         = "/subscriptions/22222222-2222-4222-8222-222222222222/resourceGroups/rg-lifecycle/providers/Microsoft.Network/publicIPAddresses/pip"
      ip_address = "203.0.113.7"
    }
  }

  mock_resource "azurerm_nat_gateway" {
    defaults = {
      id = "/subscriptions/22222222-2222-4222-8222-222222222222/resourceGroups/rg-lifecycle/providers/Microsoft.Network/natGateways/nat"
    }
  }

  mock_resource "azurerm_private_dns_zone" {
    defaults = {
      id = "/subscriptions/22222222-2222-4222-8222-222222222222/resourceGroups/rg-lifecycle/providers/Microsoft.Network/privateDnsZones/privatelink.example"
    }
  }

  mock_resource "azurerm_role_definition" {
    defaults = {
      id                          = "/subscriptions/22222222-2222-4222-8222-222222222222/providers/Microsoft.Authorization/roleDefinitions/55555555-5555-4555-8555-555555555555|/subscriptions/22222222-2222-4222-8222-222222222222"
      role_definition_resource_id = "/subscriptions/22222222-2222-4222-8222-222222222222/providers/Microsoft.Authorization/roleDefinitions/55555555-5555-4555-8555-555555555555"
    }
  }
}

variables {
  environment_name              = "lifecycle"
  location                      = "westeurope"
  operator_email_addresses      = ["platform@example.com"]
  allowed_ip_ranges             = ["203.0.113.0/24"]
  always_ready_instances        = 1
  app_configuration_enabled     = true
  app_private_endpoint_enabled  = true
  network_enabled               = true
  nat_gateway_enabled           = true
  events_enabled                = true
  diagnostic_settings_enabled   = true
  rotation_resource_group_ids   = ["/subscriptions/22222222-2222-4222-8222-222222222222/resourceGroups/rg-apps"]
  rotation_key_kinds            = { "/subscriptions/22222222-2222-4222-8222-222222222222/resourceGroups/rg-apps" = ["storage", "serviceBusQueue"] }
  literal_scan_subscription_ids = ["22222222-2222-4222-8222-222222222222"]
  lock                          = { kind = "CanNotDelete" }
  tags                          = { "cost-center" = "42" }
}

run "the_first_apply" {
  command = apply
}

# Another user plans, because the plan must not depend on the user.
run "the_second_plan_changes_nothing" {
  command = plan

  override_data {
    target = data.azurerm_client_config.current
    values = {
      tenant_id       = "11111111-1111-4111-8111-111111111111"
      subscription_id = "22222222-2222-4222-8222-222222222222"
      object_id       = "88888888-8888-4888-8888-888888888888"
    }
  }
}
