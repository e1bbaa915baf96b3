terraform {
  required_version = ">= 1.9"
  required_providers {
    azurerm = {
      source  = "hashicorp/azurerm"
      version = "~> 5.2"
    }
  }
}

provider "azurerm" {
  features {}
  subscription_id     = var.subscription_id
  storage_use_azuread = true
}

variable "subscription_id" {
  description = "Where the service itself is deployed."
  type        = string
}

output "service_url" {
  description = "Where the service answers."
  value       = module.service.service_url
}

output "service_key_vault_id" {
  description = "For make-secrets.ts."
  value       = module.service.service_key_vault_id
}

output "service_function_app_id" {
  description = "For make-secrets.ts."
  value       = module.service.service_function_app_id
}
