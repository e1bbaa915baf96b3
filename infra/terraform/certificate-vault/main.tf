# Permission of the service in one key vault, to create versions of its certificates (PRO). docs/permissions-options.md lists the
# Azure calls that need it.

# Permits creating, changing and deleting certificates of the vault. It does not permit reading their private keys.
resource "azurerm_role_assignment" "certificates_officer_role" {
  scope                = var.vault_id
  role_definition_name = "Key Vault Certificates Officer"
  principal_id         = var.principal_id
  principal_type       = "ServicePrincipal"
}
