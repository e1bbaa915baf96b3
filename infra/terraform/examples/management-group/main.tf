# The service monitors every subscription of a management group, also future ones.
variable "management_group_name" {
  description = "The last part of the management group's id."
  type        = string
}

module "service" {
  source = "../.."

  environment_name         = "lifecycle"
  location                 = "westeurope"
  watched_subscription_ids = []
}

module "watch" {
  source = "../../watch"

  scope            = "/providers/Microsoft.Management/managementGroups/${var.management_group_name}"
  scope_name       = var.management_group_name
  principal_id     = module.service.service_identity_principal_id
  environment_name = "lifecycle"
}
