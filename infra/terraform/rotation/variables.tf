variable "scope" {
  description = "Id of the resource group: /subscriptions/.../resourceGroups/..."
  type        = string

  validation {
    condition     = can(regex("^/subscriptions/[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}/resourceGroups/[^/]+$", var.scope))
    error_message = "scope must be the id of a resource group."
  }
}

variable "principal_id" {
  description = "Object id of the identity of the service (output service_identity_principal_id)."
  type        = string
}

variable "environment_name" {
  description = "The environment_name of the service's own module."
  type        = string
}

variable "rotation_operator_role_definition_id" {
  description = "Existing custom role Rotation Operator, as a resource id. Empty: creates it."
  type        = string
  default     = ""
}
