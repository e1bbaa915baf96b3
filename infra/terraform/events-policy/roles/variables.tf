variable "scope" {
  description = "Resource group of the service, as an id."
  type        = string
}

variable "storage_account_id" {
  description = "Storage account of the service."
  type        = string
}

variable "event_identity_id" {
  description = "Identity with which topics deliver."
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
