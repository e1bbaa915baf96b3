import { SECOND_MS } from "../platform/time.ts";
import { type EndpointProblem, type EndpointRecord, PICK_UP_SECONDS } from "./endpoint.ts";
import type { ServedFacts } from "./served-chain.ts";

/** The state of an endpoint after a handshake. */

/** The current version of a certificate in its vault, as far as it is known. */
export interface CurrentVersion {
  serial: string | undefined;
  /** SHA-1 of its DER, upper-case hexadecimal. */
  thumbprint: string | undefined;
  /** First second of its validity, in Unix seconds. */
  notBefore: number | undefined;
  /** When the vault got the version, in Unix seconds. */
  createdOn: number | undefined;
}

/** Result of one attempt to read the served certificate. */
export type Handshake =
  | { facts: ServedFacts; protocol: string }
  /** `blocked`: the address is not allowed, so that no connection was made. */
  | { failure: string; blocked: boolean };

/**
 * Returns whether a certificate is a version. Serial numbers are unique only for one authority, and anyone can choose that of
 * a self-signed certificate, so the thumbprint decides if it is known.
 */
export const isVersion = (
  served: Pick<CurrentVersion, "serial" | "thumbprint">,
  { serial, thumbprint }: Pick<CurrentVersion, "serial" | "thumbprint">,
): boolean => served.serial === serial && (thumbprint === undefined || served.thumbprint === thumbprint);

/** Number of checks in a row without an answer after which alerts report the endpoint. One failure can be a short outage. */
const FAILURES_BEFORE_ALERT = 2;

/** Returns whether the endpoint should already serve the current version, and does not. */
export const isLate = ({ current, dueAt }: Pick<EndpointRecord, "current" | "dueAt">, now: Date): boolean =>
  current === false && dueAt !== undefined && dueAt <= now.toISOString();

/** Returns the record of an endpoint after a check. */
export function afterCheck(
  before: EndpointRecord,
  handshake: Handshake,
  version: CurrentVersion,
  now: Date,
): EndpointRecord {
  const checkedAt = now.toISOString();
  const { vaultName, name, host, port, platform, resource, addedAt, addedBy } = before;
  const fixed = { vaultName, name, host, port, platform, addedAt, addedBy, ...(resource && { resource }) };
  if ("failure" in handshake) {
    const { failure, blocked } = handshake;
    const { serial, since, expiresOn, protocol, current, dueAt } = before;
    // The vault has a later version than the last check that reached the endpoint: whether it is served is unknown.
    const isOutdated = current === true && version.serial !== undefined && version.serial !== serial;
    const last = { serial, since, expiresOn, protocol, current: isOutdated ? undefined : current, dueAt };
    const after: EndpointRecord = {
      ...fixed,
      ...last,
      checkedAt,
      problems: [blocked ? "blocked" : "unreachable"],
      failure,
      failures: (before.failures ?? 0) + 1,
    };
    return { ...after, ...staleness(before, after, now) };
  }
  const { facts, protocol } = handshake;
  const { serial, notBefore, notAfter } = facts;
  const isCurrent = version.serial === undefined ? undefined : isVersion(facts, version);
  const { createdOn } = version;
  const dueSeconds = createdOn === undefined ? undefined : createdOn + PICK_UP_SECONDS[platform];
  const problems: EndpointProblem[] = [];
  if (!facts.namesHost) problems.push("otherName");
  else if (isCurrent === false) {
    const isOlder = notBefore !== undefined && version.notBefore !== undefined && notBefore < version.notBefore;
    problems.push(isOlder ? "oldCertificate" : "otherCertificate");
  }
  if (facts.isComplete === false) problems.push("incompleteChain");
  if (notAfter !== undefined && notAfter * SECOND_MS < now.getTime()) problems.push("expired");
  const after: EndpointRecord = {
    ...fixed,
    checkedAt,
    serial,
    since: before.serial === serial && before.since !== undefined ? before.since : checkedAt,
    protocol,
    problems,
    ...(notAfter !== undefined && { expiresOn: new Date(notAfter * SECOND_MS).toISOString() }),
    ...(isCurrent !== undefined && { current: isCurrent }),
    ...(isCurrent === false && dueSeconds !== undefined && { dueAt: new Date(dueSeconds * SECOND_MS).toISOString() }),
  };
  return { ...after, ...staleness(before, after, now) };
}

/** Returns since when the endpoint has a problem that alerts are about. */
function staleness(before: EndpointRecord, after: EndpointRecord, now: Date): Pick<EndpointRecord, "staleSince"> {
  const isReported = alertProblems(after, now).length > 0;
  // An outage that lasts is a problem of its own, also after another one.
  if (isReported && after.failures === FAILURES_BEFORE_ALERT) return { staleSince: now.toISOString() };
  // A check without an answer does not show that the earlier problem has ended. With a new time, alerts would report it again.
  if (!isReported && after.failures === undefined) return {};
  const staleSince = before.staleSince ?? (isReported ? now.toISOString() : undefined);
  return staleSince === undefined ? {} : { staleSince };
}

/**
 * Returns the problems that alerts are about. An old certificate is none until it is late. A blocked address says nothing about
 * the endpoint.
 */
export function alertProblems(record: EndpointRecord, now: Date): EndpointProblem[] {
  return (record.problems ?? []).filter((problem) => {
    if (problem === "blocked") return false;
    if (problem === "unreachable") return (record.failures ?? 0) >= FAILURES_BEFORE_ALERT;
    return (problem !== "oldCertificate" && problem !== "otherCertificate") || isLate(record, now);
  });
}

/** Description and remedy of each problem. */
const PROBLEM_TEXTS: Record<EndpointProblem, { detail: string; action: string }> = {
  oldCertificate: {
    detail: "An earlier version of the certificate is served.",
    action:
      "Make the platform read the new version: synchronize the certificate in App Service, or remove the version from the reference to the vault. On your own servers, install the new version and reload the server.",
  },
  otherCertificate: {
    detail: "A certificate that is not in the vault is served.",
    action: "Find out who installed the certificate. Bind the certificate of the vault, or remove this endpoint.",
  },
  otherName: {
    detail: "The served certificate is not valid for this host name.",
    action: "Bind a certificate with this name to the host, or correct the DNS record of the host name.",
  },
  incompleteChain: {
    detail: "The server does not send all intermediate certificates, so that some clients reject the connection.",
    action:
      "Install the whole chain. In a key vault, merge or import the certificate together with its intermediate certificates.",
  },
  expired: { detail: "The served certificate has expired.", action: "Renew the certificate, and install it now." },
  unreachable: {
    detail: "No TLS handshake was possible.",
    action: "Check the DNS record, the firewall and the server. If the endpoint is no longer used, remove it.",
  },
  blocked: {
    detail: "The service does not connect to this address.",
    action: "An administrator can allow ranges of private addresses with ENDPOINT_PRIVATE_RANGES.",
  },
};

/** Returns the problems of an endpoint with their texts. */
export const describeProblems = ({ problems, failure }: Pick<EndpointRecord, "problems" | "failure">) =>
  (problems ?? []).map((code) => {
    const { detail, action } = PROBLEM_TEXTS[code];
    const isFailure = failure !== undefined && (code === "unreachable" || code === "blocked");
    return { code, detail: isFailure ? failure : detail, action };
  });
