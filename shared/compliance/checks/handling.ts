import { type AssetCheck, assetCheck, fail, notApplicable, pass } from "../check.ts";
import { integratedIssuer, renewItself, sayContent } from "../remedies/key-vault.ts";

/**
 * The certificate authorities Key Vault orders and renews from by itself; brands of theirs name them as organisation.
 * https://learn.microsoft.com/azure/key-vault/certificates/how-to-integrate-certificate-authority
 */
const INTEGRATED_AUTHORITIES = /\b(digicert|globalsign)\b/i;

/** How secrets and certificates are labelled and issued. */
export const handlingChecks: AssetCheck[] = [
  assetCheck({
    id: "secret-content-type",
    code: 18,
    title: "Secret says what it holds",
    severity: "low",
    resourceType: "secret",
    rationale:
      "A content type tells people and tools what a secret is (a password, a connection string) without reading it.",
    remedy: sayContent,
    evaluate: ({ asset: { contentType } }) =>
      contentType?.trim() ? pass(`Its content type is ${contentType.slice(0, 255)}.`) : fail("It has no content type."),
  }),
  assetCheck({
    id: "certificate-issuer",
    code: 45,
    title: "Certificate is issued by an integrated certificate authority",
    severity: "low",
    resourceType: "certificate",
    rationale:
      "Key Vault renews by itself only what an authority integrated with it issued; every other renewal is handwork.",
    remedy: integratedIssuer,
    evaluate: ({ asset: { issuer } }) => {
      if (!issuer) return notApplicable("Its issuer could not be read.");
      const evidence = `It is issued by ${issuer.slice(0, 500)}.`;
      return INTEGRATED_AUTHORITIES.test(issuer) ? pass(evidence) : fail(evidence);
    },
  }),
  assetCheck({
    id: "certificate-auto-renewal",
    code: 46,
    title: "Certificate renews itself",
    severity: "medium",
    resourceType: "certificate",
    rationale: "A certificate whose policy only sends a mail expires when nobody reads that mail.",
    remedy: renewItself,
    evaluate: ({ asset: { autoRenew } }) => {
      if (autoRenew === undefined) return notApplicable("Its policy could not be read.");
      return autoRenew ? pass("Its policy renews it.") : fail("Its policy does not renew it.");
    },
  }),
];
