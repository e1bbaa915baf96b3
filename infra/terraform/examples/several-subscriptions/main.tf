# The service monitors two subscriptions and gets events of changes between scans: of vaults from Resource Manager of both, and
# of the contents of the second one's vaults through a policy. A provider creates resources in one subscription, so the second
# has its own provider.
provider "azurerm" {
  alias = "other"
  features {}
  subscription_id                = var.other_subscription_id
  storage_use_azuread            = true
  resource_providers_to_register = ["Microsoft.EventGrid", "Microsoft.PolicyInsights"]
}

module "service" {
  source = "../.."

  environment_name         = var.environment_name
  location                 = var.location
  watched_subscription_ids = [var.subscription_id, var.other_subscription_id]
  events_enabled           = true
}

module "events" {
  source    = "../../events"
  providers = { azurerm = azurerm.other }

  environment_name      = var.environment_name
  location              = var.location
  storage_account_id    = module.service.service_storage_account_id
  vault_events_queue_id = module.service.service_vault_events_queue_id
}

module "events_policy" {
  source    = "../../events-policy/subscription"
  providers = { azurerm = azurerm.other }

  scope                 = "/subscriptions/${var.other_subscription_id}"
  environment_name      = var.environment_name
  location              = var.location
  storage_account_id    = module.service.service_storage_account_id
  vault_events_queue_id = module.service.service_vault_events_queue_id
  resource_group_id     = module.service.service_resource_group_id
}
