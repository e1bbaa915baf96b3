import {
  CERTIFICATE_STRENGTH,
  EXPIRED_APPLICATION_CERTIFICATES,
  EXPIRED_CERTIFICATES,
  EXPIRED_KEYS,
  EXPIRED_SECRETS,
  KEY_STRENGTH,
  LONG_APPLICATION_CERTIFICATES,
  OLD_KEYS,
  OLD_SECRETS,
} from "./check-groups.ts";
import type { Mapping } from "./frameworks.ts";

/**
 * Mappings of checks to controls by the frameworks' own texts on expiry, rotation, lifetime and strength, beyond the mappings
 * of Azure's policies. `basis` paraphrases the text. A check is listed if a resource that fails the check clearly violates the
 * text.
 *
 * Sources: NIST SP 800-53 R5 (AC-2, IA-5, SC-12, SC-13); PCI DSS 4.0.1 (3.7.4, 3.7.5, 4.2.1, 8.6.3); ISO/IEC 27002:2022, the
 * guidance of 27001's Annex A (5.9, 5.17, 8.24); the AICPA's trust services criteria with their points of focus (CC6.1, CC6.2);
 * the Microsoft cloud security benchmark (DP-6, DP-7, DP-8, IM-3); the CIS benchmark, see cis.ts; and those of
 * more-text-mappings.ts.
 */

export const TEXT_MAPPINGS: readonly Mapping[] = [
  // NIST SP 800-53 R5
  {
    checks: [...EXPIRED_SECRETS, ...EXPIRED_CERTIFICATES, ...OLD_SECRETS, ...LONG_APPLICATION_CERTIFICATES],
    controls: { "nist-800-53-r5": "IA-5" },
    basis:
      "IA-5 f: change or refresh authenticators after a period that is set for their type. Passwords and certificates are authenticators, also those of devices and services.",
  },
  {
    checks: [...EXPIRED_KEYS, ...OLD_KEYS],
    controls: { "nist-800-53-r5": "SC-12" },
    basis:
      "SC-12: manage keys from generation to destruction by the organization's requirements. These include when a key expires and how long it is used.",
  },
  {
    checks: CERTIFICATE_STRENGTH,
    controls: { "nist-800-53-r5": "SC-13" },
    basis:
      "SC-13: use the type of cryptography that is defined for each use. Microsoft maps the strength of keys to it.",
  },
  {
    checks: ["client-secret-owner", "application-certificate-owner"],
    controls: { "nist-800-53-r5": "AC-2", "iso-27001-2022": "5.9" },
    basis: "AC-2: assign a manager to each account. ISO 5.9: assign an owner to each asset of the inventory.",
  },

  // PCI DSS 4.0.1
  {
    checks: [...EXPIRED_SECRETS, ...OLD_SECRETS],
    controls: { "pci-dss-4.0.1": "8.6.3" },
    basis:
      "8.6.3: change passwords of applications and systems periodically, as often as the entity's risk analysis requires. A secret that passed its expiry date was not changed in time.",
  },
  {
    checks: ["key-expired", "key-rotation-policy", ...OLD_KEYS],
    controls: { "pci-dss-4.0.1": "3.7.4" },
    basis:
      "3.7.4: define a cryptoperiod for each type of key and change keys at its end. This is about keys that protect stored account data.",
  },
  {
    checks: ["key-expired"],
    controls: { "pci-dss-4.0.1": "3.7.5" },
    basis: "3.7.5: retire, replace or destroy keys that reached the end of their cryptoperiod.",
  },
  {
    checks: ["certificate-expired", ...CERTIFICATE_STRENGTH],
    controls: { "pci-dss-4.0.1": "4.2.1" },
    basis:
      "4.2.1: confirm that certificates that protect card numbers in transit are valid, not expired and not revoked. Insecure key sizes are not allowed.",
  },

  // ISO/IEC 27001:2022, Annex A
  {
    checks: [...EXPIRED_KEYS, ...EXPIRED_CERTIFICATES, ...OLD_KEYS],
    controls: { "iso-27001-2022": "8.24" },
    basis:
      "8.24, guidance: give keys activation and deactivation dates and use them only between the two. A certificate's dates are those of its key pair.",
  },
  {
    checks: [...KEY_STRENGTH, ...CERTIFICATE_STRENGTH],
    controls: { "iso-27001-2022": "8.24" },
    basis: "8.24, guidance: choose type, strength and quality of algorithms by the protection that is required.",
  },
  {
    checks: [...EXPIRED_SECRETS, ...OLD_SECRETS],
    controls: { "iso-27001-2022": "5.17" },
    basis:
      "5.17: allocate and manage authentication information by a process, over its whole life. Microsoft maps the expiry of secrets to 8.24.",
  },

  // SOC 2
  {
    checks: [...EXPIRED_SECRETS, ...EXPIRED_APPLICATION_CERTIFICATES],
    controls: { "soc-2": "CC6.1, CC6.2" },
    basis:
      "CC6.1, CC6.2, points of focus: remove credentials that are no longer needed, and prevent the use of credentials that are no longer valid. This one expired and is still enabled.",
  },
  {
    checks: ["client-secret-alone", "secret-unused"],
    controls: { "soc-2": "CC6.1" },
    basis: "CC6.1, point of focus: remove credentials of software that are no longer needed.",
  },
  {
    checks: [...EXPIRED_KEYS, "certificate-expired", ...KEY_STRENGTH, ...CERTIFICATE_STRENGTH],
    controls: { "soc-2": "CC6.1" },
    basis:
      "CC6.1, point of focus: protect keys from generation to destruction, with suitable algorithms and key lengths.",
  },

  // Microsoft Cloud Security Benchmark
  {
    checks: [...EXPIRED_KEYS, "key-rotation-policy", ...OLD_KEYS],
    controls: { "mcsb-v3": "DP-6" },
    basis: "DP-6: rotate and revoke keys by a schedule, and when they are retired.",
  },
  {
    checks: KEY_STRENGTH,
    controls: { "mcsb-v3": "DP-6" },
    basis: "DP-6: require a key type and a minimum key size.",
  },
  {
    checks: ["secret-expired", "secret-validity-period", "secret-active-period"],
    controls: { "mcsb-v3": "DP-6" },
    basis:
      "DP-6: rotate the contents of key vaults by a schedule. Microsoft maps the expiry of secrets and of keys to it.",
  },
  {
    checks: [
      ...EXPIRED_CERTIFICATES,
      "certificate-near-expiry-critical",
      "certificate-near-expiry-warning",
      "certificate-auto-renewal",
    ],
    controls: { "mcsb-v3": "DP-7" },
    basis: "DP-7: track certificates, renew them in time and automatically, and rotate them by a schedule.",
  },
  {
    checks: [...CERTIFICATE_STRENGTH, ...LONG_APPLICATION_CERTIFICATES],
    controls: { "mcsb-v3": "DP-7" },
    basis:
      "DP-7: don't create certificates with insufficient key sizes, insecure cryptography or overly long validity.",
  },
  {
    checks: ["certificate-issuer"],
    controls: { "mcsb-v3": "DP-7" },
    basis: "DP-7: avoid self-signed certificates, and use the authorities that are integrated with Key Vault.",
  },
  {
    checks: ["vault-public-access"],
    controls: { "mcsb-v3": "DP-8" },
    basis: "DP-8: protect key vaults with Private Link and their firewall, and expose them as little as possible.",
  },
  {
    checks: ["client-secret-beside-certificate", "client-secret-beside-federation"],
    controls: { "mcsb-v3": "IM-3" },
    basis:
      "IM-3: applications sign in with managed identities, otherwise with certificates, and with secrets only if neither is possible.",
  },
];
