import { isLate, RENEWER_NAMES } from "../../inventory/renewal.ts";
import { type AssetCheck, assetCheck, dateText, fail, notApplicable, pass } from "../check.ts";
import { INTEGRATED_AUTHORITIES } from "../public-certificates.ts";
import { restoreRenewal, setContentType, useIntegratedIssuer } from "../remedies/key-vault.ts";
import { NOT_RENEWED } from "./expiry.ts";

/** Checks of content types, issuers and renewal. */
export const handlingChecks: AssetCheck[] = [
  assetCheck({
    id: "secret-content-type",
    code: 18,
    title: "Secret has a content type",
    failureTitle: "Secret has no content type",
    severity: "low",
    resourceType: "secret",
    onlyFor: "",
    rationale:
      "The content type tells users and tools what a secret is, such as a password or connection string, without reading it.",
    remedy: setContentType,
    evaluate: ({ asset: { contentType } }) =>
      contentType?.trim() ? pass(`Its content type is ${contentType.slice(0, 255)}.`) : fail("It has no content type."),
  }),
  assetCheck({
    id: "certificate-issuer",
    code: 45,
    title: "Certificate is issued by an integrated certificate authority, or by another one and has a renewer",
    failureTitle: "Certificate is not issued by an integrated certificate authority",
    severity: "low",
    resourceType: "certificate",
    onlyFor: "whose issuer is known",
    rationale:
      "Key Vault can renew certificates automatically only if their authority is integrated with Key Vault. Others need a renewer of their own.",
    remedy: useIntegratedIssuer,
    evaluate: ({ asset: { issuer, renewal } }) => {
      if (!issuer) return notApplicable("Its issuer could not be read.");
      const evidence = `It is issued by ${issuer.slice(0, 500)}.`;
      // A late renewal fails certificate-auto-renewal, not this check. Only the vault's policy needs an integrated authority.
      if (renewal && renewal.renewedBy !== "keyVaultPolicy")
        return pass(`${evidence} ${RENEWER_NAMES[renewal.renewedBy].subject} renews it.`);
      return INTEGRATED_AUTHORITIES.test(issuer) ? pass(evidence) : fail(evidence);
    },
  }),
  assetCheck({
    id: "certificate-auto-renewal",
    code: 46,
    title: "Certificate is renewed automatically",
    failureTitle: (evidence) =>
      evidence.endsWith(NOT_RENEWED)
        ? "Automatic renewal of the certificate is late"
        : "Certificate is not renewed automatically",
    severity: "medium",
    resourceType: "certificate",
    timed: "expiry",
    onlyFor: "with a renewer, or whose policy was read",
    rationale: "A certificate policy that only sends a mail does not prevent the expiry if the mail is missed.",
    remedy: restoreRenewal,
    evaluate: ({ asset: { autoRenew, issuerName, renewal } }, { now }) => {
      if (renewal) {
        const renewer = RENEWER_NAMES[renewal.renewedBy].subject;
        // With a window, `attentionAt` is the second after its end, when the renewal is late.
        if (!isLate(renewal, now))
          return pass(`${renewer} renews it.`, renewal.windowEnd === undefined ? undefined : renewal.attentionAt);
        return fail(`${renewer} had to renew it by ${dateText(renewal.windowEnd!)}${NOT_RENEWED}`);
      }
      if (autoRenew === undefined) return notApplicable("Its policy could not be read.");
      if (autoRenew && /^unknown$/i.test(issuerName ?? ""))
        return fail("Its policy renews it, but Key Vault can't renew certificates of an unknown issuer.");
      return autoRenew ? pass("Its policy renews it.") : fail("Its policy does not renew it.");
    },
  }),
];
