import type { Clock } from "../../../platform/runtime.ts";
import { type ProviderCall, syncFailure } from "../failures.ts";
import { type ProviderAnswer, statusFailure } from "../http.ts";
import type { SyncFailure } from "../provider.ts";

/**
 * Converts answers of Kubernetes into failures. Every error is a `Status` with a `reason`:
 * https://kubernetes.io/docs/reference/using-api/api-concepts
 */
export function kubernetesFailure(answer: ProviderAnswer, call: ProviderCall, clock: Clock): SyncFailure {
  const { reason, message } = (answer.json ?? {}) as { reason?: unknown; message?: unknown };
  const code = typeof reason === "string" ? reason : undefined;
  // An exhausted quota has the same reason as a missing permission. Only the text differs.
  if (answer.status === 403 && /exceeded quota/.test(String(message))) {
    return syncFailure("limitReached", call, "the namespace's quota is used up", { providerCode: code });
  }
  if (answer.status === 422 && /immutable/.test(String(message))) {
    return syncFailure("targetRefused", call, "the Secret is immutable", { providerCode: code });
  }
  return statusFailure(answer, call, clock, code);
}
