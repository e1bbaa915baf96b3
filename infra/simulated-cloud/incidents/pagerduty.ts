import {
  type ErrorResponses,
  type IncomingRequest,
  jsonObject,
  type Operation,
  retryAfter,
  type ServiceResponse,
} from "../http.ts";

/**
 * Limits of PagerDuty in bytes and characters: the size of an event, the length of a key and of a summary.
 * https://developer.pagerduty.com/docs/send-alert-event
 */
const [MAX_BYTES, MAX_KEY_LENGTH, MAX_SUMMARY_LENGTH] = [512 * 1024, 255, 1024];
const SEVERITIES = ["critical", "error", "warning", "info"];
const ACTIONS = ["trigger", "acknowledge", "resolve"];
/** Permitted members of an event. */
const EVENT_MEMBERS = [
  "routing_key",
  "event_action",
  "dedup_key",
  "payload",
  "client",
  "client_url",
  "links",
  "images",
];
/** Permitted members of an event's payload. */
const PAYLOAD_MEMBERS = ["summary", "source", "severity", "timestamp", "component", "group", "class", "custom_details"];

/** Integration key of the only PagerDuty service. */
export const PAGERDUTY_ROUTING_KEY = "0123456789abcdef0123456789ABCDEF";

export interface PagerDutyAlert {
  key: string;
  status: "triggered" | "resolved";
  severity: string;
  summary: string;
  /** Number of trigger events. */
  triggered: number;
}

/** Simulates PagerDuty's Events API v2 for alert events. */
export class PagerDuty {
  readonly events: Record<string, unknown>[] = [];
  readonly #alerts = new Map<string, PagerDutyAlert>();

  /** Deletes all events and alerts. */
  clear(): void {
    this.events.length = 0;
    this.#alerts.clear();
  }

  alerts(): PagerDutyAlert[] {
    return [...this.#alerts.values()];
  }

  /** Route of `/pagerduty/v2/enqueue` on the control port. */
  operation(request: IncomingRequest): Operation | undefined {
    if (request.method !== "POST" || request.path !== "/pagerduty/v2/enqueue") return undefined;
    return { name: "pagerduty.enqueue", errorResponses, answer: () => this.#enqueue(request) };
  }

  #enqueue(request: IncomingRequest): ServiceResponse {
    if (request.body.length > MAX_BYTES) return { status: 413 };
    const event = jsonObject(request);
    const errors = event ? [...errorsOf(event)] : ["the body is no JSON object"];
    if (event === undefined || errors.length > 0) {
      return { status: 400, body: { status: "invalid event", message: "Event object is invalid", errors } };
    }
    const key = String(event.dedup_key ?? `generated-${this.events.length}`);
    this.events.push(event);
    this.#apply(key, event);
    return { status: 202, body: { status: "success", message: "Event processed", dedup_key: key } };
  }

  /** Applies an event to its alert. Acknowledgments change nothing here, and a resolve without an alert is ignored. */
  #apply(key: string, { event_action: action, payload }: Record<string, unknown>): void {
    const previous = this.#alerts.get(key);
    if (action === "resolve" && previous) this.#alerts.set(key, { ...previous, status: "resolved" });
    if (action !== "trigger") return;
    const { severity, summary } = payload as { severity: string; summary: string };
    const triggered = (previous?.triggered ?? 0) + 1;
    this.#alerts.set(key, { key, status: "triggered", severity, summary, triggered });
  }
}

/** Returns the errors of an event. */
function* errorsOf(event: Record<string, unknown>): Generator<string> {
  for (const name of Object.keys(event))
    if (!EVENT_MEMBERS.includes(name)) yield `'${name}' is not a member of an event`;
  if (event.routing_key !== PAGERDUTY_ROUTING_KEY) yield "'routing_key' is invalid";
  if (!ACTIONS.includes(String(event.event_action))) yield `'event_action' must be one of ${ACTIONS.join(", ")}`;
  const { dedup_key: key, links } = event;
  if (key !== undefined && (typeof key !== "string" || key === "" || key.length > MAX_KEY_LENGTH))
    yield "'dedup_key' is invalid";
  if (key === undefined && event.event_action !== "trigger") yield "'dedup_key' is missing or blank";
  if (links !== undefined && !(Array.isArray(links) && links.every(isLink))) yield "'links' must be {href, text}";
  if (event.event_action !== "trigger") return;
  const payload = event.payload as Record<string, unknown> | undefined;
  if (typeof payload !== "object" || payload === null) return yield "'payload' is missing or blank";
  for (const name of Object.keys(payload))
    if (!PAYLOAD_MEMBERS.includes(name)) yield `'payload.${name}' is not a member`;
  const { summary, source, severity, timestamp } = payload;
  if (typeof summary !== "string" || summary === "" || summary.length > MAX_SUMMARY_LENGTH)
    yield "'payload.summary' is invalid";
  if (typeof source !== "string" || source === "") yield "'payload.source' is missing or blank";
  if (!SEVERITIES.includes(String(severity))) yield `'payload.severity' must be one of ${SEVERITIES.join(", ")}`;
  if (timestamp !== undefined && Number.isNaN(Date.parse(String(timestamp)))) yield "'payload.timestamp' is invalid";
}

const isLink = (link: { href?: unknown; text?: unknown } | null): boolean =>
  typeof link?.href === "string" &&
  URL.canParse(link.href) &&
  (link.text === undefined || typeof link.text === "string");

const errorResponses: ErrorResponses = {
  throttled: (seconds) => ({ status: 429, headers: retryAfter(seconds), body: { status: "throttle exceeded" } }),
  denied: () => ({ status: 403 }),
  firewalled: () => ({ status: 403 }),
  failed: (status) => ({ status }),
};
