variable "scope" {
  description = "Id of the subscription or management group: /subscriptions/... or /providers/Microsoft.Management/managementGroups/..."
  type        = string

  validation {
    condition     = can(regex("^(/subscriptions/[^/]+|/providers/Microsoft.Management/managementGroups/[^/]+)$", var.scope))
    error_message = "scope must be the id of a subscription or of a management group."
  }
}

variable "scope_name" {
  description = "The subscription's GUID or the management group's name, which is part of the names of the custom roles."
  type        = string
}

variable "principal_id" {
  description = "Object id of the identity of the service (output service_identity_principal_id)."
  type        = string
}

variable "environment_name" {
  description = "The environment_name of the service's own module."
  type        = string
}

variable "inventory_reader_role_definition_id" {
  description = "Existing custom role Inventory Reader, as a resource id. Empty: creates it."
  type        = string
  default     = ""
}

variable "dependency_reader_role_definition_id" {
  description = "Existing custom role Dependency Reader, as a resource id. Empty: creates it."
  type        = string
  default     = ""
}
