import { type Api, asAdministrator } from "./api.ts";

/** The addresses that the simulated cloud reports when it is ready. */
export interface SimulatedProvider {
  controlUrl: string;
  oidc: { issuer: string; clientId: string; clientSecret: string };
}

type Protocol = "oidc" | "saml";

/** The members of the service's response that this file uses. */
interface Configuration {
  providerType: Protocol;
  oidcIssuer: string | null;
  samlIdpEntityId: string | null;
}

/** The app roles of Entra's tokens, under the name that each protocol has for them. */
const ROLES_CLAIM = { oidc: "roles", saml: "http://schemas.microsoft.com/ws/2008/06/identity/claims/role" };
const ROLE_MAPPING = {
  "Lifecycle.Admin": "admin",
  "Lifecycle.Auditor": "auditor",
  "Lifecycle.Operator": "operator",
  "Lifecycle.User": "user",
};

/**
 * Configures single sign-on with the identity provider of the simulated cloud, through the REST API. Keeps an existing
 * configuration, except for this provider at another address or with the other protocol.
 *
 * @returns Lines that tell the user how to sign in.
 */
export async function configureSingleSignOn(
  base: string,
  administrator: { username: string; password: string },
  provider: SimulatedProvider,
  protocol: Protocol,
): Promise<string[]> {
  const api = await asAdministrator(base, administrator);
  const now = await api<Configuration>("GET", "/auth/sso/config");
  const name = now.providerType === "oidc" ? now.oidcIssuer : now.samlIdpEntityId;
  if (name !== null && !name.startsWith("http://127.0.0.1:")) {
    return [`Single sign-on ${base}/auth/sso/login?returnUrl=/docs  (as you configured it: ${name})`];
  }
  if (now.providerType !== protocol || !name?.startsWith(provider.oidc.issuer)) {
    await configure(api, provider, protocol);
  }
  if (protocol === "saml") await registerService(base, provider);
  const people = (await (await fetch(`${provider.controlUrl}/people`)).json()) as { name: string; roles: string[] }[];
  const listed = people.map(({ name, roles }) => `${name} (${roles.join(" and ") || "no role"})`);
  return [
    `Single sign-on ${base}/auth/sso/login?returnUrl=/docs  (${protocol.toUpperCase()}; npm start -- --pro${protocol === "oidc" ? " --saml: SAML" : ": OIDC"})`,
    ...listed.map((line, index) => `${index === 0 ? "People        " : "              "} ${line}`),
  ];
}

async function configure(api: Api, { oidc }: SimulatedProvider, protocol: Protocol): Promise<void> {
  const same = {
    providerType: protocol,
    isEnabled: true,
    autoCreateUsers: true,
    defaultRole: "user",
    rolesClaim: ROLES_CLAIM[protocol],
    roleMapping: ROLE_MAPPING,
    loginButtonText: "Sign in with Acme",
  };
  const own =
    protocol === "oidc"
      ? { oidcIssuer: oidc.issuer, oidcClientId: oidc.clientId, oidcClientSecret: oidc.clientSecret }
      : { samlIdpMetadataXml: await (await fetch(`${oidc.issuer}/saml/metadata`)).text() };
  await api("PUT", "/auth/sso/config", { ...same, ...own });
}

/** The provider loses its registered services when the simulated cloud stops. */
async function registerService(base: string, { controlUrl }: SimulatedProvider): Promise<void> {
  const metadata = await (await fetch(`${base}/auth/sso/metadata`)).text();
  const body = JSON.stringify({ metadata });
  const answer = await fetch(`${controlUrl}/saml/service-providers`, { method: "PUT", body });
  if (!answer.ok)
    throw new Error(`PUT ${controlUrl}/saml/service-providers answered ${answer.status}: ${await answer.text()}`);
}
