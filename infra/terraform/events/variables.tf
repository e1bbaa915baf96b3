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

variable "event_identity_id" {
  description = "Identity with which topics deliver (output service_event_identity_id)."
  type        = string
}

variable "sender_role_id" {
  description = "Role assignment on the queue for which the topic waits. Empty: it exists."
  type        = string
  default     = ""
}
