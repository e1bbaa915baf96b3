import { IdentityProvider, SamlLib, ServiceProvider } from "samlify";
import type { ProviderSession } from "../../access/user.ts";
import { PERSISTENT } from "./assertion.ts";
import type { ServiceNames } from "./service-names.ts";

// The SAML messages that this service sends: sign-in and logout requests, logout responses and its metadata, built with the
// library samlify. Its option `customTagReplacement` gets the library's template of a message, whose values are tags such as
// `{ID}`, and returns the message's ID and the filled template.

const POST = "urn:oasis:names:tc:SAML:2.0:bindings:HTTP-POST";
const REDIRECT = "urn:oasis:names:tc:SAML:2.0:bindings:HTTP-Redirect";
const SUCCESS = "urn:oasis:names:tc:SAML:2.0:status:Success";
const RSA_SHA256 = "http://www.w3.org/2001/04/xmldsig-more#rsa-sha256";

/**
 * The order of elements in the metadata schema, which the library's default does not have. `ServiceProvider` passes the option
 * on, but its type lacks it.
 */
const SCHEMA_ORDER: object = {
  elementsOrder: ["KeyDescriptor", "SingleLogoutService", "NameIDFormat", "AssertionConsumerService"],
};

/** The content and destination of an AuthnRequest. */
export interface AuthnRequest {
  /** Id of the request, which the response must name. */
  id: string;
  issuedAt: Date;
  /** Value that the provider returns unchanged. */
  relayState: string;
  /** Sign-in URL of the identity provider, which may have a query. */
  entryPoint: string;
  idpEntityId: string;
  /** True to request a persistent NameID. False if an attribute identifies the person. */
  persistentNameId: boolean;
  /** Private key that signs the request, PEM. Omitted: unsigned. */
  signingKey?: string;
  /** True if the provider must authenticate the person again (SAML Core, 3.4.1). */
  forceAuthn?: boolean;
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
          ForceAuthn: request.forceAuthn || undefined,
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

/** The sender, the receiver and the signature of a logout message. */
export interface LogoutParties {
  names: ServiceNames;
  idpEntityId: string;
  /** Single logout URL of the identity provider, which may have a query. */
  logoutUrl: string;
  /** Private key, PEM. Logout messages by HTTP-Redirect must be signed (Profiles, 4.4.3.1 and 4.4.3.4). */
  signingKey: string;
  /** Id of the message. */
  id: string;
  issuedAt: Date;
}

/**
 * The template of a LogoutRequest (Core, 3.7.1). samlify's own template has no qualifiers, and the NameID must equal that of the
 * assertion.
 */
const LOGOUT_REQUEST =
  '<samlp:LogoutRequest xmlns:samlp="urn:oasis:names:tc:SAML:2.0:protocol" xmlns:saml="urn:oasis:names:tc:SAML:2.0:assertion" ID="{ID}" Version="2.0" IssueInstant="{IssueInstant}" Destination="{Destination}"><saml:Issuer>{Issuer}</saml:Issuer><saml:NameID NameQualifier="{NameQualifier}" SPNameQualifier="{SPNameQualifier}" Format="{NameIDFormat}">{NameID}</saml:NameID>';

/** Returns the identity provider's URL with a LogoutRequest for a session (Bindings, 3.4; Profiles, 4.4). */
export function logoutRequestUrl(
  parties: LogoutParties,
  { nameId, sessionId }: { nameId: NonNullable<ProviderSession["nameId"]>; sessionId?: string },
): URL {
  const { service, provider } = logoutEntities(parties);
  const template = `${LOGOUT_REQUEST}${sessionId === undefined ? "" : "<samlp:SessionIndex>{SessionIndex}</samlp:SessionIndex>"}</samlp:LogoutRequest>`;
  const { context } = service.createLogoutRequest(
    provider,
    "redirect",
    {},
    {
      customTagReplacement: () => ({
        id: parties.id,
        context: fillTemplate(template, {
          ...messageValues(parties),
          NameQualifier: nameId.nameQualifier,
          SPNameQualifier: nameId.spNameQualifier,
          NameIDFormat: nameId.format,
          ...(sessionId !== undefined && { SessionIndex: sessionId }),
          // Replaced last, so that braces in it are not read as tags.
          NameID: nameId.value,
        }),
      }),
    },
  );
  return new URL(context);
}

/** Returns the identity provider's URL with the response to its LogoutRequest: all sessions that it names have ended. */
export function logoutResponseUrl(
  parties: LogoutParties,
  { id, relayState }: { id: string; relayState: string | undefined },
): URL {
  const { service, provider } = logoutEntities(parties);
  const { context } = service.createLogoutResponse(provider, { extract: { request: { id } } }, "redirect", {
    relayState,
    customTagReplacement: (template) => ({
      id: parties.id,
      context: fillTemplate(template, { ...messageValues(parties), StatusCode: SUCCESS, InResponseTo: id }),
    }),
  });
  return new URL(context);
}

/** Returns the values that all logout messages have. */
const messageValues = ({ id, issuedAt, names, logoutUrl }: LogoutParties) => ({
  ID: id,
  IssueInstant: issuedAt.toISOString(),
  Issuer: names.entityId,
  Destination: logoutUrl,
});

/** Returns both parties as objects of the library. */
function logoutEntities({ names, idpEntityId, logoutUrl, signingKey }: LogoutParties) {
  return {
    service: serviceProvider(names, { signingKey, signed: true }),
    provider: IdentityProvider({
      entityID: idpEntityId,
      wantLogoutRequestSigned: true,
      wantLogoutResponseSigned: true,
      // The sign-in URL is unused, but required by the library.
      singleSignOnService: [{ Binding: REDIRECT, Location: logoutUrl }],
      singleLogoutService: [{ Binding: REDIRECT, Location: logoutUrl }],
    }),
  };
}

/**
 * Fills samlify's template. Attributes with undefined values are omitted.
 *
 * @throws {Error} if the template has a tag that `values` lacks: samlify would send the tag as text, which identity providers
 * reject.
 */
function fillTemplate(template: string, values: Record<string, string | boolean | undefined>): string {
  const unfilled = [...template.matchAll(/\{(\w+)\}/g)].map(([, tag]) => tag!).filter((tag) => !(tag in values));
  if (unfilled.length > 0) throw new Error(`No value for ${unfilled.join(", ")} of samlify's template.`);
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
  { entityId, acsUrl, logoutUrl }: ServiceNames,
  { certificate, signingKey, signed }: { certificate?: string; signingKey?: string; signed: boolean },
) {
  return ServiceProvider({
    entityID: entityId,
    authnRequestsSigned: signed,
    wantAssertionsSigned: true,
    requestSignatureAlgorithm: RSA_SHA256,
    nameIDFormat: [PERSISTENT],
    assertionConsumerService: [{ Binding: POST, Location: acsUrl, isDefault: true }],
    // Logout messages must be signed.
    singleLogoutService: signed ? [{ Binding: REDIRECT, Location: logoutUrl }] : [],
    ...SCHEMA_ORDER,
    signingCert: certificate,
    encryptCert: certificate,
    privateKey: signingKey,
  });
}
