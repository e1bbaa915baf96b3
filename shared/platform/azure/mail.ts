import type { EmailClient, EmailMessage, EmailRecipients } from "@azure/communication-email";
import type { Config } from "../config/config.ts";
import { asCloudFailure, type CallTarget, type CloudFailure, malformedAnswer } from "./failure.ts";
import type { Identity } from "./identity.ts";

/** Recipients of one mail: https://learn.microsoft.com/azure/communication-services/concepts/service-limits#email */
export const MAX_MAIL_RECIPIENTS = 50;

/** Milliseconds one request may take. */
const REQUEST_TIMEOUT_MS = 30_000;

/** What the identity needs; narrower roles are not honoured there. */
const ROLE = "the role Communication and Email Service Owner on the Communication Services resource";

/** Of the SDK's own requests, since the address of an operation is made here. */
const API_VERSION = "2025-09-01";

export interface Mail {
  /** A GUID: the provider's name for this mail, by which it can be asked for later. */
  operationId: string;
  /** At most 50 addresses. None of them sees another: several are all in Bcc, one stands in To. */
  to: readonly string[];
  subject: string;
  html: string;
  text: string;
}

/**
 * What the provider says of a mail.
 * - `accepted`: it has it and has not finished.
 * - `succeeded`, `failed`: finished.
 * - `notFound`: it knows nothing of it, so it may be sent.
 * - `throttled`: it did not take the request; ask again after the seconds.
 * - `refused`: it did not take the mail and will not take it later either.
 * - `unavailable`: it surely did not take the request, for a reason that people or time may mend.
 * - `unknown`: there was no usable answer, so it may have taken the mail: ask for its outcome before sending it again.
 */
export type MailAnswer =
  | { kind: "accepted" | "succeeded" | "notFound" }
  | { kind: "throttled"; retryAfterSeconds: number }
  | { kind: "failed" | "refused" | "unavailable" | "unknown"; reason: string };

export interface MailSender {
  send(mail: Mail): Promise<MailAnswer>;
  outcome(operationId: string): Promise<MailAnswer>;
}

/** Seconds to wait when the provider is busy and names no time: its limits are per minute. */
const DEFAULT_RETRY_SECONDS = 60;

/**
 * Sends through Azure Communication Services: with the key of `COMMUNICATION_CONNECTION_STRING`, else with the service's
 * identity to `COMMUNICATION_ENDPOINT`. Undefined while neither, or no sender, is set.
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

  /** One request to send, and the SDK's first look at the operation; or, resumed, that look alone. */
  async function begin(
    target: CallTarget,
    message: EmailMessage,
    options: { operationId?: string; resumeFrom?: string },
  ): Promise<MailAnswer> {
    const sending = options.resumeFrom === undefined;
    // The SDK takes any 2xx for the provider's, even the page of a proxy; only the documented answers count here.
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
      // The look may fail where the sending did not.
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

/** A resumed operation sends nothing, but the SDK's signature wants a message. */
const NO_MESSAGE: EmailMessage = { senderAddress: "", recipients: {}, content: { subject: "", plainText: "" } };

async function open(connectionString: string | undefined, endpoint: string, identity: Identity): Promise<EmailClient> {
  const { EmailClient } = await import("@azure/communication-email");
  const options = {
    // A repeated send is this caller's to decide, since the provider forgets that it has seen an operation id.
    retryOptions: { maxRetries: 0 },
    redirectOptions: { maxRetries: 0 },
    allowInsecureConnection: endpoint.startsWith("http://"),
  };
  return connectionString === undefined
    ? new EmailClient(endpoint, await identity.credential(), options)
    : new EmailClient(connectionString, options);
}

/** What the SDK throws when the operation itself has ended badly: a plain error with the provider's code in its text. */
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
  // By identity there is no key to check.
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
