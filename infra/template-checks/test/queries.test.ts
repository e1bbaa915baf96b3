import { readFileSync } from "node:fs";
import { parse, type Row } from "simulated-cloud/arm/kql.ts";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { DAY_MS, HOUR_MS, MINUTE_MS } from "../../../shared/platform/time.ts";
import { LOG_LEVELS } from "../../../shared/settings/definitions.ts";
import { Service } from "../../../test/support/service.ts";
import { readInfraFiles } from "../files.ts";
import { messageTextsIn } from "../kql.ts";
import { HOST_MESSAGES } from "../queries.ts";

// Tests the KQL queries of the alert rules and of the workbook. The service must write the log messages that they search for.
// The alert about missing scans must fire in the right cases.

/** Returns the queries of the alert rules and of the workbook, with their files. */
function allQueries(): { file: string; query: string }[] {
  return [...readInfraFiles().text].flatMap(([file, text]) => {
    if (file.endsWith(".kql")) return [{ file, query: text }];
    return file.endsWith("workbook.json") ? queriesIn(JSON.parse(text)).map((query) => ({ file, query })) : [];
  });
}

/** Finds all members named `query` in the JSON of a workbook. */
function queriesIn(value: unknown): string[] {
  if (typeof value !== "object" || value === null) return [];
  return Object.entries(value).flatMap(([key, inner]) =>
    key === "query" && typeof inner === "string" ? [inner] : queriesIn(inner),
  );
}

/** The level that the host starts with. The other levels are set through the API. */
const INITIAL_LEVEL = "LOG_LEVEL=ERROR";

describe("the log messages that queries search for", () => {
  let service: Service;
  beforeAll(async () => {
    const vault = { name: "kv-one", secrets: [{ name: "one" }] };
    service = await Service.start({
      company: { subscriptions: [{ name: "Only", vaults: [vault] }] },
      env: { LOG_LEVEL: "ERROR" },
    });
  });
  afterAll(() => service?.stop());

  /**
   * By message: makes the service write the message, and returns the fields that must follow the message as JSON. A message can
   * occur twice with different ends, to test more than one outcome.
   */
  const WRITE_MESSAGE: Record<string, () => Promise<Record<string, unknown>>> = {
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
  const messages = [...new Set(allQueries().flatMap(({ query }) => messageTextsIn(query)))].filter(
    (text) => !HOST_MESSAGES.has(text),
  );

  test("are all covered by this test", () => {
    expect(allQueries().length).toBeGreaterThanOrEqual(7);
    expect(messages).not.toEqual([]);
    expect(messages.filter((text) => !WRITE_MESSAGE[text])).toEqual([]);
  });

  test.each([INITIAL_LEVEL, ...LOG_LEVELS])("are written at the log level %s", { timeout: 150_000 }, async (level) => {
    if (level !== INITIAL_LEVEL) {
      const changed = await service.admin("PUT", "/api/settings/logging", { logLevel: level });
      expect(changed.status).toBe(200);
    }
    for (const [name, writeMessage] of Object.entries(WRITE_MESSAGE)) {
      const text = messages.find((prefix) => name.startsWith(prefix))!;
      const expectedFields = await writeMessage();
      const lines = service.hosts[0]!.lines.filter((line) => line.includes(`${text}{`));
      const loggedFields = lines.map((line) => JSON.parse(line.slice(line.indexOf(text) + text.length)));
      expect(loggedFields).toContainEqual(expect.objectContaining(expectedFields));
    }
  });
});

/** Returns the rows of `traces` for lines of the host, which begin with their time, level and category. */
const tracesOf = (lines: readonly string[]): { timestamp: Date; message: string }[] =>
  lines.flatMap((line) => {
    const [, time, message] = /^\[(\S+)\] \[\w+\] \[\S+\] (.*)$/.exec(line) ?? [];
    return time ? [{ timestamp: new Date(time), message: message! }] : [];
  });

/**
 * Runs no-scan.kql on log rows at a time. Returns the number of scans that the alert rule compares, or undefined if the query
 * returns no row. Only the stages of this query are supported.
 */
function countScans(rows: readonly Row[], now: number): number | undefined {
  const filterRows = (remaining: readonly Row[], condition: string): Row[] => {
    const [stage] = parse(`rows | where ${condition}`, now).stages;
    return remaining.filter((row) => stage?.kind === "where" && stage.test(row));
  };
  const [source, summarize, ...laterStages] = readFileSync("infra/azure/queries/no-scan.kql", "utf8")
    .replace(/^\/\/.*\n/gm, "")
    .split(/^\| /m)
    .map((stage) => stage.trim());
  expect([source, laterStages.at(-1)]).toEqual(["union traces, requests", "project scans"]);
  const counts = [...summarize!.matchAll(/(\w+) = countif\((.+)\),?$/gm)].map(([, name, condition]) => [
    name!,
    filterRows(rows, condition!).length,
  ]);
  expect(counts).toHaveLength(2);
  const summary: Row = Object.fromEntries(counts);
  const result = laterStages
    .slice(0, -1)
    .reduce((remaining, stage) => filterRows(remaining, stage.replace(/^where /, "")), [summary]);
  return result[0]?.scans as number | undefined;
}

/** The alert about missing scans fires if its query returns a number below 1. */
const firesWithoutScans = (rows: readonly Row[], now: number): boolean => (countScans(rows, now) ?? 1) < 1;

describe("alerts, on the lines that the service writes at the log level ERROR", () => {
  let service: Service;
  beforeAll(async () => {
    const vault = { name: "kv-one", secrets: [{ name: "one" }] };
    service = await Service.start({
      company: { subscriptions: [{ name: "Only", vaults: [vault] }] },
      env: { LOG_LEVEL: "ERROR" },
    });
  });
  afterAll(() => service?.stop());

  test("the alert about failed scans finds the scan that failed, and not the one that completed", {
    timeout: 150_000,
  }, async () => {
    const completed = await service.scan();
    service.cloud.control.addFault({ match: { operation: "arm.listVaults" }, action: { kind: "deny" } });
    const failed = await service.scan();
    service.cloud.control.clearFaults();
    expect([completed.status, failed.status]).toEqual(["completed", "failed"]);
    expect(
      failedScans(tracesOf(service.hosts[0]!.lines)).map(({ scan }) => (scan as { scanId: string }).scanId),
    ).toEqual([failed.scanId]);
  });

  test("the alert about missing scans fires a day after the last scan, and not after another one", {
    timeout: 150_000,
  }, async () => {
    await service.scan();
    const now = Date.now();
    const written = tracesOf(service.hosts[0]!.lines);
    const writtenBefore = (ageMs: number) =>
      written.map((row) => ({ ...row, timestamp: new Date(row.timestamp.getTime() - ageMs) }));
    const [dayOld, hoursOld] = [writtenBefore(DAY_MS + HOUR_MS), writtenBefore(DAY_MS - HOUR_MS)];
    const otherLines = written.filter(({ message }) => !message.startsWith("A scan is over "));
    expect(otherLines).not.toEqual([]);
    expect(firesWithoutScans(written, now)).toBe(false);
    expect(firesWithoutScans(dayOld, now)).toBe(true);
    expect(firesWithoutScans([...dayOld, ...otherLines], now)).toBe(true);
    expect(firesWithoutScans([...dayOld, ...hoursOld], now)).toBe(false);
  });

  /** Runs failed-scans.kql on rows of `traces`. Only the stages of this query are supported. */
  function failedScans(rows: readonly Row[]): Row[] {
    const query = readFileSync("infra/azure/queries/failed-scans.kql", "utf8");
    const [source, started, extended, filtered, ...more] = query.split(/^\| /m).map((stage) => stage.trim());
    const prefix = /^where message startswith "(.+)"$/.exec(started!)![1]!;
    expect([source, extended, more]).toEqual([
      "traces",
      `extend scan = parse_json(substring(message, strlen("${prefix}")))`,
      [],
    ]);
    const [stage] = parse(`rows | ${filtered}`, Date.now()).stages;
    return rows
      .filter(({ message }) => String(message).startsWith(prefix))
      .map((row) => ({ ...row, scan: JSON.parse(String(row.message).slice(prefix.length)) }))
      .filter((row) => stage?.kind === "where" && stage.test(row));
  }
});

describe("the alert about missing scans", () => {
  const NOW = Date.parse("2026-11-26T12:00:00Z");
  /** A log row that was written `ageMs` before NOW. */
  const logRow = (ageMs: number, message?: string): Row => ({
    timestamp: new Date(NOW - ageMs),
    ...(message && { message }),
  });
  /** Rows of one run of the timer that supervises scans. They prove that the service ran at that time. */
  const timerRun = (ageMs: number): Row[] => [logRow(ageMs), logRow(ageMs, "Executed 'Functions.watchScans'")];
  const endOfScan = (ageMs: number, status = "completed"): Row =>
    logRow(ageMs, `A scan is over {"scanId":"1","status":"${status}"}`);
  test.each<[string, boolean, Row[]]>([
    ["does not fire for a service that never ran", false, []],
    [
      "does not fire for a service of 5 hours before its first scan",
      false,
      [...timerRun(5 * HOUR_MS), ...timerRun(MINUTE_MS)],
    ],
    [
      "does not fire for a service of 5 hours after its first scan",
      false,
      [...timerRun(5 * HOUR_MS), endOfScan(4 * HOUR_MS)],
    ],
    [
      "fires if no scan ended in the first day of the service",
      true,
      [...timerRun(DAY_MS + MINUTE_MS), ...timerRun(MINUTE_MS)],
    ],
    [
      "does not fire if a scan ended in the last day",
      false,
      [...timerRun(DAY_MS + HOUR_MS), endOfScan(30 * HOUR_MS), endOfScan(5 * HOUR_MS)],
    ],
    [
      "does not fire if the scan of the last day failed",
      false,
      [...timerRun(DAY_MS + HOUR_MS), endOfScan(5 * HOUR_MS, "failed")],
    ],
    ["fires if the last scan ended more than a day ago", true, [...timerRun(MINUTE_MS), endOfScan(26 * HOUR_MS)]],
    ["fires if the service stopped a day and a half ago", true, [...timerRun(36 * HOUR_MS), endOfScan(37 * HOUR_MS)]],
  ])("%s", (_, expected, rows) => {
    expect(firesWithoutScans(rows, NOW)).toBe(expected);
  });
});
