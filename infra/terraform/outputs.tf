output "service_version" {
  description = "Version of this module. /health?deep=true has the app's."
  value       = jsondecode(file("${path.module}/../../package.json")).version
}

output "service_url" {
  description = "Address of the service."
  value       = local.service_url
}

output "service_key_vault_id" {
  description = "Resource ID of the service's key vault, which npm run make-secrets needs."
  value       = azurerm_key_vault.vault.id
}

output "service_storage_account_id" {
  description = "Resource ID of the storage account, which events/ and events-policy/ of other scopes need."
  value       = azurerm_storage_account.storage_account.id
}

output "service_event_identity_id" {
  description = "Resource ID of the identity with which topics deliver, which events/ and events-policy/ of other scopes need."
  value       = azurerm_user_assigned_identity.event_identity.id

  # Topics of other subscriptions wait for the role too.
  depends_on = [azurerm_role_assignment.topic_sender_role]
}

output "service_vault_events_queue_id" {
  description = "Resource ID of the queue to which Event Grid delivers."
  value       = azurerm_storage_queue.vault_events_queue.id
}

output "service_resource_group_id" {
  description = "Resource ID of the resource group of the service, which events-policy/ needs."
  value       = local.resource_group_id
}

output "service_function_app_id" {
  description = "Resource ID of the function app, which npm run make-secrets needs."
  value       = azurerm_function_app_flex_consumption.function_app.id
}

output "service_identity_principal_id" {
  description = "Object ID of the identity of the service, which watch/ at a management group needs."
  value       = azurerm_user_assigned_identity.identity.principal_id
}

output "alerts_notify_nobody" {
  description = "True if operator_email_addresses is empty: alerts fire, but no one is notified."
  value       = length(var.operator_email_addresses) == 0
}

output "service_subnet_id" {
  description = "Resource ID of the subnet that the firewall of a monitored vault must allow. Empty without network_enabled, and with nat_gateway_enabled."
  value       = var.network_enabled && !local.nat_gateway_created ? local.function_subnet_id : ""
}

output "service_ip_address" {
  description = "Public address that the firewall of a monitored vault must allow. Empty without nat_gateway_enabled."
  value       = local.nat_gateway_created ? azurerm_public_ip.public_ip_address[0].ip_address : ""
}

output "service_resource_group_name" {
  description = "Resource group of the service."
  value       = local.resource_group_name
}

output "service_function_app_name" {
  description = "Name of the app, to publish its code."
  value       = azurerm_function_app_flex_consumption.function_app.name
}

output "service_key_vault_name" {
  description = "Name of the service's vault, to read the first password."
  value       = azurerm_key_vault.vault.name
}

output "service_storage_account_name" {
  description = "Name of the storage account."
  value       = azurerm_storage_account.storage_account.name
}

output "service_identity_client_id" {
  description = "Client id of the identity of the service."
  value       = azurerm_user_assigned_identity.identity.client_id
}

output "service_identity_id" {
  description = "Resource id of the identity of the service."
  value       = azurerm_user_assigned_identity.identity.id
}

output "service_log_analytics_workspace_id" {
  description = "Workspace that an Azure Monitor private link scope must include."
  value       = local.log_analytics_workspace_id
}

output "service_application_insights_id" {
  description = "Component that an Azure Monitor private link scope must include."
  value       = azurerm_application_insights.application_insights.id
}
