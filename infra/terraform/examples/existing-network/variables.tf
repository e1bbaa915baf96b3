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
