/** Sends what `shared/platform/telemetry.ts` records to the collector that the configuration names, as OTLP over HTTP. */
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

export interface Telemetry {
  /** Sends what is recorded and not sent yet; for the end of the process. */
  flush(): Promise<void>;
}

/** @param endpoint - The collector's address, without `/v1/traces`. Its headers are the library's own: `OTEL_EXPORTER_OTLP_HEADERS`. */
export function startTelemetry(
  endpoint: string,
  config: Pick<Config, "OTEL_BSP_SCHEDULE_DELAY" | "OTEL_METRIC_EXPORT_INTERVAL">,
  log: Logger,
): Telemetry {
  const failed = (message: string) => log.warn("Telemetry could not be sent", { reason: message.slice(0, 200) });
  const silent = () => {};
  diag.setLogger(
    { error: failed, warn: failed, info: silent, debug: silent, verbose: silent },
    { logLevel: DiagLogLevel.WARN },
  );
  const instance = { "service.name": "credential-lifecycle", "service.instance.id": randomUUID() };
  const resource = defaultResource().merge(resourceFromAttributes(instance));
  const traces = new TracerProvider({
    resource,
    // A caller may say which trace its request belongs to, and not that it is to be left out.
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
        // Instances come and go: each tells what came since it last told, and none repeats an old value.
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
