import type { SsoChange } from "../../../shared/sso/api.ts";
import type { Arrival } from "../../../shared/sso/sign-ins.ts";
import { HERE } from "../../access/instances.ts";
import { type Deployment, type Instance, ORIGIN } from "../room.ts";

/** What the SAML provider's page makes a browser post. */
export interface Posted {
  SAMLResponse: string;
  RelayState: string;
}

/** Chooses somebody at the address that the service redirected to; the page's form goes where the service said. */
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

/** A browser that begins a sign-in by SAML and comes back from the provider, as the person it chose there. */
export async function browseBySaml({ sso }: Instance, person: string, returnUrl?: string): Promise<Arrival> {
  const begun = await sso.begin(returnUrl, ORIGIN, HERE);
  const { form } = await chooseBySaml(begun.location, person);
  return {
    protocol: "saml",
    parameters: new URLSearchParams({ ...form }),
    requestId: form.RelayState,
    cookie: begun.cookies[0]!.value,
    userAgent: "a browser",
  };
}

/** What switches single sign-on by the stand-in provider on. */
export const samlSettings = ({ cloud }: Deployment): SsoChange => ({
  providerType: "saml",
  isEnabled: true,
  autoCreateUsers: true,
  samlIdpMetadataXml: cloud.saml.metadata(),
});

/** The XML of the response, changed. */
export function withResponse(arrival: Arrival, change: (xml: string) => string): Arrival {
  const xml = Buffer.from(arrival.parameters.get("SAMLResponse")!, "base64").toString();
  return { ...arrival, parameters: new URLSearchParams({ SAMLResponse: Buffer.from(change(xml)).toString("base64") }) };
}
