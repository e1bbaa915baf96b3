import { promises as dns, type LookupAddress } from "node:dns";
import { Agent as HttpAgent, request as httpRequest, type IncomingMessage } from "node:http";
import { Agent as HttpsAgent, request as httpsRequest } from "node:https";
import type { LookupFunction } from "node:net";
import { refusal } from "./addresses.ts";

/** Milliseconds for everything: the name, the connection, the request and its answer. */
const TIMEOUT_MS = 15_000;

/** Bytes of an answer that are read; the rest is not waited for. */
const MAX_ANSWER_BYTES = 4096;

/** What a receiver answered, whatever the status. */
export interface ReceiverAnswer {
  status: number;
  /** The beginning of the body, as text. */
  body: string;
  retryAfterSeconds?: number;
}

/** There was no answer. `sent` says whether the receiver may have got the whole request nevertheless. */
export class NotDelivered extends Error {
  override readonly name = "NotDelivered";
  readonly sent: boolean;
  /** Whether another try would end the same way until somebody changes the address. */
  readonly lasting: boolean;

  constructor(message: string, how: { sent: boolean; lasting: boolean }) {
    super(message);
    this.sent = how.sent;
    this.lasting = how.lasting;
  }
}

export interface Outgoing {
  /** @throws {NotDelivered} whose message never holds more of the address than its host. */
  post(address: string, headers: Record<string, string>, body: string): Promise<ReceiverAnswer>;
}

/**
 * Calls addresses that people gave, which may be chosen to reach what only this service can: the name is resolved once,
 * every address it has must be allowed, the connection goes to the very address that was checked, no redirect is followed,
 * and time and size are bounded. https://cheatsheetseries.owasp.org/cheatsheets/Server_Side_Request_Forgery_Prevention_Cheat_Sheet.html
 */
export function createOutgoing(options: {
  /** Plain http and addresses that are not public, for receivers in the service's own network. */
  allowPrivate: boolean;
  resolve?: (host: string) => Promise<LookupAddress[]>;
  timeoutMs?: number;
}): Outgoing {
  const { allowPrivate, resolve = (host) => dns.lookup(host, { all: true }), timeoutMs = TIMEOUT_MS } = options;

  async function checkedAddress(url: URL, signal: AbortSignal): Promise<LookupAddress> {
    const host = url.hostname.replace(/^\[(.*)\]$/, "$1");
    let found: LookupAddress[];
    try {
      found = await Promise.race([resolve(host), aborted(signal)]);
    } catch (error) {
      if (signal.aborted) throw new NotDelivered(`The name ${host} was not resolved in time.`, UNSENT);
      throw new NotDelivered(`The name ${host} could not be resolved (${codeOf(error)}).`, UNSENT);
    }
    for (const { address } of found) {
      const reason = refusal(address, allowPrivate);
      if (reason) {
        throw new NotDelivered(
          `The address ${address} of ${host} is refused: ${reason}. ALLOW_PRIVATE_WEBHOOK_ADDRESSES allows receivers in the service's own network.`,
          REFUSED,
        );
      }
    }
    if (!found[0]) throw new NotDelivered(`The name ${host} has no address.`, UNSENT);
    return found[0];
  }

  return {
    async post(address, headers, body) {
      const url = new URL(address);
      const problem = addressProblem(url, allowPrivate);
      if (problem) throw new NotDelivered(`The address ${problem}.`, REFUSED);
      const signal = AbortSignal.timeout(timeoutMs);
      const chosen = await checkedAddress(url, signal);
      return await send(url, chosen, headers, body, signal);
    },
  };
}

const UNSENT = { sent: false, lasting: false };
const REFUSED = { sent: false, lasting: true };

/** What is wrong with an address, completing "The address …"; names are not resolved yet. */
export function addressProblem(url: URL, allowPrivate: boolean): string | undefined {
  if (url.protocol !== "https:" && !(allowPrivate && url.protocol === "http:")) return "must begin with https://";
  if (url.username !== "" || url.password !== "") return "must not hold a username or password";
  if (url.hash !== "") return "must not hold a fragment";
  return undefined;
}

function send(
  url: URL,
  chosen: LookupAddress,
  headers: Record<string, string>,
  body: string,
  signal: AbortSignal,
): Promise<ReceiverAnswer> {
  // The name goes into TLS and the Host header; the connection goes to the address that was checked and to no other.
  const lookup: LookupFunction = (_host, options, done) =>
    options.all ? done(null, [chosen]) : done(null, chosen.address, chosen.family);
  const secure = url.protocol === "https:";
  const Agent = secure ? HttpsAgent : HttpAgent;
  const agent = new Agent({ keepAlive: false });
  const bytes = Buffer.from(body);
  return new Promise((resolve, reject) => {
    let sent = false;
    const fail = (error: unknown) => {
      const reason = signal.aborted ? "it did not answer in time" : `the connection failed (${codeOf(error)})`;
      reject(new NotDelivered(`${url.hostname} was not reached: ${reason}.`, { sent, lasting: false }));
    };
    const call = (secure ? httpsRequest : httpRequest)(
      url,
      {
        method: "POST",
        agent,
        lookup,
        signal,
        headers: { ...headers, "content-length": bytes.length, "accept-encoding": "identity" },
      },
      (answer) => {
        readStart(answer).then(
          (text) => {
            call.destroy();
            resolve({
              status: answer.statusCode ?? 0,
              body: text,
              ...retryAfter(answer.headers["retry-after"]),
            });
          },
          // The status has come, and only that decides.
          () => resolve({ status: answer.statusCode ?? 0, body: "", ...retryAfter(answer.headers["retry-after"]) }),
        );
      },
    );
    call.once("finish", () => {
      sent = true;
    });
    call.once("error", fail);
    call.end(bytes);
  });
}

async function readStart(answer: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  let length = 0;
  for await (const chunk of answer) {
    chunks.push(chunk as Buffer);
    length += (chunk as Buffer).length;
    if (length >= MAX_ANSWER_BYTES) break;
  }
  return Buffer.concat(chunks).subarray(0, MAX_ANSWER_BYTES).toString("utf8").toWellFormed();
}

/** https://www.rfc-editor.org/rfc/rfc9110#field.retry-after, in seconds only: receivers of webhooks rarely send dates. */
const retryAfter = (value: string | undefined) =>
  value !== undefined && /^\d{1,6}$/.test(value) ? { retryAfterSeconds: Number(value) } : {};

const codeOf = (error: unknown): string => (error as { code?: string }).code ?? "no code";

const aborted = (signal: AbortSignal): Promise<never> =>
  new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason), { once: true }));
