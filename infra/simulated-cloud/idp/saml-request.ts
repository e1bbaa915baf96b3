// Reads and validates SAML requests and the metadata of service providers.

import { type KeyObject, verify, X509Certificate } from "node:crypto";
import { inflateRawSync } from "node:zlib";
import type { XmlElement } from "libxml2-wasm";
import type { SamlRequest } from "./saml-response.ts";
import { InvalidDocument, PREFIXES, readValid } from "./saml-schema.ts";

/** A service provider, read from its metadata. */
export interface ServiceProvider {
  entityId: string;
  /** Assertion consumer service URLs with the HTTP-POST binding. */
  acsUrls: string[];
  /** Single logout URLs with the HTTP-Redirect binding. */
  logoutUrls: string[];
  /** Whether the service provider signs its requests, according to its metadata. Unsigned requests are then rejected. */
  signsRequests: boolean;
  signingKeys: KeyObject[];
}

/** An invalid request or invalid metadata. The browser shows the message. */
export class InvalidSamlRequest extends Error {}

const REDIRECT_BINDING = "urn:oasis:names:tc:SAML:2.0:bindings:HTTP-Redirect";
const POST_BINDING = "urn:oasis:names:tc:SAML:2.0:bindings:HTTP-POST";
const PERSISTENT = "urn:oasis:names:tc:SAML:2.0:nameid-format:persistent";
const ENTITY_FORMAT = "urn:oasis:names:tc:SAML:2.0:nameid-format:entity";
const DEFLATE_ENCODING = "urn:oasis:names:tc:SAML:2.0:bindings:URL-Encoding:DEFLATE";
const HASHES: Record<string, string> = {
  "http://www.w3.org/2001/04/xmldsig-more#rsa-sha256": "sha256",
  "http://www.w3.org/2001/04/xmldsig-more#rsa-sha512": "sha512",
};
const MAX_REQUEST_BYTES = 64 * 1024;
/** SAML Bindings, section 3.4.3. */
const MAX_RELAY_STATE_BYTES = 80;
/** Maximum age of a request. The service's sign-ins have the same lifetime, and the user may wait on the page. */
const MAX_AGE_MS = 10 * 60_000;
const MAX_SKEW_MS = 60_000;

/**
 * Reads a service provider's metadata (Metadata for SAML 2.0, section 2.4.4).
 *
 * @throws {InvalidSamlRequest} if it violates the schema or describes a service on another machine.
 */
export async function readServiceProvider(metadata: string): Promise<ServiceProvider> {
  return await readDocument("metadata", metadata, (root) => {
    const descriptor = `/md:EntityDescriptor/md:SPSSODescriptor`;
    const acsUrls = values(root, `${descriptor}/md:AssertionConsumerService[@Binding="${POST_BINDING}"]/@Location`);
    if (acsUrls.length === 0)
      throw new InvalidSamlRequest("The metadata has no AssertionConsumerService with HTTP-POST.");
    const logoutUrls = values(root, `${descriptor}/md:SingleLogoutService[@Binding="${REDIRECT_BINDING}"]/@Location`);
    const elsewhere = [...acsUrls, ...logoutUrls].find(
      (url) => !["localhost", "127.0.0.1"].includes(URL.parse(url)?.hostname ?? ""),
    );
    if (elsewhere !== undefined) throw new InvalidSamlRequest(`${elsewhere} is not on this machine.`);
    const certificate = "ds:KeyInfo/ds:X509Data/ds:X509Certificate";
    const certificates = values(root, `${descriptor}/md:KeyDescriptor[not(@use="encryption")]/${certificate}`);
    return {
      entityId: value(root, "/md:EntityDescriptor/@entityID") ?? "",
      acsUrls,
      logoutUrls,
      signsRequests: ["true", "1"].includes(value(root, `${descriptor}/@AuthnRequestsSigned`) ?? ""),
      signingKeys: certificates.map((text) => new X509Certificate(Buffer.from(text, "base64")).publicKey),
    };
  });
}

/**
 * Reads an AuthnRequest that was sent by HTTP-Redirect (Bindings, section 3.4; Profiles, section 4.1.4.1). Checks it against
 * the schema and the sender's metadata.
 *
 * @param query - The query string as the browser sent it, without the question mark. The signature covers its exact bytes.
 * @param destination - The provider's own URL.
 * @param serviceProviders - Service providers by entity ID.
 * @throws {InvalidSamlRequest}
 */
export async function readRequest(
  query: string,
  destination: string,
  serviceProviders: ReadonlyMap<string, ServiceProvider>,
): Promise<SamlRequest> {
  return await readMessage(query, "SAMLRequest", "AuthnRequest", destination, serviceProviders, (root, sender) => {
    const attribute = (name: string) => value(root, `@${name}`);
    const index = attribute("AssertionConsumerServiceIndex");
    check(index === undefined, "AssertionConsumerServiceIndex excludes AssertionConsumerServiceURL, which is needed.");
    const acsUrl = attribute("AssertionConsumerServiceURL") ?? "";
    check(sender.acsUrls.includes(acsUrl), `AssertionConsumerServiceURL "${acsUrl}" is not in the sender's metadata.`);
    check((attribute("ProtocolBinding") ?? POST_BINDING) === POST_BINDING, `ProtocolBinding must be ${POST_BINDING}.`);
    return { id: attribute("ID") ?? "", issuer: sender.entityId, acsUrl };
  });
}

/** A LogoutRequest of a service provider. */
export interface ReceivedLogoutRequest {
  id: string;
  sender: ServiceProvider;
  nameId: string;
  sessionIndexes: string[];
}

/**
 * Reads a LogoutRequest (Core, section 3.7.1; Profiles, section 4.4.4.1). It must be signed.
 *
 * @throws {InvalidSamlRequest}
 */
export async function readLogoutRequest(
  query: string,
  destination: string,
  serviceProviders: ReadonlyMap<string, ServiceProvider>,
): Promise<ReceivedLogoutRequest> {
  return await readMessage(query, "SAMLRequest", "LogoutRequest", destination, serviceProviders, (root, sender) => {
    check(new URLSearchParams(query).has("Signature"), "A LogoutRequest by HTTP-Redirect must be signed.");
    const nameId = value(root, "saml:NameID");
    if (nameId === undefined) throw new InvalidSamlRequest("The LogoutRequest must have a NameID.");
    const format = value(root, "saml:NameID/@Format");
    check(format === PERSISTENT, `The NameID's format must be that of the assertion, ${PERSISTENT}.`);
    const sessionIndexes = values(root, "samlp:SessionIndex");
    return { id: value(root, "@ID") ?? "", sender, nameId, sessionIndexes };
  });
}

/**
 * Reads a LogoutResponse to a request of this provider (Core, section 3.7.2). It must be signed.
 *
 * @returns `InResponseTo` and the status code.
 * @throws {InvalidSamlRequest}
 */
export async function readLogoutResponse(
  query: string,
  destination: string,
  serviceProviders: ReadonlyMap<string, ServiceProvider>,
): Promise<{ inResponseTo: string | undefined; status: string | undefined }> {
  return await readMessage(query, "SAMLResponse", "LogoutResponse", destination, serviceProviders, (root) => {
    check(new URLSearchParams(query).has("Signature"), "A LogoutResponse by HTTP-Redirect must be signed.");
    return {
      inResponseTo: value(root, "@InResponseTo"),
      status: value(root, "samlp:Status/samlp:StatusCode/@Value"),
    };
  });
}

/** Reads a message of a service provider that was sent by HTTP-Redirect, and checks what all messages have in common. */
async function readMessage<T>(
  query: string,
  parameter: "SAMLRequest" | "SAMLResponse",
  element: string,
  destination: string,
  serviceProviders: ReadonlyMap<string, ServiceProvider>,
  read: (root: XmlElement, sender: ServiceProvider) => T,
): Promise<T> {
  const parameters = new URLSearchParams(query);
  const encoded = parameters.getAll(parameter);
  check(encoded.length === 1, `The address must have one parameter ${parameter}.`);
  const encoding = parameters.get("SAMLEncoding") ?? DEFLATE_ENCODING;
  check(encoding === DEFLATE_ENCODING, "SAMLEncoding must be DEFLATE.");
  const relayState = parameters.get("RelayState") ?? "";
  check(Buffer.byteLength(relayState) <= MAX_RELAY_STATE_BYTES, "RelayState is longer than 80 bytes.");
  return await readDocument("protocol", inflate(encoded[0]!), (root) => {
    const article = element.startsWith("A") ? "an" : "a";
    check(root.name === element, `The message must be ${article} ${element}, but is ${root.name}.`);
    const attribute = (name: string) => value(root, `@${name}`);
    check(attribute("Version") === "2.0", "Version must be 2.0.");
    check(attribute("Destination") === destination, `Destination must be ${destination}.`);
    requireRecent(attribute("IssueInstant") ?? "");
    const issuer = value(root, "saml:Issuer") ?? "";
    const format = value(root, "saml:Issuer/@Format") ?? ENTITY_FORMAT;
    const sender = serviceProviders.get(issuer);
    if (!sender || format !== ENTITY_FORMAT)
      throw new InvalidSamlRequest(
        `Issuer "${issuer}" is not the entity id of a registered service provider. PUT /control/saml/service-providers takes its metadata.`,
      );
    // The order of the checks decides only which error is shown: `read` changes nothing.
    const result = read(root, sender);
    check(
      root.get("ds:Signature", PREFIXES) === null,
      "By HTTP-Redirect the signature is in the address, not in the message.",
    );
    requireSignature(query, parameter, sender);
    return result;
  });
}

/** Checks the time of a request. SAML Core, section 1.3.3: times are in UTC. */
function requireRecent(issueInstant: string): void {
  check(issueInstant.endsWith("Z"), "IssueInstant must be in UTC and end with Z.");
  const age = Date.now() - Date.parse(issueInstant);
  check(age <= MAX_AGE_MS && age >= -MAX_SKEW_MS, `IssueInstant ${issueInstant} is too old or in the future.`);
}

/**
 * Verifies the signature. It covers the message, RelayState and SigAlg as they were sent, in this order, whatever their order
 * in the query (Bindings, section 3.4.4.1).
 */
function requireSignature(
  query: string,
  parameter: "SAMLRequest" | "SAMLResponse",
  { signsRequests, signingKeys }: ServiceProvider,
): void {
  const sent = new Map(query.split("&").map((pair) => [pair.split("=", 1)[0]!, pair]));
  const parameters = new URLSearchParams(query);
  const signature = parameters.get("Signature");
  if (signature === null) {
    check(!signsRequests, "The request is not signed, but its sender's metadata has AuthnRequestsSigned.");
    return;
  }
  const hash = HASHES[parameters.get("SigAlg") ?? ""];
  if (hash === undefined) throw new InvalidSamlRequest("SigAlg must be RSA with SHA-256 or SHA-512.");
  const signed = [parameter, "RelayState", "SigAlg"].flatMap((name) => sent.get(name) ?? []).join("&");
  const isValid = signingKeys.some((key) => verify(hash, Buffer.from(signed), key, Buffer.from(signature, "base64")));
  check(isValid, "The signature does not match a certificate in the sender's metadata.");
}

function inflate(encoded: string): string {
  try {
    return inflateRawSync(Buffer.from(encoded, "base64"), { maxOutputLength: MAX_REQUEST_BYTES }).toString();
  } catch {
    throw new InvalidSamlRequest("SAMLRequest must be base64 of a message that is compressed with DEFLATE.");
  }
}

/** Validates and reads a document. */
async function readDocument<T>(
  schema: "protocol" | "metadata",
  xml: string,
  read: (root: XmlElement) => T,
): Promise<T> {
  return await readValid(schema, xml, read).catch((error: unknown) => {
    throw error instanceof InvalidDocument ? new InvalidSamlRequest(error.message) : error;
  });
}

const values = (root: XmlElement, path: string): string[] =>
  root.find(path, PREFIXES).map((node) => node.content.trim());

const value = (root: XmlElement, path: string): string | undefined => values(root, path)[0];

/** @throws {InvalidSamlRequest} if a condition is false. */
function check(isValid: boolean, message: string): asserts isValid {
  if (!isValid) throw new InvalidSamlRequest(message);
}
