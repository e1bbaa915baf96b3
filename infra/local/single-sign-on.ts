import { type Api, signInAsAdministrator } from "./api.ts";

// A step of `npm start -- --pro`: configures single sign-on.

/** The addresses that the simulated cloud reports when it is ready. */
export interface SimulatedProvider {
  controlUrl: string;
  oidc: { issuer: string; clientId: string; clientSecret: string };
}

type Protocol = "oidc" | "saml";

/** The fields of the service's SSO configuration that this file reads. */
interface Configuration {
  providerType: Protocol;
  oidcIssuer: string | null;
  samlIdpEntityId: string | null;
}

/** Name of the claim or SAML attribute with the app roles of a user, as Entra names it. */
const ROLES_CLAIM = { oidc: "roles", saml: "http://schemas.microsoft.com/ws/2008/06/identity/claims/role" };
/** Roles of the service by app role. */
const ROLE_MAPPING = {
  "Lifecycle.Admin": "admin",
  "Lifecycle.Auditor": "auditor",
  "Lifecycle.Operator": "operator",
  "Lifecycle.User": "user",
};

/**
 * Configures single sign-on with the identity provider of the simulated cloud, through the REST API. A configuration of another
 * provider is not changed. A configuration of a simulated provider is replaced if its address or protocol has changed.
 *
 * @returns Lines that tell the user how to sign in.
 */
export async function configureSingleSignOn(
  serviceUrl: string,
  administrator: { username: string; password: string },
  provider: SimulatedProvider,
  protocol: Protocol,
): Promise<string[]> {
  const api = await signInAsAdministrator(serviceUrl, administrator);
  const current = await api<Configuration>("GET", "/auth/sso/config");
  const providerName = current.providerType === "oidc" ? current.oidcIssuer : current.samlIdpEntityId;
  if (providerName !== null && !providerName.startsWith("http://127.0.0.1:")) {
    return [`Single sign-on ${serviceUrl}/auth/sso/login?returnUrl=/  (as you configured it: ${providerName})`];
  }
  if (current.providerType !== protocol || !providerName?.startsWith(provider.oidc.issuer)) {
    await configure(api, provider, protocol);
  }
  if (protocol === "saml") await registerService(serviceUrl, provider);
  const people = (await (await fetch(`${provider.controlUrl}/people`)).json()) as { name: string; roles: string[] }[];
  const peopleLines = people.map(({ name, roles }) => `${name} (${roles.join(" and ") || "no role"})`);
  return [
    `Single sign-on ${serviceUrl}/auth/sso/login?returnUrl=/  (${protocol.toUpperCase()}; npm start -- --pro${protocol === "oidc" ? " --saml: SAML" : ": OIDC"})`,
    ...peopleLines.map((line, index) => `${index === 0 ? "People        " : "              "} ${line}`),
  ];
}

async function configure(api: Api, { oidc }: SimulatedProvider, protocol: Protocol): Promise<void> {
  const common = {
    providerType: protocol,
    isEnabled: true,
    autoCreateUsers: true,
    defaultRole: "user",
    rolesClaim: ROLES_CLAIM[protocol],
    roleMapping: ROLE_MAPPING,
    loginButtonText: "Sign in with Acme",
  };
  const protocolSettings =
    protocol === "oidc"
      ? { oidcIssuer: oidc.issuer, oidcClientId: oidc.clientId, oidcClientSecret: oidc.clientSecret }
      : {
          samlIdpMetadataXml: await (await fetch(`${oidc.issuer}/saml/metadata`)).text(),
          // Without a key, the service sends no LogoutRequest.
          samlSignRequests: true,
        };
  await api("PUT", "/auth/sso/config", { ...common, ...protocolSettings });
}

/**
 * Registers the service with the SAML identity provider. This is needed after each start, because the simulated cloud forgets
 * it.
 */
async function registerService(serviceUrl: string, { controlUrl }: SimulatedProvider): Promise<void> {
  const metadata = await (await fetch(`${serviceUrl}/auth/sso/metadata`)).text();
  const body = JSON.stringify({ metadata });
  const answer = await fetch(`${controlUrl}/saml/service-providers`, { method: "PUT", body });
  if (!answer.ok)
    throw new Error(`PUT ${controlUrl}/saml/service-providers returned ${answer.status}: ${await answer.text()}`);
}
