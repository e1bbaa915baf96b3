import type { AssetCheck } from "../check.ts";
import { assetCheck, notApplicable } from "../check.ts";
import { MAX_APPLICATION_CERTIFICATE_DAYS, MAX_CLIENT_SECRET_DAYS } from "../limits.ts";
import { ofB2c, renew, retire } from "../remedies/applications.ts";
import { validFor } from "./applications.ts";
import { type Expiring, expired, nearExpiry } from "./expiry.ts";

/**
 * Checks of the credentials of B2C tenants: of applications, and of custom policies' key sets. A key of a key set that says
 * nothing of its end has none, as most have; when an identity provider's secret ends nobody can read. Neither fails anything.
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
    // Beside those of the service's own tenant: a framework's checks are read in stretches.
    id: `${type === "secret" ? "client-secret" : "application-certificate"}-validity-period-b2c`,
    code,
    title: `${type === "secret" ? "Client secret" : "Application certificate"} in a B2C tenant is valid for at most ${days} days`,
    severity: "medium",
    resourceType: type,
    source: "b2c",
    rationale: "The longer a credential is valid, the longer one that leaked without anybody noticing can be used.",
    remedy: of.renew,
    evaluate: ({ asset }) =>
      asset.credential?.of === "application" ? validFor(asset, days) : notApplicable("It is no application's."),
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
