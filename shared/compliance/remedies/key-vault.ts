import { DAY_MS, DAY_SECONDS, SECOND_MS } from "../../platform/time.ts";
import { MAX_CERTIFICATE_MONTHS, MAX_VALIDITY_DAYS } from "../limits.ts";
import {
  az,
  bicepString,
  dayIn,
  inText,
  later,
  lines,
  optionInstant,
  type Remediation,
  type Target,
} from "./remediation.ts";

/** Remediations for secrets, keys and certificates of key vaults. */

/** Suggested validity of a new version in days. Users can choose another one. */
const PROPOSED_DAYS = 180;
/** If less time than this is left, an expiration date on the current version would soon break its consumers. */
const LEAST_DAYS = 30;

type Versioned = "secret" | "key";
const MENU = { secret: "Secrets", key: "Keys", certificate: "Certificates" } as const;

const place = (type: keyof typeof MENU, { vault, name }: Target): string =>
  `Key vault ${inText(vault)} > ${MENU[type]} > ${inText(name)}`;
const options = ({ vault, name }: Target): Record<string, string> => ({ "vault-name": vault, name });

const KEY_NOTE = "A template creates missing keys. It does not change an existing key.";
const CERTIFICATE_NOTE = "Azure Resource Manager has no resource for a certificate of a key vault.";
const SECRET_NOTE = "Each deployment makes a new version with the value that is given to it.";

/** Returns a commented command that disables the asset. */
const disableLater = (condition: string, type: keyof typeof MENU, target: Target, version?: string): string =>
  later(
    condition,
    az(`keyvault ${type} set-attributes`, { ...options(target), ...(version && { version }), enabled: "false" }),
  );

const secretBicep = ({ vault, name }: Target, attributes: string): string =>
  lines(
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

const expiresAttribute = (until: string): string => `attributes: { exp: dateTimeToEpoch(${bicepString(until)}) }`;

const newSecret = (target: Target): Remediation => {
  const until = dayIn(target.now, PROPOSED_DAYS);
  return {
    portal: `${place("secret", target)} > New Version: the new value, and an expiration date such as ${until.slice(0, 10)}. Keep the old value valid at its origin until every consumer reads the new version.`,
    cli: az("keyvault secret set", { ...options(target), file: "<file with the new value>", expires: until }),
    bicep: secretBicep(target, expiresAttribute(until)),
    bicepNote: SECRET_NOTE,
  };
};

const newKeyVersion = (target: Target): Remediation => {
  const until = dayIn(target.now, PROPOSED_DAYS);
  const rotate = az("keyvault key rotate", options(target));
  const date = az("keyvault key set-attributes", { ...options(target), expires: until });
  return {
    portal: `${place("key", target)} > Rotate now. Then set the new version's expiration date, such as ${until.slice(0, 10)}. Keep the old version enabled until no data must be decrypted with it.`,
    cli: `${rotate} && ${date}`,
    bicep: null,
    bicepNote: KEY_NOTE,
  };
};

const newVersion: Record<Versioned, (target: Target) => Remediation> = { secret: newSecret, key: newKeyVersion };

/** Sets an expiration date on the current version. The value and its consumers are not affected. */
function dated(type: Versioned, target: Target, until: string, why: string): Remediation {
  return {
    portal: `${place(type, target)} > current version > Set expiration date: ${until.slice(0, 10)}${why}.`,
    cli: az(`keyvault ${type} set-attributes`, { ...options(target), expires: until }),
    bicep: type === "secret" ? secretBicep(target, expiresAttribute(until)) : null,
    bicepNote: type === "secret" ? SECRET_NOTE : KEY_NOTE,
  };
}

/** The end of the year 9999, in unix seconds: the latest date that options accept. */
const LAST_SECOND = 253_402_300_799;
/** Returns the latest allowed expiry in unix seconds. Undefined if the start of the validity is unknown. */
const latestEnd = ({ facts: { from } }: Target): number | undefined =>
  from === undefined ? undefined : Math.min(from + MAX_VALIDITY_DAYS * DAY_SECONDS, LAST_SECOND);

const isTooSoon = (end: number | undefined, { now }: Target): end is number =>
  end !== undefined && end * SECOND_MS < now + LEAST_DAYS * DAY_MS;

const tooOld = (remedy: Remediation): Remediation => ({
  ...remedy,
  portal: `It has been valid for too long for a date to be set on it. ${remedy.portal}`,
});

/** For an asset without an expiration date. */
export const setExpiry =
  (type: Versioned) =>
  (target: Target): Remediation => {
    const end = latestEnd(target);
    if (isTooSoon(end, target)) return tooOld(newVersion[type](target));
    const proposed = dayIn(target.now, PROPOSED_DAYS);
    const until = end !== undefined && optionInstant(end) < proposed ? optionInstant(end) : proposed;
    return dated(type, target, until, ", or the day by which it will be replaced");
  };

/** For an asset that is valid for too long. */
export const shorten =
  (type: Versioned) =>
  (target: Target): Remediation => {
    const end = latestEnd(target);
    if (end === undefined || isTooSoon(end, target)) return tooOld(newVersion[type](target));
    return dated(type, target, optionInstant(end), ` or earlier: ${MAX_VALIDITY_DAYS} days after it became valid`);
  };

export const replace = (type: Versioned) => newVersion[type];

/** For an expired asset: replace it, or disable it if nothing needs it. */
export const retire =
  (type: keyof typeof MENU) =>
  (target: Target): Remediation => {
    const remedy = type === "certificate" ? newCertificate(target) : newVersion[type](target);
    return {
      ...remedy,
      portal: `${remedy.portal} If nothing needs it any more, disable it instead, which can be undone.`,
      cli: lines(
        remedy.cli,
        disableLater("If nothing uses it any more, disable it instead. Enabling it again undoes this", type, target),
      ),
    };
  };

/** For a secret without a read in the logs. A consumer may still read it once a year. */
export const disableUnused = (target: Target): Remediation => ({
  portal: `Ask its owner whether anything still needs it, such as a yearly job. If nothing does: ${place("secret", target)} > current version > Enabled: No, which can be undone. After some weeks without failures, delete it; soft delete keeps it for a while.`,
  cli: lines(
    "# Its versions with their tags, without their values:",
    az("keyvault secret list-versions", options(target)),
    disableLater(
      "After its owner confirms that nothing needs it, disable it. Enabling it again undoes this",
      "secret",
      target,
    ),
  ),
  bicep: null,
  bicepNote: "A template would make a new version, and needs its value.",
});

export const sayContent = (target: Target): Remediation => ({
  portal: `${place("secret", target)} > current version > Content type: a description of the value, such as password.`,
  cli: az("keyvault secret set-attributes", { ...options(target), "content-type": "<content type>" }),
  bicep: secretBicep(target, "contentType: '<content type>'"),
  bicepNote: SECRET_NOTE,
});

const isEllipticCurve = (keyType: string | undefined): boolean => keyType?.toUpperCase().startsWith("EC") ?? false;
const isInHardware = (keyType: string | undefined): boolean => keyType?.toUpperCase().endsWith("-HSM") ?? false;

/** For a weak key: a new version with an approved type and size, of the same family, in hardware if the old one is. */
export const strongerKey = (target: Target): Remediation => {
  const { keyType } = target.facts;
  const kty = `${isEllipticCurve(keyType) ? "EC" : "RSA"}${isInHardware(keyType) ? "-HSM" : ""}`;
  const strength: Record<string, string> = isEllipticCurve(keyType) ? { curve: "P-256" } : { size: "3072" };
  const until = dayIn(target.now, PROPOSED_DAYS);
  return {
    portal: `${place("key", target)} > New Version: ${kty} with ${isEllipticCurve(keyType) ? "P-256" : "3072 bits"}. Switch every consumer to it and encrypt anew what the old version encrypted. Only then disable the old version.`,
    cli: lines(
      az("keyvault key create", { ...options(target), kty, ...strength, expires: until }),
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

const ROTATION = JSON.stringify({
  lifetimeActions: [{ trigger: { timeAfterCreate: "P1Y" }, action: { type: "Rotate" } }],
  attributes: { expiryTime: "P18M" },
});

export const rotateKeys = (target: Target): Remediation => ({
  portal: `${place("key", target)} > Rotation policy: expiry 18 months, enable auto rotation, 1 year after creation.`,
  cli: az("keyvault key rotation-policy update", { ...options(target), value: ROTATION }),
  bicep: null,
  bicepNote: KEY_NOTE,
});

/** Returns commands that read the certificate's policy, change it with the jq filter `change`, and use the result. */
function withPolicy(target: Target, change: string | undefined, command: "create" | "set-attributes"): string {
  const read = az("keyvault certificate show", { ...options(target), query: "policy" });
  const written = change === undefined ? read : `${read} | jq '${change}'`;
  return `${written} > policy.json && ${az(`keyvault certificate ${command}`, { ...options(target), policy: "@policy.json" })}`;
}

const certificate = (portal: string, cli: string): Remediation => ({
  portal,
  cli,
  bicep: null,
  bicepNote: CERTIFICATE_NOTE,
});

export const newCertificate = (target: Target): Remediation =>
  certificate(
    `${place("certificate", target)} > New Version; one that was imported: Import with the new file.`,
    lines(
      withPolicy(target, undefined, "create"),
      `# Imported, or of an authority that is not integrated: ${az("keyvault certificate import", { ...options(target), file: "<certificate with its key>" })}`,
    ),
  );

export const shorterCertificate = (target: Target): Remediation =>
  certificate(
    `${place("certificate", target)} > Issuance policy: validity period ${MAX_CERTIFICATE_MONTHS} months or less; then New Version.`,
    withPolicy(target, `.x509CertificateProperties.validityInMonths=${MAX_CERTIFICATE_MONTHS}`, "create"),
  );

/** For a weak certificate key: a new version with an approved key of the same family. */
export const strongerCertificate = (target: Target): Remediation =>
  isEllipticCurve(target.facts.keyType)
    ? certificate(
        `${place("certificate", target)} > Issuance policy > Advanced: EC with P-256; then New Version.`,
        withPolicy(target, '.keyProperties.curve="P-256"', "create"),
      )
    : certificate(
        `${place("certificate", target)} > Issuance policy > Advanced: RSA with 3072 bits; then New Version.`,
        withPolicy(target, ".keyProperties.keySize=3072", "create"),
      );

export const renewItself = (target: Target): Remediation =>
  certificate(
    `${place("certificate", target)} > Issuance policy > Lifetime action type: automatically renew. Certificates of authorities that are not integrated with Key Vault can't be renewed automatically.`,
    withPolicy(
      target,
      '.lifetimeActions=[{"action":{"actionType":"AutoRenew"},"trigger":{"lifetimePercentage":80}}]',
      "set-attributes",
    ),
  );

export const integratedIssuer = (target: Target): Remediation =>
  certificate(
    `Key vault ${inText(target.vault)} > Certificates > Certificate Authorities: add one; then ${inText(target.name)} > Issuance policy: issue by it, and New Version.`,
    lines(
      az("keyvault certificate issuer create", {
        "vault-name": target.vault,
        "issuer-name": "digicert",
        "provider-name": "DigiCert",
        "account-id": "<account>",
        password: "<API key>",
      }),
      withPolicy(target, '.issuerParameters.name="digicert"', "create"),
    ),
  );
