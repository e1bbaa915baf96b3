import { invalidBody } from "../../platform/http/problem.ts";
import { readCertificate } from "./certificates.ts";
import { SamlRefused } from "./refused.ts";
import { attribute, children, is, NAMESPACES, parseXml, textOf } from "./xml.ts";

const REDIRECT = "urn:oasis:names:tc:SAML:2.0:bindings:HTTP-Redirect";

/** What an identity provider says of itself, as far as we need it. */
export interface IdpMetadata {
  entityId: string;
  /** Where browsers are sent to sign in. */
  entryPoint: string;
  /** PEM; those it signs with, now or after a roll-over. */
  certificates: string[];
}

/**
 * Reads an identity provider's metadata (Metadata for SAML 2.0, 2.4.3). An administrator vouches for it: a signature of it is not
 * looked at.
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

/** Of keys that are for signing, or for anything. */
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
    // As people paste it: a byte order mark or an empty line at the beginning.
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
