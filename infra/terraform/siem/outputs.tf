output "stream_endpoint" {
  description = "Member `endpoint` of the stream."
  value       = azurerm_monitor_data_collection_endpoint.stream_endpoint.logs_ingestion_endpoint
}

output "stream_rule_id" {
  description = "Member `ruleId` of the stream."
  value       = azurerm_monitor_data_collection_rule.stream_rule.immutable_id
}
