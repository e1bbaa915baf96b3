/**
 * Reason why a call to the cloud failed after its retries. `TRANSIENT_CODES` lists the codes whose cause passes within minutes.
 * `conflict` and `concurrency` also pass, when the other change has ended. Most other codes need an action of a user.
 */
export type FailureCode =
  | "accessDenied"
  | "firewall"
  | "notFound"
  | "throttled"
  | "unreachable"
  /** The response has an unexpected status, or does not match the service's documentation. */
  | "badResponse"
  /** The caller's abort signal, or a time limit, ended the call. */
  | "timedOut"
  /** The address does not belong to the configured cloud. The request was not sent. */
  | "foreignHost"
  /** The identity could not sign in, or the service rejected its token. */
  | "unauthenticated"
  /** The service returned a sign-in page, because it does not know the identity. */
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
  /** A policy of the tenant or the application limits new client secrets to a shorter lifetime. */
  | "lifetimePolicy"
  /** A policy forbids new client secrets for this application, whatever their lifetime. */
  | "typePolicy"
  /** A key vault reference in a resource's configuration names no asset. */
  | "invalidReference"
  /** The response contains only a part of the requested data. */
  | "incomplete"
  /** A delta link has expired. List everything again. */
  | "resyncRequired";

/** Describes a call for its failure message, which reads "Could not <operation> (<resource>): <reason>." */
export interface CallTarget {
  /** An operation such as `list secrets`. */
  operation: string;
  /** A resource such as `key vault kv-payments`. */
  resource: string;
  /** Role or permission that the remedy names if the response is 403. Completes "Give the service's identity …". */
  grant?: string;
  /** Remedy if the service can't get a token. */
  signIn?: string;
}

interface FailureDetails {
  remedy: string;
  retryAfterSeconds?: number | undefined;
  cloudCode?: string | undefined;
  status?: number | undefined;
}

/**
 * Error of a cloud call that failed after its retries. `message` says what happened, and `remedy` says what a user can do. Of
 * the response, both contain at most the status and the cloud's short error code. There is no `cause`, because the errors of
 * the SDKs contain the request with its token.
 */
export class CloudFailure extends Error {
  override readonly name = "CloudFailure";
  readonly code: FailureCode;
  readonly remedy: string;
  /**
   * Seconds until the service may be called again. Set if the call was throttled and its response names a time (`retryAfter`).
   */
  readonly retryAfterSeconds?: number;
  /** The cloud's own code, such as `ForbiddenByRbac` or `AADSTS7000215`. */
  readonly cloudCode?: string;
  /** Status of the response. Set if an unsuccessful response led to `badResponse` or `notFound`. */
  readonly status?: number;

  constructor(code: FailureCode, message: string, details: FailureDetails) {
    super(message);
    this.code = code;
    this.remedy = details.remedy;
    if (details.retryAfterSeconds !== undefined) this.retryAfterSeconds = details.retryAfterSeconds;
    if (details.cloudCode !== undefined) this.cloudCode = details.cloudCode;
    if (details.status !== undefined) this.status = details.status;
  }

  /** True if a change may or may not have been applied, because no valid response confirms or denies it. */
  get unclear(): boolean {
    return this.code === "unreachable" || this.code === "timedOut" || this.code === "badResponse";
  }
}

/** Codes of failures after which the same call can succeed within minutes. A rotation retries after more codes. */
export const TRANSIENT_CODES: ReadonlySet<FailureCode> = new Set(["throttled", "unreachable", "timedOut"]);
export const isTransient = ({ code }: Pick<CloudFailure, "code">): boolean => TRANSIENT_CODES.has(code);

/** Returns the result of the call, or undefined if the call failed with `notFound`. */
export async function unlessMissing<T>(work: Promise<T>): Promise<T | undefined> {
  try {
    return await work;
  } catch (error) {
    if (error instanceof CloudFailure && error.code === "notFound") return undefined;
    throw error;
  }
}

/** Creates the failure of a call. `reason` completes the message "Could not <operation> (<resource>): ". */
export function failure(code: FailureCode, target: CallTarget, reason: string, details: FailureDetails): CloudFailure {
  const fullReason = details.cloudCode ? `${reason} (${details.cloudCode})` : reason;
  return new CloudFailure(code, `Could not ${target.operation} (${target.resource}): ${fullReason}.`, details);
}

/** An unsuccessful HTTP response. */
export interface FailedAnswer {
  status: number;
  /** Used only to find the cloud's short code. */
  body: string;
  header(name: string): string | undefined;
}

/** Inner codes of a 403 that the network rules cause: https://learn.microsoft.com/azure/key-vault/general/rest-error-codes */
const NETWORK_RULE_CODES = new Set(["ForbiddenByFirewall", "ForbiddenByConnection"]);

/**
 * Returns the failure that an unsuccessful response means in any Azure service.
 *
 * @param now - Current time, for a `Retry-After` that is a date.
 */
export function failureOfAnswer(answer: FailedAnswer, target: CallTarget, now = new Date()): CloudFailure {
  const { status } = answer;
  const cloudCode = shortCode(answer.body);
  const retryAfterSeconds = retryAfter(answer, now);

  if (status === 429 || (status === 503 && retryAfterSeconds !== undefined)) {
    return failure("throttled", target, `the service returned status ${status} (too many requests)`, {
      remedy:
        "No action needed: the next scan retries. If it persists, lower the setting for vaults scanned in parallel (discoveryMaxWorkers).",
      retryAfterSeconds,
      cloudCode,
    });
  }
  if (status === 401) {
    return failure("unauthenticated", target, "the service rejected the identity's token", {
      remedy:
        "Check that the resource trusts the identity's tenant (GET /identity returns the tenant) and that the clock is correct.",
      cloudCode,
    });
  }
  if (status === 409 && cloudCode === "ObjectIsDeletedButRecoverable") {
    return failure("deleted", target, "a deleted secret that can be recovered has this name", {
      remedy: "Recover or purge the deleted secret, then try again.",
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
    return failure("disabled", target, "this version of the secret is disabled", {
      remedy: "Enable the secret's current version, or write a new one.",
      cloudCode,
    });
  }
  if (status === 403 && cloudCode !== undefined && NETWORK_RULE_CODES.has(cloudCode)) {
    return failure("firewall", target, "the network rules of the resource deny access from this service's address", {
      remedy:
        "Allow the service's outbound address or subnet in the vault's networking, or give the vault a private endpoint in the service's network.",
      cloudCode,
    });
  }
  if (status === 403) {
    return failure("accessDenied", target, "the service's identity does not have the required permission", {
      remedy: `Give the service's identity ${target.grant ?? "read access to this resource"}.`,
      cloudCode,
    });
  }
  if (status === 404) {
    return failure("notFound", target, "the resource does not exist", {
      remedy: "Check whether the resource was deleted or moved. The next full scan updates the inventory.",
      cloudCode,
      status,
    });
  }
  if (status >= 500 || status === 408) {
    return failure("unreachable", target, `the service repeatedly returned status ${status}`, {
      remedy: "Check https://status.azure.com for an outage. The next scan retries.",
      cloudCode,
    });
  }
  return failure("badResponse", target, `the service returned the unexpected status ${status}`, {
    remedy: "Check that the configured endpoints belong to the right cloud.",
    cloudCode,
    status,
  });
}

/**
 * Returns the failure of a response that does not match the service's documentation. `reason` must not repeat any part of the
 * response, which could contain a secret.
 */
export function malformedAnswer(target: CallTarget, reason: string): CloudFailure {
  return failure("badResponse", target, reason, {
    remedy: "Check proxies and private DNS: the response may come from another server.",
  });
}

/** Returns the failure of a request to a host that must not get the service's token. The request was not sent. */
export function foreignHost(target: CallTarget, host: string): CloudFailure {
  return failure("foreignHost", target, `the address does not belong to the configured cloud: ${host.slice(0, 200)}`, {
    remedy:
      "Check the address of this resource. Also check AZURE_CLOUD and the settings that replace addresses of that cloud: AZURE_KEY_VAULT_SUFFIX, AZURE_APP_CONFIGURATION_SUFFIX, AZURE_RESOURCE_MANAGER_ENDPOINT, AZURE_GRAPH_ENDPOINT, LOG_ANALYTICS_ENDPOINT and AZURE_DEVOPS_ENDPOINT.",
  });
}

/** Returns the failure of a call whose abort signal ended it. */
export function ranOutOfTime(target: CallTarget): CloudFailure {
  return failure("timedOut", target, "the call was stopped before it finished", {
    remedy: "Increase the scan timeout in the settings (discoveryScanTimeout), or wait for the next scan.",
  });
}

/** Returns the failure of a call that got no response. */
export function noAnswer(target: CallTarget, reason: string, cloudCode?: string): CloudFailure {
  return failure("unreachable", target, reason, {
    remedy:
      "Check the DNS entry of the host, including private DNS zones, the outbound network rules, and whether the resource still exists.",
    cloudCode,
  });
}

/**
 * Converts an error of an SDK, the network, a credential or an abort to a `CloudFailure`.
 *
 * @throws any other error unchanged, because an error of this program must not be reported as a failing vault.
 */
export function asCloudFailure(error: unknown, target: CallTarget): CloudFailure {
  if (error instanceof CloudFailure) return error;
  if (!(error instanceof Error)) throw error;
  if (error.name === "AbortError" || error.name === "TimeoutError") return ranOutOfTime(target);
  const code = "code" in error && typeof error.code === "string" ? error.code : undefined;
  if (error.name === "RestError") return failureOfRestError(error, code, target);
  if (CREDENTIAL_ERRORS.has(error.name)) return failureOfCredential(error, target);
  if (code !== undefined && isNetworkCode(code)) return noAnswer(target, "no connection could be established", code);
  throw error;
}

/** Names of the errors of @azure/identity and its MSAL library. */
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
    remedy: target.signIn ?? "Check the service's identity, which GET /identity returns.",
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
    return noAnswer(target, "no connection could be established", code);
  }
  // The SDK reports a response body that was cut off with this code and without a status.
  if (statusCode === undefined && code === "PARSE_ERROR") return noAnswer(target, "the response was cut off");
  return malformedAnswer(target, "the answer is not what the service documents");
}

/**
 * Returns whether the code is a system call, TLS or stream error of Node, such as `ECONNRESET` or
 * `ERR_TLS_CERT_ALTNAME_INVALID`: https://nodejs.org/api/errors.html#common-system-errors
 */
function isNetworkCode(code: string): boolean {
  if (code.startsWith("ERR_")) return NODE_NETWORK_CODE.test(code);
  return /^(E[A-Z_]{3,}|CERT_\w+|UNABLE_TO_\w+|DEPTH_ZERO_SELF_SIGNED_CERT|SELF_SIGNED_CERT_IN_CHAIN)$/.test(code);
}

/**
 * Matches Node's own codes of broken connections. Its other `ERR_` codes, such as `ERR_INVALID_URL`, are errors of this
 * program.
 */
const NODE_NETWORK_CODE =
  /^ERR_(TLS_\w+|SSL_\w+|HTTP2_\w+|PROXY_\w+|STREAM_(PREMATURE_CLOSE|DESTROYED)|SOCKET_(CLOSED\w*|CONNECTION_TIMEOUT))$/;

/**
 * Returns the inner or else the outer error code of an error body. Returns undefined if the text does not have the form of a code.
 */
export function shortCode(body: string): string | undefined {
  const error = member(parseJson(body), "error");
  const inner = member(error, "innererror") ?? member(error, "innerError");
  for (const code of [member(inner, "code"), member(error, "code")]) {
    if (typeof code === "string" && /^[A-Za-z][A-Za-z0-9_]{1,63}$/.test(code)) return code;
  }
  return undefined;
}

function parseJson(body: string): unknown {
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
 * Returns the seconds to wait before a retry, rounded up, or undefined if the response names none. Reads `Retry-After`
 * (https://www.rfc-editor.org/rfc/rfc9110#field.retry-after) and the headers in milliseconds that Azure also sends.
 */
export function retryAfter(answer: FailedAnswer, now = new Date()): number | undefined {
  for (const name of ["retry-after-ms", "x-ms-retry-after-ms"]) {
    const value = answer.header(name);
    if (value !== undefined && /^\d{1,9}$/.test(value)) return Math.ceil(Number(value) / 1000);
  }
  const value = answer.header("retry-after")?.trim();
  if (!value) return undefined;
  if (/^\d{1,9}$/.test(value)) return Number(value);
  const retryAtMs = Date.parse(value);
  return Number.isNaN(retryAtMs) ? undefined : Math.max(0, Math.ceil((retryAtMs - now.getTime()) / 1000));
}
