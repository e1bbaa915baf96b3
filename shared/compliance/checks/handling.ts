import { type AssetCheck, assetCheck, fail, notApplicable, pass } from "../check.ts";
import { INTEGRATED_AUTHORITIES } from "../public-certificates.ts";
import { enableAutoRenewal, setContentType, useIntegratedIssuer } from "../remedies/key-vault.ts";

/** Checks of content types, issuers and renewal. */
export const handlingChecks: AssetCheck[] = [
  assetCheck({
    id: "secret-content-type",
    code: 18,
    title: "Secret has a content type",
    failureTitle: "Secret has no content type",
    severity: "low",
    resourceType: "secret",
    judged: "",
    rationale:
      "The content type tells users and tools what a secret is, such as a password or connection string, without reading it.",
    remedy: setContentType,
    evaluate: ({ asset: { contentType } }) =>
      contentType?.trim() ? pass(`Its content type is ${contentType.slice(0, 255)}.`) : fail("It has no content type."),
  }),
  assetCheck({
    id: "certificate-issuer",
    code: 45,
    title: "Certificate is issued by an integrated certificate authority",
    failureTitle: "Certificate is not issued by an integrated certificate authority",
    severity: "low",
    resourceType: "certificate",
    judged: "whose issuer is known",
    rationale:
      "Key Vault can renew certificates automatically only if their authority is integrated with Key Vault. Others need manual renewal.",
    remedy: useIntegratedIssuer,
    evaluate: ({ asset: { issuer } }) => {
      if (!issuer) return notApplicable("Its issuer could not be read.");
      const evidence = `It is issued by ${issuer.slice(0, 500)}.`;
      return INTEGRATED_AUTHORITIES.test(issuer) ? pass(evidence) : fail(evidence);
    },
  }),
  assetCheck({
    id: "certificate-auto-renewal",
    code: 46,
    title: "Certificate is renewed automatically",
    failureTitle: "Certificate is not renewed automatically",
    severity: "medium",
    resourceType: "certificate",
    judged: "whose policy was read",
    rationale: "A certificate policy that only sends a mail does not prevent the expiry if the mail is missed.",
    remedy: enableAutoRenewal,
    evaluate: ({ asset: { autoRenew } }) => {
      if (autoRenew === undefined) return notApplicable("Its policy could not be read.");
      return autoRenew ? pass("Its policy renews it.") : fail("Its policy does not renew it.");
    },
  }),
];
