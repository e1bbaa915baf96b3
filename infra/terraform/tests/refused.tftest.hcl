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

run "a_client_id_that_is_no_guid" {
  command = plan

  variables {
    customer_managed_key = {
      key_vault_resource_id = "/subscriptions/22222222-2222-4222-8222-222222222222/resourceGroups/rg-platform/providers/Microsoft.KeyVault/vaults/kv-keys"
      key_name              = "lifecycle"
      user_assigned_identity = {
        resource_id = "/subscriptions/22222222-2222-4222-8222-222222222222/resourceGroups/rg-platform/providers/Microsoft.ManagedIdentity/userAssignedIdentities/id-key"
        client_id   = "id-key"
      }
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

run "a_long_name" {
  command = plan

  variables {
    environment_name = "a-name-of-21-letters-"
  }

  expect_failures = [var.environment_name]
}

run "an_instance_size_that_does_not_exist" {
  command = plan

  variables {
    instance_memory_mb = 1024
  }

  expect_failures = [var.instance_memory_mb]
}

run "too_few_instances" {
  command = plan

  variables {
    maximum_instance_count = 39
  }

  expect_failures = [var.maximum_instance_count]
}

run "too_many_instances" {
  command = plan

  variables {
    maximum_instance_count = 1001
  }

  expect_failures = [var.maximum_instance_count]
}

run "less_than_no_ready_instance" {
  command = plan

  variables {
    always_ready_instances = -1
  }

  expect_failures = [var.always_ready_instances]
}

run "too_many_ready_instances" {
  command = plan

  variables {
    always_ready_instances = 21
  }

  expect_failures = [var.always_ready_instances]
}

run "an_old_node_version" {
  command = plan

  variables {
    node_version = "20"
  }

  expect_failures = [var.node_version]
}

run "a_short_retention" {
  command = plan

  variables {
    log_retention_days = 29
  }

  expect_failures = [var.log_retention_days]
}

run "a_long_retention" {
  command = plan

  variables {
    log_retention_days = 731
  }

  expect_failures = [var.log_retention_days]
}

run "a_resource_group_that_is_a_name" {
  command = plan

  variables {
    rotation_resource_group_ids = ["rg-apps"]
  }

  expect_failures = [var.rotation_resource_group_ids]
}

run "a_resource_instead_of_its_group" {
  command = plan

  variables {
    rotation_resource_group_ids = ["/subscriptions/22222222-2222-4222-8222-222222222222/resourceGroups/rg-apps/providers/Microsoft.Web/sites/app"]
  }

  expect_failures = [var.rotation_resource_group_ids]
}

run "keys_in_a_resource_group_that_is_a_name" {
  command = plan

  variables {
    rotation_key_kinds = { "rg-apps" = ["storage"] }
  }

  expect_failures = [var.rotation_key_kinds]
}

run "a_compared_subscription_that_is_no_guid" {
  command = plan

  variables {
    literal_scan_subscription_ids = ["production"]
  }

  expect_failures = [var.literal_scan_subscription_ids]
}

run "a_tenant_that_is_a_domain" {
  command = plan

  variables {
    further_entra_tenant_ids = ["example.com"]
  }

  expect_failures = [var.further_entra_tenant_ids]
}

run "a_queried_workspace_that_is_a_name" {
  command = plan

  variables {
    log_analytics_workspace_ids = ["log"]
  }

  expect_failures = [var.log_analytics_workspace_ids]
}

run "a_collector_without_scheme" {
  command = plan

  variables {
    telemetry_endpoint = "collector.example.com:4318"
  }

  expect_failures = [var.telemetry_endpoint]
}

run "a_dependency_role_that_is_a_name" {
  command = plan

  variables {
    dependency_reader_role_definition_id = "Reader"
  }

  expect_failures = [var.dependency_reader_role_definition_id]
}

run "a_rotation_role_that_is_a_name" {
  command = plan

  variables {
    rotation_operator_role_definition_id = "Contributor"
  }

  expect_failures = [var.rotation_operator_role_definition_id]
}

run "a_scanner_role_that_is_a_name" {
  command = plan

  variables {
    literal_scanner_role_definition_id = "Contributor"
  }

  expect_failures = [var.literal_scanner_role_definition_id]
}

run "alerts_that_notify_nobody" {
  command = plan

  variables {
    operator_email_addresses = []
  }

  expect_failures = [check.alerts_notify_somebody]
}

run "a_watched_scope_that_is_a_name" {
  command = plan

  module {
    source = "./watch"
  }

  variables {
    scope        = "production"
    scope_name   = "production"
    principal_id = "33333333-3333-4333-8333-333333333333"
  }

  expect_failures = [var.scope]
}

run "a_watched_resource_group" {
  command = plan

  module {
    source = "./watch"
  }

  variables {
    scope        = "/subscriptions/22222222-2222-4222-8222-222222222222/resourceGroups/rg-apps"
    scope_name   = "rg-apps"
    principal_id = "33333333-3333-4333-8333-333333333333"
  }

  expect_failures = [var.scope]
}

run "a_rotation_in_a_subscription" {
  command = plan

  module {
    source = "./rotation"
  }

  variables {
    scope        = "/subscriptions/22222222-2222-4222-8222-222222222222"
    principal_id = "33333333-3333-4333-8333-333333333333"
  }

  expect_failures = [var.scope]
}

run "keys_in_a_subscription" {
  command = plan

  module {
    source = "./rotation-keys"
  }

  variables {
    scope        = "/subscriptions/22222222-2222-4222-8222-222222222222"
    principal_id = "33333333-3333-4333-8333-333333333333"
    kinds        = ["storage"]
  }

  expect_failures = [var.scope]
}

run "keys_of_an_unknown_kind" {
  command = plan

  module {
    source = "./rotation-keys"
  }

  variables {
    scope        = "/subscriptions/22222222-2222-4222-8222-222222222222/resourceGroups/rg-apps"
    principal_id = "33333333-3333-4333-8333-333333333333"
    kinds        = ["storage", "iotHub"]
  }

  expect_failures = [var.kinds]
}

run "keys_of_no_kind" {
  command = plan

  module {
    source = "./rotation-keys"
  }

  variables {
    scope        = "/subscriptions/22222222-2222-4222-8222-222222222222/resourceGroups/rg-apps"
    principal_id = "33333333-3333-4333-8333-333333333333"
    kinds        = []
  }

  expect_failures = [var.kinds]
}

run "a_comparison_in_a_resource_group" {
  command = plan

  module {
    source = "./literal-scan"
  }

  variables {
    scope        = "/subscriptions/22222222-2222-4222-8222-222222222222/resourceGroups/rg-apps"
    scope_name   = "rg-apps"
    principal_id = "33333333-3333-4333-8333-333333333333"
  }

  expect_failures = [var.scope]
}

run "logs_of_what_is_no_workspace" {
  command = plan

  module {
    source = "./logs"
  }

  variables {
    workspace_id = "/subscriptions/22222222-2222-4222-8222-222222222222/resourceGroups/rg-logs"
    principal_id = "33333333-3333-4333-8333-333333333333"
  }

  expect_failures = [var.workspace_id]
}

run "vault_keys_of_what_is_no_vault" {
  command = plan

  module {
    source = "./vault-keys"
  }

  variables {
    key_vault_id = "/subscriptions/22222222-2222-4222-8222-222222222222/resourceGroups/rg-vaults"
    principal_id = "33333333-3333-4333-8333-333333333333"
  }

  expect_failures = [var.key_vault_id]
}

run "logs_of_what_is_no_workspace_for_streams" {
  command = plan

  module {
    source = "./siem"
  }

  variables {
    location     = "westeurope"
    workspace_id = "/subscriptions/22222222-2222-4222-8222-222222222222/resourceGroups/rg-logs"
    principal_id = "33333333-3333-4333-8333-333333333333"
  }

  expect_failures = [var.workspace_id]
}

run "a_topic_that_waits_for_no_role" {
  command = plan

  module {
    source = "./events"
  }

  variables {
    storage_account_id = "/subscriptions/22222222-2222-4222-8222-222222222222/resourceGroups/rg-platform/providers/Microsoft.Storage/storageAccounts/st"
    event_identity_id  = "/subscriptions/22222222-2222-4222-8222-222222222222/resourceGroups/rg-platform/providers/Microsoft.ManagedIdentity/userAssignedIdentities/id-events"
    sender_role_id     = null
  }

  expect_failures = [azurerm_eventgrid_system_topic.topic]
}

run "a_policy_of_a_name" {
  command = plan

  module {
    source = "./events-policy/subscription"
  }

  variables {
    scope              = "production"
    storage_account_id = "/subscriptions/22222222-2222-4222-8222-222222222222/resourceGroups/rg-platform/providers/Microsoft.Storage/storageAccounts/st"
    event_identity_id  = "/subscriptions/22222222-2222-4222-8222-222222222222/resourceGroups/rg-platform/providers/Microsoft.ManagedIdentity/userAssignedIdentities/id-events"
    resource_group_id  = "/subscriptions/22222222-2222-4222-8222-222222222222/resourceGroups/rg-platform"
  }

  expect_failures = [var.scope]
}

run "a_policy_with_a_long_name" {
  command = plan

  module {
    source = "./events-policy/subscription"
  }

  variables {
    scope              = "/subscriptions/22222222-2222-4222-8222-222222222222"
    environment_name   = "a-name-of-21-letters-"
    storage_account_id = "/subscriptions/22222222-2222-4222-8222-222222222222/resourceGroups/rg-platform/providers/Microsoft.Storage/storageAccounts/st"
    event_identity_id  = "/subscriptions/22222222-2222-4222-8222-222222222222/resourceGroups/rg-platform/providers/Microsoft.ManagedIdentity/userAssignedIdentities/id-events"
    resource_group_id  = "/subscriptions/22222222-2222-4222-8222-222222222222/resourceGroups/rg-platform"
  }

  expect_failures = [var.environment_name]
}

run "a_policy_of_a_management_group_that_is_a_name" {
  command = plan

  module {
    source = "./events-policy/management-group"
  }

  variables {
    scope              = "company"
    storage_account_id = "/subscriptions/22222222-2222-4222-8222-222222222222/resourceGroups/rg-platform/providers/Microsoft.Storage/storageAccounts/st"
    event_identity_id  = "/subscriptions/22222222-2222-4222-8222-222222222222/resourceGroups/rg-platform/providers/Microsoft.ManagedIdentity/userAssignedIdentities/id-events"
    resource_group_id  = "/subscriptions/22222222-2222-4222-8222-222222222222/resourceGroups/rg-platform"
  }

  expect_failures = [var.scope]
}

run "a_policy_of_a_management_group_with_a_long_name" {
  command = plan

  module {
    source = "./events-policy/management-group"
  }

  variables {
    scope              = "/providers/Microsoft.Management/managementGroups/company"
    environment_name   = "a-name-of-21-letters-"
    storage_account_id = "/subscriptions/22222222-2222-4222-8222-222222222222/resourceGroups/rg-platform/providers/Microsoft.Storage/storageAccounts/st"
    event_identity_id  = "/subscriptions/22222222-2222-4222-8222-222222222222/resourceGroups/rg-platform/providers/Microsoft.ManagedIdentity/userAssignedIdentities/id-events"
    resource_group_id  = "/subscriptions/22222222-2222-4222-8222-222222222222/resourceGroups/rg-platform"
  }

  expect_failures = [var.environment_name]
}

run "acme_dns_zone_ids_that_are_names" {
  command = plan

  variables {
    acme_dns_zone_ids = ["example.com"]
  }

  expect_failures = [var.acme_dns_zone_ids]
}

run "certificate_vault_ids_that_are_names" {
  command = plan

  variables {
    certificate_vault_ids = ["kv-shop"]
  }

  expect_failures = [var.certificate_vault_ids]
}

run "a_zone_id_that_is_a_resource_group" {
  command = plan

  module {
    source = "./certificate-dns-zone"
  }

  variables {
    zone_id      = "/subscriptions/22222222-2222-4222-8222-222222222222/resourceGroups/rg-apps"
    principal_id = "33333333-3333-4333-8333-333333333333"
  }

  expect_failures = [var.zone_id]
}

run "a_vault_id_that_is_a_resource_group" {
  command = plan

  module {
    source = "./certificate-vault"
  }

  variables {
    vault_id     = "/subscriptions/22222222-2222-4222-8222-222222222222/resourceGroups/rg-apps"
    principal_id = "33333333-3333-4333-8333-333333333333"
  }

  expect_failures = [var.vault_id]
}
