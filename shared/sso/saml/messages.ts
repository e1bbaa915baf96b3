import { IdentityProvider, SamlLib, ServiceProvider } from "samlify";
import { PERSISTENT } from "./assertion.ts";
import type { ServiceNames } from "./service-names.ts";

// The SAML messages that this service sends: sign-in requests and its metadata, built with the library samlify.

const POST = "urn:oasis:names:tc:SAML:2.0:bindings:HTTP-POST";
const REDIRECT = "urn:oasis:names:tc:SAML:2.0:bindings:HTTP-Redirect";
const RSA_SHA256 = "http://www.w3.org/2001/04/xmldsig-more#rsa-sha256";

/** The content and destination of an AuthnRequest. */
export interface AuthnRequest {
  /** Id of the request, which the response must name. */
  id: string;
  issuedAt: Date;
  relayState: string;
  /** Sign-in URL of the identity provider, which may have a query. */
  entryPoint: string;
  idpEntityId: string;
  /** True to request a persistent NameID. False if an attribute identifies the person. */
  persistentNameId: boolean;
  /** Private key that signs the request, PEM. Omitted: unsigned. */
  signingKey?: string;
}

/** Returns the identity provider's URL with the request, to which the browser is redirected (SAML Bindings, 3.4). */
export function authnRequestUrl(names: ServiceNames, request: AuthnRequest): URL {
  const { signingKey } = request;
  const provider = IdentityProvider({
    entityID: request.idpEntityId,
    wantAuthnRequestsSigned: signingKey !== undefined,
    singleSignOnService: [{ Binding: REDIRECT, Location: request.entryPoint }],
    // Unused, but without a value the library logs a warning.
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
          // SAML Core 3.4.1 forbids the index together with the URL.
          AssertionConsumerServiceIndex: undefined,
          Issuer: names.entityId,
          NameIDFormat: request.persistentNameId ? PERSISTENT : undefined,
          AllowCreate: true,
          // Replaced last, so that braces in its query are not read as tags.
          Destination: request.entryPoint,
        }),
      }),
    },
  );
  return new URL(context);
}

/**
 * Fills samlify's template. Attributes with undefined values are omitted.
 *
 * @throws {Error} if the template has a tag that `values` lacks: samlify would send the tag as text, which identity providers
 * reject.
 */
function fillTemplate(template: string, values: Record<string, string | boolean | undefined>): string {
  const unfilled = [...template.matchAll(/\{(\w+)\}/g)].map(([, tag]) => tag!).filter((tag) => !(tag in values));
  if (unfilled.length > 0) throw new Error(`No value for ${unfilled.join(", ")} of samlify's AuthnRequest template.`);
  return SamlLib.replaceTagsByValue(template, values);
}

/**
 * Returns the metadata of this service (Metadata for SAML 2.0, 2.4.4).
 *
 * @param certificate - PEM. Signs requests, and assertions may be encrypted for it.
 * @param signed - True if requests are signed.
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
