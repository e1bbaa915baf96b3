import { SESSION_COOKIE } from "../shared/http/admission.ts";
import { cookieOf } from "../shared/http/cookies.ts";
import { previewQuery } from "../shared/http/input.ts";
import { ok, type Reply, resource } from "../shared/http/reply.ts";
import {
  SamlCallback,
  SsoCallback,
  SsoChange,
  SsoConfigurationView,
  SsoDiscovered,
  SsoDiscovery,
  SsoLogin,
  SsoStatus,
  SsoSwitchedOff,
  SsoTest,
  SsoTestResult,
} from "../shared/sso/api.ts";
import { BINDING_COOKIES } from "../shared/sso/requests.ts";
import type { Redirection } from "../shared/sso/sign-ins.ts";
import { endpoint } from "./kit.ts";

const tag = "Single sign-on";

const redirected = ({ location, cookies }: Redirection): Reply => ({
  status: 302,
  headers: { Location: location },
  cookies,
});

/** What the browser says it is, as the list of sessions shows it. */
const userAgentOf = (headers: Headers): string | undefined => headers.get("user-agent")?.slice(0, 200);

const getStatus = endpoint({
  name: "getSsoStatus",
  method: "GET",
  route: "auth/sso/status",
  summary: "Whether there is single sign-on",
  description: "What a sign-in page needs to show its button. Without a PRO licence it is switched off.",
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
  summary: "The configuration of single sign-on",
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
    "Any subset; what is left out stays. Register <PUBLIC_BASE_URL>/auth/sso/callback with the provider as the redirect URI (OIDC) or the assertion consumer service (SAML, GET /auth/sso/metadata). What is to be switched on is tried first and refused (400) when it does not work: POST /auth/sso/config/test says the same without saving. The client secret is kept in the service's own key vault (409 without one); a changed issuer needs it again. Needs PUBLIC_BASE_URL (409).",
  tag,
  access: "admin",
  tier: "pro",
  conditional: true,
  body: SsoChange,
  example: { body: { loginButtonText: "Sign in with Acme" } },
  responds: { 200: SsoConfigurationView },
  handle: async ({ body, ifMatch, caller, origin, services }) =>
    resource(await services.sso.configure(body, ifMatch, caller, origin)),
});

const testConfiguration = endpoint({
  name: "testSsoConfiguration",
  method: "POST",
  route: "auth/sso/config/test",
  summary: "Try a configuration without saving it",
  description:
    "For OIDC reads the issuer's discovery document and keys, and has the client prove itself; for SAML looks at address and certificates, since only browsers ever speak with that provider. The saved secret is used for the saved issuer and client only.",
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
  summary: "Switch single sign-on off",
  description: "The configuration is kept, and can be switched on again. Passwords work.",
  tag,
  access: "admin",
  tier: "pro",
  conditional: true,
  query: previewQuery("it is only looked whether it could be switched off."),
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
  summary: "An issuer's discovery document",
  description:
    "Fetched from its .well-known/openid-configuration, by https from public addresses only; the members that are known here. Ten a minute from one address.",
  tag,
  access: "open",
  tier: "pro",
  body: SsoDiscovery,
  // Nobody's: it is sent as it stands by whoever tries the endpoint out.
  example: { body: { issuerUrl: "https://login.acme.invalid" } },
  responds: { 200: SsoDiscovered },
  handle: async ({ body, caller, services }) => ok(await services.sso.discover(body.issuerUrl, caller)),
});

const login = endpoint({
  name: "ssoLogin",
  method: "GET",
  route: "auth/sso/login",
  summary: "Sign in with the identity provider",
  description: "For browsers. The sign-in must be completed in the same browser within ten minutes.",
  tag,
  access: "open",
  tier: "pro",
  page: true,
  query: SsoLogin,
  example: { query: { returnUrl: "/docs" } },
  responds: { 302: { description: "To the identity provider.", mediaType: null } },
  problems: ["conflict", "signInFailed"],
  cookies: [BINDING_COOKIES.oidc.name, BINDING_COOKIES.saml.name],
  handle: async ({ query, origin, caller, services }) =>
    redirected(await services.sso.begin(query.returnUrl, origin, caller)),
});

const callback = endpoint({
  name: "ssoCallback",
  method: "GET",
  route: "auth/sso/callback",
  summary: "Where the identity provider sends browsers back to",
  description:
    "Sets the session's cookie. Counts as a sign-in: 10 a minute and 100 an hour from one address, together with POST /auth/login. After a 429 the same address can be opened again.",
  tag,
  access: "open",
  tier: "pro",
  page: true,
  rateLimit: "signIn",
  query: SsoCallback,
  responds: { 302: { description: "To the returnUrl of the sign-in.", mediaType: null } },
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
  summary: "Where a SAML identity provider has browsers post its response",
  description:
    "The assertion consumer service (HTTP-POST). The form comes from another site, so it is bound to the browser by the cookie of its sign-in. Sets the session's cookie. Counts as a sign-in: 10 a minute and 100 an hour from one address, together with POST /auth/login. After a 429 the same form can be sent again.",
  tag,
  access: "open",
  tier: "pro",
  page: true,
  rateLimit: "signIn",
  body: SamlCallback,
  form: true,
  example: { body: { SAMLResponse: "PHNhbWxwOlJlc3BvbnNlLz4=" } },
  responds: { 303: { description: "To the returnUrl of the sign-in.", mediaType: null } },
  problems: ["conflict", "signInStale", "signInFailed", "signInRefused"],
  cookies: [SESSION_COOKIE, BINDING_COOKIES.saml.name],
  handle: async ({ body, headers, origin, caller, services }) => {
    const arrival = {
      protocol: "saml" as const,
      parameters: new URLSearchParams({ SAMLResponse: body.SAMLResponse }),
      requestId: body.RelayState,
      cookie: cookieOf(headers, BINDING_COOKIES.saml.name),
      userAgent: userAgentOf(headers),
    };
    // 303: the browser goes on with GET.
    return { ...redirected(await services.sso.complete(arrival, origin, caller)), status: 303 };
  },
});

const metadata = endpoint({
  name: "getSsoMetadata",
  method: "GET",
  route: "auth/sso/metadata",
  summary: "Our SAML metadata",
  description:
    "What an identity provider must know of this service: its entity id, which is this address, its assertion consumer service and its certificate. Needs PUBLIC_BASE_URL (409).",
  tag,
  access: "open",
  tier: "core",
  responds: { 200: { description: "An EntityDescriptor.", mediaType: "application/samlmetadata+xml" } },
  problems: ["conflict"],
  handle: async ({ origin, services }) => ({
    status: 200,
    content: { type: "application/samlmetadata+xml", data: await services.sso.samlMetadata(origin) },
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
  metadata,
];
