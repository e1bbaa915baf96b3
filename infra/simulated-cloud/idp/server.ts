import type { IncomingMessage, RequestListener, ServerResponse } from "node:http";
import type { Faults } from "../faults.ts";
import { type ErrorResponses, type Operation, requestHead, retryAfter, type ServiceResponse, send } from "../http.ts";
import type { RequestLog } from "../request-log.ts";
import type { OidcProvider } from "./oidc.ts";
import { SAML_PATH, type SamlProvider } from "./saml.ts";

export interface IdentityProviders {
  oidc: OidcProvider;
  saml: SamlProvider;
  faults: Faults;
  requestLog: RequestLog;
}

/** Operation names by path prefix, for counts and faults. The first matching prefix applies. */
const OPERATIONS: readonly (readonly [pathPrefix: string, name: string])[] = [
  ["/.well-known/openid-configuration", "oidc.discovery"],
  ["/elsewhere/", "oidc.elsewhere"],
  ["/jwks", "oidc.keys"],
  ["/authorize", "oidc.authorize"],
  ["/interaction/", "oidc.choose"],
  ["/token", "oidc.token"],
  ["/userinfo", "oidc.userinfo"],
  ["/session/end", "oidc.logout"],
  [`${SAML_PATH}metadata`, "saml.metadata"],
  [`${SAML_PATH}sso`, "saml.signIn"],
  [`${SAML_PATH}slo`, "saml.logout"],
];

/**
 * Serves the company's identity providers on a plain port of their own. `http://127.0.0.1:port` is another site than the
 * service at `http://localhost:port`, so that browsers treat cookies as between two companies.
 */
export function identityProviders(parts: IdentityProviders): RequestListener {
  return (message, response) => {
    serve(parts, message, response).catch((error: unknown) => {
      if (response.headersSent) response.destroy();
      else send(response, { status: 500, body: { error: error instanceof Error ? error.message : String(error) } });
    });
  };
}

async function serve(
  { oidc, saml, faults, requestLog }: IdentityProviders,
  message: IncomingMessage,
  response: ServerResponse,
) {
  const request = { ...requestHead(message), body: Buffer.alloc(0) };
  const name = OPERATIONS.find(([pathPrefix]) => request.path.startsWith(pathPrefix))?.[1] ?? "unknown";
  // Returned if no fault applies. It is not sent: the provider then handles the request.
  const continueToProvider: ServiceResponse = { status: 200 };
  const operation: Operation = { name, errorResponses, answer: () => continueToProvider };
  const { answer, fault } = await faults.apply(request, operation, "");
  const entry = {
    at: new Date().toISOString(),
    operation: name,
    method: request.method,
    host: request.host,
    path: request.target,
    token: request.headers.authorization !== undefined,
    status: 0,
    ...(fault !== undefined && { fault }),
  };
  requestLog.add(entry);
  response.once("finish", () => {
    entry.status = response.statusCode;
  });
  if (answer === undefined) message.socket.destroy();
  else if (answer !== continueToProvider) send(response, answer);
  else if (request.path.startsWith(SAML_PATH)) await saml.handle(message, response);
  else await oidc.handle(message, response);
}

const failure = (status: number, error: string): ServiceResponse => ({ status, body: { error } });

const errorResponses: ErrorResponses = {
  throttled: (seconds) => ({ ...failure(429, "temporarily_unavailable"), headers: retryAfter(seconds) }),
  denied: () => failure(403, "access_denied"),
  firewalled: () => failure(403, "access_denied"),
  failed: (status) => failure(status, "server_error"),
};
