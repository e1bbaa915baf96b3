# Permission of the service in one DNS zone, to prove names to certificate authorities (PRO). docs/permissions-options.md lists the
# Azure calls that need it.

# Permits changing every record of the zone. No built-in role permits TXT records only.
resource "azurerm_role_assignment" "dns_zone_role" {
  scope                = var.zone_id
  role_definition_name = "DNS Zone Contributor"
  principal_id         = var.principal_id
  principal_type       = "ServicePrincipal"
}
