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

variable "kinds" {
  description = "Kinds of keys that the service may read and regenerate, such as storage: the members of key-actions.json."
  type        = list(string)

  validation {
    condition     = length(var.kinds) > 0 && alltrue([for kind in var.kinds : contains(keys(local.actions_by_kind), kind)])
    error_message = "kinds must hold at least one kind of docs/rotation-key-roles.md."
  }
}
