import { DAY_SECONDS } from "../../time.ts";
import { type AssetCheck, assetCheck, fail, instantText, notApplicable, pass, type Remediation } from "../check.ts";

/**
 * Longest validity and longest use of a secret or key, in days: the parameters of the Microsoft Cloud Security Benchmark
 * v2 (preview), policy set MCSBv2 1.3.0-preview.
 * https://github.com/Azure/azure-policy/tree/master/built-in-policies/policySetDefinitions/Security%20Center
 */
export const MAX_VALIDITY_DAYS = 730;
export const MAX_ACTIVE_DAYS = 730;
/** Longest validity of a certificate in months: CIS 5.0.0 8.3.11 and the default of Azure Policy 0a075868-4c26-42ef-914c-5bc007359560. */
export const MAX_CERTIFICATE_MONTHS = 12;

const shorten: Record<"secret" | "key", Remediation> = {
  secret: {
    portal: `Key vault {vault} > Secrets > {name} > current version: set an expiration date at most ${MAX_VALIDITY_DAYS} days after its activation.`,
    cli: "az keyvault secret set-attributes --vault-name {vault} --name {name} --expires <yyyy-mm-ddThh:mm:ssZ>",
    bicep:
      "resource secret 'Microsoft.KeyVault/vaults/secrets@2024-11-01' = {\n  parent: vault\n  name: '{name}'\n  properties: { value: value, attributes: { exp: dateTimeToEpoch(expiresOn) } }\n}",
  },
  key: {
    portal: `Key vault {vault} > Keys > {name} > current version: set an expiration date at most ${MAX_VALIDITY_DAYS} days after its activation.`,
    cli: "az keyvault key set-attributes --vault-name {vault} --name {name} --expires <yyyy-mm-ddThh:mm:ssZ>",
    bicep:
      "resource key 'Microsoft.KeyVault/vaults/keys@2024-11-01' = {\n  parent: vault\n  name: '{name}'\n  properties: { kty: 'RSA', keySize: 3072, attributes: { exp: dateTimeToEpoch(expiresOn) } }\n}",
  },
};

const replaceIt: Record<"secret" | "key", Remediation> = {
  secret: {
    portal: "Key vault {vault} > Secrets > {name} > New version, with a new value.",
    cli: "az keyvault secret set --vault-name {vault} --name {name} --file <file> --expires <yyyy-mm-ddThh:mm:ssZ>",
    bicep: shorten.secret.bicep,
  },
  key: {
    portal: "Key vault {vault} > Keys > {name} > Rotate now.",
    cli: "az keyvault key rotate --vault-name {vault} --name {name}",
    bicep:
      "resource key 'Microsoft.KeyVault/vaults/keys@2024-11-01' = {\n  parent: vault\n  name: '{name}'\n  properties: {\n    kty: 'RSA'\n    keySize: 3072\n    rotationPolicy: { lifetimeActions: [ { action: { type: 'rotate' }, trigger: { timeAfterCreate: 'P1Y' } } ] }\n  }\n}",
  },
};

const name = { secret: "Secret", key: "Key" };

const validity = (type: "secret" | "key", code: number): AssetCheck =>
  assetCheck({
    id: `${type}-validity-period`,
    code,
    title: `${name[type]} is valid for at most ${MAX_VALIDITY_DAYS} days`,
    severity: "medium",
    resourceType: type,
    rationale: `The longer a ${type} is valid, the longer one that leaked without anybody noticing can be used.`,
    remediation: shorten[type],
    evaluate: ({ asset: { expiresOn, notBefore, createdOn } }) => {
      const from = notBefore ?? createdOn;
      if (expiresOn === undefined) return notApplicable("It has no expiration date.");
      if (from === undefined) return notApplicable("It has neither an activation nor a creation date.");
      const evidence = `It is valid from ${instantText(from)} to ${instantText(expiresOn)}.`;
      return expiresOn - from > MAX_VALIDITY_DAYS * DAY_SECONDS ? fail(evidence) : pass(evidence);
    },
  });

/** Counted as Azure Policy e8d99835-8a06-45ae-a8e0-87a91941ccfe does: from activation, else from creation. */
const active = (type: "secret" | "key", code: number): AssetCheck =>
  assetCheck({
    id: `${type}-active-period`,
    code,
    title: `${name[type]} has not been in use for more than ${MAX_ACTIVE_DAYS} days`,
    severity: "medium",
    resourceType: type,
    timed: "age",
    rationale: `A ${type} nobody has replaced for years has been seen by many people and systems.`,
    remediation: replaceIt[type],
    evaluate: ({ asset: { notBefore, createdOn } }, { now }) => {
      const since = notBefore ?? createdOn;
      if (since === undefined) return notApplicable("It has neither an activation nor a creation date.");
      const evidence = `It has been active since ${instantText(since)}.`;
      const end = since + MAX_ACTIVE_DAYS * DAY_SECONDS;
      return now > end * 1000 ? fail(evidence) : pass(evidence, end + 1);
    },
  });

const certificateValidity = assetCheck({
  id: "certificate-validity-period",
  code: 44,
  title: `Certificate is valid for at most ${MAX_CERTIFICATE_MONTHS} months`,
  severity: "medium",
  resourceType: "certificate",
  rationale: "Short-lived certificates limit what a stolen private key is worth and keep renewal in practice.",
  remediation: {
    portal: `Key vault {vault} > Certificates > {name} > Issuance policy: validity period ${MAX_CERTIFICATE_MONTHS} months or less; then New version.`,
    cli: "az keyvault certificate show --vault-name {vault} --name {name} --query policy | jq '.x509CertificateProperties.validityInMonths=12' > policy.json && az keyvault certificate create --vault-name {vault} --name {name} --policy @policy.json",
    bicep: null,
  },
  evaluate: ({ asset: { validityMonths } }) => {
    if (validityMonths === undefined) return notApplicable("Its validity period could not be read.");
    const evidence = `It is valid for ${validityMonths} months.`;
    return validityMonths > MAX_CERTIFICATE_MONTHS ? fail(evidence) : pass(evidence);
  },
});

export const lifetimeChecks: AssetCheck[] = [
  validity("secret", 16),
  active("secret", 17),
  validity("key", 26),
  active("key", 27),
  certificateValidity,
];
