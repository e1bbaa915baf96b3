import type { AssetRecord, AssetType } from "../../inventory/asset.ts";
import { DAY_SECONDS } from "../../time.ts";
import { type AssetCheck, assetCheck, type Evaluation, fail, instantText, notApplicable, pass } from "../check.ts";
import { MAX_APPLICATION_CERTIFICATE_DAYS, MAX_CLIENT_SECRET_DAYS } from "../limits.ts";
import { nameOwner, remove, renew, retire } from "../remedies/applications.ts";
import { type Expiring, expired, nearExpiry } from "./expiry.ts";

/** Checks of the credentials that applications of Entra sign in with. */

const clientSecret: Expiring = {
  id: "client-secret",
  noun: "client secret",
  type: "secret",
  source: "entra",
  renew: renew("secret"),
  retire: retire("secret"),
};

const certificate: Expiring = {
  id: "application-certificate",
  noun: "application certificate",
  type: "certificate",
  source: "entra",
  renew: renew("certificate"),
  retire: retire("certificate"),
};

const ofEntra = (
  type: AssetType,
  check: Pick<AssetCheck, "id" | "code" | "title" | "severity" | "rationale" | "remedy" | "timed" | "evaluate">,
): AssetCheck => assetCheck({ resourceType: type, source: "entra", ...check });

/** Whether it is valid for no longer than so many days. */
export function validFor({ notBefore, expiresOn }: AssetRecord, maxDays: number): Evaluation {
  if (expiresOn === undefined) return fail("It never expires.");
  if (notBefore === undefined) return notApplicable("Since when it is valid is not known.");
  const evidence = `It is valid from ${instantText(notBefore)} to ${instantText(expiresOn)}.`;
  return expiresOn - notBefore > maxDays * DAY_SECONDS ? fail(evidence) : pass(evidence);
}

/** Whether the moment of an expiry, null for none, is not over. */
const lives = (until: number | null, now: number): boolean => until === null || until * 1000 >= now;

const HAS_EXPIRED = notApplicable("It has expired.");

/** Of secrets that live at once, the one that lasts longest passes: the others are what is to be removed. */
const single = ofEntra("secret", {
  id: "client-secret-alone",
  code: 64,
  title: "Application has no client secret that lasts longer than this one",
  severity: "medium",
  timed: "expiry",
  rationale:
    "Each live secret is a way in. One that was left after its successor was made is watched by nobody and missed by nobody.",
  remedy: remove("Make sure that everything uses the newer one."),
  evaluate: ({ asset: { expiresOn, credential } }, { now }) => {
    if (!credential) return notApplicable("Nothing is known of its application.");
    const own = expiresOn ?? null;
    if (!lives(own, now)) return HAS_EXPIRED;
    const at = credential.secretsUntil.indexOf(own);
    const longer = credential.secretsUntil
      .filter((_, place) => place !== at)
      .filter((until) => until === null || (own !== null && until >= own));
    // As long as this one lives those do, too.
    const changesAt = own === null ? undefined : own + 1;
    return longer.length > 0
      ? fail(
          `The application has ${longer.length} more that ${longer.length === 1 ? "lasts" : "last"} as long.`,
          changesAt,
        )
      : pass("The application has none that lasts as long.", changesAt);
  },
});

const besideCertificate = ofEntra("secret", {
  id: "client-secret-beside-certificate",
  code: 65,
  title: "Application with a certificate has no client secret",
  severity: "medium",
  timed: "age",
  rationale:
    "A secret is sent with every sign-in and can be copied from wherever it is kept; a certificate's private key never leaves its place. Who has one needs no secret.",
  remedy: remove("Have the application sign in with its certificate."),
  evaluate: ({ asset: { expiresOn, credential } }, { now }) => {
    if (!credential?.certificatesUntil) return notApplicable("The application's certificates are not known.");
    const own = expiresOn ?? null;
    if (!lives(own, now)) return HAS_EXPIRED;
    const last = (of: readonly (number | null)[]) => (of.includes(null) ? null : Math.max(...(of as number[])));
    const live = credential.certificatesUntil.filter((until) => lives(until, now));
    const ends = [own, ...(live.length > 0 ? [last(live)] : [])].filter((end) => end !== null);
    const changesAt = ends.length > 0 ? Math.min(...ends) + 1 : undefined;
    return live.length > 0
      ? fail("The application has a certificate to sign in with.", changesAt)
      : pass("The application has no valid certificate.", changesAt);
  },
});

const besideFederation = ofEntra("secret", {
  id: "client-secret-beside-federation",
  code: 66,
  title: "Application with a federated credential has no client secret",
  severity: "medium",
  rationale:
    "What runs where another issuer vouches for it signs in with that issuer's short-lived tokens: there is nothing to keep, to leak or to rotate.",
  remedy: remove(
    "Have the application sign in with its federated credential, with one for each place that it runs in.",
  ),
  evaluate: ({ asset: { credential } }) => {
    if (credential?.federated === undefined) {
      return notApplicable("Whether the application has federated credentials has not been read.");
    }
    return credential.federated
      ? fail("The application has a federated credential.")
      : pass("The application has no federated credential.");
  },
});

const owned = (type: "secret" | "certificate", code: number): AssetCheck =>
  ofEntra(type, {
    id: type === "secret" ? "client-secret-owner" : "application-certificate-owner",
    code,
    title: `Application with a ${type === "secret" ? "client secret" : "certificate"} has an owner`,
    severity: "medium",
    rationale: "Nobody answers for an application without an owner: nobody hears that its credentials end or leak.",
    remedy: nameOwner,
    evaluate: ({ asset: { credential } }) => {
      if (!credential?.owners) return notApplicable("The application's owners are not known.");
      const { owners } = credential;
      return owners.length > 0
        ? pass(`The application is owned by ${owners.join(", ").slice(0, 500)}.`)
        : fail("No person owns the application.");
    },
  });

const secretValidity = ofEntra("secret", {
  id: "client-secret-validity-period",
  code: 63,
  title: `Client secret is valid for at most ${MAX_CLIENT_SECRET_DAYS} days`,
  severity: "medium",
  rationale: "The longer a secret is valid, the longer one that leaked without anybody noticing can be used.",
  remedy: clientSecret.renew,
  evaluate: ({ asset }) => validFor(asset, MAX_CLIENT_SECRET_DAYS),
});

const certificateValidity = ofEntra("certificate", {
  id: "application-certificate-validity-period",
  code: 73,
  title: `Application certificate is valid for at most ${MAX_APPLICATION_CERTIFICATE_DAYS} days`,
  severity: "medium",
  rationale: "Short-lived certificates limit what a stolen private key is worth and keep renewal in practice.",
  remedy: certificate.renew,
  evaluate: ({ asset }) => validFor(asset, MAX_APPLICATION_CERTIFICATE_DAYS),
});

export const applicationChecks: AssetCheck[] = [
  expired(clientSecret, 60),
  nearExpiry(clientSecret, "warning", 61),
  nearExpiry(clientSecret, "critical", 62),
  secretValidity,
  single,
  besideCertificate,
  besideFederation,
  owned("secret", 67),
  expired(certificate, 70),
  nearExpiry(certificate, "warning", 71),
  nearExpiry(certificate, "critical", 72),
  certificateValidity,
  owned("certificate", 74),
];
