import { promises as dns, type LookupAddress } from "node:dns";
import {
  type ClientRequest,
  Agent as HttpAgent,
  request as httpRequest,
  type IncomingHttpHeaders,
  type IncomingMessage,
} from "node:http";
import { Agent as HttpsAgent, request as httpsRequest } from "node:https";
import type { LookupFunction } from "node:net";
import { noteRequest } from "../sent-changes.ts";
import { type AllowedNetwork, blockedReason } from "./allowed-addresses.ts";

// Sends HTTP requests to addresses that users configure, with limits that protect the service's own network.

export interface OutgoingRequest {
  method: "GET" | "HEAD" | "POST" | "PUT" | "PATCH" | "DELETE";
  headers: Record<string, string>;
  body?: string;
  /** PEM certificates of the certificate authorities to trust for this host, instead of the public ones. */
  authorities?: string | undefined;
  /** Aborts the request before the time limit. */
  signal?: AbortSignal;
}

/** The response, with any status. */
export interface OutgoingAnswer {
  status: number;
  headers: IncomingHttpHeaders;
  /** Start of the body, up to the limit. */
  body: Buffer;
  /** False if the body exceeds the limit or was truncated. */
  complete: boolean;
}

/** Thrown if there is no response. `sent` is true if the receiver may have received the whole request. */
export class Unreachable extends Error {
  override readonly name = "Unreachable";
  readonly sent: boolean;
  /** True if a retry would fail in the same way, for example because the address is blocked. */
  readonly permanent: boolean;

  constructor(message: string, details: { sent: boolean; permanent: boolean }) {
    super(message);
    this.sent = details.sent;
    this.permanent = details.permanent;
  }
}

/** Sends requests to addresses that users configure. */
export interface Outgoing {
  /** @throws {Unreachable} with a message that contains no more of the address than its host. */
  send(address: string, request: OutgoingRequest): Promise<OutgoingAnswer>;
}

/** Restrictions on targets and answers. */
export interface OutgoingOptions {
  allowedNetwork: (url: URL) => AllowedNetwork;
  /** Whether plain http is allowed for this address. */
  plainHttp: (url: URL) => boolean;
  /** Sentence in a rejection that says how to allow the address. */
  remedy: string;
  /** Milliseconds for name resolution, connection, request and answer together. */
  timeoutMs: number;
  /** Maximum bytes to read of an answer. The rest is ignored. */
  maxAnswerBytes: number;
  resolve?: (host: string) => Promise<LookupAddress[]>;
}

/**
 * Creates a client for addresses that users configure, such as webhooks, protected against server-side request forgery. The
 * client resolves the host name once and blocks the request if one of its addresses is not allowed. It connects to the checked
 * address, does not follow redirects, and limits time and size.
 * https://cheatsheetseries.owasp.org/cheatsheets/Server_Side_Request_Forgery_Prevention_Cheat_Sheet.html
 */
export function createOutgoing(options: OutgoingOptions): Outgoing {
  const { allowedNetwork, plainHttp, remedy, timeoutMs, maxAnswerBytes, resolve } = options;

  return {
    async send(address, request) {
      const url = new URL(address);
      const problem = addressProblem(url, plainHttp(url));
      if (problem) throw new Unreachable(`The address ${problem}.`, BLOCKED);
      const limit = new AbortController();
      const timer = setTimeout(() => limit.abort(), timeoutMs);
      const signal = request.signal ? AbortSignal.any([limit.signal, request.signal]) : limit.signal;
      try {
        const host = url.hostname.replace(/^\[(.*)\]$/, "$1");
        const blocked = (one: string) => blockedReason(one, allowedNetwork(url));
        const allowedAddress = await resolveAllowedAddress(host, { resolve, blocked, remedy, signal });
        return await send(url, allowedAddress, request, { signal, maxAnswerBytes });
      } finally {
        clearTimeout(timer);
      }
    },
  };
}

/**
 * Resolves a host name once, and returns its first address if all of its addresses are allowed. The caller must connect to this
 * address without another name resolution.
 *
 * @param options.blocked - Returns why an address is blocked, or undefined.
 * @param options.remedy - Sentence in a rejection that says how to allow the address.
 * @throws {Unreachable} `permanent` if an address is blocked.
 */
export async function resolveAllowedAddress(
  host: string,
  options: {
    resolve?: ((host: string) => Promise<LookupAddress[]>) | undefined;
    blocked: (address: string) => string | undefined;
    remedy: string;
    signal: AbortSignal;
  },
): Promise<LookupAddress> {
  const { resolve = resolveAll, blocked, remedy, signal } = options;
  let addresses: LookupAddress[];
  try {
    addresses = await Promise.race([resolve(host), rejectOnAbort(signal)]);
  } catch (error) {
    if (signal.aborted) throw new Unreachable(`The name ${host} was not resolved in time.`, NOT_SENT);
    throw new Unreachable(`The name ${host} could not be resolved (${codeOf(error)}).`, NOT_SENT);
  }
  for (const { address } of addresses) {
    const reason = blocked(address);
    if (reason) throw new Unreachable(`The address ${address} of ${host} is blocked: ${reason}. ${remedy}`, BLOCKED);
  }
  if (!addresses[0]) throw new Unreachable(`The name ${host} has no address.`, NOT_SENT);
  return addresses[0];
}

const resolveAll = (host: string): Promise<LookupAddress[]> => dns.lookup(host, { all: true });
const NOT_SENT = { sent: false, permanent: false };
const BLOCKED = { sent: false, permanent: true };

/** Returns why an address is invalid, as the end of a sentence "The address …". Does not resolve names. */
export function addressProblem(url: URL, plainHttp: boolean): string | undefined {
  if (url.protocol !== "https:" && !(plainHttp && url.protocol === "http:")) return "must begin with https://";
  if (url.username !== "" || url.password !== "") return "must not contain a username or password";
  if (url.hash !== "") return "must not contain a fragment";
  return undefined;
}

/** Returns `host:port` in the form of PRIVATE_TARGET_HOSTS, with the scheme's default port. */
export const hostAndPort = (url: URL): string =>
  `${url.hostname}:${url.port || (url.protocol === "https:" ? "443" : "80")}`.toLowerCase();

/**
 * Sends a request to the allowed address. Ends when the signal is aborted, even if the receiver does not respond, and closes
 * the connection.
 *
 * @throws {Unreachable}
 */
async function send(
  url: URL,
  chosen: LookupAddress,
  { method, headers, body, authorities }: OutgoingRequest,
  { signal, maxAnswerBytes }: { signal: AbortSignal; maxAnswerBytes: number },
): Promise<OutgoingAnswer> {
  // TLS and the Host header use the name. The connection uses only the checked address.
  const lookup: LookupFunction = (_host, options, done) =>
    options.all ? done(null, [chosen]) : done(null, chosen.address, chosen.family);
  // After an error, a request with an `Idempotency-Key` then counts as one that may have had an effect.
  noteRequest(method);
  const secure = url.protocol === "https:";
  const Agent = secure ? HttpsAgent : HttpAgent;
  // A kept connection would serve later requests without a check of their address.
  const agent = new Agent({ keepAlive: false });
  const bytes = body === undefined ? undefined : Buffer.from(body);
  const call = (secure ? httpsRequest : httpRequest)(url, {
    method,
    agent,
    lookup,
    ...(authorities !== undefined && { ca: authorities }),
    // `identity`, because nothing here decompresses a body, whose size is limited as it arrives.
    headers: { ...headers, ...(bytes && { "content-length": bytes.length }), "accept-encoding": "identity" },
  });
  let sent = false;
  call.once("finish", () => {
    sent = true;
  });
  try {
    const answer = await Promise.race([sendAndReadHead(call, bytes), rejectOnAbort(signal)]).catch((error: unknown) => {
      const reason = signal.aborted ? "it did not answer in time" : (error as Error).message;
      throw new Unreachable(`${url.hostname} was not reached: ${reason}.`, { sent, permanent: false });
    });
    const { statusCode: status = 0, headers: answerHeaders } = answer;
    // A truncated body does not fail the request, because some callers need only the status.
    const read = await Promise.race([readStart(answer, maxAnswerBytes), rejectOnAbort(signal)]).catch(() => NO_BODY);
    return { status, headers: answerHeaders, ...read };
  } finally {
    call.destroy();
  }
}

const NO_BODY = { body: Buffer.alloc(0), complete: false };

/** Sends the request and returns the head of its answer. Rejects with an error whose message gives the reason. */
const sendAndReadHead = (call: ClientRequest, body: Buffer | undefined): Promise<IncomingMessage> =>
  new Promise((resolve, reject) => {
    const rejectSwitch = () => reject(new Error("it switched protocols (101) instead of answering"));
    call.once("response", (answer) => (answer.statusCode === 101 ? rejectSwitch() : resolve(answer)));
    // Node emits `upgrade` for a 101 with upgrade headers. Without a listener Node closes the connection and emits no error.
    call.once("upgrade", (_answer, socket) => {
      socket.destroy();
      rejectSwitch();
    });
    call.on("error", (error) => reject(new Error(`the connection failed (${codeOf(error)})`)));
    call.once("close", () => reject(new Error("the connection was closed before an answer")));
    call.end(body);
  });

async function readStart(answer: IncomingMessage, limit: number): Promise<{ body: Buffer; complete: boolean }> {
  const chunks: Buffer[] = [];
  let length = 0;
  for await (const chunk of answer) {
    chunks.push(chunk as Buffer);
    length += (chunk as Buffer).length;
    if (length > limit) break;
  }
  return { body: Buffer.concat(chunks).subarray(0, limit), complete: length <= limit };
}

const codeOf = (error: unknown): string => (error as { code?: string }).code ?? "no code";

/** Rejects when the signal is aborted. */
export const rejectOnAbort = (signal: AbortSignal): Promise<never> =>
  new Promise((_, reject) => {
    if (signal.aborted) return reject(signal.reason);
    signal.addEventListener("abort", () => reject(signal.reason), { once: true });
  });
