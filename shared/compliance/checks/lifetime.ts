import { DAY_SECONDS } from "../../platform/time.ts";
import { type AssetCheck, assetCheck, fail, instantText, notApplicable, pass } from "../check.ts";
import { MAX_ACTIVE_DAYS, MAX_CERTIFICATE_MONTHS, MAX_VALIDITY_DAYS } from "../limits.ts";
import { replace, shorten, shorterCertificate } from "../remedies/key-vault.ts";

const name = { secret: "Secret", key: "Key" };

const validity = (type: "secret" | "key", code: number): AssetCheck =>
  assetCheck({
    id: `${type}-validity-period`,
    code,
    title: `${name[type]} is valid for at most ${MAX_VALIDITY_DAYS} days`,
    failureTitle: `${name[type]} is valid for more than ${MAX_VALIDITY_DAYS} days`,
    severity: "medium",
    resourceType: type,
    rationale: `The longer a ${type} is valid, the longer a leaked ${type} can be used.`,
    remedy: shorten(type),
    evaluate: ({ asset: { expiresOn, notBefore, createdOn } }) => {
      const from = notBefore ?? createdOn;
      if (expiresOn === undefined) return notApplicable("It has no expiration date.");
      if (from === undefined) return notApplicable("It has neither an activation nor a creation date.");
      const evidence = `It is valid from ${instantText(from)} to ${instantText(expiresOn)}.`;
      return expiresOn - from > MAX_VALIDITY_DAYS * DAY_SECONDS ? fail(evidence) : pass(evidence);
    },
  });

/** Counts from activation or else from creation, like Azure Policy e8d99835-8a06-45ae-a8e0-87a91941ccfe. */
const active = (type: "secret" | "key", code: number): AssetCheck =>
  assetCheck({
    id: `${type}-active-period`,
    code,
    title: `${name[type]} is active for at most ${MAX_ACTIVE_DAYS} days`,
    failureTitle: `${name[type]} has been active for more than ${MAX_ACTIVE_DAYS} days`,
    severity: "medium",
    resourceType: type,
    timed: "age",
    rationale: `A ${type} that was not replaced for years has been exposed to many people and systems.`,
    remedy: replace(type),
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
  failureTitle: `Certificate is valid for more than ${MAX_CERTIFICATE_MONTHS} months`,
  severity: "medium",
  resourceType: "certificate",
  rationale: "Short-lived certificates limit the damage of a stolen private key and ensure that renewal works.",
  remedy: shorterCertificate,
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
