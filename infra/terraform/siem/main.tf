# A table for audit streams in one Log Analytics workspace, and the data collection rule through which the service fills it. See
# docs/siem.md.

locals {
  # /subscriptions/<subscription>/resourceGroups/<name>/providers/Microsoft.OperationalInsights/workspaces/<workspace>
  resource_group_name = split("/", var.workspace_id)[4]
  columns = [
    { name = "TimeGenerated", type = "datetime" },
    { name = "OccurredAt", type = "datetime" },
    { name = "EventId", type = "string" },
    { name = "EventType", type = "string" },
    { name = "Sequence", type = "string" },
    { name = "StreamId", type = "string" },
    { name = "Actor", type = "string" },
    { name = "Action", type = "string" },
    { name = "Outcome", type = "string" },
    { name = "Target", type = "string" },
    { name = "Data", type = "string" },
    { name = "DataPart2", type = "string" },
    { name = "DataPart3", type = "string" },
  ]
}

resource "azurerm_log_analytics_workspace_table_custom_log" "stream_table" {
  name         = "CredentialLifecycle_CL"
  workspace_id = var.workspace_id

  dynamic "column" {
    for_each = local.columns
    content {
      name = column.value.name
      type = column.value.type
    }
  }
}

resource "azurerm_monitor_data_collection_endpoint" "stream_endpoint" {
  name                          = "dce-${var.environment_name}"
  resource_group_name           = local.resource_group_name
  location                      = var.location
  public_network_access_enabled = true
}

resource "azurerm_monitor_data_collection_rule" "stream_rule" {
  name                        = "dcr-${var.environment_name}"
  resource_group_name         = local.resource_group_name
  location                    = var.location
  data_collection_endpoint_id = azurerm_monitor_data_collection_endpoint.stream_endpoint.id

  stream_declaration {
    stream_name = "Custom-CredentialLifecycle_CL"

    dynamic "column" {
      for_each = local.columns
      content {
        name = column.value.name
        type = column.value.type
      }
    }
  }

  destinations {
    log_analytics {
      name                  = "workspace"
      workspace_resource_id = var.workspace_id
    }
  }

  data_flow {
    streams       = ["Custom-CredentialLifecycle_CL"]
    destinations  = ["workspace"]
    output_stream = "Custom-${azurerm_log_analytics_workspace_table_custom_log.stream_table.name}"
    transform_kql = "source"
  }
}

resource "azurerm_role_assignment" "stream_role" {
  scope                = azurerm_monitor_data_collection_rule.stream_rule.id
  role_definition_name = "Monitoring Metrics Publisher"
  principal_id         = var.principal_id
  principal_type       = "ServicePrincipal"
}
