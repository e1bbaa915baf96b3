// Formats metrics in the text format of Prometheus, version 0.0.4:
// https://prometheus.io/docs/instrumenting/exposition_formats/#text-based-format
//
// The library prom-client is not used: it stores counters in the process, while this service reads values from rows at each
// request.

export const MEDIA_TYPE = "text/plain";
export const CONTENT_TYPE = `${MEDIA_TYPE}; version=0.0.4; charset=utf-8`;

/** A metric with all its series. All metrics are gauges, whose values may decrease. */
export interface Gauge {
  /** Name of letters and `_`, with its unit. It must not end with `_total`, which is for counters. */
  name: string;
  help: string;
  samples: readonly Sample[];
}

/** The current value of one series of a metric. Labels distinguish the series. */
export interface Sample {
  labels?: Readonly<Record<string, string>>;
  value: number;
}

/** Returns the metrics as text. */
export const gaugesText = (gauges: readonly Gauge[]): string => gauges.map(gaugeText).join("");

const gaugeText = ({ name, help, samples }: Gauge): string =>
  [`# HELP ${name} ${escapeText(help)}`, `# TYPE ${name} gauge`, ...samples.map((sample) => name + sampleText(sample))]
    .map((line) => `${line}\n`)
    .join("");

function sampleText({ labels = {}, value }: Sample): string {
  const pairs = Object.entries(labels).map(([name, text]) => `${name}="${escapeText(text).replaceAll('"', '\\"')}"`);
  return `${pairs.length > 0 ? `{${pairs.join(",")}}` : ""} ${value}`;
}

const escapeText = (text: string): string => text.replaceAll("\\", "\\\\").replaceAll("\n", "\\n");
