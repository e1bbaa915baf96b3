/** Checks that are mapped to no control, with the reason. */

const EXPIRES_SOON_REASON =
  "An asset that expires soon has not expired, so no framework text is violated. Only Microsoft's benchmark v2, a preview, asks for a number of days in advance.";
const REFERENCES_REASON =
  "This check is about whether applications work. The frameworks ask how values are protected, not whether references resolve.";

export const UNMAPPED: Readonly<Record<string, string>> = {
  "secret-near-expiry-critical": EXPIRES_SOON_REASON,
  "secret-near-expiry-warning": EXPIRES_SOON_REASON,
  "key-near-expiry-critical": EXPIRES_SOON_REASON,
  "key-near-expiry-warning": EXPIRES_SOON_REASON,
  "client-secret-near-expiry-critical": EXPIRES_SOON_REASON,
  "client-secret-near-expiry-warning": EXPIRES_SOON_REASON,
  "b2c-secret-near-expiry-critical": EXPIRES_SOON_REASON,
  "b2c-secret-near-expiry-warning": EXPIRES_SOON_REASON,
  "b2c-certificate-near-expiry-critical": EXPIRES_SOON_REASON,
  "b2c-certificate-near-expiry-warning": EXPIRES_SOON_REASON,
  "b2c-key-near-expiry-critical": EXPIRES_SOON_REASON,
  "b2c-key-near-expiry-warning": EXPIRES_SOON_REASON,
  "secret-content-type":
    "A content type helps people. Azure has a policy for it, but no regulatory policy set of Microsoft maps it to a control.",
  "secret-reference-resolved": REFERENCES_REASON,
  "certificate-reference-resolved": REFERENCES_REASON,
  "vault-reference-resolved": REFERENCES_REASON,
};

/** Kinds of resources for which a framework has no control, although checks of expiry or lifetime exist, with the reason. */
export const SILENT_FRAMEWORKS: readonly { framework: string; about: string; reason: string }[] = [
  {
    framework: "CIS Microsoft Azure Foundations",
    about: "expired secrets, keys and certificates; credentials of applications",
    reason:
      "8.3.1 to 8.3.4 (numbers of 6.0.0) require that an expiration date is set. An asset with a date passes, even if the date has passed. 8.3.9 requires automatic rotation of keys, 8.3.11 limits the validity of certificates. No recommendation is about credentials of applications. A failure here would differ from the benchmark's own result.",
  },
  {
    framework: "PCI DSS",
    about: "certificates that applications sign in with; keys of B2C policies",
    reason:
      "8.6.3 is about passwords, 3.7 about keys that protect stored account data, 4.2.1 about card numbers in transit.",
  },
  {
    framework: "Microsoft Cloud Security Benchmark",
    about: "client secrets that have expired or live long",
    reason: "IM-3 recommends alternatives to client secrets and sets no limit on their lifetime.",
  },
];
