# The resource group and the identity of the service, values that the other files use, and the modules that are deployed to other
# scopes.

data "azurerm_client_config" "current" {}

locals {
  tags                     = merge(var.tags, { "azd-env-name" = var.environment_name })
  watched_subscription_ids = var.watched_subscription_ids == null ? [data.azurerm_client_config.current.subscription_id] : var.watched_subscription_ids

  # An existing resource group is not read, so that planning needs no permission outside of it.
  resource_group_name = var.resource_group_name == "" ? azurerm_resource_group.resource_group[0].name : var.resource_group_name
  resource_group_id   = var.resource_group_name == "" ? azurerm_resource_group.resource_group[0].id : "/subscriptions/${data.azurerm_client_config.current.subscription_id}/resourceGroups/${var.resource_group_name}"

  assigned_subscription_ids = { for id in local.watched_subscription_ids : id => id if var.watch_roles_enabled }

  # Domains and zones of each cloud.
  cloud = jsondecode(file("${path.module}/../azure/clouds.json"))[var.azure_cloud]

  # Names of storage accounts and vaults are unique in all of Azure, with at most 24 letters and digits.
  suffix = substr(sha1("${data.azurerm_client_config.current.subscription_id}/${var.environment_name}/${var.location}"), 0, 13)
}

resource "azurerm_resource_group" "resource_group" {
  count = var.resource_group_name == "" ? 1 : 0

  name     = "rg-${var.environment_name}"
  location = var.location
  tags     = local.tags
}

# The identity of the service in Azure, with which it makes every call.
resource "azurerm_user_assigned_identity" "identity" {
  name                = "id-${var.environment_name}"
  resource_group_name = local.resource_group_name
  location            = var.location
  tags                = local.tags
}

# Events of the deployment's own subscription. A provider creates resources in one subscription, so for each further subscription
# you call this module with another provider (examples/several-subscriptions).
module "events" {
  source = "./events"
  count  = var.events_enabled ? 1 : 0

  environment_name   = var.environment_name
  location           = var.location
  tags               = local.tags
  storage_account_id = azurerm_storage_account.storage_account.id
  event_identity_id  = azurerm_user_assigned_identity.event_identity.id
  sender_role_id     = azurerm_role_assignment.topic_sender_role.id
}

# Permissions of the service in scopes outside of its resource group.
module "watch" {
  source   = "./watch"
  for_each = local.assigned_subscription_ids

  scope                                = "/subscriptions/${each.value}"
  scope_name                           = each.value
  principal_id                         = azurerm_user_assigned_identity.identity.principal_id
  environment_name                     = var.environment_name
  inventory_reader_role_definition_id  = var.inventory_reader_role_definition_id
  dependency_reader_role_definition_id = var.dependency_reader_role_definition_id
}

module "rotation" {
  source   = "./rotation"
  for_each = toset(var.rotation_resource_group_ids)

  scope                                = each.value
  principal_id                         = azurerm_user_assigned_identity.identity.principal_id
  environment_name                     = var.environment_name
  rotation_operator_role_definition_id = var.rotation_operator_role_definition_id
}

module "rotation_keys" {
  source   = "./rotation-keys"
  for_each = var.rotation_key_kinds

  scope            = each.key
  principal_id     = azurerm_user_assigned_identity.identity.principal_id
  environment_name = var.environment_name
  kinds            = each.value
}

module "literal_scan" {
  source   = "./literal-scan"
  for_each = toset(var.literal_scan_subscription_ids)

  scope                              = "/subscriptions/${each.value}"
  scope_name                         = each.value
  principal_id                       = azurerm_user_assigned_identity.identity.principal_id
  environment_name                   = var.environment_name
  literal_scanner_role_definition_id = var.literal_scanner_role_definition_id
}

module "certificate_dns_zones" {
  source   = "./certificate-dns-zone"
  for_each = toset(var.acme_dns_zone_ids)

  zone_id      = each.value
  principal_id = azurerm_user_assigned_identity.identity.principal_id
}

module "certificate_vaults" {
  source   = "./certificate-vault"
  for_each = toset(var.certificate_vault_ids)

  vault_id     = each.value
  principal_id = azurerm_user_assigned_identity.identity.principal_id
}
