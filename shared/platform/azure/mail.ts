import type { EmailClient, EmailMessage, EmailRecipients } from "@azure/communication-email";
import type { Config } from "../config/config.ts";
import { asCloudFailure, type CallTarget, type CloudFailure, malformedAnswer } from "./failure.ts";
import type { Identity } from "./identity.ts";

/** Maximum recipients of a mail: https://learn.microsoft.com/azure/communication-services/concepts/service-limits#email */
export const MAX_MAIL_RECIPIENTS = 50;

/** Milliseconds that one request may take. */
const REQUEST_TIMEOUT_MS = 30_000;

/** Role that the service's identity needs. Azure Communication Services does not accept narrower roles. */
const ROLE = "the role Communication and Email Service Owner on the Communication Services resource";

/** API version of the address that this file builds for an operation. Must equal the API version of the SDK. */
const API_VERSION = "2025-09-01";

export interface Mail {
  /** A GUID that the sender chooses. `outcome` finds the mail by this ID. */
  operationId: string;
  /** At most 50 addresses. Recipients don't see each other: several addresses are in Bcc, a single address is in To. */
  to: readonly string[];
  subject: string;
  html: string;
  text: string;
}

/**
 * Result of sending a mail, or of a query of its outcome. The provider is Azure Communication Services.
 * - `accepted`: the provider accepted the mail, and its delivery is in progress.
 * - `succeeded`, `failed`: the delivery has ended.
 * - `notFound`: the provider does not know the mail, so it can be sent without a duplicate.
 * - `throttled`: the request was rejected. Retry after `retryAfterSeconds`.
 * - `refused`: the mail was rejected, and a retry would be rejected too.
 * - `unavailable`: the credentials of the service were rejected. A later request can succeed.
 * - `unknown`: there was no usable response, so the mail may have been accepted. Query the outcome before you send the mail
 *   again.
 */
export type MailAnswer =
  | { kind: "accepted" | "succeeded" | "notFound" }
  | { kind: "throttled"; retryAfterSeconds: number }
  | { kind: "failed" | "refused" | "unavailable" | "unknown"; reason: string };

export interface MailSender {
  send(mail: Mail): Promise<MailAnswer>;
  outcome(operationId: string): Promise<MailAnswer>;
}

/** Seconds to wait if a throttling response names no time. The provider's limits are per minute. */
const DEFAULT_RETRY_SECONDS = 60;

/**
 * Creates a sender of mail through Azure Communication Services. Uses the key in `COMMUNICATION_CONNECTION_STRING`, or else the
 * service's identity at `COMMUNICATION_ENDPOINT`. Returns undefined if neither is set, or if `ALERT_SENDER_ADDRESS` is not set.
 */
export function createMailSender(deps: {
  config: Pick<Config, "COMMUNICATION_CONNECTION_STRING" | "COMMUNICATION_ENDPOINT" | "ALERT_SENDER_ADDRESS">;
  identity: Identity;
}): MailSender | undefined {
  const { COMMUNICATION_CONNECTION_STRING: connectionString, ALERT_SENDER_ADDRESS: senderAddress } = deps.config;
  // Names the resource in errors, and is the start of the address of an operation.
  const endpoint =
    connectionString === undefined
      ? deps.config.COMMUNICATION_ENDPOINT
      : (/endpoint=([^;]+)/i.exec(connectionString)?.[1]?.replace(/\/$/, "") ?? "");
  if (endpoint === undefined || senderAddress === undefined) return undefined;
  const grant = connectionString === undefined ? { grant: ROLE } : {};
  let clientPromise: Promise<EmailClient> | undefined;
  const client = () => {
    clientPromise ??= open(connectionString, endpoint, deps.identity);
    return clientPromise;
  };

  /** Sends a mail and queries its operation once. With `resumeFrom` it sends no mail and only queries an earlier operation. */
  async function startOperation(
    target: CallTarget,
    message: EmailMessage,
    options: { operationId?: string; resumeFrom?: string },
  ): Promise<MailAnswer> {
    const sending = options.resumeFrom === undefined;
    // The SDK accepts any 2xx response, even the page of a proxy. These flags record documented responses: to the POST that
    // sends the mail, and to the GET that queries its operation.
    let isAccepted = false;
    let hasStatus = false;
    try {
      const poller = await (await client()).beginSend(message, {
        ...options,
        abortSignal: AbortSignal.timeout(REQUEST_TIMEOUT_MS),
        onResponse: ({ request, status, parsedBody }) => {
          if (request.method === "POST") isAccepted = status === 202;
          else hasStatus = typeof (parsedBody as { status?: unknown } | undefined)?.status === "string";
        },
      });
      if (!(sending ? isAccepted : hasStatus)) {
        return {
          kind: "unknown",
          reason: malformedAnswer(target, "the response is not from the mail provider").message,
        };
      }
      return { kind: hasStatus && poller.getOperationState().status === "succeeded" ? "succeeded" : "accepted" };
    } catch (error) {
      const reason = operationFailureReason(error);
      if (reason) return { kind: "failed", reason };
      // The query can fail although the mail was sent.
      return isAccepted ? { kind: "accepted" } : answerOfError(error, target);
    }
  }

  return {
    send: ({ operationId, to, subject, html, text }) =>
      startOperation(
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
      startOperation({ operation: "query a mail's outcome", resource: endpoint, ...grant }, NO_MESSAGE, {
        // The state of an SDK poller, as the SDK stores it. With it the SDK queries the operation and sends nothing.
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
    // The SDK must not retry: the provider may no longer know the operation ID, and then a retry would send the mail twice.
    retryOptions: { maxRetries: 0 },
    redirectOptions: { maxRetries: 0 },
    allowInsecureConnection: endpoint.startsWith("http://"),
  };
  return connectionString === undefined
    ? new EmailClient(endpoint, await identity.credential(), options)
    : new EmailClient(connectionString, options);
}

/**
 * Returns the reason if the error is the one that the SDK throws for a failed operation: an `Error` whose text contains the
 * provider's code. Returns undefined for other errors.
 */
function operationFailureReason(error: unknown): string | undefined {
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
  // Only calls with an identity have a `grant`. The failure then names the missing role; `REMEDIES` would name an access key.
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
