# Alerts operators when the service itself has a problem. docs/operate.md explains how to respond to each alert.

# Plan and apply print a failed check as a warning, and don't fail.
check "alerts_notify_somebody" {
  assert {
    condition     = length(var.operator_email_addresses) > 0
    error_message = "operator_email_addresses is empty: the alerts fire, and nobody is notified."
  }
}

resource "azurerm_monitor_action_group" "action_group" {
  name                = "ag-${var.environment_name}"
  resource_group_name = local.resource_group_name
  location            = "global"
  tags                = local.tags
  short_name          = "lifecycle"
  enabled             = true

  dynamic "email_receiver" {
    for_each = var.operator_email_addresses

    content {
      name                    = "operator-${email_receiver.key}"
      email_address           = email_receiver.value
      use_common_alert_schema = true
    }
  }
}

resource "azurerm_monitor_scheduled_query_rules_alert_v2" "failed_scans_alert" {
  name                    = "alert-${var.environment_name}-failed-scans"
  resource_group_name     = local.resource_group_name
  location                = var.location
  tags                    = local.tags
  display_name            = "A scan failed or ran out of time"
  severity                = 2
  enabled                 = true
  auto_mitigation_enabled = true
  evaluation_frequency    = "PT15M"
  window_duration         = "PT15M"
  scopes                  = [azurerm_application_insights.application_insights.id]

  criteria {
    query                   = file("${path.module}/../azure/queries/failed-scans.kql")
    time_aggregation_method = "Count"
    operator                = "GreaterThan"
    threshold               = 0
  }

  action {
    action_groups = [azurerm_monitor_action_group.action_group.id]
  }
}

resource "azurerm_monitor_scheduled_query_rules_alert_v2" "poison_queues_alert" {
  name                    = "alert-${var.environment_name}-poison-queues"
  resource_group_name     = local.resource_group_name
  location                = var.location
  tags                    = local.tags
  display_name            = "A message failed for good"
  severity                = 2
  enabled                 = true
  auto_mitigation_enabled = true
  evaluation_frequency    = "PT15M"
  window_duration         = "PT15M"
  scopes                  = [azurerm_application_insights.application_insights.id]

  criteria {
    query                   = file("${path.module}/../azure/queries/poison-queues.kql")
    time_aggregation_method = "Count"
    operator                = "GreaterThan"
    threshold               = 0
  }

  action {
    action_groups = [azurerm_monitor_action_group.action_group.id]
  }
}

# The query returns one row with the number of scans, which is 0 if there was no scan. For a service that is younger than a day it
# returns no row, so the alert does not fire. To recognize such a service, the time range is two days, the maximum of Azure Monitor.
resource "azurerm_monitor_scheduled_query_rules_alert_v2" "no_scan_alert" {
  name                      = "alert-${var.environment_name}-no-scan"
  resource_group_name       = local.resource_group_name
  location                  = var.location
  tags                      = local.tags
  display_name              = "No scan has ended for a day"
  severity                  = 1
  enabled                   = true
  auto_mitigation_enabled   = true
  evaluation_frequency      = "PT1H"
  window_duration           = "P1D"
  query_time_range_override = "P2D"
  scopes                    = [azurerm_application_insights.application_insights.id]

  criteria {
    query                   = file("${path.module}/../azure/queries/no-scan.kql")
    time_aggregation_method = "Total"
    metric_measure_column   = "scans"
    operator                = "LessThan"
    threshold               = 1
  }

  action {
    action_groups = [azurerm_monitor_action_group.action_group.id]
  }
}

resource "azurerm_monitor_scheduled_query_rules_alert_v2" "errors_alert" {
  name                    = "alert-${var.environment_name}-errors"
  resource_group_name     = local.resource_group_name
  location                = var.location
  tags                    = local.tags
  display_name            = "Many errors"
  severity                = 2
  enabled                 = true
  auto_mitigation_enabled = true
  evaluation_frequency    = "PT15M"
  window_duration         = "PT15M"
  scopes                  = [azurerm_application_insights.application_insights.id]

  criteria {
    query                   = file("${path.module}/../azure/queries/errors.kql")
    time_aggregation_method = "Count"
    operator                = "GreaterThan"
    threshold               = 10
  }

  action {
    action_groups = [azurerm_monitor_action_group.action_group.id]
  }
}
