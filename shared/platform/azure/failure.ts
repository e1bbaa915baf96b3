/**
 * Why a call to the cloud failed for good. `throttled`, `concurrency`, `unreachable` and `timedOut` can be temporary. The other
 * codes need a person.
 */
export type FailureCode =
  | "accessDenied"
  | "firewall"
  | "notFound"
  | "throttled"
  | "unreachable"
  | "badResponse"
  | "timedOut"
  | "foreignHost"
  | "unauthenticated"
  /** The service asks for a sign-in instead of an answer, because it does not know the identity. */
  | "unauthorized"
  /** The service rejects the change in the current state. */
  | "refused"
  /** A deleted secret that can be recovered has the name. */
  | "deleted"
  /** The object is disabled. */
  | "disabled"
  /** Another change of the object is in progress. */
  | "conflict"
  /** Another write to the tenant was in progress. This write was not applied. */
  | "concurrency"
  /** The application has the maximum number of credentials. */
  | "noRoomForSecret"
  /** A policy of the tenant or the application limits the lifetime of new secrets, or forbids them. */
  | "lifetimePolicy"
  | "typePolicy"
  /** A key vault reference in a resource's configuration names no asset. */
  | "invalidReference"
  /** The answer is only a part of the requested data. */
  | "incomplete"
  /** A delta link has expired. List everything again. */
  | "resyncRequired";

/** The operation, in words that complete "Could not …", its resource, and the permission it needs. */
export interface CallTarget {
  /** An operation such as `list secrets`. */
  operation: string;
  /** A resource such as `key vault kv-payments`. */
  resource: string;
  /** What to grant if the answer is 403, such as a role. Completes "Give the service's identity …". */
  grant?: string;
  /** What to do if the service can't get a token. */
  signIn?: string;
}

interface FailureDetails {
  remedy: string;
  retryAfterSeconds?: number | undefined;
  cloudCode?: string | undefined;
  status?: number | undefined;
}

/**
 * A cloud call that failed for good, including its retries. `message` says what happened, and `remedy` says what a person can
 * do. An answer adds only the cloud's short code to them. There is no `cause`, because the errors of the SDKs contain the
 * request with its token.
 */
export class CloudFailure extends Error {
  override readonly name = "CloudFailure";
  readonly code: FailureCode;
  readonly remedy: string;
  /** Seconds until the service may be called again. Set if `code` is `throttled`. */
  readonly retryAfterSeconds?: number;
  /** The cloud's own code, such as `ForbiddenByRbac` or `AADSTS7000215`. */
  readonly cloudCode?: string;
  /** Status of the answer, for `badResponse` and `notFound`. */
  readonly status?: number;

  constructor(code: FailureCode, message: string, details: FailureDetails) {
    super(message);
    this.code = code;
    this.remedy = details.remedy;
    if (details.retryAfterSeconds !== undefined) this.retryAfterSeconds = details.retryAfterSeconds;
    if (details.cloudCode !== undefined) this.cloudCode = details.cloudCode;
    if (details.status !== undefined) this.status = details.status;
  }

  /** True if the service may have applied the change: no answer confirms or denies it. */
  get unclear(): boolean {
    return this.code === "unreachable" || this.code === "timedOut" || this.code === "badResponse";
  }
}

/** Failures after which the same call can succeed within minutes. */
export const TRANSIENT_CODES: ReadonlySet<FailureCode> = new Set(["throttled", "unreachable", "timedOut"]);
export const isTransient = ({ code }: Pick<CloudFailure, "code">): boolean => TRANSIENT_CODES.has(code);

/** Returns the answer of the call, or undefined if it failed with `notFound`. */
export async function unlessMissing<T>(work: Promise<T>): Promise<T | undefined> {
  try {
    return await work;
  } catch (error) {
    if (error instanceof CloudFailure && error.code === "notFound") return undefined;
    throw error;
  }
}

/** Returns the failure of `target` with a reason that completes "Could not … (…): ". */
export function failure(code: FailureCode, target: CallTarget, reason: string, details: FailureDetails): CloudFailure {
  const shown = details.cloudCode ? `${reason} (${details.cloudCode})` : reason;
  return new CloudFailure(code, `Could not ${target.operation} (${target.resource}): ${shown}.`, details);
}

/** An unsuccessful HTTP answer. */
export interface FailedAnswer {
  status: number;
  /** Used only to find the cloud's short code. */
  body: string;
  header(name: string): string | undefined;
}

/** Inner codes of a 403 that the network rules cause: https://learn.microsoft.com/azure/key-vault/general/rest-error-codes */
const NETWORK_REFUSALS = new Set(["ForbiddenByFirewall", "ForbiddenByConnection"]);

/** @param now - Current time, for a `Retry-After` that is a date. */
export function failureOfAnswer(answer: FailedAnswer, target: CallTarget, now = new Date()): CloudFailure {
  const { status } = answer;
  const cloudCode = shortCode(answer.body);
  const retryAfterSeconds = retryAfter(answer, now);

  if (status === 429 || (status === 503 && retryAfterSeconds !== undefined)) {
    return failure("throttled", target, `the service answered ${status}, too many requests`, {
      remedy: "No action needed: the next scan retries. If it persists, lower discoveryMaxWorkers.",
      retryAfterSeconds,
      cloudCode,
    });
  }
  if (status === 401) {
    return failure("unauthenticated", target, "the service did not accept the identity's token", {
      remedy:
        "Check that the resource trusts the identity's tenant (GET /identity shows it) and that the clock is right.",
      cloudCode,
    });
  }
  if (status === 409 && cloudCode === "ObjectIsDeletedButRecoverable") {
    return failure("deleted", target, "a deleted secret holds the name", {
      remedy: "Recover the deleted secret, or purge it, then try again.",
      cloudCode,
    });
  }
  if (status === 409) {
    return failure("conflict", target, "another change of this resource is in progress", {
      remedy: "No action needed: the service retries. If it persists, check who else changes this resource.",
      cloudCode,
    });
  }
  if (status === 403 && cloudCode === "SecretDisabled") {
    return failure("disabled", target, "this version of the secret is switched off", {
      remedy: "Enable the secret's current version, or write a new one.",
      cloudCode,
    });
  }
  if (status === 403 && cloudCode !== undefined && NETWORK_REFUSALS.has(cloudCode)) {
    return failure("firewall", target, "its network rules refuse this service's address", {
      remedy:
        "Allow the service's outbound address or subnet in the vault's networking, or give the vault a private endpoint in the service's network.",
      cloudCode,
    });
  }
  if (status === 403) {
    return failure("accessDenied", target, "the identity may not do that", {
      remedy: `Give the service's identity ${target.grant ?? "read access to this resource"}.`,
      cloudCode,
    });
  }
  if (status === 404) {
    return failure("notFound", target, "the service does not know it", {
      remedy: "It may have been deleted or moved; the next complete listing settles that.",
      cloudCode,
      status,
    });
  }
  if (status >= 500 || status === 408) {
    return failure("unreachable", target, `the service kept answering ${status}`, {
      remedy: "Look for an outage at https://status.azure.com; the next scan tries again.",
      cloudCode,
    });
  }
  return failure("badResponse", target, `the service answered ${status}, which it should not`, {
    remedy: "Check that the configured endpoints are those of the right cloud.",
    cloudCode,
    status,
  });
}

/** Returns the failure of an answer that is not what the service documents. `reason` must not repeat any part of the answer. */
export function malformedAnswer(target: CallTarget, reason: string): CloudFailure {
  return failure("badResponse", target, reason, {
    remedy: "Something between here and the service may be answering in its place: check proxies and private DNS.",
  });
}

/** Returns the failure of a request to another host. The request was not sent. */
export function foreignHost(target: CallTarget, host: string): CloudFailure {
  return failure("foreignHost", target, `the address it gives leads to ${host.slice(0, 200)}, where no token may go`, {
    remedy:
      "Check this resource, and AZURE_CLOUD and the settings that name other addresses than that cloud's: AZURE_KEY_VAULT_SUFFIX, AZURE_APP_CONFIGURATION_SUFFIX, AZURE_RESOURCE_MANAGER_ENDPOINT, AZURE_GRAPH_ENDPOINT, LOG_ANALYTICS_ENDPOINT and AZURE_DEVOPS_ENDPOINT.",
  });
}

export function ranOutOfTime(target: CallTarget): CloudFailure {
  return failure("timedOut", target, "it was stopped before it finished", {
    remedy: "Raise discoveryScanTimeout, or leave it to the next scan.",
  });
}

export function noAnswer(target: CallTarget, reason: string, cloudCode?: string): CloudFailure {
  return failure("unreachable", target, reason, {
    remedy:
      "Check the name's DNS entry (private DNS zones included), outbound network rules and whether the resource still exists.",
    cloudCode,
  });
}

/**
 * Converts any error of an SDK, the network, a credential or an abort to a `CloudFailure`.
 * @throws the error itself if it is none of these, because a mistake in this program must not look like a failing vault.
 */
export function asCloudFailure(error: unknown, target: CallTarget): CloudFailure {
  if (error instanceof CloudFailure) return error;
  if (!(error instanceof Error)) throw error;
  if (error.name === "AbortError" || error.name === "TimeoutError") return ranOutOfTime(target);
  const code = "code" in error && typeof error.code === "string" ? error.code : undefined;
  if (error.name === "RestError") return failureOfRestError(error, code, target);
  if (CREDENTIAL_ERRORS.has(error.name)) return failureOfCredential(error, target);
  if (code !== undefined && isNetworkCode(code)) return noAnswer(target, "no connection came about", code);
  throw error;
}

/** Errors of @azure/identity and its MSAL library. */
const CREDENTIAL_ERRORS = new Set([
  "AuthenticationError",
  "AggregateAuthenticationError",
  "AuthenticationRequiredError",
  "CredentialUnavailableError",
  "ClientAuthError",
  "ClientConfigurationError",
  "InteractionRequiredAuthError",
  "ManagedIdentityError",
  "NetworkError",
  "ServerError",
]);

function failureOfCredential(error: Error, target: CallTarget): CloudFailure {
  const network =
    /\b(ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|ETIMEDOUT|EHOSTUNREACH|network_error|endpoints_resolution_error)\b/.exec(
      error.message,
    );
  if (network) return noAnswer(target, "the sign-in service did not answer", network[1]);
  return failure("unauthenticated", target, "the identity could not sign in", {
    remedy: target.signIn ?? "Check the service's identity: GET /system/identity says who it is.",
    cloudCode: /AADSTS\d+/.exec(error.message)?.[0],
  });
}

interface RestErrorParts {
  statusCode?: number;
  response?: { bodyAsText?: string | null; headers: { get(name: string): string | undefined } };
}

function failureOfRestError(error: Error & RestErrorParts, code: string | undefined, target: CallTarget): CloudFailure {
  const { statusCode, response } = error;
  if (statusCode !== undefined && statusCode >= 300) {
    return failureOfAnswer(
      {
        status: statusCode,
        body: response?.bodyAsText ?? "",
        header: (name) => response?.headers.get(name),
      },
      target,
    );
  }
  if (code !== undefined && (code === "REQUEST_SEND_ERROR" || isNetworkCode(code))) {
    return noAnswer(target, "no connection came about", code);
  }
  // The SDK's code for a body that ended early.
  if (statusCode === undefined && code === "PARSE_ERROR") return noAnswer(target, "the answer ended before its end");
  return malformedAnswer(target, "the answer is not what the service documents");
}

/** System call and TLS errors of Node: https://nodejs.org/api/errors.html#common-system-errors */
function isNetworkCode(code: string): boolean {
  return /^(E[A-Z_]{3,}|ERR_TLS_\w+|ERR_SSL_\w+|CERT_\w+|UNABLE_TO_\w+|DEPTH_ZERO_SELF_SIGNED_CERT|SELF_SIGNED_CERT_IN_CHAIN)$/.test(
    code,
  );
}

/** Returns the innermost code of an error body, if it looks like a code. */
export function shortCode(body: string): string | undefined {
  const error = member(parsed(body), "error");
  const inner = member(error, "innererror") ?? member(error, "innerError");
  for (const code of [member(inner, "code"), member(error, "code")]) {
    if (typeof code === "string" && /^[A-Za-z][A-Za-z0-9_]{1,63}$/.test(code)) return code;
  }
  return undefined;
}

function parsed(body: string): unknown {
  try {
    return JSON.parse(body);
  } catch {
    return undefined; // An HTML error page has no code. The status alone decides.
  }
}

function member(value: unknown, name: string): unknown {
  return typeof value === "object" && value !== null ? (value as Record<string, unknown>)[name] : undefined;
}

/**
 * Returns seconds, rounded up. https://www.rfc-editor.org/rfc/rfc9110#field.retry-after, and the headers in milliseconds that
 * Azure also sends.
 */
export function retryAfter(answer: FailedAnswer, now = new Date()): number | undefined {
  for (const name of ["retry-after-ms", "x-ms-retry-after-ms"]) {
    const value = answer.header(name);
    if (value !== undefined && /^\d{1,9}$/.test(value)) return Math.ceil(Number(value) / 1000);
  }
  const value = answer.header("retry-after")?.trim();
  if (!value) return undefined;
  if (/^\d{1,9}$/.test(value)) return Number(value);
  const at = Date.parse(value);
  return Number.isNaN(at) ? undefined : Math.max(0, Math.ceil((at - now.getTime()) / 1000));
}
