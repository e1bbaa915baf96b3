variable "vault_id" {
  description = "Id of the key vault."
  type        = string

  validation {
    condition     = can(regex("(?i)/providers/Microsoft.KeyVault/vaults/[^/]+$", var.vault_id))
    error_message = "vault_id must be the id of a key vault."
  }
}

variable "principal_id" {
  description = "Object id of the identity of the service (output service_identity_principal_id)."
  type        = string
}
