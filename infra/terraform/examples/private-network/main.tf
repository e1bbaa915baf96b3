# Storage, vault and App Configuration are reachable through private endpoints only. Operators get mail about problems.
module "service" {
  source = "../.."

  environment_name          = "lifecycle"
  location                  = "westeurope"
  network_enabled           = true
  network_address_prefix    = "10.40.0.0/24"
  app_configuration_enabled = true
  operator_email_addresses  = ["platform@example.com"]
}
