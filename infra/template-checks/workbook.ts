// Reads the workbook, and checks its items: existing parameters, existing types of charts, and columns that its queries return.

import * as z from "zod";
import type { Finding } from "./expression.ts";
import type { InfraFiles } from "./files.ts";
import { columnsOf } from "./kql.ts";

export const WORKBOOK = "infra/azure/workbook.json";

/**
 * Items of a workbook, with the members and values that this project uses. Any other one is a finding.
 * https://learn.microsoft.com/azure/azure-monitor/visualize/workbooks-create-workbook
 */
const QueryItem = z.strictObject({
  type: z.literal(3),
  name: z.string(),
  content: z.strictObject({
    version: z.literal("KqlItem/1.0"),
    title: z.string(),
    query: z.string(),
    /** Height of the item. This project's workbook uses 0, which is medium. */
    size: z.literal([0, 1, 2, 3, 4]),
    /** 0 is a query of logs. */
    queryType: z.literal(0),
    resourceType: z.literal("microsoft.insights/components"),
    timeContextFromParameter: z.string(),
    visualization: z.literal(["table", "barchart", "areachart", "linechart", "piechart", "timechart", "unstackedbar"]),
    chartSettings: z
      .strictObject({
        xAxis: z.string().optional(),
        yAxis: z.array(z.string()).optional(),
        group: z.string().optional(),
      })
      .optional(),
    gridSettings: z
      .strictObject({
        formatters: z.array(z.looseObject({ columnMatch: z.string() })).optional(),
        sortBy: z.array(z.strictObject({ itemKey: z.string(), sortOrder: z.literal([1, 2]) })).optional(),
      })
      .optional(),
  }),
});
const ParametersItem = z.strictObject({
  type: z.literal(9),
  name: z.string(),
  content: z.strictObject({
    version: z.literal("KqlParameterItem/1.0"),
    parameters: z.array(
      z.strictObject({
        id: z.guid(),
        version: z.literal("KqlParameterItem/1.0"),
        name: z.string(),
        label: z.string(),
        /** 4 is a time range. */
        type: z.literal(4),
        value: z.strictObject({ durationMs: z.int().positive() }),
        typeSettings: z.strictObject({
          selectableValues: z.array(z.strictObject({ durationMs: z.int().positive() })).min(1),
        }),
      }),
    ),
  }),
});
const Workbook = z.strictObject({
  version: z.literal("Notebook/1.0"),
  items: z.array(z.discriminatedUnion("type", [QueryItem, ParametersItem])),
  fallbackResourceIds: z.tuple([]),
  $schema: z.literal("https://github.com/Microsoft/Application-Insights-Workbooks/blob/master/schema/workbook.json"),
});

/** Returns the workbook's queries, and findings if it is not a workbook or refers to something that it does not have. */
export function readWorkbook(files: InfraFiles): { queries: string[]; findings: Finding[] } {
  const finding = (message: string): Finding => ({ file: WORKBOOK, line: 1, message });
  let content: unknown;
  try {
    content = JSON.parse(files.text.get(WORKBOOK) ?? "");
  } catch {
    return { queries: [], findings: [finding("is not JSON")] };
  }
  const parsed = Workbook.safeParse(content);
  if (!parsed.success) {
    const findings = parsed.error.issues.map((issue) => finding(`${issue.path.join(".")}: ${issue.message}`));
    return { queries: [], findings };
  }
  const { items } = parsed.data;
  const names = items.map(({ name }) => name);
  const parameters = items.flatMap((item) => (item.type === 9 ? item.content.parameters : []));
  const queries = items.flatMap((item) => (item.type === 3 ? [item.content] : []));
  return {
    queries: queries.map(({ query }) => query),
    findings: [
      ...names.filter((name, index) => names.indexOf(name) !== index).map((name) => finding(`has two items ${name}`)),
      ...parameters
        .filter(
          ({ value, typeSettings }) =>
            !typeSettings.selectableValues.some(({ durationMs }) => durationMs === value.durationMs),
        )
        .map(({ name }) => finding(`the default of ${name} can't be selected`)),
      ...queries.flatMap(({ title, query, timeContextFromParameter, chartSettings, gridSettings }) => {
        const columns = columnsOf(query);
        const used = [
          chartSettings?.xAxis ?? [],
          chartSettings?.yAxis ?? [],
          chartSettings?.group ?? [],
          gridSettings?.sortBy?.map(({ itemKey }) => itemKey) ?? [],
          gridSettings?.formatters?.map(({ columnMatch }) => columnMatch) ?? [],
        ].flat();
        return [
          ...(parameters.some(({ name }) => name === timeContextFromParameter)
            ? []
            : [finding(`has no parameter ${timeContextFromParameter}`)]),
          ...used
            .filter((column) => columns && !columns.includes(column))
            .map((column) => finding(`${title}: its query returns no column ${column}, only ${columns!.join(", ")}`)),
        ];
      }),
    ],
  };
}
