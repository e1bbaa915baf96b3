variable "scope" {
  description = "Id of the subscription: /subscriptions/..."
  type        = string

  validation {
    condition     = can(regex("^/subscriptions/[^/]+$", var.scope))
    error_message = "scope must be the id of a subscription."
  }
}

variable "scope_name" {
  description = "The subscription's GUID, which is part of the name of the custom role."
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

variable "literal_scanner_role_definition_id" {
  description = "Existing custom role Literal Scanner, as a resource id. Empty: creates it."
  type        = string
  default     = ""
}
