variable "scope" {
  description = "Id of the key vault."
  type        = string

  validation {
    condition     = can(regex("(?i)/providers/Microsoft.KeyVault/vaults/[^/]+$", var.scope))
    error_message = "scope must be the id of a key vault."
  }
}

variable "principal_id" {
  description = "Object id of the identity of the service (output service_identity_principal_id)."
  type        = string
}
