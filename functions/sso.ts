import { SESSION_COOKIE } from "../shared/platform/http/admission.ts";
import { cookieOf } from "../shared/platform/http/cookies.ts";
import { previewQuery } from "../shared/platform/http/parse-request.ts";
import { ok, type Reply, resource } from "../shared/platform/http/reply.ts";
import {
  SamlCallback,
  SamlLogout,
  SsoCallback,
  SsoChange,
  SsoConfigurationView,
  SsoDiscovered,
  SsoDiscovery,
  SsoLogin,
  SsoLogoutToken,
  SsoSessionsEnded,
  SsoStatus,
  SsoSwitchedOff,
  SsoTest,
  SsoTestResult,
} from "../shared/sso/api.ts";
import { BINDING_COOKIES } from "../shared/sso/sign-in-requests.ts";
import type { Redirection } from "../shared/sso/sign-ins.ts";
import { endpoint } from "./declare.ts";

// Endpoints of single sign-on with an identity provider, by OpenID Connect (OIDC) or SAML.

const tag = "Single sign-on";

const redirected = ({ location, cookies }: Redirection): Reply<never> => ({
  status: 302,
  headers: { Location: location },
  cookies,
});

/** Returns the browser's description of itself, which the list of sessions shows. */
const userAgentOf = (headers: Headers): string | undefined => headers.get("user-agent")?.slice(0, 200);

const getStatus = endpoint({
  name: "getSsoStatus",
  method: "GET",
  route: "auth/sso/status",
  summary: "Get the availability of single sign-on",
  description:
    "Returns what a sign-in page needs to show its button. Single sign-on is disabled without a PRO license.",
  tag,
  access: "open",
  tier: "core",
  responds: { 200: SsoStatus },
  handle: async ({ services }) => ok(await services.sso.status()),
});

const getConfiguration = endpoint({
  name: "getSsoConfiguration",
  method: "GET",
  route: "auth/sso/config",
  summary: "Get the single sign-on configuration",
  tag,
  access: "admin",
  tier: "pro",
  responds: { 200: SsoConfigurationView },
  handle: async ({ services }) => resource(await services.sso.configuration()),
});

const putConfiguration = endpoint({
  name: "putSsoConfiguration",
  method: "PUT",
  route: "auth/sso/config",
  summary: "Configure single sign-on",
  description:
    "Accepts any subset of the fields; other fields stay unchanged. Register <PUBLIC_BASE_URL>/auth/sso/callback with the provider as the redirect URI (OIDC) or the assertion consumer service (SAML, GET /auth/sso/metadata). Enabling a configuration tests it first and returns 400 if the test fails; POST /auth/sso/config/test runs the same test without saving. The client secret is stored in the service's key vault (409 if there is none); a new issuer requires the client secret again. Requires PUBLIC_BASE_URL (409).",
  tag,
  access: "admin",
  tier: "pro",
  conditional: true,
  body: SsoChange,
  // A provider or role mapping of one's own could sign in a second administrator. So requests are guarded: they need the
  // confirmations that the settings requireStepUp and requireApproval require.
  guarded: () => true,
  example: { body: { loginButtonText: "Sign in with Acme" } },
  responds: { 200: SsoConfigurationView },
  handle: async ({ body, ifMatch, caller, origin, services }) =>
    resource(await services.sso.configure(body, ifMatch, caller, origin)),
});

const testConfiguration = endpoint({
  name: "testSsoConfiguration",
  method: "POST",
  route: "auth/sso/config/test",
  summary: "Test a single sign-on configuration without saving it",
  description:
    "For OIDC, reads the issuer's discovery document and keys, and authenticates the client. For SAML, checks the address and certificates, since only browsers connect to a SAML provider. The saved secret is used only with the saved issuer and client.",
  tag,
  access: "admin",
  tier: "pro",
  body: SsoTest,
  bodyOptional: true,
  example: { body: {} },
  responds: { 200: SsoTestResult },
  handle: async ({ body, caller, origin, services }) => ok(await services.sso.test(body, caller, origin)),
});

const deleteConfiguration = endpoint({
  name: "deleteSsoConfiguration",
  method: "DELETE",
  route: "auth/sso/config",
  summary: "Disable single sign-on",
  description: "Keeps the configuration, so that you can enable it again. Users sign in with passwords.",
  tag,
  access: "admin",
  tier: "pro",
  conditional: true,
  query: previewQuery("returns 404 if single sign-on is not configured."),
  example: { query: { preview: "true" } },
  responds: { 200: SsoSwitchedOff },
  problems: ["notFound"],
  handle: async ({ query, ifMatch, caller, services }) => {
    if (query.preview) await services.sso.configuration();
    else await services.sso.disable(ifMatch, caller);
    return ok({ deleted: !query.preview });
  },
});

const discover = endpoint({
  name: "discoverSso",
  method: "POST",
  route: "auth/sso/discover",
  summary: "Get the discovery document of an issuer",
  description:
    "Fetches .well-known/openid-configuration over HTTPS, from public addresses only, and returns the fields that the service knows. Limited to ten requests a minute from one address.",
  tag,
  access: "open",
  tier: "pro",
  body: SsoDiscovery,
  // Resolves to no provider, because `/docs` sends the example unchanged.
  example: { body: { issuerUrl: "https://login.acme.invalid" } },
  responds: { 200: SsoDiscovered },
  handle: async ({ body, caller, services }) => ok(await services.sso.discover(body.issuerUrl, caller)),
});

const login = endpoint({
  name: "ssoLogin",
  method: "GET",
  route: "auth/sso/login",
  summary: "Start a sign-in with the identity provider",
  description: "For browsers. The sign-in must be completed in the same browser within ten minutes.",
  tag,
  access: "open",
  tier: "pro",
  page: true,
  query: SsoLogin,
  example: { query: { returnUrl: "/docs" } },
  responds: { 302: { description: "Redirects to the identity provider.", mediaType: null } },
  problems: ["conflict", "signInFailed"],
  cookies: [BINDING_COOKIES.oidc.name, BINDING_COOKIES.saml.name],
  handle: async ({ query, origin, caller, services }) =>
    redirected(await services.sso.begin(query.returnUrl, origin, caller, query.prompt === "login")),
});

const callback = endpoint({
  name: "ssoCallback",
  method: "GET",
  route: "auth/sso/callback",
  summary: "Complete an OIDC sign-in",
  description:
    "Sets the session cookie. In the browser that started the sign-in, counts as a sign-in: 10 a minute and 100 an hour from one address, together with POST /auth/login. After a 429, the same address can be opened again.",
  tag,
  access: "open",
  tier: "pro",
  page: true,
  query: SsoCallback,
  responds: { 302: { description: "Redirects to the returnUrl of the sign-in.", mediaType: null } },
  problems: ["conflict", "signInStale", "signInFailed", "signInRefused"],
  cookies: [SESSION_COOKIE, BINDING_COOKIES.oidc.name],
  handle: async ({ query, url, headers, origin, caller, services }) => {
    const arrival = {
      protocol: "oidc" as const,
      parameters: url.searchParams,
      requestId: query.state,
      cookie: cookieOf(headers, BINDING_COOKIES.oidc.name),
      userAgent: userAgentOf(headers),
    };
    return redirected(await services.sso.complete(arrival, origin, caller));
  },
});

const samlCallback = endpoint({
  name: "ssoSamlCallback",
  method: "POST",
  route: "auth/sso/callback",
  summary: "Complete a SAML sign-in",
  description:
    "The assertion consumer service (HTTP-POST binding). The form is posted from another site, so the sign-in cookie binds it to the browser. Sets the session cookie. In the browser that started the sign-in, counts as a sign-in: 10 a minute and 100 an hour from one address, together with POST /auth/login. After a 429, the same form can be sent again.",
  tag,
  access: "open",
  tier: "pro",
  page: true,
  body: SamlCallback,
  form: true,
  example: { body: { SAMLResponse: "PHNhbWxwOlJlc3BvbnNlLz4=" } },
  responds: { 303: { description: "Redirects to the returnUrl of the sign-in.", mediaType: null } },
  problems: ["conflict", "signInStale", "signInFailed", "signInRefused"],
  cookies: [SESSION_COOKIE, BINDING_COOKIES.saml.name],
  handle: async ({ body, headers, origin, caller, services }) => {
    const arrival = {
      protocol: "saml" as const,
      parameters: new URLSearchParams(
        body.SAMLResponse === undefined ? { SAMLart: body.SAMLart! } : { SAMLResponse: body.SAMLResponse },
      ),
      requestId: body.RelayState,
      cookie: cookieOf(headers, BINDING_COOKIES.saml.name),
      userAgent: userAgentOf(headers),
    };
    // 303 makes the browser follow the redirect with GET.
    return { ...redirected(await services.sso.complete(arrival, origin, caller)), status: 303 };
  },
});

const backchannelLogout = endpoint({
  name: "ssoBackchannelLogout",
  method: "POST",
  route: "auth/sso/logout",
  summary: "End sessions for the OIDC provider",
  description:
    "The back-channel logout URI to register with an OpenID Connect provider, which calls it when a person signs out there or is disabled. Verifies the logout token and ends the sessions with its `sid`, or without `sid` all sessions by single sign-on of its `sub`. A token is accepted once; a rejected one returns 400 and is recorded as user.signOutRefused. Only rejected tokens count against the rate limit, because a provider sends all tokens from a few addresses.",
  tag,
  access: "open",
  tier: "pro",
  rateLimit: "none",
  body: SsoLogoutToken,
  form: true,
  example: { body: { logout_token: "eyJhbGciOiJSUzI1NiJ9.e30.c2ln" } },
  responds: { 200: SsoSessionsEnded },
  problems: ["unavailable", "rateLimited"],
  handle: async ({ body, caller, services }) =>
    ok({ endedSessions: await services.sso.endByLogoutToken(body.logout_token, caller) }),
});

const samlLogout = endpoint({
  name: "ssoSamlLogout",
  method: "GET",
  route: "auth/sso/logout",
  summary: "Handle a SAML logout message",
  description:
    "The single logout service (HTTP-Redirect binding). A signed LogoutRequest of the identity provider ends the sessions that it names. A LogoutResponse to a request of this service leads back to the page.",
  tag,
  access: "open",
  tier: "pro",
  page: true,
  query: SamlLogout,
  responds: {
    302: { description: "Redirects to the identity provider with the answer, or to the page.", mediaType: null },
  },
  problems: ["unavailable"],
  handle: async ({ url, origin, caller, services }) =>
    redirected({ location: await services.sso.endBySaml(url.search.slice(1), origin, caller), cookies: [] }),
});

const metadata = endpoint({
  name: "getSsoMetadata",
  method: "GET",
  route: "auth/sso/metadata",
  summary: "Get the SAML metadata of the service",
  description:
    "Contains what an identity provider needs to know about this service: its entity ID, which is this address, its assertion consumer service and its certificate. Requires PUBLIC_BASE_URL (409).",
  tag,
  access: "open",
  tier: "core",
  responds: { 200: { description: "An EntityDescriptor.", mediaType: "application/samlmetadata+xml" } },
  problems: ["conflict"],
  handle: async ({ origin, services }) => ({
    status: 200,
    content: { type: "application/samlmetadata+xml; charset=utf-8", data: await services.sso.samlMetadata(origin) },
  }),
});

export const endpoints = [
  getStatus,
  getConfiguration,
  putConfiguration,
  testConfiguration,
  deleteConfiguration,
  discover,
  login,
  callback,
  samlCallback,
  backchannelLogout,
  samlLogout,
  metadata,
];
