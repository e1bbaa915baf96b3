import { Agent } from "node:https";
import type { Config } from "../config/config.ts";

/** An application that signs in with a client secret. */
export interface Registration {
  tenantId: string;
  clientId: string;
  clientSecret: string;
}

/** An application that signs in with a token that another issuer gave its workload. */
export interface FederatedSignIn {
  tenantId: string;
  clientId: string;
  /** The token of the workload. */
  clientAssertion: string;
}

/** https://learn.microsoft.com/entra/identity-platform/v2-oauth2-client-creds-grant-flow#third-case-access-token-request-with-a-federated-credential */
const ASSERTION_TYPE = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";

/** Maximum duration of one token request in milliseconds. */
const TIMEOUT_MS = 30_000;

/**
 * Messages for the error codes that mean that an application can't sign in with any secret:
 * https://learn.microsoft.com/entra/identity-platform/reference-error-codes
 */
export const SIGN_IN_FAILURES: Readonly<Record<number, string>> = {
  700016: "The application does not exist in this tenant.",
  7000112: "The application is disabled.",
  7000229: "The application has no service principal in this tenant.",
  90002: "The tenant does not exist.",
};

/**
 * Requests a token for Microsoft Graph from Microsoft Entra ID, with one request on a new connection. Each new connection can
 * reach another server of Entra ID, so repeated requests show whether all servers know a new secret. Does not log or store
 * anything.
 *
 * @throws {RestError} if there is no response.
 */
export async function requestToken(
  { cloud: { authorityHost, graph } }: Pick<Config, "cloud">,
  { tenantId, clientId, ...credential }: Registration | FederatedSignIn,
): Promise<{ status: number; body: unknown; header(name: string): string | undefined }> {
  const { createDefaultHttpClient, createHttpHeaders, createPipelineRequest } = await import(
    "@azure/core-rest-pipeline"
  );
  const form = new URLSearchParams({
    grant_type: "client_credentials",
    client_id: clientId,
    ...("clientSecret" in credential
      ? { client_secret: credential.clientSecret }
      : { client_assertion_type: ASSERTION_TYPE, client_assertion: credential.clientAssertion }),
    scope: `${graph}/.default`,
  });
  const request = createPipelineRequest({
    url: `${authorityHost}/${encodeURIComponent(tenantId)}/oauth2/v2.0/token`,
    method: "POST",
    headers: createHttpHeaders({ "content-type": "application/x-www-form-urlencoded", accept: "application/json" }),
    body: form.toString(),
    abortSignal: AbortSignal.timeout(TIMEOUT_MS),
  });
  request.agent = new Agent({ keepAlive: false });
  const { status, bodyAsText, headers } = await createDefaultHttpClient().sendRequest(request);
  return { status, body: parseJson(bodyAsText ?? ""), header: (name) => headers.get(name) };
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined; // The page of a proxy says nothing about the secret.
  }
}
