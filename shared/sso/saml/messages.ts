import { IdentityProvider, SamlLib, ServiceProvider } from "samlify";
import { PERSISTENT } from "./assertion.ts";
import type { ServiceNames } from "./names.ts";

const POST = "urn:oasis:names:tc:SAML:2.0:bindings:HTTP-POST";
const REDIRECT = "urn:oasis:names:tc:SAML:2.0:bindings:HTTP-Redirect";
const RSA_SHA256 = "http://www.w3.org/2001/04/xmldsig-more#rsa-sha256";

/** What an AuthnRequest says, and where it goes. */
export interface AuthnRequest {
  /** What the response must answer to. */
  id: string;
  issuedAt: Date;
  relayState: string;
  /** The identity provider's address, which may have a query. */
  entryPoint: string;
  idpEntityId: string;
  /** Whether a persistent NameID is asked for; not where an attribute names the person. */
  persistentNameId: boolean;
  /** Signs the request where it is given, PEM. */
  signingKey?: string;
}

/** The address that a browser is redirected to, with the request in it (Bindings, 3.4). */
export function authnRequestUrl(names: ServiceNames, request: AuthnRequest): URL {
  const { signingKey } = request;
  const provider = IdentityProvider({
    entityID: request.idpEntityId,
    wantAuthnRequestsSigned: signingKey !== undefined,
    singleSignOnService: [{ Binding: REDIRECT, Location: request.entryPoint }],
    // Never used: without one the library writes a warning to the console.
    singleLogoutService: [{ Binding: REDIRECT, Location: request.entryPoint }],
  });
  const { context } = serviceProvider(names, { signingKey, signed: signingKey !== undefined }).createLoginRequest(
    provider,
    "redirect",
    {
      relayState: request.relayState,
      customTagReplacement: (template) => ({
        id: request.id,
        context: fillTemplate(template, {
          ID: request.id,
          ForceAuthn: undefined,
          IssueInstant: request.issuedAt.toISOString(),
          ProtocolBinding: POST,
          AssertionConsumerServiceURL: names.acsUrl,
          // Core 3.4.1 forbids the index beside the URL.
          AssertionConsumerServiceIndex: undefined,
          Issuer: names.entityId,
          NameIDFormat: request.persistentNameId ? PERSISTENT : undefined,
          AllowCreate: true,
          // Last, so that braces in its query are not taken for tags.
          Destination: request.entryPoint,
        }),
      }),
    },
  );
  return new URL(context);
}

/**
 * Fills samlify's template. An attribute whose value is undefined is left out.
 *
 * @throws {Error} when the template has a tag that `values` does not name: samlify would send the tag as text, which identity
 * providers refuse.
 */
function fillTemplate(template: string, values: Record<string, string | boolean | undefined>): string {
  const unfilled = [...template.matchAll(/\{(\w+)\}/g)].map(([, tag]) => tag!).filter((tag) => !(tag in values));
  if (unfilled.length > 0) throw new Error(`No value for ${unfilled.join(", ")} of samlify's AuthnRequest template.`);
  return SamlLib.replaceTagsByValue(template, values);
}

/**
 * Our metadata (Metadata for SAML 2.0, 2.4.4).
 *
 * @param certificate - PEM; what requests are signed with and assertions may be encrypted for.
 * @param signed - Whether requests are signed.
 */
export function serviceMetadata(
  names: ServiceNames,
  { certificate, signed }: { certificate?: string; signed: boolean },
) {
  return serviceProvider(names, { certificate, signed }).getMetadata();
}

function serviceProvider(
  { entityId, acsUrl }: ServiceNames,
  { certificate, signingKey, signed }: { certificate?: string; signingKey?: string; signed: boolean },
) {
  return ServiceProvider({
    entityID: entityId,
    authnRequestsSigned: signed,
    wantAssertionsSigned: true,
    requestSignatureAlgorithm: RSA_SHA256,
    nameIDFormat: [PERSISTENT],
    assertionConsumerService: [{ Binding: POST, Location: acsUrl, isDefault: true }],
    signingCert: certificate,
    encryptCert: certificate,
    privateKey: signingKey,
  });
}
