// A certificate authority that issues certificates over ACME: RFC 8555 with profiles, and orders that replace a certificate (RFC
// 9773). It validates domains by dns-01 only.

import { createHash, type JsonWebKey, type KeyObject, randomBytes, X509Certificate } from "node:crypto";
import type { CloudClock } from "../clock.ts";
import type { DnsZones } from "../dns/zones.ts";
import {
  type ErrorResponses,
  type IncomingRequest,
  jsonObject,
  type Operation,
  retryAfter,
  type ServiceResponse,
} from "../http.ts";
import { makeCertificate, pem, readSigningRequest } from "../x509.ts";
import { isBinding, isSignedBy, type Jws, parseJws, publicKeyOf, thumbprint } from "./jws.ts";

/** Every so many requests, a valid nonce is rejected, as authorities with several servers do (RFC 8555, section 6.5). */
const BAD_NONCE_INTERVAL = 11;
const ORDER_SECONDS = 7 * 86_400;
const DAY_SECONDS = 86_400;
/** Validity in days by profile. */
const PROFILES: Record<string, number> = { classic: 90, tlsserver: 45, shortlived: 6 };

interface Account {
  url: string;
  jwk: JsonWebKey;
  key: KeyObject;
  contact: string[];
  status: "valid" | "deactivated";
}

interface Authorization {
  id: string;
  domain: string;
  wildcard: boolean;
  token: string;
  status: "pending" | "valid" | "invalid";
  challenge: "pending" | "processing" | "valid" | "invalid";
  error?: object;
}

interface Order {
  id: string;
  account: Account;
  names: string[];
  profile: string;
  replaces: string | undefined;
  authorizations: Authorization[];
  status: "pending" | "ready" | "processing" | "valid" | "invalid";
  expires: number;
  /** PEM chains: the default one, and the one of the second root. */
  chains: string[];
  error?: object;
}

/** One issued certificate, for tests and renewal information. */
export interface IssuedCertificate {
  orderId: string;
  accountUrl: string;
  names: string[];
  profile: string;
  replaces: string | undefined;
  /** Serial number and identifier (RFC 9773, section 4.1). */
  serial: string;
  id: string;
  /** Unix seconds. */
  notBefore: number;
  notAfter: number;
  revoked: boolean;
  pem: string;
}

export interface AcmeServerOptions {
  origin: string;
  clock: CloudClock;
  zones: DnsZones;
  signingKey: KeyObject;
  /** External account binding that new accounts need. Undefined: none is needed. */
  binding?: { kid: string; hmacKey: string };
}

/** A rate limit: `count` certificates for the same names in `periodSeconds`. */
export interface AcmeRateLimit {
  count: number;
  periodSeconds: number;
}

export class AcmeServer {
  readonly #options: AcmeServerOptions;
  readonly #nonces = new Set<string>();
  readonly #accounts = new Map<string, Account>();
  readonly #orders = new Map<string, Order>();
  #signedRequests = 0;
  /** All issued certificates, oldest first. */
  readonly issued: IssuedCertificate[] = [];
  /** Number of finalizations that orders accepted, by order. */
  readonly finalized = new Map<string, number>();
  rateLimit: AcmeRateLimit | undefined;
  /** Whether finalized orders stay `processing`. */
  neverIssues = false;

  constructor(options: AcmeServerOptions) {
    this.#options = options;
  }

  get accounts(): readonly Account[] {
    return [...this.#accounts.values()];
  }

  get orders(): readonly Order[] {
    return [...this.#orders.values()];
  }

  directory(renewalInfo: string): ServiceResponse {
    const { origin, binding } = this.#options;
    return {
      status: 200,
      body: {
        newNonce: `${origin}/new-nonce`,
        newAccount: `${origin}/new-account`,
        newOrder: `${origin}/new-order`,
        revokeCert: `${origin}/revoke-cert`,
        keyChange: `${origin}/key-change`,
        renewalInfo,
        meta: {
          termsOfService: `${origin}/terms`,
          profiles: Object.fromEntries(Object.keys(PROFILES).map((name) => [name, `${origin}/profiles#${name}`])),
          ...(binding && { externalAccountRequired: true }),
        },
      },
    };
  }

  /** Returns the operation of a request other than those of AcmeAuthority. */
  operation(request: IncomingRequest): Operation | undefined {
    const { method, segments } = request;
    const [root = "", id, ...more] = segments;
    if (more.length > 0) return undefined;
    if (root === "new-nonce" && (method === "HEAD" || method === "GET")) {
      const status = method === "HEAD" ? 200 : 204;
      const answer = () => ({ status, headers: this.#nonceHeaders() });
      return { name: "acme.newNonce", errorResponses, answer };
    }
    if (method !== "POST") return undefined;
    const handlers: Record<string, { name: string; handle: (jws: Jws, account: Account) => ServiceResponse }> = {
      "new-order": { name: "newOrder", handle: (jws, account) => this.#newOrder(jws, account) },
      order: { name: "getOrder", handle: (_, account) => this.#getOrder(id!, account) },
      authz: { name: "getAuthorization", handle: (_, account) => this.#getAuthorization(id!, account) },
      challenge: { name: "challenge", handle: (jws, account) => this.#challenge(id!, jws, account) },
      finalize: { name: "finalize", handle: (jws, account) => this.#finalize(id!, jws, account) },
      certificate: { name: "certificate", handle: (_, account) => this.#certificate(id!, account, request) },
      account: { name: "account", handle: (jws, account) => this.#updateAccount(jws, account) },
      "revoke-cert": { name: "revoke", handle: (jws, account) => this.#revoke(jws, account) },
    };
    if (root === "new-account")
      return { name: "acme.newAccount", errorResponses, answer: () => this.#signed(request, this.#newAccount) };
    const handler = handlers[root];
    if (handler === undefined || (root !== "new-order" && root !== "revoke-cert" && id === undefined)) return undefined;
    const answer = () => this.#signed(request, (jws) => this.#withAccount(jws, handler.handle));
    return { name: `acme.${handler.name}`, ...(id !== undefined && { item: id }), errorResponses, answer };
  }

  #nonceHeaders(): Record<string, string> {
    const nonce = randomBytes(16).toString("base64url");
    this.#nonces.add(nonce);
    return { "replay-nonce": nonce, "cache-control": "no-store" };
  }

  /** Checks content type, nonce and URL of a signed request, and adds a nonce to the answer. */
  #signed(request: IncomingRequest, handle: (jws: Jws) => ServiceResponse): ServiceResponse {
    const answer = this.#checked(request, handle);
    return { ...answer, headers: { ...this.#nonceHeaders(), ...answer.headers } };
  }

  #checked(request: IncomingRequest, handle: (jws: Jws) => ServiceResponse): ServiceResponse {
    if (!request.headers["user-agent"]) return problem(400, "malformed", "A User-Agent is required.");
    if (request.headers["content-type"] !== "application/jose+json")
      return problem(415, "malformed", "The content type must be application/jose+json.");
    const jws = parseJws(jsonObject(request));
    if (jws === undefined) return problem(400, "malformed", "The body is not a flattened JWS.");
    if (!["ES256", "ES384", "RS256"].includes(jws.header.alg ?? ""))
      return problem(400, "badSignatureAlgorithm", "The algorithm is not supported.");
    if (jws.header.url !== `${this.#options.origin}${request.path}`)
      return problem(401, "unauthorized", "The url of the JWS is not that of the request.");
    const isKnown = this.#nonces.delete(jws.header.nonce ?? "");
    this.#signedRequests++;
    if (!isKnown || this.#signedRequests % BAD_NONCE_INTERVAL === 0)
      return problem(400, "badNonce", "The nonce is unknown or was used before.");
    return handle(jws);
  }

  #withAccount(jws: Jws, handle: (jws: Jws, account: Account) => ServiceResponse): ServiceResponse {
    const account = this.#accounts.get(jws.header.kid ?? "");
    if (account === undefined || jws.header.jwk !== undefined)
      return problem(400, "accountDoesNotExist", "The JWS names no account.");
    if (!isSignedBy(jws, account.key)) return problem(400, "malformed", "The signature is wrong.");
    if (account.status !== "valid") return problem(403, "unauthorized", "The account is deactivated.");
    return handle(jws, account);
  }

  readonly #newAccount = (jws: Jws): ServiceResponse => {
    const { origin, binding } = this.#options;
    const { jwk } = jws.header;
    const key = publicKeyOf(jwk);
    if (jwk === undefined || key === undefined || jws.header.kid !== undefined)
      return problem(400, "badPublicKey", "The JWS has no jwk.");
    if (!isSignedBy(jws, key)) return problem(400, "malformed", "The signature is wrong.");
    const url = `${origin}/account/${thumbprint(jwk)}`;
    const existing = this.#accounts.get(url);
    if (existing) return { status: 200, headers: { location: url }, body: accountJson(existing) };
    if (jws.payload?.onlyReturnExisting === true)
      return problem(400, "accountDoesNotExist", "No account has this key.");
    if (jws.payload?.termsOfServiceAgreed !== true)
      return problem(403, "userActionRequired", "The terms of service must be agreed to.");
    if (binding) {
      if (jws.payload.externalAccountBinding === undefined)
        return problem(403, "externalAccountRequired", "An external account binding is required.");
      if (!isBinding(jws.payload.externalAccountBinding, binding, jwk, `${origin}/new-account`))
        return problem(403, "unauthorized", "The external account binding is wrong.");
    }
    const contact = (jws.payload.contact ?? []) as string[];
    if (contact.some((one) => !/^mailto:[^@\s]+@[^@\s]+$/.test(one)))
      return problem(400, "invalidContact", "A contact is not an e-mail address.");
    const account: Account = { url, jwk, key, contact, status: "valid" };
    this.#accounts.set(url, account);
    return { status: 201, headers: { location: url }, body: accountJson(account) };
  };

  #updateAccount({ payload }: Jws, account: Account): ServiceResponse {
    if (Array.isArray(payload?.contact)) account.contact = payload.contact as string[];
    if (payload?.status === "deactivated") account.status = "deactivated";
    return { status: 200, body: accountJson(account) };
  }

  #newOrder({ payload }: Jws, account: Account): ServiceResponse {
    const identifiers = (payload?.identifiers ?? []) as { type?: string; value?: string }[];
    const names = identifiers.map(({ value }) => String(value).toLowerCase());
    if (names.length === 0 || identifiers.some(({ type }) => type !== "dns"))
      return problem(400, "malformed", "The order has no DNS identifiers.");
    const rejected = names.find((name) => !/^(\*\.)?([a-z0-9]([a-z0-9-]*[a-z0-9])?\.)+[a-z0-9-]+$/.test(name));
    if (rejected !== undefined || new Set(names).size < names.length)
      return problem(400, "rejectedIdentifier", `The identifier ${rejected ?? names[0]} is not allowed.`);
    const profile = payload?.profile ?? "classic";
    if (typeof profile !== "string" || PROFILES[profile] === undefined)
      return problem(400, "invalidProfile", `The profile ${String(profile)} is not offered.`);
    const { replaces } = payload ?? {};
    const replaced = this.issued.find(({ id }) => id === replaces);
    if (replaces !== undefined) {
      if (replaced === undefined || replaced.accountUrl !== account.url)
        return problem(404, "malformed", "The certificate to replace is unknown.");
      const earlier = [...this.#orders.values()].some(
        (order) => order.replaces === replaces && order.status !== "invalid",
      );
      if (earlier) return problem(409, "alreadyReplaced", "The certificate was already replaced by another order.");
    }
    const limited = replaced === undefined ? this.#limitedSeconds(names) : undefined;
    if (limited !== undefined)
      return {
        ...problem(429, "rateLimited", "Too many certificates were issued for these names."),
        headers: retryAfter(limited),
      };
    const id = randomBytes(8).toString("hex");
    const order: Order = {
      id,
      account,
      names,
      profile,
      replaces: replaces as string | undefined,
      authorizations: names.map((name, index) => ({
        id: `${id}-${index}`,
        domain: name.replace(/^\*\./, ""),
        wildcard: name.startsWith("*."),
        token: randomBytes(32).toString("base64url"),
        status: "pending",
        challenge: "pending",
      })),
      status: "pending",
      expires: this.#options.clock.seconds() + ORDER_SECONDS,
      chains: [],
    };
    this.#orders.set(id, order);
    return { status: 201, headers: { location: this.#url("order", id) }, body: this.#orderJson(order) };
  }

  /** Returns the seconds until another certificate is allowed for the names. Undefined if it is allowed now. */
  #limitedSeconds(names: readonly string[]): number | undefined {
    if (this.rateLimit === undefined) return undefined;
    const now = this.#options.clock.seconds();
    const { count, periodSeconds } = this.rateLimit;
    const recent = this.issued.filter(
      (one) => one.notBefore > now - periodSeconds && one.names.some((name) => names.includes(name)),
    );
    const oldest = recent.at(-count);
    return oldest === undefined ? undefined : Math.max(1, oldest.notBefore + periodSeconds - now);
  }

  #url(kind: string, id: string): string {
    return `${this.#options.origin}/${kind}/${id}`;
  }

  #orderOf(id: string, account: Account): Order | undefined {
    const order = this.#orders.get(id);
    return order?.account === account ? order : undefined;
  }

  #getOrder(id: string, account: Account): ServiceResponse {
    const order = this.#orderOf(id, account);
    if (order === undefined) return notFound();
    if (order.expires <= this.#options.clock.seconds() && order.status !== "valid") order.status = "invalid";
    // The request after the finalization finds the certificate.
    if (order.status === "processing" && !this.neverIssues) order.status = "valid";
    return { status: 200, body: this.#orderJson(order) };
  }

  #orderJson({ id, names, profile, status, expires, authorizations, replaces, error }: Order): object {
    return {
      status,
      expires: new Date(expires * 1000).toISOString(),
      identifiers: names.map((value) => ({ type: "dns", value })),
      profile,
      ...(replaces !== undefined && { replaces }),
      authorizations: authorizations.map((one) => this.#url("authz", one.id)),
      finalize: this.#url("finalize", id),
      ...(status === "valid" && { certificate: this.#url("certificate", id) }),
      ...(error && { error }),
    };
  }

  #findAuthorization(id: string, account: Account): { order: Order; authorization: Authorization } | undefined {
    const order = this.#orderOf(id.split("-")[0]!, account);
    const authorization = order?.authorizations.find((one) => one.id === id);
    return order && authorization && { order, authorization };
  }

  #getAuthorization(id: string, account: Account): ServiceResponse {
    const found = this.#findAuthorization(id, account);
    if (found === undefined) return notFound();
    const { order, authorization } = found;
    if (authorization.challenge === "processing") this.#validate(order, authorization);
    return { status: 200, body: this.#authorizationJson(order, authorization) };
  }

  #authorizationJson({ expires }: Order, authorization: Authorization): object {
    const { domain, wildcard, status } = authorization;
    return {
      identifier: { type: "dns", value: domain },
      status,
      expires: new Date(expires * 1000).toISOString(),
      ...(wildcard && { wildcard }),
      challenges: [this.#challengeJson(authorization)],
    };
  }

  #challengeJson({ id, token, challenge, error }: Authorization): object {
    return { type: "dns-01", url: this.#url("challenge", id), token, status: challenge, ...(error && { error }) };
  }

  #challenge(id: string, { payload }: Jws, account: Account): ServiceResponse {
    const found = this.#findAuthorization(id, account);
    if (found === undefined) return notFound();
    const { authorization } = found;
    if (payload === undefined) return { status: 200, body: this.#challengeJson(authorization) };
    if (authorization.challenge === "pending") authorization.challenge = "processing";
    return {
      status: 200,
      headers: { link: `<${this.#url("authz", authorization.id)}>;rel="up"` },
      body: this.#challengeJson(authorization),
    };
  }

  /** Looks for the record, and decides on the authorization. One wrong record makes the whole order invalid. */
  #validate(order: Order, authorization: Authorization): void {
    const keyAuthorization = `${authorization.token}.${thumbprint(order.account.jwk)}`;
    const expected = createHash("sha256").update(keyAuthorization).digest("base64url");
    const name = `_acme-challenge.${authorization.domain}`;
    const isValid = this.#options.zones.texts(name).includes(expected);
    authorization.status = isValid ? "valid" : "invalid";
    authorization.challenge = authorization.status;
    if (!isValid) {
      authorization.error = problem(403, "unauthorized", `No TXT record at ${name} has the expected value.`)
        .body as object;
      order.status = "invalid";
      order.error = authorization.error;
    } else if (order.authorizations.every(({ status }) => status === "valid") && order.status === "pending")
      order.status = "ready";
  }

  #finalize(id: string, { payload }: Jws, account: Account): ServiceResponse {
    const order = this.#orderOf(id, account);
    if (order === undefined) return notFound();
    if (order.status !== "ready") return problem(403, "orderNotReady", `The order is ${order.status}.`);
    const csr = typeof payload?.csr === "string" ? payload.csr : "";
    const request = readSigningRequest(Buffer.from(csr, "base64url"));
    if (request === undefined) return problem(400, "badCSR", "The signing request is malformed or wrongly signed.");
    const requested = new Set(
      [...request.dnsNames, ...(request.commonName === undefined ? [] : [request.commonName])].map((name) =>
        name.toLowerCase(),
      ),
    );
    if (requested.size !== order.names.length || order.names.some((name) => !requested.has(name)))
      return problem(400, "badCSR", "The names of the signing request are not those of the order.");
    const accountKey = order.account.key.export({ type: "spki", format: "der" });
    if (request.publicKey.export({ type: "spki", format: "der" }).equals(accountKey))
      return problem(400, "badCSR", "The key of the account must not be that of the certificate.");
    order.status = "processing";
    this.finalized.set(id, (this.finalized.get(id) ?? 0) + 1);
    this.#issue(order, request.publicKey);
    return {
      status: 200,
      headers: { location: this.#url("order", id), ...retryAfter(1) },
      body: this.#orderJson(order),
    };
  }

  #issue(order: Order, publicKey: KeyObject): void {
    const { signingKey, clock } = this.#options;
    const notBefore = clock.seconds() - 3600;
    const notAfter = notBefore + PROFILES[order.profile]! * DAY_SECONDS - 1;
    const issuer = "CN=R12, O=Let's Encrypt, C=US";
    const der = makeCertificate({
      subject: `CN=${order.names[0]!}`,
      issuer,
      serial: randomBytes(16),
      notBefore: new Date(notBefore * 1000),
      notAfter: new Date(notAfter * 1000),
      publicKey,
      signingKey,
      dnsNames: order.names,
      timestamps: true,
    });
    const intermediates = ["CN=Root X1, O=Stand-in, C=US", "CN=Root X2, O=Stand-in, C=US"].map((root) =>
      makeCertificate({
        subject: issuer,
        issuer: root,
        serial: createHash("sha256").update(root).digest().subarray(0, 16),
        notBefore: new Date((notBefore - 365 * DAY_SECONDS) * 1000),
        notAfter: new Date((notBefore + 3 * 365 * DAY_SECONDS) * 1000),
        publicKey: publicKeyOfPair(signingKey),
        signingKey,
        authority: true,
      }),
    );
    const leaf = pem("CERTIFICATE", der);
    order.chains = intermediates.map((intermediate) => leaf + pem("CERTIFICATE", intermediate));
    const { serialNumber } = new X509Certificate(der);
    this.issued.push({
      orderId: order.id,
      accountUrl: order.account.url,
      names: order.names,
      profile: order.profile,
      replaces: order.replaces,
      serial: serialNumber,
      id: certificateIdOf(signingKey, serialNumber),
      notBefore,
      notAfter,
      revoked: false,
      pem: leaf,
    });
  }

  #certificate(id: string, account: Account, { query }: IncomingRequest): ServiceResponse {
    const order = this.#orderOf(id, account);
    if (order?.status !== "valid") return notFound();
    const content = order.chains[query.get("chain") === "2" ? 1 : 0]!;
    return {
      status: 200,
      headers: { link: `<${this.#url("certificate", id)}?chain=2>;rel="alternate"` },
      text: { type: "application/pem-certificate-chain", content },
    };
  }

  #revoke({ payload }: Jws, account: Account): ServiceResponse {
    const der = Buffer.from(String(payload?.certificate ?? ""), "base64url");
    const issued = this.issued.find((one) => new X509Certificate(one.pem).raw.equals(der));
    if (issued === undefined) return notFound();
    if (issued.accountUrl !== account.url) return problem(403, "unauthorized", "Another account has the certificate.");
    const reason = payload?.reason ?? 0;
    if (![0, 1, 3, 4, 5].includes(Number(reason)))
      return problem(400, "badRevocationReason", "The reason is not allowed.");
    if (issued.revoked) return problem(400, "alreadyRevoked", "The certificate was already revoked.");
    issued.revoked = true;
    return { status: 200 };
  }
}

const accountJson = ({ url, contact, status }: Account): object => ({ status, contact, orders: `${url}/orders` });

const publicKeyOfPair = (key: KeyObject): KeyObject => publicKeyOf(key.export({ format: "jwk" }) as JsonWebKey)!;

/** Returns the identifier of a certificate: RFC 9773, section 4.1. The key identifier is the SHA-1 of the public key's DER. */
function certificateIdOf(signingKey: KeyObject, serialNumber: string): string {
  const spki = publicKeyOfPair(signingKey).export({ type: "spki", format: "der" });
  let serial = Buffer.from(serialNumber, "hex");
  if (serial[0]! & 0x80) serial = Buffer.concat([Buffer.from([0]), serial]);
  return `${createHash("sha1").update(spki).digest("base64url")}.${serial.toString("base64url")}`;
}

export const problem = (status: number, type: string, detail: string): ServiceResponse => ({
  status,
  headers: { "content-type": "application/problem+json" },
  body: { type: `urn:ietf:params:acme:error:${type}`, detail, status },
});

const notFound = (): ServiceResponse => problem(404, "malformed", "The resource does not exist.");

export const errorResponses: ErrorResponses = {
  throttled: (seconds) => ({ ...problem(429, "rateLimited", "Too many requests."), headers: retryAfter(seconds) }),
  denied: () => problem(403, "unauthorized", "Not allowed."),
  firewalled: () => problem(403, "unauthorized", "Not allowed."),
  failed: (status) => problem(status, "serverInternal", "The authority failed."),
};
