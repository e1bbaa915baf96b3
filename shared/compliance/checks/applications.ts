/** Checks of the credentials of Entra applications: client secrets and certificates. */
import type { AssetRecord, AssetType } from "../../inventory/asset.ts";
import { DAY_SECONDS } from "../../platform/time.ts";
import { type AssetCheck, assetCheck, dateText, type Evaluation, fail, notApplicable, pass } from "../check.ts";
import { MAX_APPLICATION_CERTIFICATE_DAYS, MAX_CLIENT_SECRET_DAYS } from "../limits.ts";
import { addOwner, removeUnneeded, renewCredential, retireCredential } from "../remedies/applications.ts";
import { type ExpiringKind, expiredCheck, nearExpiryCheck } from "./expiry.ts";

const clientSecret: ExpiringKind = {
  id: "client-secret",
  noun: "client secret",
  type: "secret",
  source: "entra",
  renew: renewCredential("secret"),
  retire: retireCredential("secret"),
};

const certificate: ExpiringKind = {
  id: "application-certificate",
  noun: "application certificate",
  type: "certificate",
  source: "entra",
  renew: renewCredential("certificate"),
  retire: retireCredential("certificate"),
};

const entraCheck = (
  type: AssetType,
  check: Pick<
    AssetCheck,
    "id" | "code" | "title" | "failureTitle" | "severity" | "onlyFor" | "rationale" | "remedy" | "timed" | "evaluate"
  >,
): AssetCheck => assetCheck({ resourceType: type, source: "entra", ...check });

/** Returns `pass` if the credential's whole validity is at most `maxDays`, and `fail` if it is longer or has no end. */
export function evaluateValidity({ notBefore, expiresOn }: AssetRecord, maxDays: number): Evaluation {
  if (expiresOn === undefined) return fail("It never expires.");
  if (notBefore === undefined) return notApplicable("The start of its validity is unknown.");
  const evidence = `It is valid from ${dateText(notBefore)} to ${dateText(expiresOn)}.`;
  return expiresOn - notBefore > maxDays * DAY_SECONDS ? fail(evidence) : pass(evidence);
}

/** Returns whether a credential with this expiry (Unix seconds, null for none) is still valid. */
const isValidAt = (until: number | null, now: number): boolean => until === null || until * 1000 >= now;

const HAS_EXPIRED = notApplicable("It has expired.");

/**
 * Only the valid secret of an application that expires last passes. The others should be deleted. Secrets that share
 * the last expiry all fail.
 */
const onlySecret = entraCheck("secret", {
  id: "client-secret-alone",
  code: 64,
  title: "Application has no other client secret that is valid at least as long",
  failureTitle: "Older client secret is still valid",
  severity: "medium",
  timed: "expiry",
  onlyFor: "that has not expired",
  rationale:
    "Every valid secret can be used to sign in. An old secret that was not deleted after a rotation is usually not monitored.",
  remedy: removeUnneeded("Make sure that everything uses the newer secret."),
  evaluate: ({ asset: { expiresOn, credential } }, { now }) => {
    if (!credential) return notApplicable("Its application is unknown.");
    const expiry = expiresOn ?? null;
    if (!isValidAt(expiry, now)) return HAS_EXPIRED;
    // `secretsUntil` has the expiries of all secrets of the application, including this one.
    const ownIndex = credential.secretsUntil.indexOf(expiry);
    const othersValidAsLong = credential.secretsUntil
      .filter((_, index) => index !== ownIndex)
      .filter((until) => until === null || (expiry !== null && until >= expiry));
    // Secrets in `othersValidAsLong` don't expire before this one, so the result changes only when this secret expires. At the
    // exact time of its expiry it is still valid, so the result has changed one second later.
    const changesAt = expiry === null ? undefined : expiry + 1;
    return othersValidAsLong.length > 0
      ? fail(
          `The application has ${othersValidAsLong.length} other ${othersValidAsLong.length === 1 ? "secret that is" : "secrets that are"} valid at least as long.`,
          changesAt,
        )
      : pass("The application has no other secret that is valid as long.", changesAt);
  },
});

const secretBesideCertificate = entraCheck("secret", {
  id: "client-secret-beside-certificate",
  code: 65,
  title: "Application with a certificate has no client secret",
  failureTitle: "Application with a certificate also has a client secret",
  severity: "medium",
  // Not `expiry`: the result also changes when a certificate of the application expires, which the secret's own expiry doesn't
  // show.
  timed: "age",
  onlyFor:
    "that has not expired; key credentials of the application object that have not expired count, unless their usage is Sign",
  rationale:
    "A client secret is sent with every sign-in and can be copied from its storage. A certificate's private key is never sent. An application with a certificate does not need a secret.",
  remedy: removeUnneeded("Make sure that the application signs in with its certificate."),
  evaluate: ({ asset: { expiresOn, credential } }, { now }) => {
    if (!credential?.certificatesUntil) return notApplicable("The application's certificates are unknown.");
    const expiry = expiresOn ?? null;
    if (!isValidAt(expiry, now)) return HAS_EXPIRED;
    const latestExpiry = (times: readonly (number | null)[]) =>
      times.includes(null) ? null : Math.max(...(times as number[]));
    const validCertificates = credential.certificatesUntil.filter((until) => isValidAt(until, now));
    const expiries = [expiry, ...(validCertificates.length > 0 ? [latestExpiry(validCertificates)] : [])].filter(
      (end) => end !== null,
    );
    // The result changes when the secret expires, or earlier, when the last valid certificate does.
    const changesAt = expiries.length > 0 ? Math.min(...expiries) + 1 : undefined;
    return validCertificates.length > 0
      ? fail("The application has a certificate to sign in with.", changesAt)
      : pass("The application has no valid certificate.", changesAt);
  },
});

const secretBesideFederation = entraCheck("secret", {
  id: "client-secret-beside-federation",
  code: 66,
  title: "Application with a federated credential has no client secret",
  failureTitle: "Application with a federated credential also has a client secret",
  severity: "medium",
  // Without expired secrets, the result would change with time (`timed`).
  onlyFor: "also expired ones, if federated credentials were read",
  rationale:
    "With a federated credential, the application signs in with short-lived tokens. There is no secret to store, leak or rotate.",
  remedy: removeUnneeded("Make sure that the application signs in with a federated credential in every environment."),
  evaluate: ({ asset: { credential } }) => {
    if (credential?.federated === undefined) {
      return notApplicable("The application's federated credentials have not been read yet.");
    }
    return credential.federated
      ? fail("The application has a federated credential.")
      : pass("The application has no federated credential.");
  },
});

const hasOwner = (type: "secret" | "certificate", code: number): AssetCheck =>
  entraCheck(type, {
    id: type === "secret" ? "client-secret-owner" : "application-certificate-owner",
    code,
    title: `Application with a ${type === "secret" ? "client secret" : "certificate"} has an owner`,
    failureTitle: `Application with a ${type === "secret" ? "client secret" : "certificate"} has no owner`,
    severity: "medium",
    onlyFor: "also expired ones, if owners were read; only people count as owners",
    rationale:
      "Without an owner, no one is responsible for the application or notified when its credentials expire or leak.",
    remedy: addOwner,
    evaluate: ({ asset: { credential } }) => {
      if (!credential?.owners) return notApplicable("The application's owners are unknown.");
      const { owners } = credential;
      return owners.length > 0
        ? pass(`The application is owned by ${owners.join(", ").slice(0, 500)}.`)
        : fail("The application has no owner.");
    },
  });

const secretValidity = entraCheck("secret", {
  id: "client-secret-validity-period",
  code: 63,
  title: `Client secret is valid for at most ${MAX_CLIENT_SECRET_DAYS} days`,
  failureTitle: `Client secret is valid for more than ${MAX_CLIENT_SECRET_DAYS} days`,
  severity: "medium",
  onlyFor: "whose start is known; one without an expiration date fails",
  rationale: "The longer a secret is valid, the longer a leaked secret can be used.",
  remedy: clientSecret.renew,
  evaluate: ({ asset }) => evaluateValidity(asset, MAX_CLIENT_SECRET_DAYS),
});

const certificateValidity = entraCheck("certificate", {
  id: "application-certificate-validity-period",
  code: 73,
  title: `Application certificate is valid for at most ${MAX_APPLICATION_CERTIFICATE_DAYS} days`,
  failureTitle: `Application certificate is valid for more than ${MAX_APPLICATION_CERTIFICATE_DAYS} days`,
  severity: "medium",
  onlyFor: "whose start is known; one without an expiration date fails",
  rationale: "Short-lived certificates limit the damage of a stolen private key and ensure that renewal works.",
  remedy: certificate.renew,
  evaluate: ({ asset }) => evaluateValidity(asset, MAX_APPLICATION_CERTIFICATE_DAYS),
});

/** The numbers are the codes of the checks in stored rows. They must never change. */
export const applicationChecks: AssetCheck[] = [
  expiredCheck(clientSecret, 60),
  nearExpiryCheck(clientSecret, "warning", 61),
  nearExpiryCheck(clientSecret, "critical", 62),
  secretValidity,
  onlySecret,
  secretBesideCertificate,
  secretBesideFederation,
  hasOwner("secret", 67),
  expiredCheck(certificate, 70),
  nearExpiryCheck(certificate, "warning", 71),
  nearExpiryCheck(certificate, "critical", 72),
  certificateValidity,
  hasOwner("certificate", 74),
];
