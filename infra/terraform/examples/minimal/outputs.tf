output "service_url" {
  description = "Address of the service."
  value       = module.service.service_url
}

output "service_key_vault_id" {
  description = "Resource ID of the service's key vault, which npm run make-secrets needs."
  value       = module.service.service_key_vault_id
}

output "service_function_app_id" {
  description = "Resource ID of the function app, which npm run make-secrets needs."
  value       = module.service.service_function_app_id
}

output "service_function_app_name" {
  description = "Name of the app, to publish its code."
  value       = module.service.service_function_app_name
}

output "service_key_vault_name" {
  description = "Name of the service's vault, to read the first password."
  value       = module.service.service_key_vault_name
}
