/**
 * Tracing and metrics with OpenTelemetry. Without telemetry, which `functions/telemetry.ts` starts, these functions do nothing.
 * Callers must record only names of functions, routes, queues and vaults, statuses, counts and names of errors, and no contents
 * of requests, responses or errors.
 */
import {
  type Attributes,
  context,
  metrics,
  propagation,
  ROOT_CONTEXT,
  type SpanKind,
  SpanStatusCode,
  trace,
} from "@opentelemetry/api";

const SCOPE = "credential-lifecycle";

/** Units in the notation of https://ucum.org. */
export const METRICS = {
  "scan.duration": { kind: "histogram", unit: "s", description: "How long a scan took, by mode and status." },
  "vaults.failed": { kind: "counter", unit: "{vault}", description: "Vaults that a scan could not read." },
  "vault.events": {
    kind: "counter",
    unit: "{event}",
    description:
      "Event Grid events by outcome: wanted (requests a refresh), joined (added to a waiting refresh), ignored.",
  },
  "assets.by_status": { kind: "gauge", unit: "{asset}", description: "Assets by type and status, at a scan's end." },
  score: { kind: "gauge", unit: "1", description: "The compliance score, 0 to 1, at a scan's end." },
  "alerts.sent": { kind: "counter", unit: "{delivery}", description: "Completed alert deliveries, by status." },
  throttled: {
    kind: "counter",
    unit: "{answer}",
    description: "Responses of the cloud that rejected a call because of throttling, by operation.",
  },
} as const;

/** Records a value of a metric. No effect while telemetry is off. */
export function recordMetric(name: keyof typeof METRICS, value: number, attributes: Attributes = {}): void {
  const { kind, ...options } = METRICS[name];
  const meter = metrics.getMeter(SCOPE);
  if (kind === "histogram") meter.createHistogram(name, options).record(value, attributes);
  else if (kind === "gauge") meter.createGauge(name, options).record(value, attributes);
  else meter.createCounter(name, options).add(value, attributes);
}

export interface SpanOptions {
  name: string;
  kind: SpanKind;
  attributes?: Attributes;
  /** Trace context from a request or a message. Without it, the span is a child of the current span. */
  carrier?: unknown;
}

/** Runs the work in a new span. */
export async function withSpan<T>(
  { name, kind, attributes = {}, carrier }: SpanOptions,
  work: () => Promise<T>,
): Promise<T> {
  const isCarrier = typeof carrier === "object" && carrier !== null;
  const parent = isCarrier ? propagation.extract(ROOT_CONTEXT, carrier) : context.active();
  return await trace.getTracer(SCOPE).startActiveSpan(name, { kind, attributes }, parent, async (span) => {
    try {
      return await work();
    } catch (error) {
      span.setStatus({ code: SpanStatusCode.ERROR });
      span.setAttribute("error.type", error instanceof Error ? error.name : "unknown");
      throw error;
    } finally {
      span.end();
    }
  });
}

/** Adds attributes to the current span. */
export const setSpanAttributes = (attributes: Attributes): void => {
  trace.getActiveSpan()?.setAttributes(attributes);
};

/** Returns the id of the current trace. Undefined while tracing is off. */
export const traceId = (): string | undefined => trace.getActiveSpan()?.spanContext().traceId;

/**
 * Returns the trace context that a message carries, so that its handling belongs to the same trace:
 * https://www.w3.org/TR/trace-context. Empty while tracing is off.
 */
export function traceContext(): Record<string, string> {
  const carrier: Record<string, string> = {};
  propagation.inject(context.active(), carrier);
  return carrier;
}
