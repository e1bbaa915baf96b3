variable "scope" {
  description = "Id of the management group: /providers/Microsoft.Management/managementGroups/..."
  type        = string

  validation {
    condition     = can(regex("^/providers/Microsoft.Management/managementGroups/[^/]+$", var.scope))
    error_message = "scope must be the id of a management group."
  }
}

variable "environment_name" {
  description = "The environment_name of the service's own module, at most 20 characters."
  type        = string

  validation {
    condition     = length(var.environment_name) <= 20
    error_message = "environment_name must have at most 20 characters."
  }
}

variable "location" {
  description = "Region of the identity that the policy deploys with."
  type        = string
}

variable "storage_account_id" {
  description = "Storage account of the service (output service_storage_account_id)."
  type        = string
}

variable "event_identity_id" {
  description = "Identity with which topics deliver (output service_event_identity_id)."
  type        = string
}

variable "resource_group_id" {
  description = "Resource group of the service (output service_resource_group_id)."
  type        = string
}
