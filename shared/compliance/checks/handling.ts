import { type Renewer, renewalOf } from "../../inventory/renewal.ts";
import { type AssetCheck, assetCheck, dateText, fail, notApplicable, pass } from "../check.ts";
import { INTEGRATED_AUTHORITIES, isSelfSigned } from "../public-certificates.ts";
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
    title: "Certificate is issued by an integrated certificate authority, or another renewer is known",
    failureTitle: "Certificate is not issued by an integrated certificate authority",
    severity: "low",
    resourceType: "certificate",
    judged: "whose issuer is known",
    rationale:
      "Key Vault can renew certificates automatically only if their authority is integrated with Key Vault. Others need another renewer.",
    remedy: useIntegratedIssuer,
    evaluate: ({ asset }, { now }) => {
      const { issuer } = asset;
      if (!issuer) return notApplicable("Its issuer could not be read.");
      const evidence = `It is issued by ${issuer.slice(0, 500)}.`;
      if (INTEGRATED_AUTHORITIES.test(issuer)) return pass(evidence);
      const { renewedBy } = renewalOf(asset, now);
      const isRenewed = renewedBy !== "none" && renewedBy !== "keyVaultPolicy" && !isSelfSigned(asset);
      return isRenewed ? pass(`${evidence} ${RENEWED_BY[renewedBy]}`) : fail(evidence);
    },
  }),
  assetCheck({
    id: "certificate-auto-renewal",
    code: 46,
    title: "Certificate is renewed automatically",
    failureTitle: "Certificate is not renewed automatically",
    severity: "medium",
    resourceType: "certificate",
    timed: "age",
    judged: "whose policy was read",
    rationale: "A certificate policy that only sends a mail does not prevent the expiry if the mail is missed.",
    remedy: enableAutoRenewal,
    evaluate: ({ asset }, { now }) => {
      const { autoRenew, issuerName } = asset;
      const { renewedBy, windowEnd, late } = renewalOf(asset, now);
      if (renewedBy !== "none") {
        if (windowEnd === undefined) return pass(RENEWED_BY[renewedBy]);
        const evidence = `${RENEWED_BY[renewedBy]} Its renewal was due until ${dateText(windowEnd)}.`;
        return late ? fail(evidence) : pass(RENEWED_BY[renewedBy], windowEnd + 1);
      }
      if (autoRenew === undefined) return notApplicable("Its policy could not be read.");
      if (!autoRenew) return fail("Its policy does not renew it, and no other renewer is known.");
      // Earlier versions did not read the issuer in the policy.
      if (issuerName === undefined) return pass("Its policy renews it.");
      return fail("Its policy renews it, but Key Vault can't renew certificates of authorities that are not integrated.");
    },
  }),
];

const RENEWED_BY: Record<Exclude<Renewer, "none">, string> = {
  keyVaultPolicy: "Its policy renews it.",
  acmebot: "Acmebot renews it.",
  certManager: "cert-manager renews it.",
  thisService: "This service renews it.",
  observed: "Its earlier versions were renewed regularly.",
};
