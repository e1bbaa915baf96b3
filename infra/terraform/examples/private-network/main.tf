# Storage, vault and App Configuration are reachable through private endpoints only. Operators get mail about problems.
module "service" {
  source = "../.."

  environment_name          = var.environment_name
  location                  = var.location
  network_enabled           = true
  network_address_prefix    = var.network_address_prefix
  app_configuration_enabled = true
  operator_email_addresses  = var.operator_email_addresses
}
