import { type Outgoing, type OutgoingRequest, Unreachable } from "../../platform/outgoing/outgoing.ts";
import type { Clock } from "../../platform/runtime.ts";
import { type ProviderCall, syncFailure } from "./failures.ts";
import type { SyncFailure } from "./provider.ts";

/** A request whose body is sent as JSON or as a form. */
export type ProviderRequest = Omit<OutgoingRequest, "body"> & { body?: object | URLSearchParams };

/** Response of a provider. */
export interface ProviderAnswer {
  status: number;
  /** Returns a header by its name in lower case, the first value if there are several. */
  header(name: string): string | undefined;
  /** Undefined if there is no body or it is not JSON. */
  json: unknown;
  hasBody: boolean;
}

/**
 * Sends one request without retries, because runs decide about retries. Returns answers with any status.
 * @throws {SyncFailure} `unreachable` if there is no answer.
 */
export async function exchange(
  outgoing: Outgoing,
  address: string,
  { body, headers, ...request }: ProviderRequest,
  call: ProviderCall,
): Promise<ProviderAnswer> {
  const isForm = body instanceof URLSearchParams;
  const sent = body === undefined ? {} : { body: isForm ? body.toString() : JSON.stringify(body) };
  const type = isForm ? "application/x-www-form-urlencoded" : "application/json";
  let answer: Awaited<ReturnType<Outgoing["send"]>>;
  try {
    answer = await outgoing.send(address, {
      ...request,
      ...sent,
      headers: { ...(body && { "content-type": type }), ...headers },
    });
  } catch (error) {
    // The message comes from the outgoing guard. It contains the host and the reason, nothing else of the address.
    if (error instanceof Unreachable) throw syncFailure("unreachable", call, error.message.replace(/\.$/, ""));
    throw error;
  }
  if (!answer.complete) throw syncFailure("badResponse", call, "the answer was cut off or too long");
  const text = answer.body.toString("utf8");
  return {
    status: answer.status,
    header: (name) => [answer.headers[name] ?? []].flat()[0],
    json: parseJson(text),
    hasBody: text !== "",
  };
}

/**
 * Converts an answer into a failure by its status. An answer without JSON comes from a proxy, so it says nothing about the
 * credentials.
 */
export function statusFailure(
  answer: ProviderAnswer,
  call: ProviderCall,
  clock: Clock,
  providerCode?: string,
): SyncFailure {
  const { status, json } = answer;
  const details = { providerCode, retryAfterSeconds: retryAfterSeconds(answer, clock) };
  if (status === 429) return syncFailure("throttled", call, "there were too many requests", details);
  if (status >= 500) return syncFailure("unreachable", call, `the answer was ${status}`, details);
  if (json === undefined || status < 400)
    return syncFailure("badResponse", call, `the answer (${status}) comes from another server`);
  switch (status) {
    case 401:
      return syncFailure("badCredentials", call, "the credentials were not accepted", details);
    case 403:
      return syncFailure("accessDenied", call, "the credential lacks the permission", details);
    case 404:
      return syncFailure("notFound", call, "it does not exist", details);
    case 409:
    case 412:
      return syncFailure("changedMeanwhile", call, "another writer changed it in the meantime", details);
    case 413:
      return syncFailure("tooLarge", call, "the value is too large", details);
    default:
      return syncFailure("targetRefused", call, `the request was rejected with ${status}`, details);
  }
}

/** Parses Retry-After, in seconds or as a date: https://www.rfc-editor.org/rfc/rfc9110#name-retry-after */
function retryAfterSeconds({ header }: ProviderAnswer, clock: Clock): number | undefined {
  const value = header("retry-after")?.trim();
  if (!value) return undefined;
  if (/^\d{1,9}$/.test(value)) return Number(value);
  const date = Date.parse(value);
  return Number.isNaN(date) ? undefined : Math.max(0, Math.ceil((date - clock.now().getTime()) / 1000));
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
