import { readFileSync } from "node:fs";
import { parse, type Row } from "simulated-cloud/arm/kql.ts";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { DAY_MS, HOUR_MS, MINUTE_MS } from "../../../shared/platform/time.ts";
import { LOG_LEVELS } from "../../../shared/settings/definitions.ts";
import { Service } from "../../../test/support/service.ts";
import { readInfraFiles } from "../files.ts";

/** The queries of the alert rules and of the workbook, with their files. */
function queries(): { file: string; query: string }[] {
  return [...readInfraFiles().text].flatMap(([file, text]) => {
    if (file.endsWith(".kql")) return [{ file, query: text }];
    return file.endsWith("workbook.json") ? queriesIn(JSON.parse(text)).map((query) => ({ file, query })) : [];
  });
}

function queriesIn(value: unknown): string[] {
  if (typeof value !== "object" || value === null) return [];
  return Object.entries(value).flatMap(([key, inner]) =>
    key === "query" && typeof inner === "string" ? [inner] : queriesIn(inner),
  );
}

/** The texts that a query compares messages with. */
const textsOf = (query: string): string[] =>
  [...query.matchAll(/\bmessage (?:startswith|contains|has|==) "([^"]+)"/g)].map(([, text]) => text!);

/**
 * Messages of the Functions host:
 * https://learn.microsoft.com/azure/azure-functions/functions-bindings-storage-queue-trigger#poison-messages
 */
const BY_THE_HOST = new Set(["Message has reached MaxDequeueCount"]);

describe("the lines that queries read", () => {
  let service: Service;
  beforeAll(async () => {
    const vault = { name: "kv-one", secrets: [{ name: "one" }] };
    service = await Service.start({
      company: { subscriptions: [{ name: "Only", vaults: [vault] }] },
      env: { LOG_LEVEL: "ERROR" },
    });
  });
  afterAll(() => service?.stop());

  /** Makes the service write each line. Returns the fields that the line must have besides its text. */
  const DONE: Record<string, () => Promise<Record<string, unknown>>> = {
    "A scan is over ": async () => {
      const { scanId, status } = await service.scan();
      return { scanId, status };
    },
    "A scan is over failed": async () => {
      const fault = { match: { operation: "arm.listVaults" }, action: { kind: "deny" } } as const;
      service.cloud.control.addFault(fault);
      const { scanId, status } = await service.scan();
      service.cloud.control.clearFaults();
      expect(status).toBe("failed");
      return { scanId, status };
    },
  };
  const texts = [...new Set(queries().flatMap(({ query }) => textsOf(query)))].filter((text) => !BY_THE_HOST.has(text));

  test("are known here, each with what makes the service write it", () => {
    expect(queries().length).toBeGreaterThanOrEqual(7);
    expect(texts).not.toEqual([]);
    expect(texts.filter((text) => !DONE[text])).toEqual([]);
  });

  test.each(["LOG_LEVEL=ERROR", ...LOG_LEVELS])("are written at the level %s", { timeout: 150_000 }, async (level) => {
    if (!level.includes("=")) {
      const changed = await service.admin("PUT", "/api/settings/logging", { logLevel: level });
      expect(changed.status).toBe(200);
    }
    for (const [name, done] of Object.entries(DONE)) {
      const text = texts.find((one) => name.startsWith(one))!;
      const said = await done();
      const lines = service.hosts[0]!.lines.filter((line) => line.includes(`${text}{`));
      const found = lines.map((line) => JSON.parse(line.slice(line.indexOf(text) + text.length)));
      expect(found).toContainEqual(expect.objectContaining(said));
    }
  });
});

describe("the alert about missing scans", () => {
  const NOW = Date.parse("2026-11-26T12:00:00Z");
  const query = readFileSync("infra/azure/queries/no-scan.kql", "utf8");

  /** Computes the value that the rule compares from the rows in its time range. Undefined if the query returns no row. */
  function scansOf(rows: readonly Row[]): number | undefined {
    const [head, sums, ...rest] = query
      .replace(/^\/\/.*\n/gm, "")
      .split(/^\| /m)
      .map((stage) => stage.trim());
    expect([head, rest.at(-1)]).toEqual(["union traces, requests", "project scans"]);
    const counted = [...sums!.matchAll(/(\w+) = countif\((.+)\),?$/gm)].map(([, name, test]) => [
      name!,
      filtered(rows, test!).length,
    ]);
    expect(counted).toHaveLength(2);
    const summary: Row = Object.fromEntries(counted);
    const kept = rest.slice(0, -1).reduce((of, stage) => filtered(of, stage.replace(/^where /, "")), [summary]);
    return kept[0]?.scans as number | undefined;
  }

  function filtered(rows: readonly Row[], condition: string): Row[] {
    const [stage] = parse(`rows | where ${condition}`, NOW).stages;
    return rows.filter((row) => stage?.kind === "where" && stage.test(row));
  }

  const at = (ago: number, message?: string): Row => ({ timestamp: new Date(NOW - ago), ...(message && { message }) });
  const run = (ago: number): Row[] => [at(ago), at(ago, "Executed 'Functions.watchScans'")];
  const scan = (ago: number, status = "completed"): Row =>
    at(ago, `A scan is over {"scanId":"1","status":"${status}"}`);
  /** The rule fires below 1. */
  const fires = (rows: readonly Row[]): boolean => (scansOf(rows) ?? 1) < 1;

  test.each<[string, boolean, Row[]]>([
    ["a deployment that never ran is quiet", false, []],
    ["a service of some hours is quiet before its first scan", false, [...run(5 * HOUR_MS), ...run(MINUTE_MS)]],
    ["a service of some hours is quiet after it", false, [...run(5 * HOUR_MS), scan(4 * HOUR_MS)]],
    [
      "a service none of whose scans ended in its first day fires",
      true,
      [...run(DAY_MS + MINUTE_MS), ...run(MINUTE_MS)],
    ],
    ["an old service with scans is quiet", false, [...run(DAY_MS + HOUR_MS), scan(30 * HOUR_MS), scan(5 * HOUR_MS)]],
    ["a scan that failed has ended as well", false, [...run(DAY_MS + HOUR_MS), scan(5 * HOUR_MS, "failed")]],
    ["an old service whose scans stopped fires", true, [...run(MINUTE_MS), scan(26 * HOUR_MS)]],
    ["a service that died a day and a half ago fires", true, [...run(36 * HOUR_MS), scan(37 * HOUR_MS)]],
  ])("%s", (_, expected, rows) => {
    expect(fires(rows)).toBe(expected);
  });
});
