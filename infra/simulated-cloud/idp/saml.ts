import { createPublicKey, generateKeyPairSync, type KeyObject, randomBytes } from "node:crypto";
import type { IncomingMessage, ServerResponse } from "node:http";
import { makeCertificate } from "../x509.ts";
import type { People } from "./people.ts";
import { logoutRequest, logoutResponse, redirectUrl, type SamlLogoutRequest } from "./saml-logout.ts";
import { SAML_MODES, type SamlModeName } from "./saml-modes.ts";
import {
  InvalidSamlRequest,
  readLogoutRequest,
  readLogoutResponse,
  readRequest,
  readServiceProvider,
  type ServiceProvider,
} from "./saml-request.ts";
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
  /** The sessions of people who signed in. */
  #sessions: { nameId: string; sessionIndex: string }[] = [];
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
    const logout = `<md:SingleLogoutService Binding="urn:oasis:names:tc:SAML:2.0:bindings:HTTP-Redirect" Location="${this.#origin}${SAML_PATH}slo"/>`;
    const service = `<md:SingleSignOnService Binding="urn:oasis:names:tc:SAML:2.0:bindings:HTTP-Redirect" Location="${this.#origin}${SAML_PATH}sso"/>`;
    return `<md:EntityDescriptor xmlns:md="urn:oasis:names:tc:SAML:2.0:metadata" entityID="${this.entityId}"><md:IDPSSODescriptor protocolSupportEnumeration="${protocol}">${keys.join("")}${logout}${service}</md:IDPSSODescriptor></md:EntityDescriptor>`;
  }

  async handle(message: IncomingMessage, response: ServerResponse): Promise<void> {
    const url = new URL(message.url ?? "/", this.#origin);
    if (message.method === "GET" && url.pathname === `${SAML_PATH}metadata`)
      return sendText(response, 200, "application/samlmetadata+xml", this.metadata());
    const [, query = ""] = (message.url ?? "").split("?");
    try {
      if (url.pathname === `${SAML_PATH}sso`) await this.#signIn(message, response, query);
      else if (url.pathname === `${SAML_PATH}slo`) await this.#signOut(response, query);
      else sendText(response, 404, "text/plain", "Not found.\n");
    } catch (error) {
      if (!(error instanceof InvalidSamlRequest)) throw error;
      sendText(response, 400, "text/plain; charset=utf-8", `The SAML request is invalid. ${error.message}\n`);
    }
  }

  /** Returns the URL with a LogoutRequest to a registered service provider. */
  logoutRequestUrl(entityId: string, request: SamlLogoutRequest): string {
    const [destination] = this.#serviceProviders.get(entityId)?.logoutUrls ?? [];
    if (destination === undefined) throw new Error(`${entityId} has no single logout service.`);
    this.#foreignKey ??= newKey();
    const key = { none: undefined, foreignKey: this.#foreignKey, own: this.#keys[0]! }[request.signature ?? "own"];
    const id = `_${randomBytes(16).toString("hex")}`;
    const { change = (xml) => xml } = request;
    const xml = change(logoutRequest(request, { id, issuer: this.entityId, destination }));
    const relayState = request.relayState === "none" ? undefined : "state";
    return redirectUrl(destination, "SAMLRequest", xml, key, relayState);
  }

  /** Handles a logout message: answers a request, and accepts a successful response. */
  async #signOut(response: ServerResponse, query: string): Promise<void> {
    const parameters = new URLSearchParams(query);
    const logoutUrl = `${this.#origin}${SAML_PATH}slo`;
    if (parameters.has("SAMLResponse")) {
      const { status } = await readLogoutResponse(query, logoutUrl, this.#serviceProviders);
      const success = "urn:oasis:names:tc:SAML:2.0:status:Success";
      if (status !== success) throw new InvalidSamlRequest(`The status is ${status}.`);
      return sendText(response, 200, "text/plain; charset=utf-8", "Signed out everywhere.\n");
    }
    const request = await readLogoutRequest(query, logoutUrl, this.#serviceProviders);
    const isKnown = this.#sessions.some(
      ({ nameId, sessionIndex }) => nameId === request.nameId && request.sessionIndexes.includes(sessionIndex),
    );
    if (!isKnown) throw new InvalidSamlRequest("No session has this NameID and SessionIndex.");
    this.#sessions = this.#sessions.filter(({ sessionIndex }) => !request.sessionIndexes.includes(sessionIndex));
    const [destination] = request.sender.logoutUrls;
    if (destination === undefined) throw new InvalidSamlRequest("The sender's metadata has no SingleLogoutService.");
    const id = `_${randomBytes(16).toString("hex")}`;
    const xml = logoutResponse({ id, issuer: this.entityId, destination, inResponseTo: request.id });
    const location = redirectUrl(
      destination,
      "SAMLResponse",
      xml,
      this.#keys[0],
      parameters.get("RelayState") ?? undefined,
    );
    response.writeHead(302, { location }).end();
  }

  async #signIn(message: IncomingMessage, response: ServerResponse, query: string): Promise<void> {
    const request = await readRequest(query, `${this.#origin}${SAML_PATH}sso`, this.#serviceProviders);
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
      sendingPage(request.acsUrl, xml, new URLSearchParams(query).get("RelayState")),
    );
  }

  /** Returns the Response about a person as XML. For an unknown person it reports a failed sign-in. */
  async respond(request: SamlRequest, personId: string): Promise<string> {
    const person = this.#people.find(personId);
    const mode: SamlMode = person ? SAML_MODES[this.#mode] : CANCELED_SIGN_IN;
    this.#foreignKey ??= mode.foreignKey && newKey();
    const key = mode.foreignKey ? this.#foreignKey! : this.#keys[0]!;
    const id = () => `_${randomBytes(16).toString("hex")}`;
    const sessionIndex = id();
    if (person) this.#sessions.push({ nameId: person.objectId, sessionIndex });
    // The response to an unknown person has no assertion, so any person will do.
    return await samlResponse(this.entityId, request, person ?? this.#people.list()[0]!, key, {
      now: new Date(),
      id,
      sessionIndex,
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
