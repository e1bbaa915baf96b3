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
} from "../check.ts";
import { newCertificate, replace, retire, setExpiry } from "../remedies/key-vault.ts";
import type { Remediation, Target } from "../remedies/remediation.ts";

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
  renew(target: Target): Remediation;
  retire(target: Target): Remediation;
}

/** CIS has one control for vaults with role-based access control and another for those with access policies. */
const expirySet = (type: "secret" | "key", model: "rbac" | "access-policy", code: number): AssetCheck =>
  assetCheck({
    id: `${type}-expiry-set-${model}`,
    code,
    title: `${type === "key" ? "Key" : "Secret"} in ${model === "rbac" ? "an RBAC" : "an access-policy"} vault has an expiration date`,
    severity: "high",
    resourceType: type,
    rationale: `A ${type} that never expires is never replaced: whoever once got hold of it has it for good.`,
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
    severity: "critical",
    resourceType: type,
    ...(source && { source }),
    timed: "expiry",
    rationale: `What still relies on an expired ${noun} fails or soon will; what does not should not find it enabled.`,
    remedy: retire,
    evaluate: ({ asset }, { now }) => {
      if (asset.expiresOn === undefined) return notApplicable("It has no expiration date.");
      const evidence = `Its expiration date is ${instantText(asset.expiresOn)}.`;
      return asset.expiresOn * 1000 < now ? fail(evidence) : pass(evidence, asset.expiresOn + 1);
    },
  });

/**
 * Whether more than the policy's days are left. One finding is one violation: what has expired is `expired`'s alone, and what
 * has passed the critical line the critical check's.
 */
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
    remedy: renew,
    successors: [...(line === "warning" ? [`${id}-near-expiry-critical`] : []), `${id}-expired`],
    evaluate: ({ asset }, context) => beforeLine(asset.expiresOn, line, context),
  });

function beforeLine(expiresOn: number | undefined, line: "critical" | "warning", context: Context): Evaluation {
  if (expiresOn === undefined) return notApplicable("It has no expiration date.");
  const left = expiresOn * 1000 - context.now;
  if (left < 0) return notApplicable("It has expired.");
  const lineAt = (days: number) => expiresOn - days * DAY_SECONDS;
  const critical = lineAt(context.criticalDays);
  if (line === "warning" && context.now >= critical * 1000) return notApplicable("It is past the critical line.");
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
