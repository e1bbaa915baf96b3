# The service monitors every subscription of a management group, also future ones.
module "service" {
  source = "../.."

  environment_name         = var.environment_name
  location                 = var.location
  watched_subscription_ids = []
}

module "watch" {
  source = "../../watch"

  scope            = "/providers/Microsoft.Management/managementGroups/${var.management_group_name}"
  scope_name       = var.management_group_name
  principal_id     = module.service.service_identity_principal_id
  environment_name = var.environment_name
}
