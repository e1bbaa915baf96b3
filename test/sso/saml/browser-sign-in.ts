import type { SsoChange } from "../../../shared/sso/api.ts";
import type { Arrival } from "../../../shared/sso/sign-ins.ts";
import { HERE } from "../../access/instances.ts";
import { type Deployment, type Instance, ORIGIN } from "../support.ts";

/** The form that the SAML provider's page makes a browser post. */
export interface Posted {
  SAMLResponse: string;
  RelayState: string;
}

/** Chooses a person at the URL that the service redirected to. The page's form goes to the address in the request. */
export async function chooseBySaml(address: string, person: string): Promise<{ action: string; form: Posted }> {
  const page = await (await fetch(address, { method: "POST", body: new URLSearchParams({ person }) })).text();
  const value = (pattern: RegExp) => {
    const found = pattern.exec(page)?.[1];
    if (found === undefined) throw new Error(`The provider answered: ${page}`);
    return found;
  };
  const form = {
    SAMLResponse: value(/name="SAMLResponse" value="([^"]*)"/),
    RelayState: value(/name="RelayState" value="([^"]*)"/),
  };
  return { action: value(/<form method="post" action="([^"]*)">/), form };
}

/** A browser that starts a SAML sign-in and returns from the provider as the chosen person. */
export async function browseBySaml({ sso }: Instance, person: string, returnUrl?: string): Promise<Arrival> {
  const redirection = await sso.begin(returnUrl, ORIGIN, HERE);
  const { form } = await chooseBySaml(redirection.location, person);
  return {
    protocol: "saml",
    parameters: new URLSearchParams({ ...form }),
    requestId: form.RelayState,
    cookie: redirection.cookies[0]!.value,
    userAgent: "a browser",
  };
}

/** The configuration that turns on single sign-on with the simulated provider. */
export const samlSettings = ({ cloud }: Deployment): SsoChange => ({
  providerType: "saml",
  isEnabled: true,
  autoCreateUsers: true,
  samlIdpMetadataXml: cloud.saml.metadata(),
});

/** Changes the XML of the response. */
export function withResponse(arrival: Arrival, change: (xml: string) => string): Arrival {
  const xml = Buffer.from(arrival.parameters.get("SAMLResponse")!, "base64").toString();
  return { ...arrival, parameters: new URLSearchParams({ SAMLResponse: Buffer.from(change(xml)).toString("base64") }) };
}
