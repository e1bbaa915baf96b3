/** Remediations for secrets, keys and certificates of key vaults. */
import type { Renewer } from "../../inventory/renewal.ts";
import { az } from "../../platform/azure/cli.ts";
import { DAY_MS, DAY_SECONDS, SECOND_MS } from "../../platform/time.ts";
import { MAX_CERTIFICATE_MONTHS, MAX_VALIDITY_DAYS, monthsWithin, nextPublicLimit, publicLimitAt } from "../limits.ts";
import {
  bicepString,
  commentedCommand,
  instantOption,
  joinLines,
  nameInText,
  type Remediation,
  startOfDayIn,
  type Target,
} from "./remediation.ts";

/** Suggested validity of a new version in days. Users can choose another one. */
const PROPOSED_VALIDITY_DAYS = 180;
/** Size of new RSA keys: NIST SP 800-57 accepts 2048 bits, which the checks accept, only until 2030. */
const NEW_RSA_BITS = 3072;
/** If the longest allowed validity ends within this time, a new version is suggested instead of an expiration date. */
const MIN_REMAINING_DAYS = 30;

type Versioned = "secret" | "key";
const MENU = { secret: "Secrets", key: "Keys", certificate: "Certificates" } as const;

const portalPath = (type: keyof typeof MENU, { vault, name }: Target): string =>
  `Key vault ${nameInText(vault)} > ${MENU[type]} > ${nameInText(name)}`;
const nameOptions = ({ vault, name }: Target): Record<string, string> => ({ "vault-name": vault, name });

const KEY_NOTE = "A template creates missing keys. It does not change an existing key.";
const CERTIFICATE_NOTE = "Azure Resource Manager has no resource for a certificate of a key vault.";
const SECRET_NOTE = "Each deployment creates a new version with the value of the parameter.";

/** Returns a commented command that disables the asset. */
const disableLater = (condition: string, type: keyof typeof MENU, target: Target, version?: string): string =>
  commentedCommand(
    condition,
    az(`keyvault ${type} set-attributes`, { ...nameOptions(target), ...(version && { version }), enabled: "false" }),
  );

const secretBicep = ({ vault, name }: Target, attributes: string): string =>
  joinLines(
    "@secure()",
    "param value string",
    "",
    "resource vault 'Microsoft.KeyVault/vaults@2026-02-01' existing = {",
    `  name: ${bicepString(vault)}`,
    "}",
    "",
    "resource secret 'Microsoft.KeyVault/vaults/secrets@2026-02-01' = {",
    "  parent: vault",
    `  name: ${bicepString(name)}`,
    `  properties: { value: value, ${attributes} }`,
    "}",
  );

const expiresAttribute = (expiresAt: string): string =>
  `attributes: { exp: dateTimeToEpoch(${bicepString(expiresAt)}) }`;

const createSecretVersion = (target: Target): Remediation => {
  const expiresAt = startOfDayIn(target.now, PROPOSED_VALIDITY_DAYS);
  return {
    portal: `${portalPath("secret", target)} > New Version: the new value, and an expiration date such as ${expiresAt.slice(0, 10)}. Keep the old value valid at its origin until every consumer reads the new version.`,
    cli: az("keyvault secret set", { ...nameOptions(target), file: "<file with the new value>", expires: expiresAt }),
    bicep: secretBicep(target, expiresAttribute(expiresAt)),
    bicepNote: SECRET_NOTE,
  };
};

const rotateKey = (target: Target): Remediation => {
  const expiresAt = startOfDayIn(target.now, PROPOSED_VALIDITY_DAYS);
  const rotate = az("keyvault key rotate", nameOptions(target));
  const date = az("keyvault key set-attributes", { ...nameOptions(target), expires: expiresAt });
  return {
    portal: `${portalPath("key", target)} > Rotate now. Then set the new version's expiration date, such as ${expiresAt.slice(0, 10)}. Keep the old version enabled until no data must be decrypted with it.`,
    cli: `${rotate} && ${date}`,
    bicep: null,
    bicepNote: KEY_NOTE,
  };
};

const createVersion: Record<Versioned, (target: Target) => Remediation> = {
  secret: createSecretVersion,
  key: rotateKey,
};

/** Sets an expiration date on the current version. The value and its consumers are not affected. */
function setExpiryOnCurrentVersion(
  type: Versioned,
  target: Target,
  expiresAt: string,
  explanation: string,
): Remediation {
  return {
    portal: `${portalPath(type, target)} > current version > Set expiration date: ${expiresAt.slice(0, 10)}${explanation}.`,
    cli: az(`keyvault ${type} set-attributes`, { ...nameOptions(target), expires: expiresAt }),
    bicep: type === "secret" ? secretBicep(target, expiresAttribute(expiresAt)) : null,
    bicepNote: type === "secret" ? SECRET_NOTE : KEY_NOTE,
  };
}

/** The end of the year 9999 in Unix seconds: the latest date that command options accept. */
const LATEST_EXPIRY_SECONDS = 253_402_300_799;
/** Returns the latest allowed expiry in Unix seconds. Undefined if the start of the validity is unknown. */
const latestAllowedExpiry = ({ facts: { from } }: Target): number | undefined =>
  from === undefined ? undefined : Math.min(from + MAX_VALIDITY_DAYS * DAY_SECONDS, LATEST_EXPIRY_SECONDS);

const isTooSoon = (expiry: number | undefined, { now }: Target): expiry is number =>
  expiry !== undefined && expiry * SECOND_MS < now + MIN_REMAINING_DAYS * DAY_MS;

const explainTooOld = (remedy: Remediation): Remediation => ({
  ...remedy,
  portal: `The current version has been valid for too long to set an expiration date on it. ${remedy.portal}`,
});

/** Remediation of an asset without an expiration date. */
export const setExpiry =
  (type: Versioned) =>
  (target: Target): Remediation => {
    const expiry = latestAllowedExpiry(target);
    if (isTooSoon(expiry, target)) return explainTooOld(createVersion[type](target));
    const proposed = startOfDayIn(target.now, PROPOSED_VALIDITY_DAYS);
    const expiresAt = expiry !== undefined && instantOption(expiry) < proposed ? instantOption(expiry) : proposed;
    return setExpiryOnCurrentVersion(type, target, expiresAt, ", or the day by which it will be replaced");
  };

/** Remediation of an asset that is valid for too long. */
export const shortenValidity =
  (type: Versioned) =>
  (target: Target): Remediation => {
    const expiry = latestAllowedExpiry(target);
    if (expiry === undefined || isTooSoon(expiry, target)) return explainTooOld(createVersion[type](target));
    return setExpiryOnCurrentVersion(
      type,
      target,
      instantOption(expiry),
      ` or earlier: ${MAX_VALIDITY_DAYS} days after it became valid`,
    );
  };

export const replaceVersion = (type: Versioned) => createVersion[type];

/** Remediation of an expired asset: replace it, or disable it if nothing needs it. */
export const replaceOrDisable =
  (type: keyof typeof MENU) =>
  (target: Target): Remediation => {
    const remedy = type === "certificate" ? createCertificateVersion(target) : createVersion[type](target);
    return {
      ...remedy,
      portal: `${remedy.portal} If nothing uses it anymore, disable it instead. You can enable it again.`,
      cli: joinLines(
        remedy.cli,
        disableLater("If nothing uses it anymore, disable it instead. You can enable it again", type, target),
      ),
    };
  };

/** Remediation of a secret without a read in the logs. A consumer may still read it once a year. */
export const disableUnused = (target: Target): Remediation => ({
  portal: `Ask its owner whether anything still needs it, such as a yearly job. If nothing does: ${portalPath("secret", target)} > current version > Enabled: No. You can enable it again. After some weeks without failures, delete it; soft delete keeps it for a while.`,
  cli: joinLines(
    "# Its versions with their tags, without their values:",
    az("keyvault secret list-versions", nameOptions(target)),
    disableLater(
      "After its owner confirms that nothing needs it, disable it. Enabling it again undoes this",
      "secret",
      target,
    ),
  ),
  bicep: null,
  bicepNote: "A template would create a new version, and needs its value.",
});

export const setContentType = (target: Target): Remediation => ({
  portal: `${portalPath("secret", target)} > current version > Content type: a description of the value, such as password.`,
  cli: az("keyvault secret set-attributes", { ...nameOptions(target), "content-type": "<content type>" }),
  bicep: secretBicep(target, "contentType: '<content type>'"),
  bicepNote: SECRET_NOTE,
});

const isEllipticCurve = (keyType: string | undefined): boolean => keyType?.toUpperCase().startsWith("EC") ?? false;
const isInHardware = (keyType: string | undefined): boolean => keyType?.toUpperCase().endsWith("-HSM") ?? false;

/** Remediation of a weak key: a new version with an approved type and size, of the same family, in hardware if the old one is. */
export const createStrongerKey = (target: Target): Remediation => {
  const { keyType } = target.facts;
  const kty = `${isEllipticCurve(keyType) ? "EC" : "RSA"}${isInHardware(keyType) ? "-HSM" : ""}`;
  const strength: Record<string, string> = isEllipticCurve(keyType) ? { curve: "P-256" } : { size: `${NEW_RSA_BITS}` };
  const expiresAt = startOfDayIn(target.now, PROPOSED_VALIDITY_DAYS);
  return {
    portal: `${portalPath("key", target)} > New Version: ${kty} with ${isEllipticCurve(keyType) ? "P-256" : `${NEW_RSA_BITS} bits`}. Switch every consumer to it and encrypt anew what the old version encrypted. Only then disable the old version.`,
    cli: joinLines(
      az("keyvault key create", { ...nameOptions(target), kty, ...strength, expires: expiresAt }),
      disableLater(
        "After every consumer uses the new version and nothing is left to decrypt with the old one, disable that",
        "key",
        target,
        "<old version>",
      ),
    ),
    bicep: null,
    bicepNote: KEY_NOTE,
  };
};

/** Rotation policy in the format of the Azure CLI: rotate after one year, expire after 18 months. */
const ROTATION = JSON.stringify({
  lifetimeActions: [{ trigger: { timeAfterCreate: "P1Y" }, action: { type: "Rotate" } }],
  attributes: { expiryTime: "P18M" },
});

export const setRotationPolicy = (target: Target): Remediation => ({
  portal: `${portalPath("key", target)} > Rotation policy: expiry 18 months, enable auto rotation, 1 year after creation.`,
  cli: az("keyvault key rotation-policy update", { ...nameOptions(target), value: ROTATION }),
  bicep: null,
  bicepNote: KEY_NOTE,
});

/** Returns commands that read the certificate's policy, change it with the jq filter `change`, and use the result. */
function updateCertificatePolicy(
  target: Target,
  change: string | undefined,
  command: "create" | "set-attributes",
): string {
  const read = az("keyvault certificate show", { ...nameOptions(target), query: "policy" });
  const written = change === undefined ? read : `${read} | jq '${change}'`;
  return `${written} > policy.json && ${az(`keyvault certificate ${command}`, { ...nameOptions(target), policy: "@policy.json" })}`;
}

const certificateRemediation = (portal: string, cli: string): Remediation => ({
  portal,
  cli,
  bicep: null,
  bicepNote: CERTIFICATE_NOTE,
});

const createCertificateVersion = (target: Target): Remediation =>
  certificateRemediation(
    `${portalPath("certificate", target)} > New Version. If the certificate was imported: Import with the new file.`,
    joinLines(
      updateCertificatePolicy(target, undefined, "create"),
      `# If the certificate was imported, or its authority is not integrated with Key Vault: ${az("keyvault certificate import", { ...nameOptions(target), file: "<certificate with its key>" })}`,
    ),
  );

/**
 * Remediation of a certificate that is valid for too long. A new version of a public certificate must not exceed the limit of
 * today.
 */
export function shortenCertificate(target: Target): Remediation {
  const limit = target.facts.publiclyTrusted ? publicLimitAt(target.now) : undefined;
  const months = limit ? monthsWithin(limit.days) : MAX_CERTIFICATE_MONTHS;
  const next = limit && nextPublicLimit(limit);
  const later = next ? ` From ${next.from} they may issue ${next.days} days.` : "";
  const reason = limit ? ` Public authorities may issue ${limit.days} days since ${limit.from}.${later}` : "";
  return certificateRemediation(
    `${portalPath("certificate", target)} > Issuance policy: validity period ${months} months or less; then New Version.${reason}`,
    updateCertificatePolicy(target, `.x509CertificateProperties.validityInMonths=${months}`, "create"),
  );
}

/** Remediation of a weak certificate key: a new version with an approved key of the same family. */
export const createStrongerCertificate = (target: Target): Remediation =>
  isEllipticCurve(target.facts.keyType)
    ? certificateRemediation(
        `${portalPath("certificate", target)} > Issuance policy > Advanced: EC with P-256; then New Version.`,
        updateCertificatePolicy(target, '.keyProperties.curve="P-256"', "create"),
      )
    : certificateRemediation(
        `${portalPath("certificate", target)} > Issuance policy > Advanced: RSA with ${NEW_RSA_BITS} bits; then New Version.`,
        updateCertificatePolicy(target, `.keyProperties.keySize=${NEW_RSA_BITS}`, "create"),
      );

const enableAutoRenewal = (target: Target): Remediation =>
  certificateRemediation(
    `${portalPath("certificate", target)} > Issuance policy > Lifetime action type: automatically renew. Key Vault can't renew certificates of authorities that are not integrated. Renew these with a tool such as Acmebot or cert-manager, which is recognized by its tags or by its second renewal.`,
    updateCertificatePolicy(
      target,
      '.lifetimeActions=[{"action":{"actionType":"AutoRenew"},"trigger":{"lifetimePercentage":80}}]',
      "set-attributes",
    ),
  );

/** How to find the cause of a late renewal, by renewer. The vault's policy and certificates without a renewer have no entry. */
const RENEWER_CHECKS: Partial<Record<Renewer, string>> = {
  acmebot:
    "Look for the failed renewal in the log of Acmebot's Functions app, and renew the certificate in its dashboard.",
  certManager:
    "Find the cause with kubectl describe certificate in the cluster of cert-manager, and renew with cmctl renew.",
  thisService: "Look for the failed renewal in this service.",
  observed: "The times of earlier versions show that something renews it. Find out why it stopped.",
};

/** Remediation of a certificate whose renewer is late: find out why, and see what the vault has. */
function checkRenewer(target: Target, advice: string): Remediation {
  return certificateRemediation(
    `${advice} See the versions at ${portalPath("certificate", target)}.`,
    joinLines(
      "# Its versions and the state of a request that waits for its authority:",
      az("keyvault certificate list-versions", nameOptions(target)),
      az("keyvault certificate pending show", nameOptions(target)),
    ),
  );
}

const adviceOf = ({ facts: { renewedBy } }: Target): string | undefined => renewedBy && RENEWER_CHECKS[renewedBy];

/** Remediation of a certificate that is not renewed: make its renewer work again, or let the policy renew it. */
export function restoreRenewal(target: Target): Remediation {
  const advice = adviceOf(target);
  return advice === undefined ? enableAutoRenewal(target) : checkRenewer(target, advice);
}

/** Remediation of a certificate that expires soon: make its renewer work again, or create a version. */
export function renewCertificate(target: Target): Remediation {
  const advice = adviceOf(target);
  return advice === undefined ? createCertificateVersion(target) : checkRenewer(target, advice);
}

export const useIntegratedIssuer = (target: Target): Remediation =>
  certificateRemediation(
    `Key vault ${nameInText(target.vault)} > Certificates > Certificate Authorities: add one; then ${nameInText(target.name)} > Issuance policy: issue by it, and New Version.`,
    joinLines(
      az("keyvault certificate issuer create", {
        "vault-name": target.vault,
        "issuer-name": "digicert",
        "provider-name": "DigiCert",
        "account-id": "<account>",
        password: "<API key>",
      }),
      updateCertificatePolicy(target, '.issuerParameters.name="digicert"', "create"),
    ),
  );
