import { invalidBody } from "../../platform/http/problem.ts";
import { readCertificate } from "./certificates.ts";
import { SamlRefused } from "./saml-refused.ts";
import { attribute, children, isElement, NAMESPACES, parseXml, textOf } from "./xml.ts";

const REDIRECT = "urn:oasis:names:tc:SAML:2.0:bindings:HTTP-Redirect";

/** The members of an identity provider's metadata that this service needs. */
export interface IdpMetadata {
  entityId: string;
  /** Sign-in URL for browsers. */
  entryPoint: string;
  /** Single logout URL for browsers, if the identity provider has one with the binding HTTP-Redirect. */
  logoutUrl: string | undefined;
  /** Signing certificates, PEM: current ones and those for a rollover. */
  certificates: string[];
}

/**
 * Parses an identity provider's metadata (Metadata for SAML 2.0, 2.4.3), which an administrator pastes into the configuration.
 * The administrator is responsible for its origin, so its signature is not checked.
 *
 * @throws {Problem} invalidRequest
 */
export function parseIdpMetadata(xml: string): IdpMetadata {
  const root = rootOf(xml);
  if (!isElement(root, "metadata", "EntityDescriptor"))
    throw invalidMetadata("must be the EntityDescriptor of one identity provider");
  const descriptors = children(root, "metadata", "IDPSSODescriptor").filter((descriptor) =>
    (attribute(descriptor, "protocolSupportEnumeration") ?? "").split(/\s+/).includes(NAMESPACES.protocol),
  );
  const [descriptor, ...more] = descriptors;
  if (!descriptor || more.length > 0) throw invalidMetadata("must have one IDPSSODescriptor for SAML 2.0");
  const entityId = attribute(root, "entityID");
  if (entityId === undefined) throw invalidMetadata("must have an entityID");
  const service = children(descriptor, "metadata", "SingleSignOnService").find(
    (candidate) => attribute(candidate, "Binding") === REDIRECT,
  );
  const entryPoint = service && attribute(service, "Location");
  if (entryPoint === undefined) throw invalidMetadata("must have a SingleSignOnService with the binding HTTP-Redirect");
  const logout = children(descriptor, "metadata", "SingleLogoutService").find(
    (candidate) => attribute(candidate, "Binding") === REDIRECT,
  );
  // Answers to requests of the provider go to ResponseLocation, if it has one (Metadata, 2.2.2). Such a provider is not offered
  // single logout, because the configuration has one URL.
  const logoutUrl = logout && !attribute(logout, "ResponseLocation") ? attribute(logout, "Location") : undefined;
  return { entityId, entryPoint, logoutUrl, certificates: certificatesOf(descriptor) };
}

/** Returns the certificates whose use is signing or is not specified. */
function certificatesOf(descriptor: Element): string[] {
  const certificates = children(descriptor, "metadata", "KeyDescriptor")
    .filter((key) => (attribute(key, "use") ?? "signing") === "signing")
    .flatMap((key) => children(key, "signature", "KeyInfo"))
    .flatMap((info) => children(info, "signature", "X509Data"))
    .flatMap((data) => children(data, "signature", "X509Certificate"))
    .map((certificate) => readCertificate(textOf(certificate) ?? ""));
  const problem = certificates.find((result) => typeof result === "string");
  if (problem !== undefined) throw invalidMetadata(`has a certificate that can't be used: it ${problem}`);
  if (certificates.length === 0) throw invalidMetadata("must have a certificate for signing");
  return [...new Set(certificates.map((result) => (result as Exclude<typeof result, string>).pem))];
}

function rootOf(xml: string): Element {
  try {
    // Pasted text may start with a byte order mark or an empty line.
    return parseXml(xml.trim());
  } catch (error) {
    if (!(error instanceof SamlRefused)) throw error;
    throw invalidMetadata(
      error.reason === "documentType"
        ? "must be XML without a document type or entities"
        : "must be well-formed XML without processing instructions, of at most 256 KiB, 50 levels and 5,000 elements and attributes",
    );
  }
}

const invalidMetadata = (message: string) => invalidBody("samlIdpMetadataXml", message);
