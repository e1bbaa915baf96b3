import { setTimeout as delay } from "node:timers/promises";

/**
 * Calls the service's REST API as a signed-in user.
 *
 * @throws {Refused} If the status is not 2xx.
 */
export type Api = <T>(method: string, path: string, body?: object) => Promise<T>;

/** Signs in as the administrator and returns a function that calls the API with the token. */
export async function asAdministrator(
  base: string,
  administrator: { username: string; password: string },
): Promise<Api> {
  const signedIn = await call<{ access_token: string }>(base, "POST", "/auth/login", administrator);
  return (method, path, body) => call(base, method, path, body, signedIn.access_token);
}

export class Refused extends Error {
  readonly problem: Record<string, unknown>;
  constructor(method: string, path: string, status: number, problem: Record<string, unknown>) {
    super(`${method} ${path} answered ${status}: ${problem.detail ?? JSON.stringify(problem)}`);
    this.problem = problem;
  }
}

/** Sends one request. After a 429, waits for the time in `Retry-After` and sends the request again. */
async function call<T>(base: string, method: string, path: string, body?: object, token?: string): Promise<T> {
  for (;;) {
    const answer = await fetch(base + path, {
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
    if (!answer.ok) throw new Refused(method, path, answer.status, parsed(text));
    return JSON.parse(text) as T;
  }
}

function parsed(text: string): Record<string, unknown> {
  try {
    return JSON.parse(text) as Record<string, unknown>;
  } catch {
    return { detail: text.slice(0, 500) };
  }
}
