variable "environment_name" {
  description = "The environment_name of the service's own module."
  type        = string
}

variable "location" {
  description = "Region of the resource group. The topic itself has none."
  type        = string
}

variable "tags" {
  description = "Tags of the created resources."
  type        = map(string)
  default     = {}
}

variable "storage_account_id" {
  description = "Storage account of the service (output service_storage_account_id)."
  type        = string
}

variable "vault_events_queue_id" {
  description = "Queue of the service for events (output service_vault_events_queue_id)."
  type        = string
}
