import { type AssetCheck, assetCheck, fail, notApplicable, pass } from "../check.ts";

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
    remediation: {
      portal: "Key vault {vault} > Secrets > {name} > current version > Content type.",
      cli: "az keyvault secret set-attributes --vault-name {vault} --name {name} --content-type <type>",
      bicep:
        "resource secret 'Microsoft.KeyVault/vaults/secrets@2024-11-01' = {\n  parent: vault\n  name: '{name}'\n  properties: { value: value, contentType: 'text/plain' }\n}",
    },
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
    remediation: {
      portal:
        "Key vault {vault} > Certificates > Certificate Authorities: add one; then {name} > Issuance policy: issue by it, and New version.",
      cli: "az keyvault certificate issuer create --vault-name {vault} --issuer-name digicert --provider-name DigiCert --account-id <id> --password <key>",
      bicep: null,
    },
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
    remediation: {
      portal:
        "Key vault {vault} > Certificates > {name} > Issuance policy > Lifetime action type: automatically renew.",
      cli: 'az keyvault certificate show --vault-name {vault} --name {name} --query policy | jq \'.lifetimeActions=[{"action":{"actionType":"AutoRenew"},"trigger":{"lifetimePercentage":80}}]\' > policy.json && az keyvault certificate set-attributes --vault-name {vault} --name {name} --policy @policy.json',
      bicep: null,
    },
    evaluate: ({ asset: { autoRenew } }) => {
      if (autoRenew === undefined) return notApplicable("Its policy could not be read.");
      return autoRenew ? pass("Its policy renews it.") : fail("Its policy does not renew it.");
    },
  }),
];
