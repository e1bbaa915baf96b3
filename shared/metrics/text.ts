/**
 * Metrics as the text that Prometheus reads, version 0.0.4:
 * https://prometheus.io/docs/instrumenting/exposition_formats/#text-based-format
 *
 * Written here, since the library for it, prom-client, keeps counters in a process; what this service shows is read from
 * rows at each request, and of the library it would use this one function.
 */
export const MEDIA_TYPE = "text/plain";
export const CONTENT_TYPE = `${MEDIA_TYPE}; version=0.0.4; charset=utf-8`;

/** A metric with all its series. Every one is a gauge: a value as it stands, which may fall. */
export interface Gauge {
  /** `[a-z_]`, with its unit; never `_total`, which is a counter's. */
  name: string;
  help: string;
  samples: readonly Sample[];
}

export interface Sample {
  labels?: Readonly<Record<string, string>>;
  value: number;
}

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
