import type { Clock } from "../../../platform/runtime.ts";
import { type ProviderCall, syncFailure } from "../failures.ts";
import { type ProviderAnswer, statusFailure } from "../http.ts";
import type { SyncFailure } from "../provider.ts";

/**
 * Converts answers of Google into failures. Errors have the form `{error: {code, status, message, details}}`:
 * https://cloud.google.com/apis/design/errors
 */
export function googleFailure(answer: ProviderAnswer, call: ProviderCall, clock: Clock): SyncFailure {
  const { error } = (answer.json ?? {}) as { error?: { status?: unknown; details?: unknown } };
  const code = typeof error?.status === "string" ? error.status : undefined;
  const details = Array.isArray(error?.details) ? (error.details as { reason?: unknown }[]) : [];
  if (details.some((detail) => detail?.reason === "SERVICE_DISABLED")) {
    return syncFailure("targetRefused", call, "the Secret Manager API is not enabled in the project", {
      providerCode: "SERVICE_DISABLED",
      remedy: "Enable secretmanager.googleapis.com in the project.",
    });
  }
  // The etag did not match: https://cloud.google.com/secret-manager/docs/etags
  if (code === "FAILED_PRECONDITION" || code === "ABORTED") {
    return syncFailure("changedMeanwhile", call, "another writer changed it in the meantime", { providerCode: code });
  }
  return statusFailure(answer, call, clock, code);
}

/** Converts errors of the token endpoint: https://www.rfc-editor.org/rfc/rfc6749#section-5.2 */
export function tokenFailure(answer: ProviderAnswer, call: ProviderCall, clock: Clock): SyncFailure {
  const { error } = (answer.json ?? {}) as { error?: unknown };
  if ((answer.status === 400 || answer.status === 401) && typeof error === "string") {
    return syncFailure("badCredentials", call, "the service account's key was not accepted", { providerCode: error });
  }
  return statusFailure(answer, call, clock);
}
