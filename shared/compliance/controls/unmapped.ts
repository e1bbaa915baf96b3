/** Checks that no text of these frameworks asks for, and why. */

const NEAR =
  "What nears its end has not passed it, so no text is broken. Only Microsoft's benchmark v2, a preview, asks for a number of days beforehand.";
const REFERENCES =
  "It is about whether applications work: the texts ask how values are protected, not whether they are found.";

export const UNMAPPED: Readonly<Record<string, string>> = {
  "secret-near-expiry-critical": NEAR,
  "secret-near-expiry-warning": NEAR,
  "key-near-expiry-critical": NEAR,
  "key-near-expiry-warning": NEAR,
  "client-secret-near-expiry-critical": NEAR,
  "client-secret-near-expiry-warning": NEAR,
  "application-certificate-near-expiry-critical": NEAR,
  "application-certificate-near-expiry-warning": NEAR,
  "b2c-secret-near-expiry-critical": NEAR,
  "b2c-secret-near-expiry-warning": NEAR,
  "b2c-certificate-near-expiry-critical": NEAR,
  "b2c-certificate-near-expiry-warning": NEAR,
  "b2c-key-near-expiry-critical": NEAR,
  "b2c-key-near-expiry-warning": NEAR,
  "secret-content-type":
    "A content type is a help for people. Azure has a policy for it, which no regulatory policy set of Microsoft's holds against a control.",
  "secret-reference-resolved": REFERENCES,
  "certificate-reference-resolved": REFERENCES,
  "vault-reference-resolved": REFERENCES,
};

/** Where a framework has nothing although a check has expired resources for others: kept for who looks for it there. */
export const SILENT_FRAMEWORKS: readonly { framework: string; about: string; reason: string }[] = [
  {
    framework: "CIS Microsoft Azure Foundations",
    about: "expired secrets, keys and certificates; credentials of applications",
    reason:
      "8.3.1 to 8.3.4 (numbers of 6.0.0) ask that an expiration date is set, and what has one passes, also once it has passed; 8.3.9 asks for automatic rotation of keys, 8.3.11 for the validity of certificates. Nothing asks for the credentials of applications. To fail them there would be another result than the benchmark's own.",
  },
  {
    framework: "PCI DSS",
    about: "certificates that applications sign in with; keys of B2C policies",
    reason:
      "8.6.3 is about passwords, 3.7 about keys that protect stored account data, 4.2.1 about card numbers on their way.",
  },
  {
    framework: "Microsoft Cloud Security Benchmark",
    about: "client secrets that have expired or live long",
    reason: "IM-3 asks for something better than a client secret and says nothing of how long one lives.",
  },
];
