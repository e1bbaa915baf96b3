# The identity with which every Event Grid topic of this service delivers events. One identity for all topics needs one role
# assignment, and a policy that creates topics can use it without the right to assign roles.
resource "azurerm_user_assigned_identity" "event_identity" {
  name                = "id-${var.environment_name}-events"
  resource_group_name = local.resource_group_name
  location            = var.location
  tags                = local.tags
}

# Permits the topics to send messages to this one queue, and nothing else.
resource "azurerm_role_assignment" "topic_sender_role" {
  scope                = azurerm_storage_queue.vault_events_queue.id
  role_definition_name = "Storage Queue Data Message Sender"
  principal_id         = azurerm_user_assigned_identity.event_identity.principal_id
  principal_type       = "ServicePrincipal"
}
