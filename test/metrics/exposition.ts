// A parser for the text format of Prometheus, with which tests read and check the service's metrics.

/** A metric as a collector parses it. */
interface Metric {
  name: string;
  help: string;
  type: string;
  samples: { labels: Record<string, string>; value: number }[];
}

const NAME = /[a-zA-Z_:][a-zA-Z0-9_:]*/.source;
/** A label and its value, for example `status="expired"`. In the value, `"`, `\` and line feeds are escaped. */
const LABEL = /([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"/.source;
const HELP_LINE = new RegExp(`^# HELP (${NAME}) ((?:[^\\\\]|\\\\[\\\\n])*)$`);
const TYPE_LINE = new RegExp(`^# TYPE (${NAME}) (counter|gauge|histogram|summary|untyped)$`);
/** For example `lifecycle_assets{type="secret",status="expired"} 2`. */
const SAMPLE_LINE = new RegExp(`^(${NAME})(?:\\{(${LABEL}(?:,${LABEL})*)\\})? (-?\\d+(?:\\.\\d+)?(?:e[+-]?\\d+)?)$`);
/** Endings of the names of counters, histograms and summaries, which a gauge's name must not have. */
const NON_GAUGE_ENDING = /_(total|count|sum|bucket)$/;

const unescapeText = (text: string): string =>
  text.replace(/\\(["\\n])/g, (_, letter: string) => (letter === "n" ? "\n" : letter));

/**
 * Parses the text format, version 0.0.4, by its grammar and rules. HELP and TYPE appear once and before the samples, the lines
 * of a metric are together, no series is duplicated, and a line feed is at the end.
 * https://prometheus.io/docs/instrumenting/exposition_formats/#text-based-format
 *
 * @throws with the line that violates a rule
 */
export function metricsIn(text: string): Metric[] {
  if (!text.endsWith("\n")) throw new Error("The last line does not end with a line feed.");
  const metrics: Metric[] = [];
  const knownSeries = new Set<string>();
  const lines = text.slice(0, -1).split("\n");
  for (let index = 0; index < lines.length; index++) {
    const line = lines[index]!;
    const invalidLine = (reason: string) => new Error(`Line ${index + 1}, ${reason}: ${line}`);
    const help = HELP_LINE.exec(line);
    if (help) {
      const type = TYPE_LINE.exec(lines[++index] ?? "");
      if (type?.[1] !== help[1]) throw invalidLine("no TYPE of the same metric follows");
      if (knownSeries.has(help[1]!)) throw invalidLine("the metric is a duplicate");
      if (NON_GAUGE_ENDING.test(help[1]!) && type![2] === "gauge")
        throw invalidLine("the name has the ending of another type");
      knownSeries.add(help[1]!);
      metrics.push({ name: help[1]!, help: unescapeText(help[2]!), type: type![2]!, samples: [] });
      continue;
    }
    const sample = SAMPLE_LINE.exec(line);
    const metric = metrics.at(-1);
    if (!sample || !metric || sample[1] !== metric.name)
      throw invalidLine("neither HELP nor a sample of the metric above");
    const pairs = [...(sample[2] ?? "").matchAll(new RegExp(LABEL, "g"))];
    const labels = Object.fromEntries(pairs.map(([, name, value]) => [name!, unescapeText(value!)]));
    if (Object.keys(labels).length !== pairs.length) throw invalidLine("a label is a duplicate");
    const series = `${metric.name} ${JSON.stringify(Object.entries(labels).sort())}`;
    if (knownSeries.has(series)) throw invalidLine("the series is a duplicate");
    knownSeries.add(series);
    metric.samples.push({ labels, value: Number(sample.at(-1)) });
  }
  return metrics;
}

/**
 * Returns the values of all series. The key is `name{label="value"}` with the labels in the order of the text, or only the
 * name.
 */
export function seriesIn(text: string): Record<string, number> {
  const series = metricsIn(text).flatMap(({ name, samples }) =>
    samples.map(({ labels, value }) => {
      const pairs = Object.entries(labels).map(([label, labelValue]) => `${label}="${labelValue}"`);
      return [pairs.length === 0 ? name : `${name}{${pairs.join(",")}}`, value] as const;
    }),
  );
  return Object.fromEntries(series);
}
