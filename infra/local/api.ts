import { setTimeout as delay } from "node:timers/promises";

/** A call of the service's REST API by one of its users. @throws {Refused} for every answer but a success. */
export type Api = <T>(method: string, path: string, body?: object) => Promise<T>;

/** Signs in as any caller would. */
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

/** One request; a 429 is waited out as it asks. */
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
