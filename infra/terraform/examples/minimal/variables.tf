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
