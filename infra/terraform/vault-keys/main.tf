# Permissions of the service in one key vault, so that it rotates the vault's keys and changes their rotation policies (PRO).
# docs/key-rotation.md says what each permission also allows. The vault must use Azure roles, not access policies.

locals {
  # /subscriptions/<subscription>/resourceGroups/<name>/providers/Microsoft.KeyVault/vaults/<vault>
  parts             = split("/", var.key_vault_id)
  resource_group_id = "/subscriptions/${local.parts[2]}/resourceGroups/${local.parts[4]}"
}

# The built-in role Key Vault Crypto Officer would suffice, but it can also delete keys, and decrypt and sign with them.
resource "azurerm_role_definition" "vault_key_rotator_definition" {
  # Role names are unique in the tenant.
  name              = "Credential Lifecycle Vault Key Rotator (${var.environment_name}, ${local.parts[8]})"
  description       = "Rotates keys of a key vault and changes their rotation policies."
  scope             = local.resource_group_id
  assignable_scopes = [local.resource_group_id]

  permissions {
    data_actions = [
      "Microsoft.KeyVault/vaults/keys/read",
      "Microsoft.KeyVault/vaults/keys/rotate/action",
      "Microsoft.KeyVault/vaults/keyrotationpolicies/read",
      "Microsoft.KeyVault/vaults/keyrotationpolicies/write",
    ]
  }
}

resource "azurerm_role_assignment" "vault_key_rotator_role" {
  scope              = var.key_vault_id
  role_definition_id = azurerm_role_definition.vault_key_rotator_definition.role_definition_resource_id
  principal_id       = var.principal_id
  principal_type     = "ServicePrincipal"
}
