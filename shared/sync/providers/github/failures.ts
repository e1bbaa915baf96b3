import type { Clock } from "../../../platform/runtime.ts";
import { SECOND_MS } from "../../../platform/time.ts";
import { type ProviderCall, syncFailure } from "../failures.ts";
import { type ProviderAnswer, statusFailure } from "../http.ts";
import type { SyncFailure } from "../provider.ts";

/**
 * Converts answers of GitHub into failures. https://docs.github.com/rest/using-the-rest-api/rate-limits-for-the-rest-api and
 * …/troubleshooting-the-rest-api
 */
export function githubFailure(answer: ProviderAnswer, call: ProviderCall, clock: Clock): SyncFailure {
  const { status, header, json } = answer;
  const limited = header("retry-after") !== undefined || header("x-ratelimit-remaining") === "0";
  if ((status === 403 || status === 429) && json !== undefined && limited) {
    const retryAfter = Number(header("retry-after") ?? Number.NaN);
    const reset = Number(header("x-ratelimit-reset") ?? Number.NaN) - clock.now().getTime() / SECOND_MS;
    const seconds = [retryAfter, reset].find((wait) => Number.isFinite(wait) && wait >= 0);
    return syncFailure("throttled", call, "its rate limit is used up", {
      retryAfterSeconds: seconds === undefined ? undefined : Math.ceil(seconds),
    });
  }
  if (status === 301 || status === 307 || status === 308) {
    return syncFailure("notFound", call, "the repository was renamed or moved", {
      remedy: "Create a record with the repository's new name.",
    });
  }
  if (status === 404 && json !== undefined) {
    return syncFailure("notFound", call, "it does not exist, or the credential has no access to it", {
      remedy: `Check the names of owner, repository and environment, and give the configured credential ${call.grant}.`,
    });
  }
  return statusFailure(answer, call, clock);
}
