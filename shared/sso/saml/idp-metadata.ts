import { invalidBody } from "../../platform/http/problem.ts";
import { readCertificate } from "./certificates.ts";
import { SamlRefused } from "./saml-refused.ts";
import { attribute, children, is, NAMESPACES, parseXml, textOf } from "./xml.ts";

const REDIRECT = "urn:oasis:names:tc:SAML:2.0:bindings:HTTP-Redirect";

/** The members of an identity provider's metadata that this service needs. */
export interface IdpMetadata {
  entityId: string;
  /** Sign-in URL for browsers. */
  entryPoint: string;
  /** Signing certificates, PEM: current ones and those for a rollover. */
  certificates: string[];
}

/**
 * Parses an identity provider's metadata (Metadata for SAML 2.0, 2.4.3). The administrator is responsible for its origin, so
 * its signature is not checked.
 *
 * @throws {Problem} invalidRequest
 */
export function parseIdpMetadata(xml: string): IdpMetadata {
  const root = rootOf(xml);
  if (!is(root, "metadata", "EntityDescriptor")) throw refused("must be the EntityDescriptor of one identity provider");
  const descriptors = children(root, "metadata", "IDPSSODescriptor").filter((one) =>
    (attribute(one, "protocolSupportEnumeration") ?? "").split(/\s+/).includes(NAMESPACES.protocol),
  );
  const [descriptor, ...more] = descriptors;
  if (!descriptor || more.length > 0) throw refused("must have one IDPSSODescriptor for SAML 2.0");
  const entityId = attribute(root, "entityID");
  if (entityId === undefined) throw refused("must have an entityID");
  const service = children(descriptor, "metadata", "SingleSignOnService").find(
    (one) => attribute(one, "Binding") === REDIRECT,
  );
  const entryPoint = service && attribute(service, "Location");
  if (entryPoint === undefined) throw refused("must have a SingleSignOnService with the binding HTTP-Redirect");
  return { entityId, entryPoint, certificates: certificatesOf(descriptor) };
}

/** Returns the keys that are for signing, or for any use. */
function certificatesOf(descriptor: Element): string[] {
  const found = children(descriptor, "metadata", "KeyDescriptor")
    .filter((key) => (attribute(key, "use") ?? "signing") === "signing")
    .flatMap((key) => children(key, "signature", "KeyInfo"))
    .flatMap((info) => children(info, "signature", "X509Data"))
    .flatMap((data) => children(data, "signature", "X509Certificate"))
    .map((certificate) => readCertificate(textOf(certificate) ?? ""));
  const problem = found.find((one) => typeof one === "string");
  if (problem !== undefined) throw refused(`has a certificate that can't be used: it ${problem}`);
  if (found.length === 0) throw refused("must have a certificate for signing");
  return [...new Set(found.map((one) => (one as Exclude<typeof one, string>).pem))];
}

function rootOf(xml: string): Element {
  try {
    // Pasted text may start with a byte order mark or an empty line.
    return parseXml(xml.trim());
  } catch (error) {
    if (!(error instanceof SamlRefused)) throw error;
    throw refused(
      error.reason === "documentType"
        ? "must be XML without a document type or entities"
        : "must be well-formed XML without processing instructions, of at most 256 KiB, 50 levels and 5,000 elements and attributes",
    );
  }
}

const refused = (message: string) => invalidBody("samlIdpMetadataXml", message);
