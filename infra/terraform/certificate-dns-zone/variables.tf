variable "zone_id" {
  description = "Id of the DNS zone."
  type        = string

  validation {
    condition     = can(regex("(?i)/providers/Microsoft.Network/dnszones/[^/]+$", var.zone_id))
    error_message = "zone_id must be the id of a DNS zone."
  }
}

variable "principal_id" {
  description = "Object id of the identity of the service (output service_identity_principal_id)."
  type        = string
}
