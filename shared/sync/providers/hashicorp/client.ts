import { type ProviderCall, syncFailure } from "../failures.ts";
import { exchange, type ProviderAnswer, type ProviderRequest } from "../http.ts";
import type { ProviderDependencies } from "../provider.ts";
import { keptToken } from "../signed.ts";
import type { HashicorpSecrets, HashicorpSettings } from "./configuration.ts";
import { hashicorpFailure } from "./failures.ts";

type Method = ProviderRequest["method"];

/** Calls of one server with one credential. */
export interface HashicorpClient {
  /** @param path below `/v1/`. Answers undefined for 404. @throws {SyncFailure} */
  call(
    method: Method,
    path: string,
    call: Pick<ProviderCall, "operation" | "grant">,
    body?: object,
    signal?: AbortSignal,
  ): Promise<unknown>;
  /** Asks the server about the token itself. @throws {SyncFailure} badCredentials when it is none. */
  checkToken(signal?: AbortSignal): Promise<void>;
}

export function hashicorpClient(
  settings: HashicorpSettings,
  secrets: HashicorpSecrets,
  { outgoing, clock }: ProviderDependencies,
): HashicorpClient {
  const at = `Vault at ${new URL(settings.address).host}`;
  const signIn = { operation: "sign in", at, grant: "a role of its own" };

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
          // Without it a server in front of a secondary one may forward the request anywhere.
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

  const role = keptToken(clock, async (signal) => {
    const body = { role_id: settings.roleId, secret_id: secrets.secretId };
    const answer = await send("POST", `auth/${settings.authMount}/login`, signIn, { body, signal });
    const { auth } = (answer.json ?? {}) as { auth?: { client_token?: unknown; lease_duration?: unknown } };
    if (answer.status !== 200) throw hashicorpFailure(answer, signIn, clock);
    if (typeof auth?.client_token !== "string") throw syncFailure("badResponse", signIn, "the answer has no token");
    return { token: auth.client_token, seconds: typeof auth.lease_duration === "number" ? auth.lease_duration : 0 };
  });
  const currentToken = async (signal: AbortSignal | undefined) => secrets.token ?? (await role.get(signal));

  async function checkToken(signal?: AbortSignal): Promise<void> {
    const token = await currentToken(signal);
    const call = { operation: "look at the configured token", at, grant: "the default policy" };
    const answer = await send("GET", "auth/token/lookup-self", call, { token, signal });
    if (answer.status === 403 && answer.json !== undefined) {
      role.forget();
      throw syncFailure("badCredentials", call, "the token was not accepted: it is wrong, expired or revoked");
    }
    if (answer.status !== 200) throw hashicorpFailure(answer, call, clock);
    if (answer.json === undefined) throw syncFailure("badResponse", call, "the answer is not JSON");
  }

  return {
    async call(method, path, what, body, signal) {
      const call = { ...what, at };
      const answer = await send(method, path, call, { token: await currentToken(signal), body, signal });
      const { status, json, hasBody } = answer;
      if (status === 404 && json !== undefined) return undefined;
      // A wrong token and a missing right have the same answer.
      if (status === 403 && json !== undefined) await checkToken(signal);
      if (status !== 200 && status !== 204) throw hashicorpFailure(answer, call, clock);
      if (hasBody && json === undefined) throw syncFailure("badResponse", call, "the answer is not JSON");
      return json ?? {};
    },
    checkToken,
  };
}
