import { type ProviderCall, type ProviderFailureCode, syncFailure } from "../failures.ts";
import { SyncFailure } from "../provider.ts";

/**
 * Error names by their meaning. From https://docs.aws.amazon.com/secretsmanager/latest/apireference/CommonErrors.html, the same
 * page of Systems Manager, and the errors of each operation.
 */
const CODES: Readonly<Record<string, readonly [ProviderFailureCode, reason: string]>> = {
  ...forAll(
    [
      "UnrecognizedClientException",
      "InvalidClientTokenId",
      "InvalidSignatureException",
      "SignatureDoesNotMatch",
      "IncompleteSignature",
      "MissingAuthenticationTokenException",
      "MissingAuthenticationToken",
      "ExpiredTokenException",
      "ExpiredToken",
      "InvalidAccessKeyId",
    ],
    ["badCredentials", "the access key was not accepted"],
  ),
  ...forAll(["AccessDeniedException", "AccessDenied"], ["accessDenied", "the access key lacks the permission"]),
  ...forAll(
    ["ThrottlingException", "Throttling", "TooManyRequestsException", "RequestLimitExceeded", "TooManyUpdates"],
    ["throttled", "there were too many requests"],
  ),
  ...forAll(["ResourceNotFoundException", "ParameterNotFound", "InvalidResourceId"], ["notFound", "it does not exist"]),
  ...forAll(
    ["ResourceExistsException", "ParameterAlreadyExists"],
    ["changedMeanwhile", "another writer created it in the meantime"],
  ),
  ...forAll(
    ["EncryptionFailure", "DecryptionFailure", "InvalidKeyId"],
    ["encryption", "its encryption key was not usable"],
  ),
  ...forAll(
    ["LimitExceededException", "ParameterLimitExceeded", "ParameterMaxVersionLimitExceeded"],
    ["limitReached", "a quota is used up"],
  ),
  ...forAll(
    [
      "InvalidParameterException",
      "ValidationException",
      "PreconditionNotMetException",
      "ParameterPatternMismatchException",
    ],
    ["targetRefused", "the request was rejected"],
  ),
  ...forAll(["InternalServiceError", "InternalServerError"], ["unreachable", "the service has a fault"]),
};

/** A region that is not enabled in the account rejects valid keys with these errors. */
const NOT_ENABLED = new Set(["UnrecognizedClientException", "InvalidClientTokenId", "OptInRequired"]);

/**
 * Converts an error of the SDK, after the SDK's own retries.
 * @param isTested Whether the key was tested in this region.
 */
export function awsFailure(error: unknown, call: ProviderCall, isTested: boolean): SyncFailure {
  if (error instanceof SyncFailure) return error;
  const { name, message, $fault, $metadata, $response } = error as Partial<SdkError>;
  if (name !== undefined && NOT_ENABLED.has(name) && !isTested) {
    return syncFailure("accessDenied", call, "the region does not know the access key", {
      providerCode: name,
      remedy: "Enable the region in the account, or choose another one for the record.",
    });
  }
  // An answer that is not from the service, such as a proxy's page, can't be parsed. The error then has no status of its own.
  const status = $metadata?.httpStatusCode ?? $response?.statusCode;
  const failureOfCode = name === undefined ? undefined : CODES[name];
  if (failureOfCode) return syncFailure(failureOfCode[0], call, failureOfCode[1], { providerCode: name });
  if (name === "InvalidRequestException") {
    // The error name alone does not distinguish these cases.
    const deleted = /scheduled for deletion|marked for deletion/.test(message ?? "");
    if (deleted) return syncFailure("targetDeleted", call, "it is scheduled for deletion", { providerCode: name });
    return syncFailure("targetRefused", call, "the request does not fit its state", { providerCode: name });
  }
  if (status === undefined) return syncFailure("unreachable", call, `there was no answer (${networkCode(error)})`);
  if (status >= 500) return syncFailure("unreachable", call, `the answer was ${status}`);
  if (status === 429) return syncFailure("throttled", call, "there were too many requests");
  // The SDK sets `$fault` only for answers of the service itself.
  if ($fault !== undefined && status >= 400) {
    return syncFailure("targetRefused", call, "the request was rejected", { providerCode: name });
  }
  return syncFailure("badResponse", call, `the answer (${status}) is not the service's`);
}

/** Members of the SDK's errors that are used here. */
interface SdkError {
  name: string;
  message: string;
  $fault: "client" | "server";
  $metadata: { httpStatusCode?: number };
  $response: { statusCode?: number };
}

function networkCode(error: unknown): string {
  const { code, name } = error as { code?: unknown; name?: unknown };
  return (
    [code, name].find((text) => typeof text === "string" && /^[A-Za-z_]{1,40}$/.test(text))?.toString() ?? "no code"
  );
}

function forAll<T>(codes: readonly string[], meaning: T): Record<string, T> {
  return Object.fromEntries(codes.map((code) => [code, meaning]));
}
