import {
  type ErrorResponses,
  type IncomingRequest,
  type Operation,
  retryAfter,
  type Service,
  type ServiceResponse,
} from "./http.ts";
import { type Tokens, tokenProblem } from "./tokens.ts";

/** Host of the namespace, and its only event hub. */
export const EVENT_HUBS_HOST = "evhns-lifecycle.servicebus.localhost";
const HUB = "audit";
/** Audience of tokens: https://learn.microsoft.com/azure/event-hubs/authenticate-application */
export const EVENT_HUBS_AUDIENCE = "https://eventhubs.azure.net";
/** https://learn.microsoft.com/azure/event-hubs/event-hubs-quotas */
const MAX_BYTES = 1024 * 1024;
const BATCH_TYPE = "application/vnd.microsoft.servicebus.json";

/** An event of the hub. Events of one partition key are in one partition, in the order in which they arrived. */
export interface HubEvent {
  partitionKey: string;
  body: string;
}

/** Simulates sending batches to an event hub: https://learn.microsoft.com/rest/api/eventhub/send-batch-events */
export class EventHubs {
  readonly #tokens: Tokens;
  readonly events: HubEvent[] = [];

  constructor(tokens: Tokens) {
    this.#tokens = tokens;
  }

  get service(): Service {
    return (request) => {
      const [hub = "", messages, ...more] = request.segments;
      if (request.method !== "POST" || messages !== "messages" || more.length > 0) return undefined;
      const problem = tokenProblem(this.#tokens, request.headers.authorization, EVENT_HUBS_AUDIENCE);
      return {
        name: "eventhubs.send",
        item: hub,
        action: "Microsoft.EventHub/namespaces/messages/send/action",
        anonymous: problem !== undefined,
        errorResponses,
        answer: () => (problem === undefined ? this.#send(request, hub) : failure(401, problem)),
      } satisfies Operation;
    };
  }

  #send(request: IncomingRequest, hub: string): ServiceResponse {
    if (hub !== HUB) return failure(404, "The requested resource does not exist.");
    if (request.body.length > MAX_BYTES) return failure(413, "The batch is larger than 1 MB.");
    if (request.headers["content-type"] !== BATCH_TYPE) return failure(400, `The content type must be ${BATCH_TYPE}.`);
    const events = eventsOf(request.body);
    if (typeof events === "string") return failure(400, events);
    this.events.push(...events);
    return { status: 201 };
  }
}

/** Returns the events of a batch, or why the batch is not valid. All events of a batch must have one partition key. */
function eventsOf(body: Buffer): HubEvent[] | string {
  let batch: unknown;
  try {
    batch = JSON.parse(body.toString("utf8"));
  } catch {
    return "The body is not JSON.";
  }
  if (!Array.isArray(batch) || batch.length === 0) return "The body must be an array of events.";
  const events: HubEvent[] = [];
  for (const entry of batch as { Body?: unknown; BrokerProperties?: { PartitionKey?: unknown } }[]) {
    const { Body: text, BrokerProperties: { PartitionKey: partitionKey } = {} } = entry;
    if (typeof text !== "string") return "Body must be text.";
    if (typeof partitionKey !== "string" || partitionKey.length > 128) return "PartitionKey must be text.";
    events.push({ partitionKey, body: text });
  }
  if (new Set(events.map(({ partitionKey }) => partitionKey)).size > 1) return "The batch has several partition keys.";
  return events;
}

const failure = (status: number, detail: string): ServiceResponse => ({
  status,
  text: { type: "application/xml", content: `<Error><Code>${status}</Code><Detail>${detail}</Detail></Error>` },
});

const errorResponses: ErrorResponses = {
  throttled: (seconds) => ({ ...failure(429, "The server is busy."), headers: retryAfter(seconds) }),
  denied: () => failure(401, "Unauthorized access. 'Send' claim(s) are required to perform this operation."),
  firewalled: () => failure(403, "The address is not authorized."),
  failed: (status) => failure(status, "The events were not stored."),
};
