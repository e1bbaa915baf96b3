/**
 * Checks of expiration dates: missing, expired, and near. Each kind of asset has its own checks with their own codes and
 * remediations.
 */
import type { AssetSource, AssetType } from "../../inventory/asset.ts";
import { RENEWER_NAMES, type RenewalPlan, renewalInstantsOf } from "../../inventory/renewal.ts";
import { DAY_SECONDS } from "../../platform/time.ts";
import {
  type AssetCheck,
  assetCheck,
  type Context,
  dateText,
  type Evaluation,
  fail,
  notApplicable,
  pass,
} from "../check.ts";
import { renewCertificate, replaceOrDisable, replaceVersion, setExpiry } from "../remedies/key-vault.ts";
import type { Remediation, Target } from "../remedies/remediation.ts";

/** A kind of asset for which expiry checks are created. */
export interface ExpiringKind {
  /** Prefix of the checks' ids. */
  id: string;
  /** Noun for texts, such as `client secret`. */
  noun: string;
  type: AssetType;
  source?: AssetSource;
  /** Remediation of an asset that expires soon. */
  renew(target: Target): Remediation;
  /** Remediation of an asset that has expired. */
  retire(target: Target): Remediation;
}

/**
 * Creates a check for a missing expiration date, for vaults with one access model. CIS has one control for vaults with
 * role-based access control and another for vaults with access policies.
 */
const expirySetCheck = (type: "secret" | "key", model: "rbac" | "access-policy", code: number): AssetCheck =>
  assetCheck({
    id: `${type}-expiry-set-${model}`,
    code,
    title: `${type === "key" ? "Key" : "Secret"} in ${model === "rbac" ? "an RBAC" : "an access-policy"} vault has an expiration date`,
    failureTitle: `${type === "key" ? "Key" : "Secret"} has no expiration date`,
    severity: "high",
    resourceType: type,
    onlyFor: `in a vault with ${model === "rbac" ? "role-based access control" : "access policies"}`,
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
        : pass(`It expires on ${dateText(asset.expiresOn)}.`);
    },
  });

/** Creates a check that fails if an asset has expired. */
export const expiredCheck = ({ id, noun, type, source, retire }: ExpiringKind, code: number): AssetCheck =>
  assetCheck({
    id: `${id}-expired`,
    code,
    title: `Enabled ${noun} has not expired`,
    failureTitle: `Expired ${noun} is still enabled`,
    severity: "critical",
    resourceType: type,
    ...(source && { source }),
    timed: "expiry",
    onlyFor: "with an expiration date",
    // Credentials of applications and B2C tenants can only be deleted, not disabled.
    rationale: `Applications that use an expired ${noun} fail. If none does, ${source ? "delete" : "disable"} it.`,
    remedy: retire,
    evaluate: ({ asset }, { now }) => {
      if (asset.expiresOn === undefined) return notApplicable("It has no expiration date.");
      const evidence = `Its expiration date is ${dateText(asset.expiresOn)}.`;
      // At the exact time of its expiry the asset is still valid, so the result has changed one second later.
      return asset.expiresOn * 1000 < now ? fail(evidence) : pass(evidence, asset.expiresOn + 1);
    },
  });

/**
 * Creates a check that fails if an asset expires within a threshold of the policy. An asset fails one check at most: expired
 * assets fail only the check for expired ones, and assets within the critical threshold fail only the critical check.
 */
export const nearExpiryCheck = (
  { id, noun, type, source, renew }: ExpiringKind,
  threshold: "critical" | "warning",
  code: number,
): AssetCheck =>
  assetCheck({
    id: `${id}-near-expiry-${threshold}`,
    code,
    title: `${capitalized(noun)} does not expire within the ${threshold} threshold`,
    failureTitle: (evidence) =>
      evidence.endsWith(NOT_RENEWED)
        ? `${capitalized(noun)} was not renewed in time`
        : `${capitalized(noun)} expires within ${daysInEvidence(evidence) ?? `the ${threshold} threshold`}`,
    severity: threshold === "critical" ? "high" : "medium",
    resourceType: type,
    ...(source && { source }),
    timed: "expiry",
    onlyFor: `with an expiration date that has not passed${threshold === "warning" ? ", outside the critical threshold" : ""}`,
    rationale: `Replacing ${/^[aeiou]/.test(noun) ? "an" : "a"} ${noun} takes time: all consumers must be found and updated before it expires.`,
    remedy: renew,
    successors: [...(threshold === "warning" ? [`${id}-near-expiry-critical`] : []), `${id}-expired`],
    evaluate: ({ asset }, context) =>
      asset.renewal && asset.expiresOn !== undefined
        ? evaluateRenewal(asset.expiresOn, asset.renewal, threshold, context)
        : evaluateThreshold(asset.expiresOn, threshold, context),
  });

/** End of the evidence of a late renewal. The title of the violation is derived from the stored evidence. */
export const NOT_RENEWED = " and did not.";

/**
 * Evaluates a certificate with a renewal plan. It fails only after its window has passed. If no window is known, it fails in the
 * last third (warning) or sixth (critical) of its lifetime at the earliest.
 */
function evaluateRenewal(
  expiresOn: number,
  plan: RenewalPlan,
  threshold: "critical" | "warning",
  context: Context,
): Evaluation {
  if (expiresOn * 1000 < context.now) return notApplicable("It has expired.");
  const planned = { expiresOn, attentionAt: plan.attentionAt, hasWindow: plan.windowEnd !== undefined };
  const { warningAt, criticalAt } = renewalInstantsOf(planned, context);
  if (threshold === "warning" && context.now >= criticalAt * 1000)
    return notApplicable("It is within the critical threshold.");
  const from = threshold === "critical" ? criticalAt : warningAt;
  const renewer = RENEWER_NAMES[plan.renewedBy].subject;
  if (context.now < from * 1000) return pass(`It expires on ${dateText(expiresOn)}. ${renewer} renews it.`, from);
  const evidence =
    plan.windowEnd === undefined
      ? `It expires on ${dateText(expiresOn)}. ${renewer} has not renewed it yet.`
      : `It expires on ${dateText(expiresOn)}. ${renewer} had to renew it by ${dateText(plan.windowEnd)}${NOT_RENEWED}`;
  return fail(evidence, threshold === "critical" ? expiresOn + 1 : criticalAt);
}

const capitalized = (text: string): string => `${text.charAt(0).toUpperCase()}${text.slice(1)}`;

/**
 * Returns the threshold that an evidence text contains, such as "7 days". So the title of a stored violation states the
 * threshold of its evaluation, which may differ from the current one.
 */
const daysInEvidence = (evidence: string): string | undefined => /\d+ days(?=\.$)/.exec(evidence)?.[0];

function evaluateThreshold(
  expiresOn: number | undefined,
  threshold: "critical" | "warning",
  context: Context,
): Evaluation {
  if (expiresOn === undefined) return notApplicable("It has no expiration date.");
  const remainingMs = expiresOn * 1000 - context.now;
  if (remainingMs < 0) return notApplicable("It has expired.");
  const instantBeforeExpiry = (days: number) => expiresOn - days * DAY_SECONDS;
  const criticalFrom = instantBeforeExpiry(context.criticalDays);
  if (threshold === "warning" && context.now >= criticalFrom * 1000)
    return notApplicable("It expires within the critical threshold.");
  const days = threshold === "critical" ? context.criticalDays : context.warningDays;
  const evidence = `It expires on ${dateText(expiresOn)}; the compliance policy asks for more than ${days} days.`;
  return remainingMs <= days * DAY_SECONDS * 1000
    ? fail(evidence, threshold === "critical" ? expiresOn + 1 : criticalFrom)
    : pass(evidence, instantBeforeExpiry(days));
}

const kindInVault = (type: AssetType): ExpiringKind => {
  const renew = type === "certificate" ? renewCertificate : replaceVersion(type);
  return { id: type, noun: type, type, renew, retire: replaceOrDisable(type) };
};
const [secret, key, certificate] = [kindInVault("secret"), kindInVault("key"), kindInVault("certificate")];

/** The numbers are the codes of the checks in stored rows. They must never change. */
export const expiryChecks: AssetCheck[] = [
  expirySetCheck("secret", "rbac", 11),
  expirySetCheck("secret", "access-policy", 12),
  expiredCheck(secret, 13),
  nearExpiryCheck(secret, "warning", 14),
  nearExpiryCheck(secret, "critical", 15),
  expirySetCheck("key", "rbac", 21),
  expirySetCheck("key", "access-policy", 22),
  expiredCheck(key, 23),
  nearExpiryCheck(key, "warning", 24),
  nearExpiryCheck(key, "critical", 25),
  expiredCheck(certificate, 41),
  nearExpiryCheck(certificate, "warning", 42),
  nearExpiryCheck(certificate, "critical", 43),
];
