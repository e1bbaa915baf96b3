# Deploys the service in a subscription whose platform team owns the resource group, the network, the central private DNS zones,
# the workspace, the custom roles and the encryption key. The app answers only through its private endpoint.
module "service" {
  source = "../.."

  environment_name    = var.environment_name
  location            = var.location
  resource_group_name = var.resource_group_name
  tags                = var.tags

  network_enabled                     = true
  function_subnet_resource_id         = var.function_subnet_resource_id
  private_endpoint_subnet_resource_id = var.private_endpoint_subnet_resource_id
  private_dns_zones_enabled           = false
  app_private_endpoint_enabled        = true
  app_public_network_access_enabled   = false

  log_analytics_workspace_resource_id = var.log_analytics_workspace_resource_id
  diagnostic_settings_enabled         = true
  app_configuration_enabled           = true
  operator_email_addresses            = var.operator_email_addresses

  inventory_reader_role_definition_id  = var.inventory_reader_role_definition_id
  dependency_reader_role_definition_id = var.dependency_reader_role_definition_id

  zone_redundant = true
  lock           = { kind = "CanNotDelete" }
  customer_managed_key = {
    key_vault_resource_id = var.key_vault_resource_id
    key_name              = var.key_name
    user_assigned_identity = {
      resource_id = var.key_identity_resource_id
      client_id   = var.key_identity_client_id
    }
  }
}
