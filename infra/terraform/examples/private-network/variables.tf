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

variable "network_address_prefix" {
  description = "Address range of the virtual network, at least a /25."
  type        = string
  default     = "10.40.0.0/24"
}

variable "operator_email_addresses" {
  description = "Who is notified of problems of the service."
  type        = list(string)
}
