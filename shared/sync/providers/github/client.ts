import { type ProviderCall, syncFailure } from "../failures.ts";
import { exchange, type ProviderAnswer, type ProviderRequest } from "../http.ts";
import type { ProviderDependencies } from "../provider.ts";
import { isToken } from "../shared-schemas.ts";
import { signedAssertion, withToken } from "../tokens.ts";
import type { GithubSecrets, GithubSettings } from "./configuration.ts";
import { githubFailure } from "./failures.ts";

const PUBLIC_API = "https://api.github.com";

/**
 * Lifetime of an installation token in seconds.
 * https://docs.github.com/rest/apps/apps#create-an-installation-access-token-for-an-app
 */
const INSTALLATION_TOKEN_SECONDS = 3600;

/** Permission that the remedy of a failure names. */
const GRANT = "read and write of Secrets (of Environments too, for an environment's) in the repository";

/** Calls the API of GitHub with one credential: a token, or a GitHub App, which exchanges a signed assertion for a token. */
export interface GithubClient {
  /**
   * Sends a request with the credential. Returns answers with a status in `expected`. @throws {SyncFailure} for other answers
   */
  call(
    method: ProviderRequest["method"],
    path: string,
    operation: string,
    expected: readonly number[],
    body?: object,
    signal?: AbortSignal,
  ): Promise<ProviderAnswer>;
}

/** Creates a client for one configuration. */
export function githubClient(
  settings: GithubSettings,
  secrets: GithubSecrets,
  { outgoing, clock, tokens, endpoints }: ProviderDependencies,
): GithubClient {
  const api = settings.apiUrl ?? endpoints.github ?? PUBLIC_API;
  const provider = `GitHub at ${new URL(api).host}`;

  const send = async (
    method: ProviderRequest["method"],
    path: string,
    token: string,
    call: ProviderCall,
    body: object | undefined,
    signal: AbortSignal | undefined,
  ): Promise<ProviderAnswer> => {
    const headers = {
      accept: "application/vnd.github+json",
      "x-github-api-version": "2022-11-28",
      "user-agent": "credential-lifecycle",
      authorization: `Bearer ${token}`,
    };
    return await exchange(
      outgoing,
      `${api}${path}`,
      { method, headers, ...(body && { body }), ...(signal && { signal }) },
      call,
    );
  };

  const requestInstallationToken = async () => {
    const call = { operation: "sign in as the app", provider, grant: GRANT };
    const assertion = await signedAssertion({ iss: settings.appId! }, secrets.privateKey!, clock);
    const path = `/app/installations/${settings.installationId}/access_tokens`;
    const answer = await send("POST", path, assertion, call, undefined, undefined);
    if (answer.status === 404 && answer.json !== undefined) {
      throw syncFailure("badCredentials", call, "the app has no such installation");
    }
    if (answer.status !== 201) throw githubFailure(answer, call, clock);
    const { token } = (answer.json ?? {}) as { token?: unknown };
    if (!isToken(token)) throw syncFailure("badResponse", call, "the response has no token");
    return { token, seconds: INSTALLATION_TOKEN_SECONDS };
  };
  const app = { tokens, key: ["github", api, settings, secrets], requestToken: requestInstallationToken };

  return {
    async call(method, path, operation, expected, body, signal) {
      const call = { operation, provider, grant: GRANT };
      const sendWith = (token: string) => send(method, path, token, call, body, signal);
      const answer = await (secrets.token === undefined
        ? withToken(app, sendWith, ({ status, json }) => status === 401 && json !== undefined)
        : sendWith(secrets.token));
      // GitHub answers 404 in JSON. A 404 page without JSON comes from another server.
      const usable = answer.hasBody ? answer.json !== undefined : answer.status < 300;
      if (expected.includes(answer.status) && usable) return answer;
      if (expected.includes(answer.status)) throw syncFailure("badResponse", call, "the answer is not JSON");
      throw githubFailure(answer, call, clock);
    },
  };
}
