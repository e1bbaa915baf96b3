import type { AssetSource, AssetType } from "../../inventory/asset.ts";
import { DAY_SECONDS } from "../../platform/time.ts";
import {
  type AssetCheck,
  assetCheck,
  type Context,
  type Evaluation,
  fail,
  instantText,
  notApplicable,
  pass,
} from "../check.ts";
import { newCertificate, replace, retire, setExpiry } from "../remedies/key-vault.ts";
import type { Remediation, Target } from "../remedies/remediation.ts";

/** Checks of expiration dates, for several types of assets with their own codes and remediations. */

/** The kind of asset that expiry checks are created for. */
export interface Expiring {
  /** Prefix of the checks' ids. */
  id: string;
  /** Noun for texts, such as `client secret`. */
  noun: string;
  type: AssetType;
  source?: AssetSource;
  /** Remediations of an asset that expires soon, and of one that has expired. */
  renew(target: Target): Remediation;
  retire(target: Target): Remediation;
}

/** CIS has one control for vaults with role-based access control and another for those with access policies. */
const expirySet = (type: "secret" | "key", model: "rbac" | "access-policy", code: number): AssetCheck =>
  assetCheck({
    id: `${type}-expiry-set-${model}`,
    code,
    title: `${type === "key" ? "Key" : "Secret"} in ${model === "rbac" ? "an RBAC" : "an access-policy"} vault has an expiration date`,
    failureTitle: `${type === "key" ? "Key" : "Secret"} has no expiration date`,
    severity: "high",
    resourceType: type,
    rationale: `A ${type} without an expiration date may never be replaced, so a leaked one can be used forever.`,
    remedy: setExpiry(type),
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
    failureTitle: `Expired ${noun} is still enabled`,
    severity: "critical",
    resourceType: type,
    ...(source && { source }),
    timed: "expiry",
    rationale: `Applications that use an expired ${noun} fail. If none does, disable it.`,
    remedy: retire,
    evaluate: ({ asset }, { now }) => {
      if (asset.expiresOn === undefined) return notApplicable("It has no expiration date.");
      const evidence = `Its expiration date is ${instantText(asset.expiresOn)}.`;
      return asset.expiresOn * 1000 < now ? fail(evidence) : pass(evidence, asset.expiresOn + 1);
    },
  });

/** Creates a check that fails if an asset expires within a threshold. One finding is one violation: expired assets fail only `expired`,
 * and assets within the critical threshold fail only the critical check.
 */
export const nearExpiry = (
  { id, noun, type, source, renew }: Expiring,
  line: "critical" | "warning",
  code: number,
): AssetCheck =>
  assetCheck({
    id: `${id}-near-expiry-${line}`,
    code,
    title: `${capitalized(noun)} does not expire within the ${line} threshold`,
    failureTitle: (evidence) => `${capitalized(noun)} expires within ${daysIn(evidence) ?? `the ${line} threshold`}`,
    severity: line === "critical" ? "high" : "medium",
    resourceType: type,
    ...(source && { source }),
    timed: "expiry",
    rationale: `Replacing a ${noun} takes time: all consumers must be found and updated before it expires.`,
    remedy: renew,
    successors: [...(line === "warning" ? [`${id}-near-expiry-critical`] : []), `${id}-expired`],
    evaluate: ({ asset }, context) => beforeLine(asset.expiresOn, line, context),
  });

const capitalized = (text: string): string => `${text.charAt(0).toUpperCase()}${text.slice(1)}`;

/** Returns the threshold that an evidence text contains, such as "7 days". */
const daysIn = (evidence: string): string | undefined => /\d+ days(?=\.$)/.exec(evidence)?.[0];

function beforeLine(expiresOn: number | undefined, line: "critical" | "warning", context: Context): Evaluation {
  if (expiresOn === undefined) return notApplicable("It has no expiration date.");
  const left = expiresOn * 1000 - context.now;
  if (left < 0) return notApplicable("It has expired.");
  const lineAt = (days: number) => expiresOn - days * DAY_SECONDS;
  const critical = lineAt(context.criticalDays);
  if (line === "warning" && context.now >= critical * 1000)
    return notApplicable("It expires within the critical threshold.");
  const days = line === "critical" ? context.criticalDays : context.warningDays;
  const evidence = `It expires on ${instantText(expiresOn)}; the compliance policy asks for more than ${days} days.`;
  return left <= days * DAY_SECONDS * 1000
    ? fail(evidence, line === "critical" ? expiresOn + 1 : critical)
    : pass(evidence, lineAt(days));
}

const inVault = (type: AssetType): Expiring => {
  const renew = type === "certificate" ? newCertificate : replace(type);
  return { id: type, noun: type, type, renew, retire: retire(type) };
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
