/** A metric as a collector parses it. */
interface Metric {
  name: string;
  help: string;
  type: string;
  samples: { labels: Record<string, string>; value: number }[];
}

const NAME = /[a-zA-Z_:][a-zA-Z0-9_:]*/.source;
const LABEL = /([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"/.source;
const HELP_LINE = new RegExp(`^# HELP (${NAME}) ((?:[^\\\\]|\\\\[\\\\n])*)$`);
const TYPE_LINE = new RegExp(`^# TYPE (${NAME}) (counter|gauge|histogram|summary|untyped)$`);
const SAMPLE_LINE = new RegExp(`^(${NAME})(?:\\{(${LABEL}(?:,${LABEL})*)\\})? (-?\\d+(?:\\.\\d+)?(?:e[+-]?\\d+)?)$`);
/** Endings of the names of counters, histograms and summaries. */
const OF_OTHER_TYPES = /_(total|count|sum|bucket)$/;

const unescaped = (text: string): string =>
  text.replace(/\\(["\\n])/g, (_, letter: string) => (letter === "n" ? "\n" : letter));

/**
 * Parses the text format, version 0.0.4, by its grammar and rules: HELP and TYPE once and before the samples, the lines of a
 * metric together, no duplicate series, a line feed at the end.
 * https://prometheus.io/docs/instrumenting/exposition_formats/#text-based-format
 *
 * @throws with the line that violates a rule
 */
export function metricsIn(text: string): Metric[] {
  if (!text.endsWith("\n")) throw new Error("The last line has no end.");
  const metrics: Metric[] = [];
  const seen = new Set<string>();
  const lines = text.slice(0, -1).split("\n");
  for (let at = 0; at < lines.length; at++) {
    const line = lines[at]!;
    const wrong = (why: string) => new Error(`Line ${at + 1}, ${why}: ${line}`);
    const help = HELP_LINE.exec(line);
    if (help) {
      const type = TYPE_LINE.exec(lines[++at] ?? "");
      if (type?.[1] !== help[1]) throw wrong("no TYPE of the same metric follows");
      if (seen.has(help[1]!)) throw wrong("a metric twice");
      if (OF_OTHER_TYPES.test(help[1]!) && type![2] === "gauge") throw wrong("not a gauge's name");
      seen.add(help[1]!);
      metrics.push({ name: help[1]!, help: unescaped(help[2]!), type: type![2]!, samples: [] });
      continue;
    }
    const sample = SAMPLE_LINE.exec(line);
    const metric = metrics.at(-1);
    if (!sample || !metric || sample[1] !== metric.name)
      throw wrong("neither HELP nor a sample of the metric before it");
    const pairs = [...(sample[2] ?? "").matchAll(new RegExp(LABEL, "g"))];
    const labels = Object.fromEntries(pairs.map(([, name, value]) => [name!, unescaped(value!)]));
    if (Object.keys(labels).length !== pairs.length) throw wrong("a label twice");
    const series = `${metric.name} ${JSON.stringify(Object.entries(labels).sort())}`;
    if (seen.has(series)) throw wrong("a series twice");
    seen.add(series);
    metric.samples.push({ labels, value: Number(sample.at(-1)) });
  }
  return metrics;
}

/** Values by series: `name{label="value"}` with its labels in order, or only the name. */
export function seriesIn(text: string): Record<string, number> {
  const series = metricsIn(text).flatMap(({ name, samples }) =>
    samples.map(({ labels, value }) => {
      const pairs = Object.entries(labels).map(([label, of]) => `${label}="${of}"`);
      return [pairs.length === 0 ? name : `${name}{${pairs.join(",")}}`, value] as const;
    }),
  );
  return Object.fromEntries(series);
}
