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
import { type Reach, refusal } from "./addresses.ts";

export interface OutgoingRequest {
  method: "GET" | "POST" | "PUT" | "PATCH" | "DELETE";
  headers: Record<string, string>;
  body?: string;
  /** PEM certificates of the authorities that may vouch for the host, in place of the public ones. */
  authorities?: string | undefined;
  /** Gives it up earlier than the time limit does. */
  signal?: AbortSignal;
}

/** What was answered, whatever the status. */
export interface OutgoingAnswer {
  status: number;
  headers: IncomingHttpHeaders;
  /** The beginning of the body, up to the limit. */
  body: Buffer;
  /** False where the body went on beyond the limit, or broke off. */
  whole: boolean;
}

/** There was no answer. `sent` says whether the other side may have got the whole request nevertheless. */
export class Unreachable extends Error {
  override readonly name = "Unreachable";
  readonly sent: boolean;
  /** Whether another try would end the same way until somebody changes the address. */
  readonly lasting: boolean;

  constructor(message: string, how: { sent: boolean; lasting: boolean }) {
    super(message);
    this.sent = how.sent;
    this.lasting = how.lasting;
  }
}

/** Requests to addresses that people gave. */
export interface Outgoing {
  /** @throws {Unreachable} whose message never holds more of the address than its host. */
  send(address: string, request: OutgoingRequest): Promise<OutgoingAnswer>;
}

/** Where requests may go, and what of their answers is taken. */
export interface OutgoingOptions {
  reach: (url: URL) => Reach;
  /** Whether plain http may be spoken with it. */
  plainHttp: (url: URL) => boolean;
  /** What a refusal says can be done about it; a sentence. */
  remedy: string;
  /** Milliseconds for everything: the name, the connection, the request and its answer. */
  timeoutMs: number;
  /** Bytes of an answer that are read; the rest is not waited for. */
  maxAnswerBytes: number;
  resolve?: (host: string) => Promise<LookupAddress[]>;
}

/**
 * Calls addresses that people gave, which may be chosen to reach what only this service can: the name is resolved once,
 * every address it has must be allowed, the connection goes to the very address that was checked, no redirect is followed,
 * and time and size are bounded. https://cheatsheetseries.owasp.org/cheatsheets/Server_Side_Request_Forgery_Prevention_Cheat_Sheet.html
 */
export function createOutgoing(options: OutgoingOptions): Outgoing {
  const { reach, plainHttp, remedy, timeoutMs, maxAnswerBytes } = options;
  const resolve = options.resolve ?? ((host) => dns.lookup(host, { all: true }));

  async function checkedAddress(url: URL, signal: AbortSignal): Promise<LookupAddress> {
    const host = url.hostname.replace(/^\[(.*)\]$/, "$1");
    let found: LookupAddress[];
    try {
      found = await Promise.race([resolve(host), aborted(signal)]);
    } catch (error) {
      if (signal.aborted) throw new Unreachable(`The name ${host} was not resolved in time.`, UNSENT);
      throw new Unreachable(`The name ${host} could not be resolved (${codeOf(error)}).`, UNSENT);
    }
    for (const { address } of found) {
      const reason = refusal(address, reach(url));
      if (reason) {
        throw new Unreachable(`The address ${address} of ${host} is refused: ${reason}. ${remedy}`, REFUSED);
      }
    }
    if (!found[0]) throw new Unreachable(`The name ${host} has no address.`, UNSENT);
    return found[0];
  }

  return {
    async send(address, request) {
      const url = new URL(address);
      const problem = addressProblem(url, plainHttp(url));
      if (problem) throw new Unreachable(`The address ${problem}.`, REFUSED);
      const limit = new AbortController();
      const timer = setTimeout(() => limit.abort(), timeoutMs);
      const signal = request.signal ? AbortSignal.any([limit.signal, request.signal]) : limit.signal;
      try {
        const chosen = await checkedAddress(url, signal);
        return await send(url, chosen, request, { signal, maxAnswerBytes });
      } finally {
        clearTimeout(timer);
      }
    },
  };
}

const UNSENT = { sent: false, lasting: false };
const REFUSED = { sent: false, lasting: true };

/** What is wrong with an address, completing "The address …"; names are not resolved yet. */
export function addressProblem(url: URL, plainHttp: boolean): string | undefined {
  if (url.protocol !== "https:" && !(plainHttp && url.protocol === "http:")) return "must begin with https://";
  if (url.username !== "" || url.password !== "") return "must not hold a username or password";
  if (url.hash !== "") return "must not hold a fragment";
  return undefined;
}

/** `host:port` as PRIVATE_TARGET_HOSTS names it, the scheme's own port written out. */
export const hostAndPort = (url: URL): string =>
  `${url.hostname}:${url.port || (url.protocol === "https:" ? "443" : "80")}`.toLowerCase();

/** Settles once the signal is aborted, whatever the receiver does, and leaves no connection open. @throws {Unreachable} */
async function send(
  url: URL,
  chosen: LookupAddress,
  { method, headers, body, authorities }: OutgoingRequest,
  { signal, maxAnswerBytes }: { signal: AbortSignal; maxAnswerBytes: number },
): Promise<OutgoingAnswer> {
  // The name goes into TLS and the Host header; the connection goes to the address that was checked and to no other.
  const lookup: LookupFunction = (_host, options, done) =>
    options.all ? done(null, [chosen]) : done(null, chosen.address, chosen.family);
  const secure = url.protocol === "https:";
  const Agent = secure ? HttpsAgent : HttpAgent;
  const agent = new Agent({ keepAlive: false });
  const bytes = body === undefined ? undefined : Buffer.from(body);
  const call = (secure ? httpsRequest : httpRequest)(url, {
    method,
    agent,
    lookup,
    ...(authorities !== undefined && { ca: authorities }),
    headers: { ...headers, ...(bytes && { "content-length": bytes.length }), "accept-encoding": "identity" },
  });
  let sent = false;
  call.once("finish", () => {
    sent = true;
  });
  try {
    const answer = await Promise.race([answerOf(call, bytes), aborted(signal)]).catch((error: unknown) => {
      const reason = signal.aborted ? "it did not answer in time" : (error as Error).message;
      throw new Unreachable(`${url.hostname} was not reached: ${reason}.`, { sent, lasting: false });
    });
    const { statusCode: status = 0, headers: answered } = answer;
    // A status that has arrived is an answer, also when its body breaks off: for some callers the status alone decides.
    const read = await Promise.race([readStart(answer, maxAnswerBytes), aborted(signal)]).catch(() => BROKEN_OFF);
    return { status, headers: answered, ...read };
  } finally {
    call.destroy();
  }
}

const BROKEN_OFF = { body: Buffer.alloc(0), whole: false };

/** Sends the request and returns the head of its answer. Rejects with an error whose message says why there is none. */
const answerOf = (call: ClientRequest, body: Buffer | undefined): Promise<IncomingMessage> =>
  new Promise((resolve, reject) => {
    const refuseSwitch = () => reject(new Error("it switched protocols (101) instead of answering"));
    call.once("response", (answer) => (answer.statusCode === 101 ? refuseSwitch() : resolve(answer)));
    // Node emits this for a 101 with upgrade headers. Without a listener it closes the connection and emits no error.
    call.once("upgrade", (_answer, socket) => {
      socket.destroy();
      refuseSwitch();
    });
    call.on("error", (error) => reject(new Error(`the connection failed (${codeOf(error)})`)));
    call.once("close", () => reject(new Error("the connection was closed before an answer")));
    call.end(body);
  });

async function readStart(answer: IncomingMessage, limit: number): Promise<{ body: Buffer; whole: boolean }> {
  const chunks: Buffer[] = [];
  let length = 0;
  for await (const chunk of answer) {
    chunks.push(chunk as Buffer);
    length += (chunk as Buffer).length;
    if (length > limit) break;
  }
  return { body: Buffer.concat(chunks).subarray(0, limit), whole: length <= limit };
}

const codeOf = (error: unknown): string => (error as { code?: string }).code ?? "no code";

/** Rejects once the signal is aborted. */
const aborted = (signal: AbortSignal): Promise<never> =>
  new Promise((_, reject) => {
    if (signal.aborted) return reject(signal.reason);
    signal.addEventListener("abort", () => reject(signal.reason), { once: true });
  });
