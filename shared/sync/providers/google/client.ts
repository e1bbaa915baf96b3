import { type ProviderCall, syncFailure } from "../failures.ts";
import { exchange, type ProviderRequest } from "../http.ts";
import type { ProviderDependencies } from "../provider.ts";
import { isToken } from "../shared-schemas.ts";
import { signedAssertion, withToken } from "../tokens.ts";
import { type GoogleSecrets, type GoogleSettings, keyFileIn } from "./configuration.ts";
import { googleFailure, tokenFailure } from "./failures.ts";

const PUBLIC_ADDRESSES = { api: "https://secretmanager.googleapis.com", token: "https://oauth2.googleapis.com/token" };
const SCOPE = "https://www.googleapis.com/auth/cloud-platform";

/** Calls Secret Manager as one service account, which exchanges a signed assertion for a token. */
export interface GoogleClient {
  /** Sends a request. @param path below `/v1/projects/{project}/`. Returns undefined for 404. @throws {SyncFailure} */
  call(
    method: ProviderRequest["method"],
    path: string,
    description: Pick<ProviderCall, "operation" | "grant">,
    body?: object,
    signal?: AbortSignal,
  ): Promise<unknown>;
}

/** Creates a client for one configuration. */
export function googleClient(
  { projectId }: GoogleSettings,
  { serviceAccountKey }: GoogleSecrets,
  { outgoing, clock, tokens, endpoints }: ProviderDependencies,
): GoogleClient {
  const addresses =
    endpoints.google === undefined ? PUBLIC_ADDRESSES : { api: endpoints.google, token: `${endpoints.google}/token` };
  const provider = `Google Secret Manager in ${projectId}`;

  // https://developers.google.com/identity/protocols/oauth2/service-account#httprest
  const requestToken = async () => {
    const call = { operation: "sign in as the service account", provider, grant: "a key" };
    const key = keyFileIn(serviceAccountKey);
    if (!key) throw syncFailure("badCredentials", call, "the service account's key is not readable");
    const claims = { iss: key.client_email, aud: addresses.token, scope: SCOPE };
    const assertion = await signedAssertion(claims, key.private_key, clock, { kid: key.private_key_id });
    const body = new URLSearchParams({ grant_type: "urn:ietf:params:oauth:grant-type:jwt-bearer", assertion });
    const request = { method: "POST" as const, headers: { accept: "application/json" }, body };
    const answer = await exchange(outgoing, addresses.token, request, call);
    if (answer.status !== 200) throw tokenFailure(answer, call, clock);
    const { access_token: token, expires_in: seconds } = (answer.json ?? {}) as Record<string, unknown>;
    if (!isToken(token)) throw syncFailure("badResponse", call, "the response has no token");
    return { token, seconds: typeof seconds === "number" ? seconds : 0 };
  };
  const account = { tokens, key: ["google", addresses.token, serviceAccountKey], requestToken };

  return {
    async call(method, path, description, body, signal) {
      const call = { ...description, provider };
      const address = `${addresses.api}/v1/projects/${projectId}/${path}`;
      const sendWith = async (token: string) => {
        const headers = { accept: "application/json", authorization: `Bearer ${token}` };
        return await exchange(
          outgoing,
          address,
          { method, headers, ...(body && { body }), ...(signal && { signal }) },
          call,
        );
      };
      const answer = await withToken(
        account,
        sendWith,
        // A rejection without JSON comes from a proxy, which does not know the token.
        ({ status, json }) => status === 401 && json !== undefined,
      );
      const { status, json } = answer;
      const error = (json as { error?: { status?: unknown } } | undefined)?.error;
      if (status === 404 && error?.status === "NOT_FOUND") return undefined;
      if (status !== 200) throw googleFailure(answer, call, clock);
      if (json === undefined) throw syncFailure("badResponse", call, "the answer is not JSON");
      return json;
    },
  };
}
