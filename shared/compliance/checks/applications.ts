import type { AssetRecord, AssetType } from "../../inventory/asset.ts";
import { DAY_SECONDS } from "../../platform/time.ts";
import { type AssetCheck, assetCheck, type Evaluation, fail, instantText, notApplicable, pass } from "../check.ts";
import { MAX_APPLICATION_CERTIFICATE_DAYS, MAX_CLIENT_SECRET_DAYS } from "../limits.ts";
import { nameOwner, remove, renew, retire } from "../remedies/applications.ts";
import { type Expiring, expired, nearExpiry } from "./expiry.ts";

/** Checks of the credentials of Entra applications. */

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
  check: Pick<
    AssetCheck,
    "id" | "code" | "title" | "failureTitle" | "severity" | "rationale" | "remedy" | "timed" | "evaluate"
  >,
): AssetCheck => assetCheck({ resourceType: type, source: "entra", ...check });

/** Passes if the credential is valid for at most `maxDays`. */
export function validFor({ notBefore, expiresOn }: AssetRecord, maxDays: number): Evaluation {
  if (expiresOn === undefined) return fail("It never expires.");
  if (notBefore === undefined) return notApplicable("The start of its validity is unknown.");
  const evidence = `It is valid from ${instantText(notBefore)} to ${instantText(expiresOn)}.`;
  return expiresOn - notBefore > maxDays * DAY_SECONDS ? fail(evidence) : pass(evidence);
}

/** Returns whether an expiry is in the future. Null means no expiry. */
const lives = (until: number | null, now: number): boolean => until === null || until * 1000 >= now;

const HAS_EXPIRED = notApplicable("It has expired.");

/** Of several valid secrets, the one that expires last passes. The others should be deleted. */
const single = ofEntra("secret", {
  id: "client-secret-alone",
  code: 64,
  title: "Application has no other client secret that is valid at least as long",
  failureTitle: "Older client secret is still valid",
  severity: "medium",
  timed: "expiry",
  rationale:
    "Every valid secret can be used to sign in. An old secret that was not deleted after a rotation is usually not monitored.",
  remedy: remove("Make sure that everything uses the newer secret."),
  evaluate: ({ asset: { expiresOn, credential } }, { now }) => {
    if (!credential) return notApplicable("Its application is unknown.");
    const own = expiresOn ?? null;
    if (!lives(own, now)) return HAS_EXPIRED;
    const at = credential.secretsUntil.indexOf(own);
    const longer = credential.secretsUntil
      .filter((_, place) => place !== at)
      .filter((until) => until === null || (own !== null && until >= own));
    // The other secrets are valid at least as long, so the result changes only when this secret expires.
    const changesAt = own === null ? undefined : own + 1;
    return longer.length > 0
      ? fail(
          `The application has ${longer.length} other ${longer.length === 1 ? "secret that is" : "secrets that are"} valid at least as long.`,
          changesAt,
        )
      : pass("The application has no other secret that is valid as long.", changesAt);
  },
});

const besideCertificate = ofEntra("secret", {
  id: "client-secret-beside-certificate",
  code: 65,
  title: "Application with a certificate has no client secret",
  failureTitle: "Application with a certificate also has a client secret",
  severity: "medium",
  timed: "age",
  rationale:
    "A client secret is sent with every sign-in and can be copied from its storage. A certificate's private key is never sent. An application with a certificate does not need a secret.",
  remedy: remove("Make sure that the application signs in with its certificate."),
  evaluate: ({ asset: { expiresOn, credential } }, { now }) => {
    if (!credential?.certificatesUntil) return notApplicable("The application's certificates are unknown.");
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
  failureTitle: "Application with a federated credential also has a client secret",
  severity: "medium",
  rationale:
    "With a federated credential, the application signs in with short-lived tokens. There is no secret to store, leak or rotate.",
  remedy: remove("Make sure that the application signs in with a federated credential in every environment."),
  evaluate: ({ asset: { credential } }) => {
    if (credential?.federated === undefined) {
      return notApplicable("The application's federated credentials have not been read yet.");
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
    failureTitle: `Application with a ${type === "secret" ? "client secret" : "certificate"} has no owner`,
    severity: "medium",
    rationale:
      "Without an owner, no one is responsible for the application or notified when its credentials expire or leak.",
    remedy: nameOwner,
    evaluate: ({ asset: { credential } }) => {
      if (!credential?.owners) return notApplicable("The application's owners are unknown.");
      const { owners } = credential;
      return owners.length > 0
        ? pass(`The application is owned by ${owners.join(", ").slice(0, 500)}.`)
        : fail("The application has no owner.");
    },
  });

const secretValidity = ofEntra("secret", {
  id: "client-secret-validity-period",
  code: 63,
  title: `Client secret is valid for at most ${MAX_CLIENT_SECRET_DAYS} days`,
  failureTitle: `Client secret is valid for more than ${MAX_CLIENT_SECRET_DAYS} days`,
  severity: "medium",
  rationale: "The longer a secret is valid, the longer a leaked secret can be used.",
  remedy: clientSecret.renew,
  evaluate: ({ asset }) => validFor(asset, MAX_CLIENT_SECRET_DAYS),
});

const certificateValidity = ofEntra("certificate", {
  id: "application-certificate-validity-period",
  code: 73,
  title: `Application certificate is valid for at most ${MAX_APPLICATION_CERTIFICATE_DAYS} days`,
  failureTitle: `Application certificate is valid for more than ${MAX_APPLICATION_CERTIFICATE_DAYS} days`,
  severity: "medium",
  rationale: "Short-lived certificates limit the damage of a stolen private key and ensure that renewal works.",
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
