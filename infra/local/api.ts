import { setTimeout as delay } from "node:timers/promises";

// REST client of the service for the steps of `npm start`, such as the first scan.

/**
 * Calls the service's REST API as a signed-in user. Resolves with the JSON body of the response.
 *
 * @throws {ApiError} If the status is not 2xx.
 */
export type Api = <T>(method: string, path: string, body?: object) => Promise<T>;

/** Signs in as the administrator and returns a function that calls the API with the token. */
export async function signInAsAdministrator(
  serviceUrl: string,
  administrator: { username: string; password: string },
): Promise<Api> {
  const signedIn = await sendRequest<{ access_token: string }>(serviceUrl, "POST", "/auth/login", administrator);
  return (method, path, body) => sendRequest(serviceUrl, method, path, body, signedIn.access_token);
}

/** An error response of the API. `problem` is its problem document (RFC 9457). */
export class ApiError extends Error {
  readonly problem: Record<string, unknown>;
  constructor(method: string, path: string, status: number, problem: Record<string, unknown>) {
    super(`${method} ${path} returned ${status}: ${problem.detail ?? JSON.stringify(problem)}`);
    this.problem = problem;
  }
}

/** Sends one request. After a 429, waits for the time in `Retry-After` and sends the request again. */
async function sendRequest<T>(
  serviceUrl: string,
  method: string,
  path: string,
  body?: object,
  token?: string,
): Promise<T> {
  for (;;) {
    const answer = await fetch(serviceUrl + path, {
      method,
      headers: {
        ...(token ? { Authorization: `Bearer ${token}` } : {}),
        ...(body ? { "Content-Type": "application/json" } : {}),
      },
      ...(body ? { body: JSON.stringify(body) } : {}),
    });
    if (answer.status === 429) {
      await delay(1000 * Number(answer.headers.get("Retry-After") ?? 1));
      continue;
    }
    const text = await answer.text();
    if (!answer.ok) throw new ApiError(method, path, answer.status, parseProblem(text));
    return JSON.parse(text) as T;
  }
}

/** Parses a problem document. A body that is not JSON becomes the detail, without the part after 500 characters. */
function parseProblem(text: string): Record<string, unknown> {
  try {
    return JSON.parse(text) as Record<string, unknown>;
  } catch {
    return { detail: text.slice(0, 500) };
  }
}
