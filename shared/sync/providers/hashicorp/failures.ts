import type { Clock } from "../../../platform/runtime.ts";
import { type ProviderCall, syncFailure } from "../failures.ts";
import { type ProviderAnswer, statusFailure } from "../http.ts";
import type { SyncFailure } from "../provider.ts";

/**
 * Converts answers of Vault into failures. Errors are texts without codes:
 * https://developer.hashicorp.com/vault/api-docs#http-status-codes
 */
export function hashicorpFailure(answer: ProviderAnswer, call: ProviderCall, clock: Clock): SyncFailure {
  const texts = errorTexts(answer);
  if (answer.status === 400 && texts.includes("check-and-set parameter")) {
    return syncFailure("changedMeanwhile", call, "another writer wrote a version in the meantime");
  }
  // Current versions and OpenBao do not say which of the two is wrong: "invalid role or secret ID".
  if (answer.status === 400 && /invalid (role|secret|role or secret)[ _]id/i.test(texts)) {
    return syncFailure("badCredentials", call, "the role id or secret id was not accepted");
  }
  if (answer.status === 503 && texts.includes("sealed")) {
    return syncFailure("unreachable", call, "it is sealed", {
      remedy: "Have it unsealed. The service retries later.",
    });
  }
  return statusFailure(answer, call, clock);
}

/** Returns the error texts, for comparison only. They are never shown. */
export function errorTexts({ json }: ProviderAnswer): string {
  const { errors } = (json ?? {}) as { errors?: unknown };
  return Array.isArray(errors) ? errors.filter((text) => typeof text === "string").join(" ") : "";
}
