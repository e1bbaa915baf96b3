import type { SsoChange } from "../../../shared/sso/api.ts";
import type { Arrival } from "../../../shared/sso/sign-ins.ts";
import { CALLER } from "../../access/instances.ts";
import { type Deployment, type Instance, ORIGIN } from "../support.ts";

// Plays the browser in SAML sign-ins: chooses a person on the simulated provider's page and returns its form to the service.

/** The form that the SAML provider's page makes a browser post to the service. */
export interface SamlForm {
  SAMLResponse: string;
  RelayState: string;
}

/** Chooses a person on the provider's page. Returns the form on the next page and the address to which it is posted. */
export async function chooseBySaml(address: string, person: string): Promise<{ action: string; form: SamlForm }> {
  const page = await (await fetch(address, { method: "POST", body: new URLSearchParams({ person }) })).text();
  const match = (pattern: RegExp) => {
    const value = pattern.exec(page)?.[1];
    if (value === undefined) throw new Error(`The provider returned: ${page}`);
    return value;
  };
  const form = {
    SAMLResponse: match(/name="SAMLResponse" value="([^"]*)"/),
    RelayState: match(/name="RelayState" value="([^"]*)"/),
  };
  return { action: match(/<form method="post" action="([^"]*)">/), form };
}

/** Starts a SAML sign-in, chooses a person, and returns what the browser then sends to the callback. */
export async function browseBySaml({ sso }: Instance, person: string, returnUrl?: string): Promise<Arrival> {
  const redirection = await sso.begin(returnUrl, ORIGIN, CALLER);
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

/** Returns the arrival with a changed response XML. */
export function withChangedResponse(arrival: Arrival, change: (xml: string) => string): Arrival {
  const xml = Buffer.from(arrival.parameters.get("SAMLResponse")!, "base64").toString();
  return { ...arrival, parameters: new URLSearchParams({ SAMLResponse: Buffer.from(change(xml)).toString("base64") }) };
}
