output "created_role_names" {
  description = "Names of the custom roles that the module created: none if existing ones were passed."
  value       = concat(azurerm_role_definition.inventory_reader_definition[*].name, azurerm_role_definition.dependency_reader_definition[*].name)
}

output "assigned_role_ids" {
  description = "Ids of the custom roles that the service has in the scope."
  value       = [azurerm_role_assignment.inventory_reader_role.role_definition_id, azurerm_role_assignment.dependency_reader_role.role_definition_id]
}
