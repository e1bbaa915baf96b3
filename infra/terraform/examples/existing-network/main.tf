# Deploys the service in a network of the platform team, whose policy adds private endpoints to central private DNS zones.
module "service" {
  source = "../.."

  environment_name                    = var.environment_name
  location                            = var.location
  tags                                = var.tags
  network_enabled                     = true
  function_subnet_resource_id         = var.function_subnet_resource_id
  private_endpoint_subnet_resource_id = var.private_endpoint_subnet_resource_id
  private_dns_zones_enabled           = false
  operator_email_addresses            = var.operator_email_addresses
}
