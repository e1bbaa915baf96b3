import type { Mapping } from "./frameworks.ts";

/**
 * What the frameworks' own texts ask about expiry, rotation, lifetime and strength beyond what Azure's policies look at, in
 * our words. A check stands here where a resource that fails it is not as the text asks, whoever reads it.
 *
 * Read: NIST SP 800-53 R5 (AC-2, IA-5, SC-12, SC-13); PCI DSS 4.0.1 (3.7.4, 3.7.5, 4.2.1, 8.6.3); ISO/IEC 27002:2022, the
 * guidance of 27001's Annex A (5.9, 5.17, 8.24); the AICPA's trust services criteria with their points of focus (CC6.1,
 * CC6.2); the Microsoft cloud security benchmark (DP-6, DP-7, DP-8, IM-3); the CIS benchmark, see cis.ts.
 */

/** Secrets that have passed their end, wherever they are kept. */
const EXPIRED_SECRETS = ["secret-expired", "client-secret-expired", "b2c-secret-expired"];
const EXPIRED_KEYS = ["key-expired", "b2c-key-expired"];
/** Certificates that applications prove themselves with. */
const EXPIRED_APPLICATION_CERTIFICATES = ["application-certificate-expired", "b2c-certificate-expired"];
const EXPIRED_CERTIFICATES = ["certificate-expired", ...EXPIRED_APPLICATION_CERTIFICATES];

/** That a secret lives too long, or has been in use for too long. */
const OLD_SECRETS = [
  "secret-validity-period",
  "secret-active-period",
  "client-secret-validity-period",
  "client-secret-validity-period-b2c",
];
const LONG_APPLICATION_CERTIFICATES = [
  "application-certificate-validity-period",
  "application-certificate-validity-period-b2c",
];
const OLD_KEYS = ["key-validity-period", "key-active-period"];
const KEY_STRENGTH = ["key-type", "key-rsa-size", "key-curve"];
const CERTIFICATE_STRENGTH = ["certificate-rsa-size", "certificate-curve"];

export const TEXTS: readonly Mapping[] = [
  // NIST SP 800-53 R5
  {
    checks: [...EXPIRED_SECRETS, ...EXPIRED_CERTIFICATES, ...OLD_SECRETS, ...LONG_APPLICATION_CERTIFICATES],
    controls: { "nist-800-53-r5": "IA-5" },
    basis:
      "IA-5 f has authenticators changed or refreshed after a time set for their kind; it counts passwords and certificates among them, of devices and services too.",
  },
  {
    checks: [...EXPIRED_KEYS, ...OLD_KEYS],
    controls: { "nist-800-53-r5": "SC-12" },
    basis:
      "SC-12 has keys managed by the organization's requirements from generation to destruction; a key's end and its longest use are such.",
  },
  {
    checks: CERTIFICATE_STRENGTH,
    controls: { "nist-800-53-r5": "SC-13" },
    basis: "SC-13 has, for each use, cryptography of the type that was set for it; Microsoft holds keys against it.",
  },
  {
    checks: ["client-secret-owner", "application-certificate-owner"],
    controls: { "nist-800-53-r5": "AC-2", "iso-27001-2022": "5.9" },
    basis: "AC-2 has a manager assigned to each account, ISO 5.9 an owner to each asset of the inventory.",
  },

  // PCI DSS 4.0.1
  {
    checks: [...EXPIRED_SECRETS, ...OLD_SECRETS],
    controls: { "pci-dss-4.0.1": "8.6.3" },
    basis:
      "8.6.3 has passwords of applications and systems changed periodically, as often as the entity's risk analysis says. An end that has passed without a change was not kept.",
  },
  {
    checks: ["key-expired", "key-rotation-policy", ...OLD_KEYS],
    controls: { "pci-dss-4.0.1": "3.7.4" },
    basis:
      "3.7.4 has a cryptoperiod for each kind of key and keys changed at its end, so that none is used beyond it. It is about keys that protect stored account data.",
  },
  {
    checks: ["key-expired"],
    controls: { "pci-dss-4.0.1": "3.7.5" },
    basis: "3.7.5 has keys retired, replaced or destroyed that have come to the end of their cryptoperiod.",
  },
  {
    checks: ["certificate-expired", ...CERTIFICATE_STRENGTH],
    controls: { "pci-dss-4.0.1": "4.2.1" },
    basis:
      "4.2.1 has certificates that protect card numbers on their way confirmed as valid, neither expired nor revoked, and allows no insecure key sizes.",
  },

  // ISO/IEC 27001:2022, Annex A
  {
    checks: [...EXPIRED_KEYS, ...EXPIRED_CERTIFICATES, ...OLD_KEYS],
    controls: { "iso-27001-2022": "8.24" },
    basis:
      "The guidance of 8.24 has keys given dates of activation and deactivation and used between them only; a certificate's dates are those of its key pair.",
  },
  {
    checks: [...KEY_STRENGTH, ...CERTIFICATE_STRENGTH],
    controls: { "iso-27001-2022": "8.24" },
    basis:
      "The guidance of 8.24 has type, strength and quality of the algorithms set by the protection that is needed.",
  },
  {
    checks: [...EXPIRED_SECRETS, ...OLD_SECRETS],
    controls: { "iso-27001-2022": "5.17" },
    basis:
      "5.17 has authentication information handed out and managed by a process, over all of its life; Microsoft's set holds the expiry of secrets against 8.24.",
  },

  // SOC 2
  {
    checks: [...EXPIRED_SECRETS, ...EXPIRED_APPLICATION_CERTIFICATES],
    controls: { "soc-2": "CC6.1, CC6.2" },
    basis:
      "A point of focus of CC6.1 has credentials of software removed that are no longer needed, one of CC6.2 the use of credentials prevented that are no longer valid: this one has ended and stands enabled.",
  },
  {
    checks: ["client-secret-alone", "secret-unused"],
    controls: { "soc-2": "CC6.1" },
    basis: "A point of focus of CC6.1 has credentials of software removed that are no longer needed.",
  },
  {
    checks: [...EXPIRED_KEYS, "certificate-expired", ...KEY_STRENGTH, ...CERTIFICATE_STRENGTH],
    controls: { "soc-2": "CC6.1" },
    basis:
      "A point of focus of CC6.1 has keys protected from generation to destruction, with algorithms and lengths that fit.",
  },

  // Microsoft Cloud Security Benchmark
  {
    checks: [...EXPIRED_KEYS, "key-rotation-policy", ...OLD_KEYS],
    controls: { "mcsb-v3": "DP-6" },
    basis: "DP-6 has keys rotated and revoked by a schedule and when they are retired.",
  },
  {
    checks: KEY_STRENGTH,
    controls: { "mcsb-v3": "DP-6" },
    basis: "DP-6 has a certain type and a least size required of keys.",
  },
  {
    checks: ["secret-expired", "secret-validity-period", "secret-active-period"],
    controls: { "mcsb-v3": "DP-6" },
    basis:
      "DP-6 has what is kept in key vaults rotated by a schedule; Microsoft holds the expiry of secrets against it, beside that of keys.",
  },
  {
    checks: [
      ...EXPIRED_CERTIFICATES,
      "certificate-near-expiry-critical",
      "certificate-near-expiry-warning",
      "certificate-auto-renewal",
    ],
    controls: { "mcsb-v3": "DP-7" },
    basis: "DP-7 has certificates tracked, renewed in time and by themselves, and rotated by a schedule.",
  },
  {
    checks: [...CERTIFICATE_STRENGTH, ...LONG_APPLICATION_CERTIFICATES],
    controls: { "mcsb-v3": "DP-7" },
    basis: "DP-7 has certificates made without insufficient key sizes, insecure cryptography or overly long validity.",
  },
  {
    checks: ["certificate-issuer"],
    controls: { "mcsb-v3": "DP-7" },
    basis: "DP-7 advises against self-signed certificates and names the authorities integrated with Key Vault instead.",
  },
  {
    checks: ["vault-public-access"],
    controls: { "mcsb-v3": "DP-8" },
    basis: "DP-8 has key vaults behind Private Link and their firewall, exposed as little as can be.",
  },
  {
    checks: ["client-secret-beside-certificate", "client-secret-beside-federation"],
    controls: { "mcsb-v3": "IM-3" },
    basis:
      "IM-3 has applications sign in with managed identities, else with certificates, and with secrets only where those can't be.",
  },
];
