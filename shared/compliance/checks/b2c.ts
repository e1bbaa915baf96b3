/**
 * Checks of credentials in Azure AD B2C tenants: application credentials, keys of custom policies, and secrets of identity
 * providers. Most policy keys have no expiry, and the expiry of an identity provider's secret can't be read. Checks don't apply
 * to those.
 */
import type { AssetCheck } from "../check.ts";
import { assetCheck, notApplicable } from "../check.ts";
import { MAX_APPLICATION_CERTIFICATE_DAYS, MAX_CLIENT_SECRET_DAYS } from "../limits.ts";
import { b2cRemedy, renewCredential, retireCredential } from "../remedies/applications.ts";
import { evaluateValidity } from "./applications.ts";
import { type ExpiringKind, expiredCheck, nearExpiryCheck } from "./expiry.ts";

function expiringKind(type: "secret" | "certificate" | "key"): ExpiringKind {
  // Applications have no keys: `b2cRemedy` returns another remediation for a key and ignores this one.
  const application = type === "key" ? "secret" : type;
  return {
    id: `b2c-${type}`,
    noun: `${type} of a B2C tenant`,
    type,
    source: "b2c",
    renew: b2cRemedy(type, renewCredential(application)),
    retire: b2cRemedy(type, retireCredential(application)),
  };
}
const [secret, certificate, key] = [expiringKind("secret"), expiringKind("certificate"), expiringKind("key")];

const validityCheck = (kind: ExpiringKind, type: "secret" | "certificate", days: number, code: number): AssetCheck =>
  assetCheck({
    // This ID sorts next to that of the same check for the service's own tenant. Violations are stored in the order of IDs, so
    // a framework that requires both checks reads one range.
    id: `${type === "secret" ? "client-secret" : "application-certificate"}-validity-period-b2c`,
    code,
    title: `${type === "secret" ? "Client secret" : "Application certificate"} in a B2C tenant is valid for at most ${days} days`,
    failureTitle: `${type === "secret" ? "Client secret" : "Application certificate"} in a B2C tenant is valid for more than ${days} days`,
    severity: "medium",
    resourceType: type,
    source: "b2c",
    onlyFor: "of an application, whose start is known; one without an expiration date fails",
    rationale: "The longer a credential is valid, the longer a leaked credential can be used.",
    remedy: kind.renew,
    evaluate: ({ asset }) =>
      asset.credential?.of === "application"
        ? evaluateValidity(asset, days)
        : notApplicable("It does not belong to an application."),
  });

/** The numbers are the codes of the checks in stored rows. They must never change. */
export const b2cChecks: AssetCheck[] = [
  expiredCheck(secret, 80),
  nearExpiryCheck(secret, "warning", 81),
  nearExpiryCheck(secret, "critical", 82),
  validityCheck(secret, "secret", MAX_CLIENT_SECRET_DAYS, 83),
  expiredCheck(certificate, 84),
  nearExpiryCheck(certificate, "warning", 85),
  nearExpiryCheck(certificate, "critical", 86),
  validityCheck(certificate, "certificate", MAX_APPLICATION_CERTIFICATE_DAYS, 87),
  expiredCheck(key, 88),
  nearExpiryCheck(key, "warning", 89),
  nearExpiryCheck(key, "critical", 90),
];
