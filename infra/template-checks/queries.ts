// Checks the KQL queries of the alert rules and of the workbook: their tables, columns and texts, host.json, and the time ranges
// of the rules.

import path from "node:path";
import * as z from "zod";
import type { BicepFile } from "./bicep/parse.ts";
import { type Expression, type Finding, property, text } from "./expression.ts";
import type { InfraFiles } from "./files.ts";
import { columnsOf, membersIn, messageTextsIn, queryProblems, statusesIn } from "./kql.ts";
import { readWorkbook, WORKBOOK } from "./workbook.ts";

const HOST = "host.json";

/** Telemetry types as host.json names them, by the table that contains them. */
const TELEMETRY_TYPES: Record<string, string> = { traces: "Trace", exceptions: "Exception", requests: "Request" };

/**
 * Sampling settings: https://learn.microsoft.com/azure/azure-functions/functions-host-json#applicationinsightssamplingsettings
 */
const HostJson = z.looseObject({
  logging: z.looseObject({
    applicationInsights: z.object({ samplingSettings: z.object({ excludedTypes: z.string() }) }),
  }),
});

/**
 * Texts of messages that the Functions host writes, not the service:
 * https://learn.microsoft.com/azure/azure-functions/functions-bindings-storage-queue-trigger#poison-messages
 */
export const HOST_MESSAGES: ReadonlySet<string> = new Set(["Message has reached MaxDequeueCount"]);

const DAY_HOURS = 24;
/** Hours per unit of a KQL timespan: days, hours, minutes. */
const HOURS_PER_UNIT: Record<string, number> = { d: DAY_HOURS, h: 1, m: 1 / 60 };

/** Conditions that the query of an alert must contain, by its file. Without them, the alert does not fire for its cause. */
const REQUIRED_CONDITIONS: Record<string, readonly string[]> = {
  // The statuses with which a scan ends without its results.
  "failed-scans.kql": ['tostring(scan.status) in ("failed", "timedOut")'],
  // 3 is Error: https://learn.microsoft.com/azure/azure-monitor/app/data-model-complete
  "errors.kql": ["severityLevel >= 3", "exceptions"],
  "no-scan.kql": ["timestamp > ago(1d)", "timestamp <= ago(1d)", "older > 0"],
  "poison-queues.kql": ['message startswith "Message has reached MaxDequeueCount"'],
};

/**
 * Checks each query against the tables and columns that exist and the messages that the service writes. host.json must exclude
 * the tables of the queries from sampling, because sampling could drop a message that is logged once a day. The time range of
 * each alert rule must be longer than the range in its query (`ago(…)`).
 */
export function checkQueries(files: InfraFiles, bicep: ReadonlyMap<string, BicepFile>): Finding[] {
  const workbook = readWorkbook(files);
  const kqlFiles = [...files.text].filter(([file]) => file.endsWith(".kql"));
  const queries = [...kqlFiles, ...workbook.queries.map((query) => [WORKBOOK, query] as const)];
  return [
    ...workbook.findings,
    ...queries.flatMap(([file, query]) =>
      [...queryProblems(query), ...unwrittenTexts(files, query)].map((message) => ({ file, line: 1, message })),
    ),
    ...kqlFiles.flatMap(([file, query]) =>
      (REQUIRED_CONDITIONS[path.posix.basename(file)] ?? [])
        .filter((condition) => !query.includes(condition))
        .map((condition) => ({ file, line: 1, message: `must contain ${condition}` })),
    ),
    ...checkSampling(files),
    ...[...bicep.values()].flatMap((file) => [...checkRanges(files, file), ...checkMeasures(files, file)]),
  ];
}

/** Returns a message for each text that a query searches for, if neither the service nor the host writes it. */
function unwrittenTexts(files: InfraFiles, query: string): string[] {
  return [
    ...messageTextsIn(query)
      .filter((text) => !HOST_MESSAGES.has(text) && !files.isInSource(`"${text.trimEnd()}"`))
      .map((text) => `neither the service nor the host writes a message that starts with "${text}"`),
    ...statusesIn(query)
      .filter((status) => !files.isInSource(`"${status}"`))
      .map((status) => `no scan ends with the status ${status}`),
    ...messageTextsIn(query).flatMap((text) => {
      const fields = files.fieldsOf(text.trimEnd());
      return membersIn(query)
        .filter((member) => !HOST_MESSAGES.has(text) && !fields.includes(member))
        .map((member) => `the message "${text}" has no field ${member}, only ${fields.join(", ")}`);
    }),
  ];
}

function checkSampling(files: InfraFiles): Finding[] {
  const parsed = HostJson.safeParse(JSON.parse(files.text.get(HOST) ?? "{}"));
  const excluded = parsed.data?.logging.applicationInsights.samplingSettings.excludedTypes.split(";") ?? [];
  const queries = [...files.text]
    .filter(([file]) => file.endsWith(".kql") || file.endsWith("workbook.json"))
    .map(([, query]) => query);
  return Object.entries(TELEMETRY_TYPES)
    .filter(([table]) => queries.some((query) => new RegExp(`\\b${table}\\b`).test(query)))
    .filter(([, type]) => !excluded.includes(type))
    .map(([table, type]) => ({
      file: HOST,
      line: 1,
      message: `samplingSettings.excludedTypes lacks ${type}: alerts and the workbook read ${table}`,
    }));
}

/**
 * Checks the time ranges. Azure Monitor limits a query to the time range of its rule, even if the query asks for a longer
 * range. An equal range does not suffice, because a query can look for rows that are older than its `ago(…)`.
 */
function checkRanges(files: InfraFiles, { path: file, resources }: BicepFile): Finding[] {
  return resources
    .filter(({ type }) => type === "Microsoft.Insights/scheduledQueryRules")
    .flatMap(({ name, body, line }) => {
      const range =
        property(body, "properties", "overrideQueryTimeRange") ?? property(body, "properties", "windowSize");
      const hoursInQueries = queriesOf(body).flatMap((query) => {
        const source = files.text.get(path.posix.join(path.posix.dirname(file), query)) ?? "";
        return [...source.matchAll(/\bago\((\d+)([dhm])\)/g)].map(
          ([, count, unit]) => Number(count) * HOURS_PER_UNIT[unit!]!,
        );
      });
      return Math.max(0, ...hoursInQueries) < hoursOf(range)
        ? []
        : [{ file, line, message: `${name}: its query looks back as far as its time range, or further` }];
    });
}

/** Checks that the query of an alert rule returns the column that the rule measures. */
function checkMeasures(files: InfraFiles, { path: file, resources }: BicepFile): Finding[] {
  return resources
    .filter(({ type }) => type === "Microsoft.Insights/scheduledQueryRules")
    .flatMap(({ name, body, line }) => {
      const criteria = property(body, "properties", "criteria", "allOf");
      const measured =
        criteria?.kind === "array" ? text(property(criteria.items[0], "metricMeasureColumn")) : undefined;
      const [query] = queriesOf(body);
      const columns = columnsOf(files.text.get(path.posix.join(path.posix.dirname(file), query ?? "")) ?? "");
      return measured === undefined || !columns || columns.includes(measured)
        ? []
        : [{ file, line, message: `${name}: its query returns no column ${measured}` }];
    });
}

/** Returns the file names of the queries of an alert rule. */
function queriesOf(body: Expression): string[] {
  const criteria = property(body, "properties", "criteria", "allOf");
  const conditions = criteria?.kind === "array" ? criteria.items : [];
  return conditions.flatMap((condition) => {
    const query = property(condition, "query");
    return query?.kind === "call" ? (text(query.args[0]) ?? []) : [];
  });
}

/** Returns an ISO 8601 duration such as `P2D` or `PT15M` in hours. */
function hoursOf(duration: Expression | undefined): number {
  const [, days, hours, minutes] = /^P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?)?$/.exec(text(duration) ?? "") ?? [];
  return Number(days ?? 0) * DAY_HOURS + Number(hours ?? 0) + Number(minutes ?? 0) / 60;
}
