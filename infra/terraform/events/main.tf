# Notifies the service between scans when a key vault of the provider's subscription is written or deleted. Event Grid requires
# that a topic is in the subscription of its events, and allows only one per source. docs/deploy.md explains how to turn it on.
data "azurerm_client_config" "current" {}

resource "azurerm_resource_group" "events_group" {
  name     = "rg-${var.environment_name}-events"
  location = var.location
  tags     = var.tags
}

resource "azurerm_eventgrid_system_topic" "topic" {
  name                = "evgt-${var.environment_name}"
  resource_group_name = azurerm_resource_group.events_group.name
  location            = "global"
  tags                = var.tags
  source_resource_id  = "/subscriptions/${data.azurerm_client_config.current.subscription_id}"
  topic_type          = "Microsoft.Resources.Subscriptions"

  # Only a topic with an identity passes a storage firewall:
  # https://learn.microsoft.com/azure/event-grid/handler-storage-queues
  identity {
    type         = "UserAssigned"
    identity_ids = [var.event_identity_id]
  }

  # Event Grid tests the role, so the topic must wait for it. With depends_on in the module's call, Terraform would read the data
  # source above only during apply, and replace the topic.
  lifecycle {
    precondition {
      condition     = var.sender_role_id != null
      error_message = "sender_role_id must not be null."
    }
  }
}

# Drops events that can't be delivered within a day: a scan has found the changes by then.
resource "azurerm_eventgrid_system_topic_event_subscription" "event_subscription" {
  name                  = "lifecycle-${var.environment_name}"
  system_topic          = azurerm_eventgrid_system_topic.topic.name
  resource_group_name   = azurerm_resource_group.events_group.name
  event_delivery_schema = "CloudEventSchemaV1_0"
  included_event_types  = ["Microsoft.Resources.ResourceWriteSuccess", "Microsoft.Resources.ResourceDeleteSuccess"]

  delivery_identity {
    type                   = "UserAssigned"
    user_assigned_identity = var.event_identity_id
  }

  storage_queue_endpoint {
    storage_account_id                    = var.storage_account_id
    queue_name                            = "vault-events"
    queue_message_time_to_live_in_seconds = 86400
  }

  retry_policy {
    max_delivery_attempts = 30
    event_time_to_live    = 1440
  }

  advanced_filter {
    string_in {
      key    = "data.operationName"
      values = ["Microsoft.KeyVault/vaults/write", "Microsoft.KeyVault/vaults/delete"]
    }
  }
}
