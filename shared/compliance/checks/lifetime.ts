/** Checks of how long secrets, keys and certificates are valid or in use. */
import type { AssetRecord } from "../../inventory/asset.ts";
import { DAY_SECONDS, SECOND_MS } from "../../platform/time.ts";
import { type AssetCheck, assetCheck, dateText, type Evaluation, fail, notApplicable, pass } from "../check.ts";
import { MAX_ACTIVE_DAYS, MAX_CERTIFICATE_MONTHS, MAX_VALIDITY_DAYS, publicLimitAt } from "../limits.ts";
import { isPubliclyTrusted, validityDays, validityOf } from "../public-certificates.ts";
import { replaceVersion, shortenCertificate, shortenValidity } from "../remedies/key-vault.ts";

const NOUN = { secret: "Secret", key: "Key" };

const validityCheck = (type: "secret" | "key", code: number): AssetCheck =>
  assetCheck({
    id: `${type}-validity-period`,
    code,
    title: `${NOUN[type]} is valid for at most ${MAX_VALIDITY_DAYS} days`,
    failureTitle: `${NOUN[type]} is valid for more than ${MAX_VALIDITY_DAYS} days`,
    severity: "medium",
    resourceType: type,
    onlyFor: "with an expiration date, and an activation or creation date",
    rationale: `The longer a ${type} is valid, the longer a leaked ${type} can be used.`,
    remedy: shortenValidity(type),
    evaluate: ({ asset: { expiresOn, notBefore, createdOn } }) => {
      const from = notBefore ?? createdOn;
      if (expiresOn === undefined) return notApplicable("It has no expiration date.");
      if (from === undefined) return notApplicable("It has neither an activation nor a creation date.");
      const evidence = `It is valid from ${dateText(from)} to ${dateText(expiresOn)}.`;
      return expiresOn - from > MAX_VALIDITY_DAYS * DAY_SECONDS ? fail(evidence) : pass(evidence);
    },
  });

/**
 * Creates a check of the time since activation, or else since creation, like Azure Policy e8d99835-8a06-45ae-a8e0-87a91941ccfe.
 */
const activePeriodCheck = (type: "secret" | "key", code: number): AssetCheck =>
  assetCheck({
    id: `${type}-active-period`,
    code,
    title: `${NOUN[type]} is active for at most ${MAX_ACTIVE_DAYS} days`,
    failureTitle: `${NOUN[type]} has been active for more than ${MAX_ACTIVE_DAYS} days`,
    severity: "medium",
    resourceType: type,
    timed: "age",
    onlyFor: "with an activation or creation date",
    rationale: `A ${type} that was not replaced for years has been exposed to many people and systems.`,
    remedy: replaceVersion(type),
    evaluate: ({ asset: { notBefore, createdOn } }, { now }) => {
      const since = notBefore ?? createdOn;
      if (since === undefined) return notApplicable("It has neither an activation nor a creation date.");
      const evidence = `It has been active since ${dateText(since)}.`;
      const end = since + MAX_ACTIVE_DAYS * DAY_SECONDS;
      return now > end * 1000 ? fail(evidence) : pass(evidence, end + 1);
    },
  });

const certificateValidity = assetCheck({
  id: "certificate-validity-period",
  code: 44,
  title: `Certificate is valid for at most ${MAX_CERTIFICATE_MONTHS} months, or, if publicly trusted, for the days allowed on its first day`,
  failureTitle: "Certificate is valid for longer than allowed",
  severity: "medium",
  resourceType: "certificate",
  onlyFor: "of which is known whether they are publicly trusted, with a validity",
  rationale: "Short-lived certificates limit the damage of a stolen private key and ensure that renewal works.",
  remedy: shortenCertificate,
  evaluate: ({ asset }) => {
    const isPublic = isPubliclyTrusted(asset);
    if (isPublic) return evaluatePublicValidity(asset);
    const { validityMonths } = asset;
    if (validityMonths === undefined) return notApplicable("Its validity period could not be read.");
    if (isPublic === undefined)
      return notApplicable("It is unknown whether it is publicly trusted until a scan reads its details again.");
    const evidence = `It is valid for ${validityMonths} months.`;
    return validityMonths > MAX_CERTIFICATE_MONTHS ? fail(evidence) : pass(evidence);
  },
});

/** Compares the issued validity, because an authority can issue fewer days than the policy orders. */
function evaluatePublicValidity(asset: AssetRecord): Evaluation {
  const validity = validityOf(asset);
  if (!validity) return notApplicable("Its validity period could not be read.");
  const days = validityDays(validity);
  const limit = publicLimitAt(validity.from * SECOND_MS);
  const evidence = `It is publicly trusted and valid for ${Math.ceil(days)} days from ${dateText(validity.from)}; authorities may issue ${limit.days} days since ${limit.from}.`;
  return days > limit.days ? fail(evidence) : pass(evidence);
}

/** The numbers are the codes of the checks in stored rows. They must never change. */
export const lifetimeChecks: AssetCheck[] = [
  validityCheck("secret", 16),
  activePeriodCheck("secret", 17),
  validityCheck("key", 26),
  activePeriodCheck("key", 27),
  certificateValidity,
];
