// Checks the queries of alert rules and the workbook.

import path from "node:path";
import * as z from "zod";
import type { BicepFile } from "./bicep/parse.ts";
import { type Expression, type Finding, property, text } from "./expression.ts";
import type { InfraFiles } from "./files.ts";

const HOST = "host.json";

/** Telemetry types of host.json, by the tables that contain them. */
const TYPES: Record<string, string> = { traces: "Trace", exceptions: "Exception", requests: "Request" };

/**
 * Sampling settings: https://learn.microsoft.com/azure/azure-functions/functions-host-json#applicationinsightssamplingsettings
 */
const Host = z.looseObject({
  logging: z.looseObject({
    applicationInsights: z.object({ samplingSettings: z.object({ excludedTypes: z.string() }) }),
  }),
});

const DAY_HOURS = 24;
const HOURS: Record<string, number> = { d: DAY_HOURS, h: 1, m: 1 / 60 };

/**
 * Checks the queries of alert rules and the workbook against their data. host.json must exclude the tables that they read from
 * sampling, so that a line that is logged once a day is not lost. The time range of each rule must be at least as long as the
 * range in its query.
 */
export function checkQueries(files: InfraFiles, bicep: ReadonlyMap<string, BicepFile>): Finding[] {
  return [...checkSampling(files), ...[...bicep.values()].flatMap((file) => checkRanges(files, file))];
}

function checkSampling(files: InfraFiles): Finding[] {
  const parsed = Host.safeParse(JSON.parse(files.text.get(HOST) ?? "{}"));
  const excluded = parsed.data?.logging.applicationInsights.samplingSettings.excludedTypes.split(";") ?? [];
  const queries = [...files.text]
    .filter(([file]) => file.endsWith(".kql") || file.endsWith("workbook.json"))
    .map(([, query]) => query);
  return Object.entries(TYPES)
    .filter(([table]) => queries.some((query) => new RegExp(`\\b${table}\\b`).test(query)))
    .filter(([, type]) => !excluded.includes(type))
    .map(([table, type]) => ({
      file: HOST,
      line: 1,
      message: `samplingSettings.excludedTypes lacks ${type}: alerts and the workbook read ${table}`,
    }));
}

/** Azure Monitor limits a query to the rule's time range, whatever range the query has. */
function checkRanges(files: InfraFiles, { path: file, resources }: BicepFile): Finding[] {
  return resources
    .filter(({ type }) => type === "Microsoft.Insights/scheduledQueryRules")
    .flatMap(({ name, body, line }) => {
      const range =
        property(body, "properties", "overrideQueryTimeRange") ?? property(body, "properties", "windowSize");
      const asked = queriesOf(body).flatMap((query) => {
        const source = files.text.get(path.posix.join(path.posix.dirname(file), query)) ?? "";
        return [...source.matchAll(/\bago\((\d+)([dhm])\)/g)].map(([, count, unit]) => Number(count) * HOURS[unit!]!);
      });
      return Math.max(0, ...asked) < hoursOf(range)
        ? []
        : [{ file, line, message: `${name}: its query looks back as far as its time range, or further` }];
    });
}

function queriesOf(body: Expression): string[] {
  const all = property(body, "properties", "criteria", "allOf");
  const conditions = all?.kind === "array" ? all.items : [];
  return conditions.flatMap((condition) => {
    const query = property(condition, "query");
    return query?.kind === "call" ? (text(query.args[0]) ?? []) : [];
  });
}

/** Returns `P2D` or `PT15M` in hours. */
function hoursOf(duration: Expression | undefined): number {
  const [, days, hours, minutes] = /^P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?)?$/.exec(text(duration) ?? "") ?? [];
  return Number(days ?? 0) * DAY_HOURS + Number(hours ?? 0) + Number(minutes ?? 0) / 60;
}
