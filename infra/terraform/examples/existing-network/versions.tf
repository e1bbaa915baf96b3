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

  # Version 5 of the provider registers no resource provider automatically. The spelling must match Azure's list: another case
  # is skipped without a message.
  resource_providers_to_register = [
    "Microsoft.App",
    "Microsoft.AppConfiguration",
    "Microsoft.Communication",
    "Microsoft.EventGrid",
    "microsoft.insights",
    "Microsoft.KeyVault",
    "Microsoft.ManagedIdentity",
    "Microsoft.Network",
    "Microsoft.OperationalInsights",
    "Microsoft.Storage",
    "Microsoft.Web",
  ]
}

variable "environment_name" {
  description = "Names the resource group and every resource in it."
  type        = string
}

variable "location" {
  description = "Region of the resources and of the network."
  type        = string
}

variable "tags" {
  description = "Tags that your policies require."
  type        = map(string)
}

variable "function_subnet_resource_id" {
  description = "Subnet of the app, at least a /27, delegated to Microsoft.App/environments, with the service endpoint Microsoft.KeyVault."
  type        = string
}

variable "private_endpoint_subnet_resource_id" {
  description = "Subnet of the private endpoints."
  type        = string
}

variable "operator_email_addresses" {
  description = "Who is notified of problems of the service."
  type        = list(string)
}

variable "subscription_id" {
  description = "Subscription in which the service itself is deployed."
  type        = string
}

output "service_url" {
  description = "Address of the service."
  value       = module.service.service_url
}

output "service_key_vault_id" {
  description = "Input of make-secrets.ts."
  value       = module.service.service_key_vault_id
}

output "service_function_app_id" {
  description = "Input of make-secrets.ts."
  value       = module.service.service_function_app_id
}

output "service_subnet_id" {
  description = "Subnet that the firewall of a monitored vault must allow."
  value       = module.service.service_subnet_id
}
