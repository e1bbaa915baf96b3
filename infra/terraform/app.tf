# The function app on Flex Consumption, and its settings (shared/platform/config/config.ts).
locals {
  function_app_name = "func-${var.environment_name}-${local.suffix}"
  service_url       = "https://${local.function_app_name}.${local.cloud.appDomain}"
}

resource "azurerm_service_plan" "plan" {
  name                = "plan-${var.environment_name}"
  resource_group_name = local.resource_group_name
  location            = var.location
  tags                = local.tags
  os_type             = "Linux"
  sku_name            = "FC1"
  # Turning zone balancing on later replaces the plan and the app. The data stays.
  zone_balancing_enabled = var.zone_redundant
}

# Stores the object ID of the person who applied first. Without it, an apply by another person would change a setting of the app
# and restart the app, and that person could set the first password.
resource "terraform_data" "deployer" {
  input = data.azurerm_client_config.current.object_id

  lifecycle {
    ignore_changes = [input]
  }
}

# The service calls Azure with the user-assigned identity. The platform uses the app's system-assigned identity only to read the
# secrets that app settings refer to.
resource "azurerm_function_app_flex_consumption" "function_app" {
  name                                           = local.function_app_name
  resource_group_name                            = local.resource_group_name
  location                                       = var.location
  tags                                           = merge(local.tags, { "azd-service-name" = "api" })
  service_plan_id                                = azurerm_service_plan.plan.id
  https_only                                     = true
  public_network_access_enabled                  = var.app_public_network_access_enabled
  webdeploy_publish_basic_authentication_enabled = false
  virtual_network_subnet_id                      = var.network_enabled ? local.function_subnet_id : null
  storage_container_type                         = "blobContainer"
  storage_container_endpoint                     = "${azurerm_storage_account.storage_account.primary_blob_endpoint}${azurerm_storage_container.deployment_container.name}"
  storage_authentication_type                    = "UserAssignedIdentity"
  storage_user_assigned_identity_id              = azurerm_user_assigned_identity.identity.id
  runtime_name                                   = "node"
  runtime_version                                = var.node_version
  instance_memory_in_mb                          = var.instance_memory_mb
  maximum_instance_count                         = var.maximum_instance_count

  identity {
    type         = "SystemAssigned, UserAssigned"
    identity_ids = [azurerm_user_assigned_identity.identity.id]
  }

  dynamic "always_ready" {
    for_each = var.always_ready_instances == 0 ? [] : [var.always_ready_instances]

    content {
      name           = "http"
      instance_count = always_ready.value
    }
  }

  site_config {
    minimum_tls_version                    = "1.2"
    application_insights_connection_string = azurerm_application_insights.application_insights.connection_string
    ip_restriction_default_action          = length(var.allowed_ip_ranges) == 0 ? "Allow" : "Deny"

    dynamic "ip_restriction" {
      for_each = var.allowed_ip_ranges

      content {
        name       = "allowed-${ip_restriction.key}"
        ip_address = ip_restriction.value
        action     = "Allow"
        priority   = 100 + ip_restriction.key
      }
    }
  }

  app_settings = merge(
    var.additional_settings,
    {
      # Two limits of the C library's memory allocator. Without them, it keeps freed memory of its threads: a tenth of the memory of
      # an instance with 512 MB (BENCHMARKS.md).
      MALLOC_ARENA_MAX       = "2"
      MALLOC_TRIM_THRESHOLD_ = "131072"
      # The setting AzureWebJobsStorage, in capitals. Without it, the provider would add the setting with an empty key. In the usual
      # spelling, the provider would drop it from its state, so each plan would contain a change. Azure and the host ignore case.
      # They treat the empty value as not set, and use the settings below.
      AZUREWEBJOBSSTORAGE                       = ""
      AzureWebJobsStorage__blobServiceUri       = azurerm_storage_account.storage_account.primary_blob_endpoint
      AzureWebJobsStorage__queueServiceUri      = azurerm_storage_account.storage_account.primary_queue_endpoint
      AzureWebJobsStorage__tableServiceUri      = azurerm_storage_account.storage_account.primary_table_endpoint
      AzureWebJobsStorage__credential           = "managedidentity"
      AzureWebJobsStorage__clientId             = azurerm_user_assigned_identity.identity.client_id
      APPLICATIONINSIGHTS_AUTHENTICATION_STRING = "ClientId=${azurerm_user_assigned_identity.identity.client_id};Authorization=AAD"
      AZURE_CLOUD                               = var.azure_cloud
      AZURE_TENANT_ID                           = data.azurerm_client_config.current.tenant_id
      AZURE_CLIENT_ID                           = azurerm_user_assigned_identity.identity.client_id
      AZURE_SUBSCRIPTION_IDS                    = join(",", local.watched_subscription_ids)
      WATCH_ALL                                 = join(",", local.watched_subscription_ids) == "" ? "true" : "false"
      SERVICE_KEY_VAULT_URL                     = azurerm_key_vault.vault.vault_uri
      PUBLIC_BASE_URL                           = var.public_base_url == "" ? local.service_url : var.public_base_url
      JWT_SIGNING_KEYS                          = "@Microsoft.KeyVault(SecretUri=${azurerm_key_vault.vault.vault_uri}secrets/jwt-signing-keys)"
      AUDIT_SIGNING_KEYS                        = "@Microsoft.KeyVault(SecretUri=${azurerm_key_vault.vault.vault_uri}secrets/audit-signing-keys)"
      OPERATOR_ADDRESSES_SET                    = length(var.operator_email_addresses) == 0 ? "false" : "true"
      DEPLOYER_OBJECT_ID                        = var.deployer_object_id == "" ? terraform_data.deployer.output : var.deployer_object_id
      SERVICE_KEY_VAULT_ID                      = azurerm_key_vault.vault.id
      BOOTSTRAP_ADMIN_USERNAME                  = var.bootstrap_admin_username
      BOOTSTRAP_ADMIN_PASSWORD                  = "@Microsoft.KeyVault(SecretUri=${azurerm_key_vault.vault.vault_uri}secrets/bootstrap-admin-password)"
    },
    var.mail_enabled ? {
      COMMUNICATION_ENDPOINT = "https://${azurerm_communication_service.communication_service[0].hostname}"
      ALERT_SENDER_ADDRESS   = "DoNotReply@${azurerm_email_communication_service_domain.email_domain[0].mail_from_sender_domain}"
    } : {},
    var.alert_owner_domains == "" ? {} : { ALERT_OWNER_DOMAINS = var.alert_owner_domains },
    var.mail_per_minute == "" ? {} : { MAIL_PER_MINUTE = var.mail_per_minute },
    var.mail_per_hour == "" ? {} : { MAIL_PER_HOUR = var.mail_per_hour },
    var.app_configuration_enabled ? { APP_CONFIGURATION_ENDPOINT = azurerm_app_configuration.app_configuration[0].endpoint } : {},
    var.license_secret_name == "" ? {} : {
      LICENSE_KEY = "@Microsoft.KeyVault(SecretUri=${azurerm_key_vault.vault.vault_uri}secrets/${var.license_secret_name})"
    },
    var.entra_api_client_id == "" ? {} : {
      ENTRA_API_CLIENT_ID = var.entra_api_client_id
      ENTRA_TENANT_IDS    = join(",", concat([data.azurerm_client_config.current.tenant_id], var.further_entra_tenant_ids))
    },
    var.entra_api_scope == "" ? {} : { ENTRA_API_SCOPE = var.entra_api_scope },
    length(var.log_analytics_workspace_ids) == 0 ? {} : { LOG_ANALYTICS_WORKSPACE_IDS = join(",", var.log_analytics_workspace_ids) },
    var.telemetry_endpoint == "" ? {} : { OTEL_EXPORTER_OTLP_ENDPOINT = var.telemetry_endpoint },
    var.telemetry_headers_secret_name == "" ? {} : {
      OTEL_EXPORTER_OTLP_HEADERS = "@Microsoft.KeyVault(SecretUri=${azurerm_key_vault.vault.vault_uri}secrets/${var.telemetry_headers_secret_name})"
    },
    local.nat_gateway_created ? { OUTBOUND_IP_ADDRESS = azurerm_public_ip.public_ip_address[0].ip_address } : {},
    var.network_enabled && !local.nat_gateway_created ? { OUTBOUND_SUBNET_ID = local.function_subnet_id } : {},
    var.private_target_hosts == "" ? {} : { PRIVATE_TARGET_HOSTS = var.private_target_hosts },
    var.handover_key_vault_url == "" ? {} : { HANDOVER_KEY_VAULT_URL = var.handover_key_vault_url },
    length(var.literal_scan_subscription_ids) == 0 ? {} : { DEPENDENCY_LITERAL_SCAN = "true" },
    length(var.acme_dns_zone_ids) == 0 ? {} : { ACME_DNS_ZONE_IDS = join(",", var.acme_dns_zone_ids) }
  )

  # The app starts when it is created. Without its roles and, in a private network, its endpoints, it would fail until it is
  # restarted.
  depends_on = [
    azurerm_role_assignment.blob_role,
    azurerm_role_assignment.queue_role,
    azurerm_role_assignment.table_role,
    azurerm_role_assignment.vault_role,
    azurerm_role_assignment.telemetry_role,
    azurerm_role_assignment.mail_role,
    azurerm_role_assignment.app_configuration_role,
    azurerm_private_endpoint.private_endpoint,
    azurerm_private_dns_zone_virtual_network_link.virtual_network_link,
  ]
}

resource "azurerm_role_assignment" "vault_reference_role" {
  scope                = azurerm_key_vault.vault.id
  role_definition_name = "Key Vault Secrets User"
  principal_id         = azurerm_function_app_flex_consumption.function_app.identity[0].principal_id
  principal_type       = "ServicePrincipal"
}

resource "azurerm_monitor_diagnostic_setting" "app_diagnostics" {
  count = var.diagnostic_settings_enabled ? 1 : 0

  name                       = "all-logs"
  target_resource_id         = azurerm_function_app_flex_consumption.function_app.id
  log_analytics_workspace_id = local.log_analytics_workspace_id

  enabled_log {
    category_group = "allLogs"
  }
}
