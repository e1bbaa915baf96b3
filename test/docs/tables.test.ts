/** Tables of docs pages that repeat values of the code must match the code. */
import { globSync, readFileSync } from "node:fs";
import path from "node:path";
import { expect, test } from "vitest";
import { declarations } from "../../functions/functions.ts";
import { costPage } from "../../infra/bench/cost-page.ts";
import { LAYERS } from "../../infra/build/imports.ts";
import { rolesPage } from "../../infra/build/roles-page.ts";
import { settingsPage } from "../../infra/build/settings-page.ts";
import { ALERT_TYPES } from "../../shared/alerts/rule.ts";
import { SETTING_NAMES } from "../../shared/platform/config/config.ts";
import { DEPENDENCIES } from "../../shared/platform/http/health.ts";
import { METRICS } from "../../shared/platform/telemetry.ts";
import { tableUnder } from "../support/markdown-table.ts";

const { queues } = await declarations();

const root = path.resolve(import.meta.dirname, "../..");
const read = (file: string) => readFileSync(path.join(root, file), "utf8");
const first = (page: string, heading: string) => tableUnder(page, heading).map((row) => Object.values(row)[0]!);

test("every alert of the templates has a row with its name", () => {
  const names = [...read("infra/azure/modules/alerts.bicep").matchAll(/displayName: '([^']+)'/g)].map(
    ([, name]) => name,
  );
  expect(names.length).toBeGreaterThan(3);
  expect(first("docs/operate.md", "## Alerts about the service itself")).toEqual(names);
});

test("every type of alert rule has a row", () => {
  expect(first("docs/operate.md", "## Alert rules")).toEqual([...ALERT_TYPES]);
});

test("every queue has a row that says how to handle its messages", () => {
  const names = queues.map(({ queue }) => queue).filter((name) => !name.endsWith("-poison"));
  expect(first("docs/troubleshooting.md", "## Failed messages").sort()).toEqual([...new Set(names)].sort());
});

test("every table of the storage account has a row", () => {
  const source = globSync("shared/**/*.ts", { cwd: root }).map(read).join("\n");
  const literals = [
    ...source.matchAll(/\bentity(?:<[^(]*>)?\(\s*"(\w+)"/g),
    ...source.matchAll(/\b(?:TABLE|table)\b[^"\n]* "([A-Z]\w+)"/g),
  ];
  const named = first("docs/backup.md", "## Tables").flatMap((cell) => cell.split(", "));
  expect(literals.length).toBeGreaterThan(30);
  expect(named.sort()).toEqual([...new Set(literals.map(([, name]) => name!))].sort());
});

test("the documented health check names every dependency", () => {
  const [, deep] = tableUnder("docs/operate.md", "## Where to look");
  for (const name of DEPENDENCIES) expect(deep!.shows).toContain(name);
});

test("the architecture page lists the modules in the layers of the import check", () => {
  const levels = tableUnder("docs/architecture.md", "## Inside").map(({ level, modules }) => ({
    level: Number(level),
    modules: modules!.split("; ").flatMap((cell) => cell.split(":")[0]!.split(", ")),
  }));
  expect(levels).toEqual(LAYERS.map((modules, at) => ({ level: at + 1, modules })).reverse());
});

test("the costs follow from the measurements that npm run bench writes", () => {
  const cost = read("docs/cost.md");
  expect(costPage(cost, read("BENCHMARKS.md"))).toBe(cost);
});

test("the costs are computed correctly", () => {
  const sums = [...read("docs/cost.md").matchAll(/((?:[\d.,]+ [·+] )+[\d.,]+) = ([\d,]+)/g)];
  expect(sums.length).toBeGreaterThan(4);
  for (const [, terms, sum] of sums) {
    const products = terms!.replaceAll(",", "").split(" + ");
    const value = products.reduce((total, one) => total + one.split(" · ").reduce((a, b) => a * Number(b), 1), 0);
    expect(Math.round(value), terms).toBe(Number(sum!.replaceAll(",", "")));
  }
});

test("docs/settings.md matches the code: npm run settings-page writes it", () => {
  const page = read("docs/settings.md");
  expect(page).toBe(settingsPage());
  for (const name of SETTING_NAMES) expect(page.split(`| \`${name}\` |`), name).toHaveLength(2);
});

test("docs/roles-matrix.md matches the endpoints: npm run roles-page writes it", async () => {
  expect(read("docs/roles-matrix.md"), "Run npm run roles-page.").toBe(await rolesPage());
});

test("docs/roles.md mentions every view of the page", () => {
  const views = [...read("functions/web/src/views/views.ts").matchAll(/path: "([^"]+)",\s*title:/g)].map(
    ([, at]) => at,
  );
  expect(views.length).toBeGreaterThan(10);
  expect(views.filter((view) => !read("docs/roles.md").includes(`\`#${view}\``))).toEqual([]);
});

test("docs/telemetry.md has a row for every metric and documents all OTEL_ settings", () => {
  const figures = Object.entries(METRICS).map(([metric, { kind, unit, description }]) => ({
    metric,
    "kind, unit": `${kind}, ${unit}`,
    meaning: description,
  }));
  expect(tableUnder("docs/telemetry.md", "## Metrics")).toEqual(figures);
  const settings = tableUnder("docs/telemetry.md", "## Switch it on").flatMap(({ setting }) => setting!.split(", "));
  // The library and the platform read the other two settings.
  expect(settings.filter((name) => SETTING_NAMES.includes(name))).toEqual(
    SETTING_NAMES.filter((name) => name.startsWith("OTEL_")),
  );
});
