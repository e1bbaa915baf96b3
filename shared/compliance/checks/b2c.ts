import type { AssetCheck } from "../check.ts";
import { assetCheck, notApplicable } from "../check.ts";
import { MAX_APPLICATION_CERTIFICATE_DAYS, MAX_CLIENT_SECRET_DAYS } from "../limits.ts";
import { ofB2c, renew, retire } from "../remedies/applications.ts";
import { validFor } from "./applications.ts";
import { type Expiring, expired, nearExpiry } from "./expiry.ts";

/** Checks of credentials in B2C tenants: application credentials and key sets of custom policies. Most keys of key sets have no expiry,
 * and the expiry of an identity provider's secret can't be read. Neither fails a check.
 */

function kindOf(type: "secret" | "certificate" | "key"): Expiring {
  const application = type === "key" ? "secret" : type;
  return {
    id: `b2c-${type}`,
    noun: `${type} of a B2C tenant`,
    type,
    source: "b2c",
    renew: ofB2c(type, renew(application)),
    retire: ofB2c(type, retire(application)),
  };
}
const [secret, certificate, key] = [kindOf("secret"), kindOf("certificate"), kindOf("key")];

const validity = (of: Expiring, type: "secret" | "certificate", days: number, code: number): AssetCheck =>
  assetCheck({
    // The id sorts next to the check of the service's own tenant, because a framework's checks are read as ranges.
    id: `${type === "secret" ? "client-secret" : "application-certificate"}-validity-period-b2c`,
    code,
    title: `${type === "secret" ? "Client secret" : "Application certificate"} in a B2C tenant is valid for at most ${days} days`,
    failureTitle: `${type === "secret" ? "Client secret" : "Application certificate"} in a B2C tenant is valid for more than ${days} days`,
    severity: "medium",
    resourceType: type,
    source: "b2c",
    rationale: "The longer a credential is valid, the longer a leaked credential can be used.",
    remedy: of.renew,
    evaluate: ({ asset }) =>
      asset.credential?.of === "application"
        ? validFor(asset, days)
        : notApplicable("It does not belong to an application."),
  });

export const b2cChecks: AssetCheck[] = [
  expired(secret, 80),
  nearExpiry(secret, "warning", 81),
  nearExpiry(secret, "critical", 82),
  validity(secret, "secret", MAX_CLIENT_SECRET_DAYS, 83),
  expired(certificate, 84),
  nearExpiry(certificate, "warning", 85),
  nearExpiry(certificate, "critical", 86),
  validity(certificate, "certificate", MAX_APPLICATION_CERTIFICATE_DAYS, 87),
  expired(key, 88),
  nearExpiry(key, "warning", 89),
  nearExpiry(key, "critical", 90),
];
