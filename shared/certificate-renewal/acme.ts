import { AsyncLocalStorage } from "node:async_hooks";
import { generateKeyPairSync } from "node:crypto";
import type * as Acme from "acme-client";
import * as z from "zod";
import type { Config } from "../platform/config/config.ts";
import { loadOnce } from "../platform/load-once.ts";
import { createOutgoing, hostAndPort, type Outgoing, Unreachable } from "../platform/outgoing/outgoing.ts";
import { DAY_SECONDS, HOUR_SECONDS, MINUTE_SECONDS, SECOND_MS } from "../platform/time.ts";

/**
 * Client of certificate authorities that speak ACME (RFC 8555). The library `acme-client` signs the requests. All of them go
 * through the guard for addresses that users configure, which neither follows redirects nor connects to private addresses.
 */

const LIMITS = { timeoutMs: 20 * SECOND_MS, maxAnswerBytes: 256 * 1024 };
const USER_AGENT = "credential-lifecycle";
/** A detail of an authority is shown to users up to this length. */
const MAX_DETAIL = 300;
/** Wait if an authority is busy and names no time. */
const DEFAULT_WAIT_SECONDS = MINUTE_SECONDS;
const MAX_WAIT_SECONDS = 8 * DAY_SECONDS;

/** Thrown if an authority rejected a request or did not answer. `message` is a sentence for users. */
export class AcmeFailure extends Error {
  override readonly name = "AcmeFailure";
  /** Type of the problem without its prefix, such as `rateLimited`, or `unreachable`, `blocked`, `unexpectedAnswer`. */
  readonly type: string;
  readonly retryAfterSeconds: number | undefined;
  /** True if the request may have had an effect. */
  readonly unclear: boolean;

  constructor(
    type: string,
    message: string,
    details: { retryAfterSeconds?: number | undefined; unclear?: boolean } = {},
  ) {
    super(message);
    this.type = type;
    this.retryAfterSeconds = details.retryAfterSeconds;
    this.unclear = details.unclear ?? false;
  }

  /** True if the same request can succeed later. */
  get isTransient(): boolean {
    return ["unreachable", "rateLimited", "serverInternal", "badNonce", "busy"].includes(this.type);
  }
}

const Directory = z.object({
  newNonce: z.url(),
  newAccount: z.url(),
  newOrder: z.url(),
  revokeCert: z.url(),
  renewalInfo: z.url().optional(),
  meta: z
    .object({
      termsOfService: z.string().optional(),
      externalAccountRequired: z.boolean().optional(),
      profiles: z.record(z.string(), z.string()).optional(),
    })
    .default({}),
});
export type AcmeDirectory = z.infer<typeof Directory>;

/** How to sign in to an authority. `accountKey` and `hmacKey` are secrets: do not store or log them. */
export interface AcmeSignIn {
  directoryUrl: string;
  /** PEM. */
  accountKey: string;
  /** Undefined for an account that is not registered yet. */
  accountUrl?: string | undefined;
  binding?: { keyId: string; hmacKey: string } | undefined;
}

/** An account at an authority. Every method throws `AcmeFailure`. */
export interface AcmeAccount {
  /** Registers the account, or finds it by its key. Returns its URL. */
  register(contacts: readonly string[]): Promise<string>;
  createOrder(order: {
    names: readonly string[];
    profile?: string | undefined;
    replaces?: string | undefined;
  }): Promise<Acme.Order>;
  getOrder(url: string): Promise<Acme.Order>;
  authorizationsOf(order: Acme.Order): Promise<Acme.Authorization[]>;
  /** Returns the value of the TXT record of a challenge. */
  recordValueOf(challenge: { type: string; url: string; token: string }): Promise<string>;
  /** Asks the authority to look for the record. */
  completeChallenge(challenge: { url: string }): Promise<void>;
  /** Requests the certificate of an order. `csr`: DER. */
  finalize(order: Acme.Order, csr: Buffer): Promise<Acme.Order>;
  /** Returns the issued certificate and its chain, PEM. */
  certificate(order: Acme.Order, preferredChain: string | undefined): Promise<string>;
  /** Revokes a certificate, PEM. A certificate that is already revoked is no failure. */
  revoke(certificate: string, reason: number): Promise<void>;
}

export interface AcmeClients {
  /** Reads the directory of an authority, and a nonce. @throws {AcmeFailure} */
  directory(url: string): Promise<AcmeDirectory>;
  open(signIn: AcmeSignIn): Promise<AcmeAccount>;
}

/** Returns a new key of an account, PEM. ECDSA with P-256, which all authorities accept. */
export const newAccountKey = (): string =>
  generateKeyPairSync("ec", { namedCurve: "P-256" }).privateKey.export({ type: "pkcs8", format: "pem" }).toString();

/** Receives what an authority answered, because the library's errors contain only a text. */
const exchanges = new AsyncLocalStorage<{ failure: AcmeFailure | undefined }>();
/** The guard that the requests of the library use. One library instance serves all modules of a process. */
let guard: Outgoing | undefined;

/** Loads the library. Its requests use the guard instead of the library's own connections and retries. */
const loadAcme = loadOnce(async () => {
  // The bundle has only the default export of a CommonJS package.
  const { default: acme } = await import("acme-client");
  acme.axios.defaults.maxRedirects = 0;
  acme.axios.defaults.adapter = async (config) => {
    const method = (config.method ?? "get").toUpperCase() as "GET" | "HEAD" | "POST";
    const url = config.url ?? "";
    const exchange = exchanges.getStore();
    if (!URL.canParse(url)) throw new AcmeFailure("unexpectedAnswer", "The authority named an address that is none.");
    const { hostname } = new URL(url);
    const headers = { accept: "application/json, application/pem-certificate-chain", "user-agent": USER_AGENT };
    const answer = await guard!
      .send(url, {
        method,
        headers: { ...headers, ...(method === "POST" && { "content-type": "application/jose+json" }) },
        ...(typeof config.data === "string" && { body: config.data }),
      })
      .catch((error: unknown) => {
        if (!(error instanceof Unreachable)) throw error;
        const type = error.permanent ? "blocked" : "unreachable";
        throw new AcmeFailure(type, error.message, { unclear: error.sent });
      });
    const { status, complete } = answer;
    const text = answer.body.toString("utf8");
    if (!complete) throw new AcmeFailure("unreachable", `The answer of ${hostname} was cut off.`, { unclear: true });
    if (exchange)
      exchange.failure = status >= 300 ? failureOf(hostname, status, text, answer.headers["retry-after"]) : undefined;
    return { data: text, status, statusText: "", headers: answer.headers as Record<string, string>, config };
  };
  return acme;
});

/** Runs calls of the library. @throws {AcmeFailure} */
async function exchange<T>(work: () => Promise<T>): Promise<T> {
  const store = { failure: undefined as AcmeFailure | undefined };
  try {
    return await exchanges.run(store, work);
  } catch (error) {
    if (error instanceof AcmeFailure) throw error;
    if (store.failure) throw store.failure;
    throw new AcmeFailure("unexpectedAnswer", "The authority sent an answer that RFC 8555 does not allow.", {
      unclear: true,
    });
  }
}

const Refusal = z.object({ type: z.string(), detail: z.string().optional() });

function failureOf(host: string, status: number, text: string, retryAfter: string | undefined): AcmeFailure {
  const refusal = Refusal.safeParse(jsonOf(text)).data;
  const type = /^urn:ietf:params:acme:error:(\w+)$/.exec(refusal?.type ?? "")?.[1];
  const detail = [...(refusal?.detail ?? "")]
    .filter((one) => one >= " ")
    .join("")
    .slice(0, MAX_DETAIL);
  const message = `${host} answered ${status}${type ? ` (${type})` : ""}${detail ? `: ${detail}` : "."}`;
  if (status === 429 || type === "rateLimited")
    return new AcmeFailure("rateLimited", message, { retryAfterSeconds: waitOf(retryAfter) });
  if (status >= 500) return new AcmeFailure("busy", message, { retryAfterSeconds: waitOf(retryAfter), unclear: true });
  return new AcmeFailure(type ?? "unexpectedAnswer", message);
}

function waitOf(header: string | undefined): number {
  if (header === undefined) return DEFAULT_WAIT_SECONDS;
  const seconds = /^\d+$/.test(header) ? Number(header) : (Date.parse(header) - Date.now()) / SECOND_MS;
  return Number.isFinite(seconds) ? Math.min(Math.max(1, Math.ceil(seconds)), MAX_WAIT_SECONDS) : DEFAULT_WAIT_SECONDS;
}

function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** Wait of a step between two reads of an order that the authority works on. */
export const ORDER_POLL_SECONDS = 3;
/** A renewal waits at most this long for a rate limit of an authority. */
export const LONGEST_RATE_LIMIT_SECONDS = HOUR_SECONDS;

export function createAcmeClients(config: Pick<Config, "PRIVATE_TARGET_HOSTS">, outgoing?: Outgoing): AcmeClients {
  const privateHosts = new Set(config.PRIVATE_TARGET_HOSTS.map((host) => host.toLowerCase()));
  guard =
    outgoing ??
    createOutgoing({
      ...LIMITS,
      allowedNetwork: (url) => (privateHosts.has(hostAndPort(url)) ? "named" : "public"),
      plainHttp: () => false,
      remedy: "PRIVATE_TARGET_HOSTS names hosts in the service's own network.",
    });

  return {
    async directory(url) {
      const acme = await loadAcme();
      return await exchange(async () => {
        const read = async (address: string, method: "get" | "head") => {
          const { data, status } = await acme.axios.request({ url: address, method, validateStatus: null });
          if (status !== 200) throw new Error("not a directory");
          return data as unknown;
        };
        const directory = Directory.parse(await read(url, "get"));
        await read(directory.newNonce, "head");
        return directory;
      });
    },

    async open({ directoryUrl, accountKey, accountUrl, binding }) {
      const acme = await loadAcme();
      const client = new acme.Client({
        directoryUrl,
        accountKey,
        ...(accountUrl !== undefined && { accountUrl }),
        ...(binding && { externalAccountBinding: { kid: binding.keyId, hmacKey: binding.hmacKey } }),
      });
      return {
        register: (contacts) =>
          exchange(async () => {
            const contact = contacts.map((address) => `mailto:${address}`);
            await client.createAccount({ termsOfServiceAgreed: true, contact });
            return client.getAccountUrl();
          }),

        createOrder: ({ names, profile, replaces }) =>
          exchange(async () => {
            const request = {
              identifiers: names.map((value) => ({ type: "dns", value })),
              ...(profile !== undefined && { profile }),
              ...(replaces !== undefined && { replaces }),
            };
            return await client.createOrder(request);
          }),

        getOrder: (url) => exchange(() => client.getOrder({ url } as Acme.Order)),
        authorizationsOf: (order) => exchange(() => client.getAuthorizations(order)),
        recordValueOf: (challenge) =>
          client.getChallengeKeyAuthorization({ ...challenge, status: "pending" } as Parameters<
            typeof client.getChallengeKeyAuthorization
          >[0]),
        completeChallenge: ({ url }) =>
          exchange(
            async () =>
              void (await client.completeChallenge({ url } as Parameters<typeof client.completeChallenge>[0])),
          ),
        finalize: (order, csr) => exchange(() => client.finalizeOrder(order, pemOf("CERTIFICATE REQUEST", csr))),
        certificate: (order, preferredChain) => exchange(() => client.getCertificate(order, preferredChain)),

        revoke: (certificate, reason) =>
          exchange(() => client.revokeCertificate(certificate, { reason })).catch((error: unknown) => {
            if (!(error instanceof AcmeFailure) || error.type !== "alreadyRevoked") throw error;
          }),
      };
    },
  };
}

/** Formats DER as PEM. */
export function pemOf(label: "CERTIFICATE" | "CERTIFICATE REQUEST", der: Buffer): string {
  const lines = der.toString("base64").match(/.{1,64}/g) ?? [];
  return `-----BEGIN ${label}-----\n${lines.join("\n")}\n-----END ${label}-----\n`;
}

/** Returns the certificates of a PEM chain as DER, the leaf first. */
export const derOfChain = (pem: string): Buffer[] =>
  [...pem.matchAll(/-----BEGIN CERTIFICATE-----([A-Za-z0-9+/=\s]+)-----END CERTIFICATE-----/g)].map(([, base64]) =>
    Buffer.from(base64!, "base64"),
  );

/** Returns the DNS names of a signing request, in lower case and sorted. `csr`: DER. */
export async function namesOfSigningRequest(csr: Buffer): Promise<string[]> {
  const { crypto } = await loadAcme();
  const { commonName, altNames } = crypto.readCsrDomains(pemOf("CERTIFICATE REQUEST", csr));
  return [...new Set([commonName, ...altNames].filter((name) => name).map((name) => name.toLowerCase()))].sort();
}
