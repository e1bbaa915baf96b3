import type { AssetSource, AssetType } from "../../inventory/asset.ts";
import { DAY_SECONDS } from "../../time.ts";
import {
  type AssetCheck,
  assetCheck,
  type Context,
  type Evaluation,
  fail,
  instantText,
  notApplicable,
  pass,
  type Remediation,
} from "../check.ts";

/** Checks of when an asset expires. They hold for several types, each with codes and remedies of its own. */

/** What the checks of expiry are about. */
export interface Expiring {
  /** What the checks' ids begin with. */
  id: string;
  /** In a sentence, such as `client secret`. */
  noun: string;
  type: AssetType;
  source?: AssetSource;
  /** How to replace one that is near its expiry, and what to do about one that has expired. */
  renew: Remediation;
  retire: Remediation;
}

const setExpiry: Record<"secret" | "key", Remediation> = {
  secret: {
    portal: "Key vault {vault} > Secrets > {name} > current version > Set expiration date.",
    cli: "az keyvault secret set-attributes --vault-name {vault} --name {name} --expires <yyyy-mm-ddThh:mm:ssZ>",
    bicep:
      "resource secret 'Microsoft.KeyVault/vaults/secrets@2024-11-01' = {\n  parent: vault\n  name: '{name}'\n  properties: { value: value, attributes: { exp: dateTimeToEpoch(expiresOn) } }\n}",
  },
  key: {
    portal: "Key vault {vault} > Keys > {name} > current version > Set expiration date.",
    cli: "az keyvault key set-attributes --vault-name {vault} --name {name} --expires <yyyy-mm-ddThh:mm:ssZ>",
    bicep:
      "resource key 'Microsoft.KeyVault/vaults/keys@2024-11-01' = {\n  parent: vault\n  name: '{name}'\n  properties: { kty: 'RSA', keySize: 3072, attributes: { exp: dateTimeToEpoch(expiresOn) } }\n}",
  },
};

const renew: Record<AssetType, Remediation> = {
  secret: {
    portal: "Key vault {vault} > Secrets > {name} > New version, with a new value and expiration date.",
    cli: "az keyvault secret set --vault-name {vault} --name {name} --file <file> --expires <yyyy-mm-ddThh:mm:ssZ>",
    bicep: setExpiry.secret.bicep,
  },
  key: {
    portal: "Key vault {vault} > Keys > {name} > Rotate now; then set the new version's expiration date.",
    cli: "az keyvault key rotate --vault-name {vault} --name {name}",
    bicep: setExpiry.key.bicep,
  },
  certificate: {
    portal: "Key vault {vault} > Certificates > {name} > New version.",
    cli: "az keyvault certificate show --vault-name {vault} --name {name} --query policy > policy.json && az keyvault certificate create --vault-name {vault} --name {name} --policy @policy.json",
    bicep: null,
  },
};

const retire: Record<AssetType, Remediation> = {
  secret: {
    ...renew.secret,
    portal: `${renew.secret.portal} If nothing needs it any more, disable it.`,
    cli: "az keyvault secret set-attributes --vault-name {vault} --name {name} --enabled false",
  },
  key: {
    ...renew.key,
    portal: `${renew.key.portal} If nothing needs it any more, disable it.`,
    cli: "az keyvault key set-attributes --vault-name {vault} --name {name} --enabled false",
  },
  certificate: {
    ...renew.certificate,
    portal: `${renew.certificate.portal} If nothing needs it any more, disable it.`,
    cli: "az keyvault certificate set-attributes --vault-name {vault} --name {name} --enabled false",
  },
};

/** CIS has one control for vaults with role-based access control and another for those with access policies. */
const expirySet = (type: "secret" | "key", model: "rbac" | "access-policy", code: number): AssetCheck =>
  assetCheck({
    id: `${type}-expiry-set-${model}`,
    code,
    title: `${type === "key" ? "Key" : "Secret"} in ${model === "rbac" ? "an RBAC" : "an access-policy"} vault has an expiration date`,
    severity: "high",
    resourceType: type,
    rationale: `A ${type} that never expires is never replaced: whoever once got hold of it has it for good.`,
    remediation: setExpiry[type],
    evaluate: ({ asset, vaultUsesRbac }) => {
      if (vaultUsesRbac !== (model === "rbac")) {
        return notApplicable(
          vaultUsesRbac ? "Its vault uses role-based access control." : "Its vault uses access policies.",
        );
      }
      return asset.expiresOn === undefined
        ? fail("It has no expiration date.")
        : pass(`It expires on ${instantText(asset.expiresOn)}.`);
    },
  });

export const expired = ({ id, noun, type, source, retire }: Expiring, code: number): AssetCheck =>
  assetCheck({
    id: `${id}-expired`,
    code,
    title: `Enabled ${noun} has not expired`,
    severity: "critical",
    resourceType: type,
    ...(source && { source }),
    timed: "expiry",
    rationale: `What still relies on an expired ${noun} fails or soon will; what does not should not find it enabled.`,
    remediation: retire,
    evaluate: ({ asset }, { now }) => {
      if (asset.expiresOn === undefined) return notApplicable("It has no expiration date.");
      const evidence = `Its expiration date is ${instantText(asset.expiresOn)}.`;
      return asset.expiresOn * 1000 < now ? fail(evidence) : pass(evidence, asset.expiresOn + 1);
    },
  });

/** Whether more than the policy's days are left. What has expired is `expired`'s alone. */
export const nearExpiry = (
  { id, noun, type, source, renew }: Expiring,
  line: "critical" | "warning",
  code: number,
): AssetCheck =>
  assetCheck({
    id: `${id}-near-expiry-${line}`,
    code,
    title: `${noun[0]!.toUpperCase()}${noun.slice(1)} is more than ${line}ExpiryDays from its expiry`,
    severity: line === "critical" ? "high" : "medium",
    resourceType: type,
    ...(source && { source }),
    timed: "expiry",
    rationale: `Replacing a ${noun} takes time: those who use it must be found, told and moved over before it expires.`,
    remediation: renew,
    evaluate: ({ asset }, context) => beforeLine(asset.expiresOn, line, context),
  });

function beforeLine(expiresOn: number | undefined, line: "critical" | "warning", context: Context): Evaluation {
  if (expiresOn === undefined) return notApplicable("It has no expiration date.");
  const left = expiresOn * 1000 - context.now;
  if (left < 0) return notApplicable("It has expired.");
  const days = line === "critical" ? context.criticalDays : context.warningDays;
  const evidence = `It expires on ${instantText(expiresOn)}; the compliance policy asks for more than ${days} days.`;
  return left <= days * DAY_SECONDS * 1000
    ? fail(evidence, expiresOn + 1)
    : pass(evidence, expiresOn - days * DAY_SECONDS);
}

const inVault = (type: AssetType): Expiring => {
  return { id: type, noun: type, type, renew: renew[type], retire: retire[type] };
};
const [secret, key, certificate] = [inVault("secret"), inVault("key"), inVault("certificate")];

export const expiryChecks: AssetCheck[] = [
  expirySet("secret", "rbac", 11),
  expirySet("secret", "access-policy", 12),
  expired(secret, 13),
  nearExpiry(secret, "warning", 14),
  nearExpiry(secret, "critical", 15),
  expirySet("key", "rbac", 21),
  expirySet("key", "access-policy", 22),
  expired(key, 23),
  nearExpiry(key, "warning", 24),
  nearExpiry(key, "critical", 25),
  expired(certificate, 41),
  nearExpiry(certificate, "warning", 42),
  nearExpiry(certificate, "critical", 43),
];
