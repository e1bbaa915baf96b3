import { createPublicKey, generateKeyPairSync, type KeyObject, randomBytes } from "node:crypto";
import type { IncomingMessage, ServerResponse } from "node:http";
import { makeCertificate } from "../x509.ts";
import type { People } from "./people.ts";
import { SAML_MODES, type SamlModeName } from "./saml-modes.ts";
import { InvalidSamlRequest, readRequest, readServiceProvider, type ServiceProvider } from "./saml-request.ts";
import { CANCELED_SIGN_IN, type SamlMode, type SamlRequest, samlResponse } from "./saml-response.ts";
import type { SamlKey } from "./saml-signature.ts";
import { escapeHtml, signInPage } from "./sign-in-page.ts";

/** Base path. The URL of the metadata is also the entity ID. */
export const SAML_PATH = "/saml/";
const DAY_MS = 24 * 3600 * 1000;

/**
 * Simulates a SAML identity provider: requests by HTTP-Redirect, responses by HTTP-POST, and a page with the people's names
 * instead of a password. The provider accepts requests of registered service providers on this machine, and rejects every
 * request that violates the SAML schema or the sender's metadata. A mode changes the provider's responses.
 */
export class SamlProvider {
  readonly #origin: string;
  readonly #people: People;
  /** Signing keys. The first one signs. The metadata contains the certificates of all. */
  #keys: SamlKey[];
  #foreignKey: SamlKey | undefined;
  #mode: SamlModeName = "correct";
  /** Service providers by entity ID. */
  readonly #serviceProviders = new Map<string, ServiceProvider>();

  /**
   * @param origin - Origin of the provider.
   * @param key - RSA signing key. It stays the same across restarts, because administrators configure it by hand.
   */
  constructor(origin: string, people: People, key: KeyObject) {
    this.#origin = origin;
    this.#people = people;
    this.#keys = [samlKey(key)];
  }

  get entityId(): string {
    return `${this.#origin}${SAML_PATH}metadata`;
  }

  get mode(): SamlModeName {
    return this.#mode;
  }

  setMode(mode: SamlModeName): void {
    this.#mode = mode;
  }

  /**
   * Registers or replaces a service provider. Registrations are lost when the simulated cloud stops.
   *
   * @throws {InvalidSamlRequest}
   */
  async register(metadata: string): Promise<string> {
    const serviceProvider = await readServiceProvider(metadata);
    this.#serviceProviders.set(serviceProvider.entityId, serviceProvider);
    return serviceProvider.entityId;
  }

  /** Signs with a new key. The metadata contains the old and the new certificate. */
  rollKeys(): void {
    this.#keys = [newKey(), this.#keys[0]!];
  }

  /** Returns the provider's metadata as XML. */
  metadata(): string {
    const keys = this.#keys.map(
      ({ certificate }) =>
        `<md:KeyDescriptor use="signing"><ds:KeyInfo xmlns:ds="http://www.w3.org/2000/09/xmldsig#"><ds:X509Data><ds:X509Certificate>${certificate}</ds:X509Certificate></ds:X509Data></ds:KeyInfo></md:KeyDescriptor>`,
    );
    const protocol = "urn:oasis:names:tc:SAML:2.0:protocol";
    const service = `<md:SingleSignOnService Binding="urn:oasis:names:tc:SAML:2.0:bindings:HTTP-Redirect" Location="${this.#origin}${SAML_PATH}sso"/>`;
    return `<md:EntityDescriptor xmlns:md="urn:oasis:names:tc:SAML:2.0:metadata" entityID="${this.entityId}"><md:IDPSSODescriptor protocolSupportEnumeration="${protocol}">${keys.join("")}${service}</md:IDPSSODescriptor></md:EntityDescriptor>`;
  }

  async handle(message: IncomingMessage, response: ServerResponse): Promise<void> {
    const url = new URL(message.url ?? "/", this.#origin);
    if (message.method === "GET" && url.pathname === `${SAML_PATH}metadata`)
      return sendText(response, 200, "application/samlmetadata+xml", this.metadata());
    if (url.pathname !== `${SAML_PATH}sso`) return sendText(response, 404, "text/plain", "Not found.\n");
    const [, query = ""] = (message.url ?? "").split("?");
    let request: SamlRequest;
    try {
      request = await readRequest(query, `${this.#origin}${SAML_PATH}sso`, this.#serviceProviders);
    } catch (error) {
      if (!(error instanceof InvalidSamlRequest)) throw error;
      return sendText(response, 400, "text/plain; charset=utf-8", `The SAML request is invalid. ${error.message}\n`);
    }
    if (message.method !== "POST")
      return sendText(
        response,
        200,
        "text/html; charset=utf-8",
        signInPage("Sign in to Acme (SAML)", this.#people.list()),
      );
    const person = new URLSearchParams(await textOf(message)).get("person") ?? "";
    const xml = await this.respond(request, person);
    sendText(
      response,
      200,
      "text/html; charset=utf-8",
      sendingPage(request.acsUrl, xml, url.searchParams.get("RelayState")),
    );
  }

  /** Returns the Response about a person as XML. For an unknown person it reports a failed sign-in. */
  async respond(request: SamlRequest, personId: string): Promise<string> {
    const person = this.#people.find(personId);
    const mode: SamlMode = person ? SAML_MODES[this.#mode] : CANCELED_SIGN_IN;
    this.#foreignKey ??= mode.foreignKey && newKey();
    const key = mode.foreignKey ? this.#foreignKey! : this.#keys[0]!;
    const id = () => `_${randomBytes(16).toString("hex")}`;
    return await samlResponse(this.entityId, request, person ?? this.#people.list()[0]!, key, {
      now: new Date(),
      id,
      mode,
    });
  }
}

/** Renders a page that posts the response to the service provider, as the HTTP-POST binding requires. */
function sendingPage(acsUrl: string, xml: string, relayState: string | null): string {
  const field = (name: string, value: string) => `<input type="hidden" name="${name}" value="${escapeHtml(value)}">`;
  return `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>Signing in</title>
<form method="post" action="${escapeHtml(acsUrl)}">
${field("SAMLResponse", Buffer.from(xml).toString("base64"))}
${relayState === null ? "" : field("RelayState", relayState)}
<button>Continue</button>
</form>
<script>document.forms[0].submit()</script>
</html>
`;
}

/** Creates a signing key with its certificate. */
function newKey(): SamlKey {
  return samlKey(generateKeyPairSync("rsa", { modulusLength: 2048 }).privateKey);
}

/** Adds a self-signed certificate to a key. */
function samlKey(privateKey: KeyObject): SamlKey {
  const name = "CN=Acme sign-in";
  const der = makeCertificate({
    subject: name,
    issuer: name,
    serial: randomBytes(8),
    notBefore: new Date(Date.now() - DAY_MS),
    notAfter: new Date(Date.now() + 1000 * DAY_MS),
    publicKey: createPublicKey(privateKey),
    signingKey: privateKey,
  });
  return { privateKey: privateKey.export({ format: "jwk" }), certificate: der.toString("base64") };
}

function sendText(response: ServerResponse, status: number, type: string, content: string): void {
  response.writeHead(status, { "content-type": type, "cache-control": "no-store" }).end(content);
}

async function textOf(message: IncomingMessage): Promise<string> {
  const parts: Buffer[] = [];
  for await (const part of message) parts.push(part);
  return Buffer.concat(parts).toString("utf8");
}
