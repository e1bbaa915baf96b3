variable "scope" {
  description = "Resource group of the service, as an id."
  type        = string
}

variable "vault_events_queue_id" {
  description = "Queue of the service for events."
  type        = string
}

variable "principal_id" {
  description = "Object id of the policy's identity."
  type        = string
}

variable "environment_name" {
  description = "The environment_name of the service's own module."
  type        = string
}
