import type { AssetRecord, AssetType } from "../../inventory/asset.ts";
import { DAY_SECONDS } from "../../time.ts";
import {
  type AssetCheck,
  assetCheck,
  type Evaluation,
  fail,
  instantText,
  notApplicable,
  pass,
  type Remediation,
} from "../check.ts";
import { expired, nearExpiry } from "./expiry.ts";

/** Checks of the credentials that applications of Entra sign in with. */

/** Microsoft recommends less than 12 months: https://learn.microsoft.com/entra/identity-platform/how-to-add-credentials */
export const MAX_CLIENT_SECRET_DAYS = 365;
/** Twelve months, one of them perhaps of a leap year: as long as a key vault's certificate may be. */
export const MAX_APPLICATION_CERTIFICATE_DAYS = 366;

const SECRETS = "App registrations > the application {appId} > Certificates & secrets";

const addSecret = "az ad app credential reset --id {appId} --append --display-name <name> --end-date <yyyy-mm-dd>";
const removeSecret = "az ad app credential delete --id {appId} --key-id {keyId}";
const removeCertificate = `${removeSecret} --cert`;
const addCertificate = "az ad app credential reset --id {appId} --append --cert @<certificate.pem>";

const clientSecret = {
  id: "client-secret",
  noun: "client secret",
  type: "secret",
  source: "entra",
  renew: {
    portal: `Rotate it with POST /api/automation/rotation/rotate, or by hand: ${SECRETS} > New client secret; bring it to all who use it, then delete {keyId}.`,
    cli: addSecret,
    bicep: null,
  },
  retire: {
    portal: `If anything still uses it, add a new one: ${SECRETS} > New client secret. Then delete {keyId}.`,
    cli: removeSecret,
    bicep: null,
  },
} as const;

const certificate = {
  id: "application-certificate",
  noun: "application certificate",
  type: "certificate",
  source: "entra",
  renew: {
    portal: `${SECRETS} > Certificates > Upload certificate; have all who use it change over, then delete {keyId}. One that signs SAML responses: Enterprise applications > the application {appId} > Single sign-on > SAML certificates.`,
    cli: addCertificate,
    bicep: null,
  },
  retire: {
    portal: `If anything still uses it, upload a new one: ${SECRETS} > Certificates. Then delete {keyId}.`,
    cli: removeCertificate,
    bicep: null,
  },
} as const;

const ofEntra = (
  type: AssetType,
  check: Pick<AssetCheck, "id" | "code" | "title" | "severity" | "rationale" | "remediation" | "timed" | "evaluate">,
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
  remediation: {
    portal: `Make sure that everything uses the newer one; then ${SECRETS}: delete {keyId}.`,
    cli: removeSecret,
    bicep: null,
  },
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
  remediation: {
    portal: `Have the application sign in with its certificate; then ${SECRETS}: delete {keyId}.`,
    cli: removeSecret,
    bicep: null,
  },
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
  remediation: {
    portal: `Have the application sign in with its federated credential (${SECRETS} > Federated credentials), with one for each place that it runs in; then delete {keyId}.`,
    cli: "az ad app federated-credential list --id {appId} && az ad app credential delete --id {appId} --key-id {keyId}",
    bicep:
      "extension microsoftGraphV1\n\nresource federation 'Microsoft.Graph/applications/federatedIdentityCredentials@v1.0' = {\n  name: '<unique-name>/deploy'\n  issuer: 'https://token.actions.githubusercontent.com'\n  subject: '<repo:owner/name:environment:prod>'\n  audiences: [ 'api://AzureADTokenExchange' ]\n}",
  },
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
    remediation: OWNER,
    evaluate: ({ asset: { credential } }) => {
      if (!credential?.owners) return notApplicable("The application's owners are not known.");
      const { owners } = credential;
      return owners.length > 0
        ? pass(`The application is owned by ${owners.join(", ").slice(0, 500)}.`)
        : fail("No person owns the application.");
    },
  });

const OWNER: Remediation = {
  portal: "App registrations > the application {appId} > Owners > Add owners.",
  cli: "az ad app owner add --id {appId} --owner-object-id <object-id>",
  bicep:
    "extension microsoftGraphV1\n\nresource application 'Microsoft.Graph/applications@v1.0' = {\n  uniqueName: '<unique-name>'\n  displayName: '<name>'\n  owners: { relationships: [ '<object-id>' ] }\n}",
};

const secretValidity = ofEntra("secret", {
  id: "client-secret-validity-period",
  code: 63,
  title: `Client secret is valid for at most ${MAX_CLIENT_SECRET_DAYS} days`,
  severity: "medium",
  rationale: "The longer a secret is valid, the longer one that leaked without anybody noticing can be used.",
  remediation: clientSecret.renew,
  evaluate: ({ asset }) => validFor(asset, MAX_CLIENT_SECRET_DAYS),
});

const certificateValidity = ofEntra("certificate", {
  id: "application-certificate-validity-period",
  code: 73,
  title: `Application certificate is valid for at most ${MAX_APPLICATION_CERTIFICATE_DAYS} days`,
  severity: "medium",
  rationale: "Short-lived certificates limit what a stolen private key is worth and keep renewal in practice.",
  remediation: certificate.renew,
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
