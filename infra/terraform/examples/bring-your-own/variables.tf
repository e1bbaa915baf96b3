variable "subscription_id" {
  description = "Subscription in which the service itself is deployed."
  type        = string
}

variable "environment_name" {
  description = "Names the resource group and, with a short hash, every resource in it."
  type        = string
  default     = "lifecycle"
}

variable "location" {
  description = "Region of the resources, such as westeurope."
  type        = string
}

variable "resource_group_name" {
  description = "Existing resource group."
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

variable "log_analytics_workspace_resource_id" {
  description = "Existing Log Analytics workspace."
  type        = string
}

variable "inventory_reader_role_definition_id" {
  description = "Existing custom role with the actions of the Inventory Reader."
  type        = string
}

variable "dependency_reader_role_definition_id" {
  description = "Existing custom role with the actions of the Dependency Reader."
  type        = string
}

variable "key_vault_resource_id" {
  description = "Key vault with the key that encrypts storage."
  type        = string
}

variable "key_name" {
  description = "Name of the key."
  type        = string
}

variable "key_identity_resource_id" {
  description = "Identity with the role Key Vault Crypto Service Encryption User on the key."
  type        = string
}

variable "key_identity_client_id" {
  description = "Client ID of this identity."
  type        = string
}

variable "operator_email_addresses" {
  description = "Who is notified of problems of the service."
  type        = list(string)
}
