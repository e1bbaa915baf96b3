/** Exports the traces and metrics of `shared/platform/telemetry.ts` to the configured collector, as OTLP over HTTP. */
import { randomUUID } from "node:crypto";
import { context, DiagLogLevel, diag, metrics, propagation, trace } from "@opentelemetry/api";
import { AsyncLocalStorageContextManager } from "@opentelemetry/context-async-hooks";
import { W3CTraceContextPropagator } from "@opentelemetry/core";
import { AggregationTemporalityPreference, OTLPMetricExporter } from "@opentelemetry/exporter-metrics-otlp-http";
import { OTLPTraceExporter } from "@opentelemetry/exporter-trace-otlp-http";
import { defaultResource, resourceFromAttributes } from "@opentelemetry/resources";
import { MeterProvider, PeriodicExportingMetricReader } from "@opentelemetry/sdk-metrics";
import { AlwaysOnSampler, BatchSpanProcessor, TracerProvider } from "@opentelemetry/sdk-trace";
import type { Config } from "../shared/platform/config/config.ts";
import type { Logger } from "../shared/platform/runtime.ts";

/** A started export of telemetry. */
export interface Telemetry {
  /** Exports everything that was recorded so far. Called when the process terminates. */
  flush(): Promise<void>;
}

/**
 * Starts the export, and registers it with the OpenTelemetry API that `shared/platform/telemetry.ts` calls.
 *
 * @param endpoint - URL of the collector, without `/v1/traces`. The library reads headers from `OTEL_EXPORTER_OTLP_HEADERS`.
 */
export function startTelemetry(
  endpoint: string,
  config: Pick<Config, "OTEL_BSP_SCHEDULE_DELAY" | "OTEL_METRIC_EXPORT_INTERVAL">,
  log: Logger,
): Telemetry {
  const logFailure = (message: string) => log.warn("Telemetry could not be sent", { reason: message.slice(0, 200) });
  const ignore = () => {};
  diag.setLogger(
    { error: logFailure, warn: logFailure, info: ignore, debug: ignore, verbose: ignore },
    { logLevel: DiagLogLevel.WARN },
  );
  const instance = { "service.name": "credential-lifecycle", "service.instance.id": randomUUID() };
  const resource = defaultResource().merge(resourceFromAttributes(instance));
  const traces = new TracerProvider({
    resource,
    // Callers can set the trace ID of a request, but can't disable its recording.
    sampler: new AlwaysOnSampler(),
    spanProcessors: [
      new BatchSpanProcessor({
        exporter: new OTLPTraceExporter({ url: `${endpoint}/v1/traces` }),
        scheduledDelayMillis: config.OTEL_BSP_SCHEDULE_DELAY,
      }),
    ],
  });
  const meters = new MeterProvider({
    resource,
    readers: [
      new PeriodicExportingMetricReader({
        // Instances start and stop at any time, so each exports deltas instead of totals.
        exporter: new OTLPMetricExporter({
          url: `${endpoint}/v1/metrics`,
          temporalityPreference: AggregationTemporalityPreference.DELTA,
        }),
        exportIntervalMillis: config.OTEL_METRIC_EXPORT_INTERVAL,
      }),
    ],
  });
  context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable());
  propagation.setGlobalPropagator(new W3CTraceContextPropagator());
  trace.setGlobalTracerProvider(traces);
  metrics.setGlobalMeterProvider(meters);
  return {
    async flush() {
      await Promise.all([traces.forceFlush(), meters.forceFlush()]);
    },
  };
}
