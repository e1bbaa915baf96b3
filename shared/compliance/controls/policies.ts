import type { Mapping } from "./frameworks.ts";

/** Controls of PCI DSS that several policies share. */
const EXPIRY_PCI = "3.6.1, 3.6.1.1, 3.7.1-3.7.3, 3.7.5-3.7.8";
const ACCESS_PCI = "7.2.1-7.2.6, 7.2.5.1";
const KEY_TYPE_PCI = "3.5.1.1, 3.6.1, 3.7.1, 3.7.2, 3.7.6, 4.2.1";

const policy = (name: string) => `Microsoft's regulatory policy sets map the Azure policy "${name}" to this control.`;

/** Azure policies that require the same as a check, with the controls that Microsoft's policy sets assign to them. */
export const POLICIES: readonly Mapping[] = [
  {
    checks: ["secret-expiry-set-rbac", "secret-expiry-set-access-policy"],
    basis: policy("Key Vault secrets should have an expiration date"),
    controls: {
      "nist-800-53-r5": "CM-3(6), IA-2, SC-12",
      "pci-dss-4.0.1": EXPIRY_PCI,
      "iso-27001-2022": "8.24",
      "soc-2": "CC6.1",
      "mcsb-v3": "DP-6",
    },
  },
  {
    checks: ["key-expiry-set-rbac", "key-expiry-set-access-policy"],
    basis: policy("Key Vault keys should have an expiration date"),
    controls: {
      "nist-800-53-r5": "AC-2, CM-3(6), SC-12",
      "pci-dss-4.0.1": `${EXPIRY_PCI}, ${ACCESS_PCI}`,
      "iso-27001-2022": "5.18, 8.24",
      "soc-2": "CC6.1",
      "mcsb-v3": "DP-6",
    },
  },
  {
    checks: ["certificate-validity-period"],
    basis: policy("Certificates should have the specified maximum validity period"),
    controls: {
      "nist-800-53-r5": "AC-2",
      "pci-dss-4.0.1": ACCESS_PCI,
      "iso-27001-2022": "5.18",
      "soc-2": "CC6.1",
      "mcsb-v3": "DP-7",
    },
  },
  {
    checks: ["vault-purge-protection"],
    basis: policy("Key vaults should have deletion protection enabled"),
    controls: {
      "nist-800-53-r5": "CP-9, MP-6, SI-7(5)",
      "iso-27001-2022": "7.14",
      "soc-2": "CC6.1",
      "mcsb-v3": "DP-8",
    },
  },
  {
    checks: ["vault-soft-delete"],
    basis: policy("Key vaults should have soft delete enabled"),
    controls: { "soc-2": "CC6.1", "mcsb-v3": "DP-8" },
  },
  {
    checks: ["vault-audit-logging"],
    basis: policy("Resource logs in Key Vault should be enabled"),
    controls: {
      "nist-800-53-r5": "AU-2",
      "pci-dss-4.0.1": "10.4.2.1",
      "iso-27001-2022": "8.15",
      "mcsb-v3": "DP-8, LT-3",
    },
  },
  {
    checks: ["vault-firewall"],
    basis: policy("Azure Key Vault should have firewall enabled or public network access disabled"),
    controls: {
      "nist-800-53-r5": "AC-4, SC-7",
      "pci-dss-4.0.1": "1.4.4",
      "iso-27001-2022": "5.14",
      "mcsb-v3": "NS-2, DP-8",
    },
  },
  {
    checks: ["vault-private-endpoint"],
    basis: policy("Azure Key Vaults should use private link"),
    controls: { "mcsb-v3": "NS-2, DP-8" },
  },
  {
    checks: ["vault-rbac"],
    basis: policy("Azure Key Vault should use RBAC permission model"),
    controls: {
      "nist-800-53-r5": "AC-2(1), AC-3(7)",
      "pci-dss-4.0.1": "7.2.4, 7.2.5.1",
      "iso-27001-2022": "5.15, 5.18, 8.2, 8.3",
      "mcsb-v3": "PA-7",
    },
  },
  {
    checks: ["key-rotation-policy"],
    basis: policy("Keys should have a rotation policy"),
    controls: {
      "nist-800-53-r5": "CM-3(6), SC-12, SC-12(2), SC-28(3)",
      "pci-dss-4.0.1": "3.6.1, 3.6.1.1, 3.6.1.2, 3.6.1.4, 3.7.1-3.7.3, 3.7.5-3.7.8",
      "iso-27001-2022": "8.24",
    },
  },
  {
    checks: ["key-type"],
    basis: policy("Keys should be the specified cryptographic type RSA or EC"),
    controls: { "nist-800-53-r5": "SC-13, SI-7(5), SC-12(3)", "pci-dss-4.0.1": KEY_TYPE_PCI },
  },
  {
    checks: ["key-curve"],
    basis: policy("Keys using elliptic curve cryptography should have the specified curve names"),
    controls: { "nist-800-53-r5": "IA-7, SC-13, SI-7(5), SC-12(3)", "pci-dss-4.0.1": KEY_TYPE_PCI },
  },
  {
    checks: ["key-rsa-size"],
    basis: policy("Keys using RSA cryptography should have a specified minimum key size"),
    controls: { "nist-800-53-r5": "IA-7" },
  },
];
