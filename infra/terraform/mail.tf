# Communication Services, with which the service sends mail from a domain that Azure manages (DoNotReply@....azurecomm.net). The
# service signs in with its identity.
resource "azurerm_email_communication_service" "email_service" {
  count = var.mail_enabled ? 1 : 0

  name                = "acs-${var.environment_name}-${local.suffix}"
  resource_group_name = local.resource_group_name
  tags                = local.tags
  data_location       = var.mail_data_location
}

resource "azurerm_email_communication_service_domain" "email_domain" {
  count = var.mail_enabled ? 1 : 0

  name                             = "AzureManagedDomain"
  email_service_id                 = azurerm_email_communication_service.email_service[0].id
  tags                             = local.tags
  domain_management                = "AzureManaged"
  user_engagement_tracking_enabled = false
}

resource "azurerm_communication_service" "communication_service" {
  count = var.mail_enabled ? 1 : 0

  name                = "acs-${var.environment_name}-${local.suffix}"
  resource_group_name = local.resource_group_name
  tags                = local.tags
  data_location       = var.mail_data_location
}

resource "azurerm_communication_service_email_domain_association" "linked_domain" {
  count = var.mail_enabled ? 1 : 0

  communication_service_id = azurerm_communication_service.communication_service[0].id
  email_service_domain_id  = azurerm_email_communication_service_domain.email_domain[0].id
}

# This role permits more than sending mail: the resource supports no custom role, and no built-in role is narrower. The role is
# assigned for this resource only.
resource "azurerm_role_assignment" "mail_role" {
  count = var.mail_enabled ? 1 : 0

  scope                = azurerm_communication_service.communication_service[0].id
  role_definition_name = "Communication and Email Service Owner"
  principal_id         = azurerm_user_assigned_identity.identity.principal_id
  principal_type       = "ServicePrincipal"
}

resource "azurerm_monitor_diagnostic_setting" "communication_diagnostics" {
  count = var.diagnostic_settings_enabled && var.mail_enabled ? 1 : 0

  name                       = "all-logs"
  target_resource_id         = azurerm_communication_service.communication_service[0].id
  log_analytics_workspace_id = local.log_analytics_workspace_id

  enabled_log {
    category_group = "allLogs"
  }
}
