import { randomUUID } from "node:crypto";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { signatureProblem } from "./hmac.ts";
import {
  type ErrorResponses,
  type IncomingRequest,
  jsonObject,
  type Operation,
  retryAfter,
  type ServiceResponse,
} from "./http.ts";
import { bearerToken, type Tokens, tokenProblem } from "./tokens.ts";

/** Audience of tokens for Communication Services. */
export const MAIL_AUDIENCE = "https://communication.azure.com";

/**
 * Limits: 50 recipients and 10 MB per message.
 * https://learn.microsoft.com/azure/communication-services/concepts/service-limits#email
 */
const MAX_RECIPIENTS = 50;
const MAX_MESSAGE_BYTES = 10 * 1024 * 1024;

/** The only domain from which mail can be sent. */
export const MAIL_DOMAIN = "acme.example";

/** Messages to this domain are accepted and then fail, as to addresses on Azure's suppression list. */
const SUPPRESSED_DOMAIN = "suppressed.example";

/** Azure returns 30 seconds. A shorter delay keeps tests fast. */
const POLL_AGAIN_SECONDS = 1;

/** A message that the cloud accepted. */
export interface StoredMail {
  operationId: string;
  /** Time of the request, ISO 8601. */
  at: string;
  from: string;
  to: string[];
  cc: string[];
  bcc: string[];
  subject: string;
  html?: string;
  plainText?: string;
  status: "Succeeded" | "Failed";
  /** The request body as received. */
  request: Record<string, unknown>;
}

/**
 * Simulates the e-mail API of Communication Services: https://learn.microsoft.com/rest/api/communication/email/email
 *
 * A repeated `Operation-Id` sends the message again. Azure does not guarantee deduplication, so a client that relies on it must
 * fail in tests.
 */
export class Mails {
  readonly #key: Buffer;
  readonly #tokens: Tokens;
  readonly #folder: string;
  #mails: StoredMail[] = [];

  /** @param folder Folder in which each message is stored as `.html`, `.txt` and `.json` */
  constructor(key: Buffer, tokens: Tokens, folder: string) {
    this.#key = key;
    this.#tokens = tokens;
    this.#folder = folder;
  }

  list(): StoredMail[] {
    return [...this.#mails];
  }

  /** Clears messages and operations. The files stay. */
  clear(): void {
    this.#mails = [];
  }

  readonly service = (request: IncomingRequest): Operation | undefined => {
    const { method, segments } = request;
    const { authorization } = request.headers;
    const problem =
      bearerToken(authorization) === undefined
        ? signatureProblem(request, this.#key)
        : tokenProblem(this.#tokens, authorization, MAIL_AUDIENCE);
    const operation = (name: string, answer: () => ServiceResponse): Operation => ({
      name,
      errorResponses,
      anonymous: problem !== undefined,
      answer: () => {
        if (problem !== undefined) return failure(401, "Denied", `Denied by the resource provider. ${problem}`);
        if (!request.query.get("api-version")) return failure(400, "BadRequest", "The api-version is missing.");
        return answer();
      },
    });
    if (method === "POST" && request.path === "/emails:send") {
      return operation("mail.send", () => this.#send(request));
    }
    if (method === "GET" && segments.length === 3 && request.path.startsWith("/emails/operations/")) {
      return operation("mail.getOperation", () => this.#state(segments[2]!));
    }
    return undefined;
  };

  #send(request: IncomingRequest): ServiceResponse {
    if (request.body.length > MAX_MESSAGE_BYTES)
      return failure(413, "RequestBodyTooLarge", "The message is too large.");
    const id = String(request.headers["operation-id"] ?? randomUUID()).toLowerCase();
    if (!/^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/.test(id)) {
      return failure(400, "BadRequest", "The header Operation-Id must be a GUID.");
    }
    const mail = mailIn(jsonObject(request) ?? {}, id);
    if (typeof mail === "string") return failure(400, "BadRequest", mail);
    if (mail.from.split("@")[1]?.toLowerCase() !== MAIL_DOMAIN) {
      return failure(404, "DomainNotLinked", "The specified sender domain has not been linked.");
    }
    this.#storeMail(mail);
    const query = `?api-version=${request.query.get("api-version")}`;
    return {
      status: 202,
      headers: {
        "operation-location": `https://${request.authority}/emails/operations/${id}${query}`,
        ...retryAfter(POLL_AGAIN_SECONDS),
      },
      body: { id, status: "Running", error: null },
    };
  }

  /** Returns the state of the newest message with an operation ID. */
  #state(id: string): ServiceResponse {
    const mail = this.#mails.findLast((one) => one.operationId === id.toLowerCase());
    if (mail === undefined) return failure(404, "NotFound", `The operation ${id} was not found.`);
    const error =
      mail.status === "Failed"
        ? { code: "EmailDroppedAllRecipientsSuppressed", message: "All recipients are on the suppression list." }
        : null;
    return { status: 200, body: { id: mail.operationId, status: mail.status, error } };
  }

  #storeMail(mail: StoredMail): void {
    this.#mails.push(mail);
    mkdirSync(this.#folder, { recursive: true });
    const name = `${mail.at.replace(/[:.]/g, "-")}-${this.#mails.length}`;
    const { html, plainText, request: _, ...rest } = mail;
    writeFileSync(join(this.#folder, `${name}.json`), JSON.stringify(rest, null, 2));
    if (html !== undefined) writeFileSync(join(this.#folder, `${name}.html`), html);
    if (plainText !== undefined) writeFileSync(join(this.#folder, `${name}.txt`), plainText);
  }
}

/** Parses the message in a request body, or returns the error. */
function mailIn(body: Record<string, unknown>, operationId: string): StoredMail | string {
  const { senderAddress, content, recipients } = body as {
    senderAddress?: unknown;
    content?: { subject?: unknown; html?: unknown; plainText?: unknown };
    recipients?: { to?: unknown; cc?: unknown; bcc?: unknown };
  };
  if (typeof senderAddress !== "string" || !isAddress(senderAddress)) return "senderAddress is not an e-mail address.";
  if (typeof content?.subject !== "string" || content.subject === "") return "content.subject is missing.";
  const { html, plainText } = content;
  if (html === undefined && plainText === undefined) return "content needs html or plainText.";
  if (html !== undefined && typeof html !== "string") return "content.html must be a string.";
  if (plainText !== undefined && typeof plainText !== "string") return "content.plainText must be a string.";

  const [to, cc, bcc] = [recipients?.to, recipients?.cc, recipients?.bcc].map(addressesIn);
  if (to === undefined || cc === undefined || bcc === undefined) {
    return "recipients contains a value that is not an e-mail address.";
  }
  const addresses = [...to, ...cc, ...bcc];
  if (addresses.length === 0) return "recipients is empty.";
  if (addresses.length > MAX_RECIPIENTS) {
    return `The number of recipients (${addresses.length}) exceeds the limit of ${MAX_RECIPIENTS}.`;
  }
  const suppressed = addresses.every((address) => address.toLowerCase().endsWith(`@${SUPPRESSED_DOMAIN}`));
  return {
    operationId,
    at: new Date().toISOString(),
    from: senderAddress,
    to,
    cc,
    bcc,
    subject: content.subject,
    ...(html !== undefined && { html }),
    ...(plainText !== undefined && { plainText }),
    status: suppressed ? "Failed" : "Succeeded",
    request: body,
  };
}

/** Parses `[{address, displayName?}]`. Undefined if an entry is invalid. */
function addressesIn(list: unknown): string[] | undefined {
  if (list === undefined || list === null) return [];
  if (!Array.isArray(list)) return undefined;
  const addresses = list.map((one: { address?: unknown } | null) => one?.address);
  return addresses.every((one) => typeof one === "string" && isAddress(one)) ? (addresses as string[]) : undefined;
}

function isAddress(text: string): boolean {
  return /^[^@\s]+@[^@\s]+\.[^@\s]+$/.test(text);
}

function failure(status: number, code: string, message: string): ServiceResponse {
  return { status, headers: { "x-ms-error-code": code }, body: { error: { code, message } } };
}

const errorResponses: ErrorResponses = {
  throttled: (seconds) => {
    const answer = failure(429, "TooManyRequests", "The sending limit of the resource has been reached.");
    return { ...answer, headers: { ...answer.headers, ...retryAfter(seconds) } };
  },
  denied: () => failure(403, "Forbidden", "The credential has no permission to send e-mail."),
  firewalled: () => failure(403, "Forbidden", "The client's address is not allowed."),
  failed: (status) => failure(status, "InternalServerError", "The server has encountered an internal error."),
};
