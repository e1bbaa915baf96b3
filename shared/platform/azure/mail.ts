import type { EmailClient, EmailMessage, EmailRecipients } from "@azure/communication-email";
import type { Config } from "../config/config.ts";
import { asCloudFailure, type CallTarget, type CloudFailure, malformedAnswer } from "./failure.ts";
import type { Identity } from "./identity.ts";

/** Most recipients of one mail: https://learn.microsoft.com/azure/communication-services/concepts/service-limits#email */
export const MAX_MAIL_RECIPIENTS = 50;

/** Milliseconds that one request may take. */
const REQUEST_TIMEOUT_MS = 30_000;

/** The role that the identity needs. The service does not accept narrower roles. */
const ROLE = "the role Communication and Email Service Owner on the Communication Services resource";

/** API version of the SDK's requests, because this file builds the address of an operation. */
const API_VERSION = "2025-09-01";

export interface Mail {
  /** A GUID. The provider's ID of this mail, which its outcome can be queried by. */
  operationId: string;
  /** At most 50 addresses. Recipients don't see each other: several addresses are in Bcc, a single address is in To. */
  to: readonly string[];
  subject: string;
  html: string;
  text: string;
}

/**
 * The provider's answer about a mail.
 * - `accepted`: the provider has the mail and has not finished.
 * - `succeeded`, `failed`: finished.
 * - `notFound`: the provider does not know the mail, so it may be sent.
 * - `throttled`: the request was rejected. Retry after the seconds.
 * - `refused`: the mail was rejected for good.
 * - `unavailable`: the request was not accepted, for a reason that people or time can fix.
 * - `unknown`: there was no usable answer, so the mail may have been accepted. Query its outcome before you send it again.
 */
export type MailAnswer =
  | { kind: "accepted" | "succeeded" | "notFound" }
  | { kind: "throttled"; retryAfterSeconds: number }
  | { kind: "failed" | "refused" | "unavailable" | "unknown"; reason: string };

export interface MailSender {
  send(mail: Mail): Promise<MailAnswer>;
  outcome(operationId: string): Promise<MailAnswer>;
}

/** Seconds to wait if the provider is busy and names no time. Its limits are per minute. */
const DEFAULT_RETRY_SECONDS = 60;

/**
 * Sends mail through Azure Communication Services, with the key of `COMMUNICATION_CONNECTION_STRING`, or else with the
 * service's identity to `COMMUNICATION_ENDPOINT`. Undefined if neither is set, or no sender.
 */
export function createMailSender(deps: {
  config: Pick<Config, "COMMUNICATION_CONNECTION_STRING" | "COMMUNICATION_ENDPOINT" | "ALERT_SENDER_ADDRESS">;
  identity: Identity;
}): MailSender | undefined {
  const { COMMUNICATION_CONNECTION_STRING: connectionString, ALERT_SENDER_ADDRESS: senderAddress } = deps.config;
  const endpoint =
    connectionString === undefined
      ? deps.config.COMMUNICATION_ENDPOINT
      : (/endpoint=([^;]+)/i.exec(connectionString)?.[1]?.replace(/\/$/, "") ?? "");
  if (endpoint === undefined || senderAddress === undefined) return undefined;
  const grant = connectionString === undefined ? { grant: ROLE } : {};
  let opened: Promise<EmailClient> | undefined;
  const client = () => {
    opened ??= open(connectionString, endpoint, deps.identity);
    return opened;
  };

  /** Sends one request and the SDK's first query of the operation. If resumed, sends only the query. */
  async function begin(
    target: CallTarget,
    message: EmailMessage,
    options: { operationId?: string; resumeFrom?: string },
  ): Promise<MailAnswer> {
    const sending = options.resumeFrom === undefined;
    // The SDK accepts any 2xx answer, even the page of a proxy. Only documented answers count here.
    let taken = false;
    let reported = false;
    try {
      const poller = await (await client()).beginSend(message, {
        ...options,
        abortSignal: AbortSignal.timeout(REQUEST_TIMEOUT_MS),
        onResponse: ({ request, status, parsedBody }) => {
          if (request.method === "POST") taken = status === 202;
          else reported = typeof (parsedBody as { status?: unknown } | undefined)?.status === "string";
        },
      });
      if (!(sending ? taken : reported)) {
        return { kind: "unknown", reason: malformedAnswer(target, "the answer is not the mail provider's").message };
      }
      return { kind: reported && poller.getOperationState().status === "succeeded" ? "succeeded" : "accepted" };
    } catch (error) {
      const reason = unsuccessfulEnd(error);
      if (reason) return { kind: "failed", reason };
      // The query can fail although the mail was sent.
      return taken ? { kind: "accepted" } : answerOfError(error, target);
    }
  }

  return {
    send: ({ operationId, to, subject, html, text }) =>
      begin(
        { operation: "send a mail", resource: endpoint, ...grant },
        {
          senderAddress,
          recipients: recipientsOf(to),
          content: { subject, html, plainText: text },
          disableUserEngagementTracking: true,
        },
        { operationId },
      ),

    outcome: (operationId) =>
      begin({ operation: "ask for a mail's outcome", resource: endpoint, ...grant }, NO_MESSAGE, {
        resumeFrom: JSON.stringify({
          state: {
            status: "running",
            config: {
              mode: "OperationLocation",
              metadata: { mode: "OperationLocation" },
              operationLocation: `${endpoint}/emails/operations/${operationId}?api-version=${API_VERSION}`,
            },
          },
        }),
      }),
  };
}

/** A mail needs no To: https://learn.microsoft.com/rest/api/communication/email/email/send#emailrecipients */
function recipientsOf(to: readonly string[]): EmailRecipients {
  const addresses = to.map((address) => ({ address }));
  return addresses.length === 1 ? { to: addresses } : { bcc: addresses };
}

/** A resumed operation sends nothing, but the SDK's signature requires a message. */
const NO_MESSAGE: EmailMessage = { senderAddress: "", recipients: {}, content: { subject: "", plainText: "" } };

async function open(connectionString: string | undefined, endpoint: string, identity: Identity): Promise<EmailClient> {
  const { EmailClient } = await import("@azure/communication-email");
  const options = {
    // The caller decides about retries, because the provider forgets operation IDs.
    retryOptions: { maxRetries: 0 },
    redirectOptions: { maxRetries: 0 },
    allowInsecureConnection: endpoint.startsWith("http://"),
  };
  return connectionString === undefined
    ? new EmailClient(endpoint, await identity.credential(), options)
    : new EmailClient(connectionString, options);
}

/** True for the error that the SDK throws if the operation failed: a plain error with the provider's code in its text. */
function unsuccessfulEnd(error: unknown): string | undefined {
  if (!(error instanceof Error) || error.name !== "Error") return undefined;
  if (error.message === "Operation was canceled") return "The mail provider reports that it was cancelled.";
  const failed = /^The long-running operation has failed(?:\. ([A-Za-z][A-Za-z0-9]{1,63}))?/.exec(error.message);
  return failed ? `The mail provider reports that it failed${failed[1] ? ` (${failed[1]})` : ""}.` : undefined;
}

function answerOfError(error: unknown, target: CallTarget): MailAnswer {
  const status = statusOf(error);
  const failure = asCloudFailure(error, target);
  if (failure.code === "throttled") {
    return { kind: "throttled", retryAfterSeconds: failure.retryAfterSeconds ?? DEFAULT_RETRY_SECONDS };
  }
  const denied = failure.code === "unauthenticated" || failure.code === "accessDenied";
  // With an identity there is no key to check.
  const remedy = denied && target.grant !== undefined ? failure.remedy : (REMEDIES[failure.code] ?? "");
  const reason = `${failure.message} ${remedy}`.trim();
  if (status === 404 && target.operation !== "send a mail") return { kind: "notFound" };
  if (status === 401 || status === 403) return { kind: "unavailable", reason };
  if (status !== undefined && status >= 400 && status < 500 && status !== 408) return { kind: "refused", reason };
  return { kind: "unknown", reason };
}

const REMEDIES: Partial<Record<CloudFailure["code"], string>> = {
  unauthenticated: "Check the access key in COMMUNICATION_CONNECTION_STRING.",
  accessDenied: "Check the access key in COMMUNICATION_CONNECTION_STRING.",
  notFound: "Check that ALERT_SENDER_ADDRESS belongs to a domain that is linked to this resource.",
  badResponse: "Check ALERT_SENDER_ADDRESS and the recipients.",
};

const statusOf = (error: unknown): number | undefined => (error as { statusCode?: number }).statusCode;
