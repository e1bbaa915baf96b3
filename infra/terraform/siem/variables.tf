variable "workspace_id" {
  description = "Resource id of the Log Analytics workspace."
  type        = string

  validation {
    condition     = can(regex("^/subscriptions/[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}/resourceGroups/[^/]+/providers/Microsoft.OperationalInsights/workspaces/[^/]+$", var.workspace_id))
    error_message = "workspace_id must be the resource id of a Log Analytics workspace."
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

variable "location" {
  description = "Region of the workspace."
  type        = string
}
