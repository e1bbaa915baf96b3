import { type ProviderCall, syncFailure } from "../failures.ts";
import { exchange, type ProviderAnswer, type ProviderRequest } from "../http.ts";
import type { ProviderDependencies } from "../provider.ts";
import { isToken } from "../shared-schemas.ts";
import { withToken } from "../tokens.ts";
import { authMountOf, type HashicorpSecrets, type HashicorpSettings } from "./configuration.ts";
import { errorTexts, hashicorpFailure } from "./failures.ts";

type Method = ProviderRequest["method"];

/** Calls one server with one credential. */
export interface HashicorpClient {
  /** Sends a request. @param path below `/v1/`. Returns undefined for 404. @throws {SyncFailure} */
  call(
    method: Method,
    path: string,
    description: Pick<ProviderCall, "operation" | "grant">,
    body?: object,
    signal?: AbortSignal,
  ): Promise<unknown>;
}

/** Creates a client for one configuration. */
export function hashicorpClient(
  settings: HashicorpSettings,
  secrets: HashicorpSecrets,
  { outgoing, clock, tokens }: ProviderDependencies,
): HashicorpClient {
  const provider = `Vault at ${new URL(settings.address).host}`;

  const send = async (
    method: Method,
    path: string,
    call: ProviderCall,
    { token, body, signal }: { token?: string; body?: object | undefined; signal?: AbortSignal | undefined },
  ): Promise<ProviderAnswer> =>
    await exchange(
      outgoing,
      `${settings.address}/v1/${path}`,
      {
        method,
        headers: {
          accept: "application/json",
          // An agent in front of the server may require this header, to reject requests forged by web pages.
          "x-vault-request": "true",
          ...(token !== undefined && { "x-vault-token": token }),
          ...(settings.namespace !== undefined && { "x-vault-namespace": settings.namespace }),
        },
        ...(body !== undefined && { body }),
        authorities: settings.caCertificate,
        ...(signal && { signal }),
      },
      call,
    );

  /** Signs in with AppRole: https://developer.hashicorp.com/vault/api-docs/auth/approle#login-with-approle */
  const role = {
    tokens,
    key: ["hashicorp", settings, secrets],
    async requestToken() {
      const signIn = { operation: "sign in", provider, grant: "a role of its own" };
      const body = { role_id: settings.roleId, secret_id: secrets.secretId };
      const answer = await send("POST", `auth/${authMountOf(settings)}/login`, signIn, { body });
      const { auth } = (answer.json ?? {}) as { auth?: { client_token?: unknown; lease_duration?: unknown } };
      if (answer.status !== 200) throw hashicorpFailure(answer, signIn, clock);
      if (!isToken(auth?.client_token)) throw syncFailure("badResponse", signIn, "the response has no token");
      return { token: auth.client_token, seconds: typeof auth.lease_duration === "number" ? auth.lease_duration : 0 };
    },
  };

  /**
   * Returns whether the server rejects the token itself. A missing permission also has the status 403, so the token's own
   * properties are requested to distinguish both.
   */
  async function isTokenRejected(
    answer: ProviderAnswer,
    token: string,
    signal: AbortSignal | undefined,
  ): Promise<boolean> {
    if (answer.status !== 403 || answer.json === undefined) return false;
    const call = { operation: "inspect the configured token", provider, grant: "the default policy" };
    const lookup = await send("GET", "auth/token/lookup-self", call, { token, signal });
    if (lookup.status === 200 && lookup.json !== undefined) return false;
    // A valid token may lack the permission to look itself up. Vault's text then starts with `1 error occurred`. The text for
    // an invalid token does not.
    if (lookup.status === 403 && lookup.json !== undefined) return !errorTexts(lookup).startsWith("1 error occurred");
    throw hashicorpFailure(lookup, call, clock);
  }

  return {
    async call(method, path, description, body, signal) {
      const call = { ...description, provider };
      const sendWith = (token: string) => send(method, path, call, { token, body, signal });
      const configuredToken = secrets.token;
      const answer = await (configuredToken === undefined
        ? withToken(role, sendWith, (rejected, token) => isTokenRejected(rejected, token, signal))
        : sendWith(configuredToken));
      const { status, json, hasBody } = answer;
      if (status === 404 && json !== undefined) return undefined;
      if (configuredToken !== undefined && (await isTokenRejected(answer, configuredToken, signal))) {
        throw syncFailure("badCredentials", call, "the token was not accepted: it is wrong, expired or revoked");
      }
      if (status !== 200 && status !== 204) throw hashicorpFailure(answer, call, clock);
      if (hasBody && json === undefined) throw syncFailure("badResponse", call, "the answer is not JSON");
      return json ?? {};
    },
  };
}
