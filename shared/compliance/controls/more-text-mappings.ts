import {
  BETTER_SIGN_IN,
  CERTIFICATE_STRENGTH,
  EXPIRED_APPLICATION_CERTIFICATES,
  EXPIRED_CERTIFICATES,
  EXPIRED_KEYS,
  EXPIRED_SECRETS,
  KEY_EXPIRY_SET,
  KEY_STRENGTH,
  LONG_APPLICATION_CERTIFICATES,
  NETWORK_ACCESS,
  OLD_KEYS,
  OLD_SECRETS,
  RECOVERABLE,
  SECRET_EXPIRY_SET,
} from "./check-groups.ts";
import type { Mapping } from "./frameworks.ts";

/**
 * Mappings of checks to the texts of OWASP, the European Union, the BSI and HIPAA, as in text-mappings.ts. Requirements of these
 * texts that no check can decide are in not-assessed.ts.
 *
 * Sources: OWASP Non-Human Identities Top 10 (2025); Directive (EU) 2022/2555 (NIS2), Article 21(2), and the annex of
 * Implementing Regulation (EU) 2024/2690; Regulation (EU) 2022/2554 (DORA), Article 9(4), and Delegated Regulation (EU)
 * 2024/1774 (RTS), Articles 6, 7 and 12; BSI C5:2020; 45 CFR 164.308 and 164.312.
 */
export const MORE_TEXT_MAPPINGS: readonly Mapping[] = [
  // OWASP Non-Human Identities Top 10
  {
    checks: [...EXPIRED_SECRETS, ...EXPIRED_APPLICATION_CERTIFICATES, "client-secret-alone", "secret-unused"],
    controls: { "owasp-nhi-2025": "NHI1" },
    basis: "NHI1: deactivate or remove identities and their access keys once they are no longer needed.",
  },
  {
    checks: BETTER_SIGN_IN,
    controls: { "owasp-nhi-2025": "NHI4" },
    basis: "NHI4: don't authenticate with weak or outdated methods if a stronger one is available.",
  },
  {
    checks: ["vault-rbac"],
    controls: { "owasp-nhi-2025": "NHI5" },
    basis:
      "NHI5: give an identity no more privileges than its function needs. An access policy applies to all objects of a type in the vault.",
  },
  {
    checks: ["client-secret-beside-federation"],
    controls: { "owasp-nhi-2025": "NHI6" },
    basis: "NHI6: pipelines sign in to a cloud by OpenID Connect instead of static credentials.",
  },
  {
    checks: [
      ...SECRET_EXPIRY_SET,
      ...KEY_EXPIRY_SET,
      ...OLD_SECRETS,
      ...OLD_KEYS,
      "key-rotation-policy",
      "certificate-validity-period",
      ...LONG_APPLICATION_CERTIFICATES,
    ],
    controls: { "owasp-nhi-2025": "NHI7" },
    basis:
      "NHI7: don't use keys, tokens and certificates that never expire or that expire too far in the future. Rotate them automatically.",
  },

  // NIS2
  {
    checks: [...KEY_STRENGTH, ...CERTIFICATE_STRENGTH],
    controls: { nis2: "21(2)(h), Annex 9.2(b)" },
    basis:
      "21(2)(h) with Annex 9.2(b): have a policy on cryptography that sets the algorithms and their strength by the state of the art.",
  },
  {
    checks: [...EXPIRED_KEYS, ...EXPIRED_CERTIFICATES, ...OLD_KEYS, ...KEY_EXPIRY_SET, "key-rotation-policy"],
    controls: { nis2: "21(2)(h), Annex 9.2(c)" },
    basis:
      "21(2)(h) with Annex 9.2(c): manage keys, with rules for when they are changed, and with dates between which they can be used.",
  },
  {
    checks: RECOVERABLE,
    controls: { nis2: "Annex 9.2(c)" },
    basis: "Annex 9.2(c): have methods to back up keys and to recover lost ones.",
  },
  {
    checks: ["vault-audit-logging"],
    controls: { nis2: "Annex 9.2(c), Annex 3.2" },
    basis: "Annex 9.2(c) and 3.2: log and audit the operations on keys.",
  },
  {
    checks: ["vault-rbac", ...NETWORK_ACCESS, "client-secret-owner", "application-certificate-owner"],
    controls: { nis2: "21(2)(i)" },
    basis:
      "21(2)(i): have policies for the control of access and for the management of assets, which includes who is responsible.",
  },
  {
    checks: [
      ...EXPIRED_SECRETS,
      ...EXPIRED_APPLICATION_CERTIFICATES,
      ...SECRET_EXPIRY_SET,
      ...OLD_SECRETS,
      ...LONG_APPLICATION_CERTIFICATES,
    ],
    controls: { nis2: "Annex 11.6.2(c)" },
    basis: "Annex 11.6.2(c): require that authentication credentials are changed at predefined intervals.",
  },

  // DORA
  {
    checks: ["vault-rbac", ...NETWORK_ACCESS],
    controls: { dora: "9(4)(c)" },
    basis: "9(4)(c): limit the access to assets to what legitimate and approved functions require.",
  },
  {
    checks: [...BETTER_SIGN_IN, ...KEY_STRENGTH],
    controls: { dora: "9(4)(d)" },
    basis: "9(4)(d): authenticate strongly, by the relevant standards, and protect cryptographic keys.",
  },
  {
    checks: [...KEY_STRENGTH, ...CERTIFICATE_STRENGTH],
    controls: { dora: "RTS 6" },
    basis: "RTS, Article 6: choose cryptographic techniques by leading practices and standards.",
  },
  {
    checks: [...EXPIRED_KEYS, ...OLD_KEYS, ...KEY_EXPIRY_SET, "key-rotation-policy"],
    controls: { dora: "RTS 7(1)" },
    basis: "RTS, Article 7(1): manage keys over their whole life, which includes their renewal and retirement.",
  },
  {
    checks: [...RECOVERABLE, "vault-rbac", "vault-firewall", "vault-public-access"],
    controls: { dora: "RTS 7(2)" },
    basis: "RTS, Article 7(2): protect keys against loss, unauthorized access, disclosure and modification.",
  },
  {
    checks: [
      ...EXPIRED_CERTIFICATES,
      "certificate-near-expiry-critical",
      "certificate-near-expiry-warning",
      "application-certificate-near-expiry-critical",
      "application-certificate-near-expiry-warning",
      "certificate-auto-renewal",
    ],
    controls: { dora: "RTS 7(5)" },
    basis: "RTS, Article 7(5): renew certificates promptly, in advance of their expiration.",
  },
  {
    checks: ["vault-audit-logging"],
    controls: { dora: "RTS 12" },
    basis: "RTS, Article 12: log events of logical access, with the detail that their use needs.",
  },

  // BSI C5
  {
    checks: [...KEY_STRENGTH, ...CERTIFICATE_STRENGTH],
    controls: { "bsi-c5-2020": "CRY-01" },
    basis: "CRY-01: use strong encryption procedures and secure protocols that correspond to the state of the art.",
  },
  {
    checks: [...EXPIRED_KEYS, ...EXPIRED_CERTIFICATES, ...OLD_KEYS, ...KEY_EXPIRY_SET, "key-rotation-policy"],
    controls: { "bsi-c5-2020": "CRY-04" },
    basis: "CRY-04: change keys by rules that set when this is done, and withdraw and delete old ones.",
  },
  {
    checks: ["vault-rbac", ...RECOVERABLE],
    controls: { "bsi-c5-2020": "CRY-04" },
    basis: "CRY-04: store keys securely, with rules for how authorized users get access to them.",
  },
  {
    checks: ["vault-audit-logging"],
    controls: { "bsi-c5-2020": "OPS-15" },
    basis: "OPS-15: log data identifies who accessed what, so that incidents can be analyzed.",
  },

  // HIPAA Security Rule
  {
    checks: [...EXPIRED_SECRETS, ...SECRET_EXPIRY_SET, ...OLD_SECRETS],
    controls: { "hipaa-security-rule": "164.308(a)(5)(ii)(D)" },
    basis: "164.308(a)(5)(ii)(D): have procedures to create, change and safeguard passwords.",
  },
  {
    checks: ["vault-rbac", ...NETWORK_ACCESS],
    controls: { "hipaa-security-rule": "164.312(a)(1)" },
    basis: "164.312(a)(1): allow access only to the people and programs that have been granted rights.",
  },
  {
    checks: [...EXPIRED_KEYS, ...KEY_STRENGTH],
    controls: { "hipaa-security-rule": "164.312(a)(2)(iv)" },
    basis:
      "164.312(a)(2)(iv): have a mechanism to encrypt and decrypt health information. Its keys are valid and strong.",
  },
  {
    checks: ["vault-audit-logging"],
    controls: { "hipaa-security-rule": "164.312(b)" },
    basis: "164.312(b): record and examine the activity in systems that contain or use health information.",
  },
  {
    checks: [...EXPIRED_APPLICATION_CERTIFICATES, ...BETTER_SIGN_IN],
    controls: { "hipaa-security-rule": "164.312(d)" },
    basis: "164.312(d): verify that a person or entity that seeks access is the one claimed.",
  },
  {
    checks: ["certificate-expired", ...CERTIFICATE_STRENGTH],
    controls: { "hipaa-security-rule": "164.312(e)(2)(ii)" },
    basis:
      "164.312(e)(2)(ii): encrypt health information in transit where appropriate. The certificates are valid and strong.",
  },
];
