/**
 * Formats metrics as text for Prometheus, version 0.0.4:
 * https://prometheus.io/docs/instrumenting/exposition_formats/#text-based-format
 *
 * Not with the library prom-client, because it keeps counters in the process, while this service reads values from rows at each
 * request. It would use only one function of the library.
 */
export const MEDIA_TYPE = "text/plain";
export const CONTENT_TYPE = `${MEDIA_TYPE}; version=0.0.4; charset=utf-8`;

/** A metric with all its series. All metrics are gauges, whose values may decrease. */
export interface Gauge {
  /** Name in `[a-z_]`, with its unit. Never ends with `_total`, which is for counters. */
  name: string;
  help: string;
  samples: readonly Sample[];
}

export interface Sample {
  labels?: Readonly<Record<string, string>>;
  value: number;
}

/** Returns the metrics as text. */
export const gaugesText = (gauges: readonly Gauge[]): string => gauges.map(gaugeText).join("");

const gaugeText = ({ name, help, samples }: Gauge): string =>
  [`# HELP ${name} ${escaped(help)}`, `# TYPE ${name} gauge`, ...samples.map((one) => name + sampleText(one))]
    .map((line) => `${line}\n`)
    .join("");

function sampleText({ labels = {}, value }: Sample): string {
  const pairs = Object.entries(labels).map(([name, text]) => `${name}="${escaped(text).replaceAll('"', '\\"')}"`);
  return `${pairs.length > 0 ? `{${pairs.join(",")}}` : ""} ${value}`;
}

const escaped = (text: string): string => text.replaceAll("\\", "\\\\").replaceAll("\n", "\\n");
