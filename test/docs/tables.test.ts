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
import { CALLS } from "../../shared/doctor/calls.ts";
import { OUTCOMES } from "../../shared/doctor/result.ts";
import { SETTING_NAMES } from "../../shared/platform/config/config.ts";
import { DEPENDENCIES } from "../../shared/platform/http/health.ts";
import { METRICS } from "../../shared/platform/telemetry.ts";
import { TABLE_NAMES } from "../../shared/store/table-names.ts";
import { tableUnder } from "../support/markdown-table.ts";

const { queues } = await declarations();

const root = path.resolve(import.meta.dirname, "../..");
const read = (file: string) => readFileSync(path.join(root, file), "utf8");
/** Returns the first column of the table under a heading. */
const firstColumn = (page: string, heading: string) => tableUnder(page, heading).map((row) => Object.values(row)[0]!);

test("docs/operate.md has a row for every alert of the Bicep templates", () => {
  const names = [...read("infra/azure/modules/alerts.bicep").matchAll(/displayName: '([^']+)'/g)].map(
    ([, name]) => name,
  );
  expect(names.length).toBeGreaterThan(3);
  expect(firstColumn("docs/operate.md", "## Alerts about the service itself")).toEqual(names);
});

test("docs/operate.md has a row for every type of alert rule", () => {
  expect(firstColumn("docs/operate.md", "## Alert rules")).toEqual([...ALERT_TYPES]);
});

test("docs/troubleshooting.md has a row for every queue, for its failed messages", () => {
  const names = queues.map(({ queue }) => queue).filter((name) => !name.endsWith("-poison"));
  expect(firstColumn("docs/troubleshooting.md", "## Failed messages").sort()).toEqual([...new Set(names)].sort());
});

test("docs/backup.md has a row for every table of the storage account", () => {
  const source = globSync("shared/**/*.ts", { cwd: root }).map(read).join("\n");
  // Tables are named where code declares an entity, as in `entity<User>("Users", …)`, or in a constant such as
  // `TABLE = "Users"`.
  const literals = [
    ...source.matchAll(/\bentity(?:<[^(]*>)?\(\s*"(\w+)"/g),
    ...source.matchAll(/\b(?:TABLE|table)\b[^"\n]* "([A-Z]\w+)"/g),
  ];
  const documentedTables = firstColumn("docs/backup.md", "## Tables").flatMap((cell) => cell.split(", "));
  expect(literals.length).toBeGreaterThan(30);
  expect(documentedTables.sort()).toEqual([...new Set(literals.map(([, name]) => name!))].sort());
  expect([...TABLE_NAMES], "tables that a backup copies").toEqual(documentedTables);
});

test("docs/operate.md names every dependency that the deep health check reports", () => {
  const [, deepHealthRow] = tableUnder("docs/operate.md", "## Where to look");
  for (const name of DEPENDENCIES) expect(deepHealthRow!.shows).toContain(name);
});

test("docs/architecture.md lists the modules in the layers that the import check enforces", () => {
  const levels = tableUnder("docs/architecture.md", "## Inside").map(({ level, modules }) => ({
    level: Number(level),
    modules: modules!.split("; ").flatMap((cell) => cell.split(":")[0]!.split(", ")),
  }));
  expect(levels).toEqual(LAYERS.map((modules, index) => ({ level: index + 1, modules })).reverse());
});

test("docs/cost.md contains the measurements of BENCHMARKS.md", () => {
  const cost = read("docs/cost.md");
  expect(costPage(cost, read("BENCHMARKS.md"))).toBe(cost);
});

test("the calculations in docs/cost.md are correct", () => {
  // Matches calculations such as `2 · 3.5 + 1 = 8`.
  const calculations = [...read("docs/cost.md").matchAll(/((?:[\d.,]+ [·+] )+[\d.,]+) = ([\d,]+)/g)];
  expect(calculations.length).toBeGreaterThan(4);
  for (const [, terms, sum] of calculations) {
    const products = terms!.replaceAll(",", "").split(" + ");
    const value = products.reduce(
      (total, product) => total + product.split(" · ").reduce((a, b) => a * Number(b), 1),
      0,
    );
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
    ([, viewPath]) => viewPath,
  );
  expect(views.length).toBeGreaterThan(10);
  expect(views.filter((view) => !read("docs/roles.md").includes(`\`#${view}\``))).toEqual([]);
});

test("docs/telemetry.md has a row for every metric and documents all OTEL_ settings", () => {
  const expectedRows = Object.entries(METRICS).map(([metric, { kind, unit, description }]) => ({
    metric,
    "kind, unit": `${kind}, ${unit}`,
    meaning: description,
  }));
  expect(tableUnder("docs/telemetry.md", "## Metrics")).toEqual(expectedRows);
  const settings = tableUnder("docs/telemetry.md", "## Switch it on").flatMap(({ setting }) => setting!.split(", "));
  // The service does not read the other two rows: the OpenTelemetry library reads OTEL_EXPORTER_OTLP_HEADERS, and the Functions
  // platform reads AzureFunctionsJobHost__telemetryMode.
  expect(settings.filter((name) => SETTING_NAMES.includes(name))).toEqual(
    SETTING_NAMES.filter((name) => name.startsWith("OTEL_")),
  );
});

/** The sections of docs/permissions.md and docs/permissions-options.md that list the service's calls to Azure in a table. */
const CALL_TABLES: Record<string, string> = {
  "permissions.md#watched-subscriptions": "## Watched subscriptions",
  "permissions.md#the-services-own-resources": "## The service's own resources",
  "permissions-options.md#rotation-in-resource-groups": "## Rotation in resource groups",
  "permissions-options.md#read-logs": "## Read logs",
  "permissions-options.md#search-for-plaintext-copies": "## Search for plaintext copies",
  "permissions-options.md#microsoft-graph-pro": "## Microsoft Graph (PRO)",
  "permissions-options.md#azure-devops": "## Azure DevOps",
};

test.each(Object.entries(CALL_TABLES))(
  "docs/%s lists the calls that the doctor makes, and their permissions",
  (page, heading) => {
    const [file] = page.split("#") as [string];
    const text = read(`docs/${file}`);
    const section = text.slice(text.indexOf(heading)).split("\n## ")[0]!;
    const calls = CALLS.filter((call) => call.page === page);
    const checkedFeatures = new Set<string>(calls.map(({ feature }) => feature));
    const documentedFeatures = tableUnder(`docs/${file}`, heading).map(({ feature }) => feature!);
    expect(documentedFeatures.filter((feature) => !checkedFeatures.has(feature))).toEqual([]);
    // The table, or the text below it, names each permission in full or by its last two segments, such as `vaults/read`.
    for (const { id, permissions } of calls) {
      for (const permission of permissions) {
        const names = [permission, permission.split("/").slice(-2).join("/")];
        const isDocumented = names.some((name) => section.includes(name));
        expect.soft(isDocumented, `${id}: ${permission}`).toBe(true);
      }
    }
  },
);

test("docs/doctor.md explains every outcome of a check, and each page that a call names exists", () => {
  expect(firstColumn("docs/doctor.md", "## Results")).toEqual([...OUTCOMES]);
  for (const { page } of CALLS) {
    const [file, anchor] = page.split("#") as [string, string?];
    const anchors = anchorsOf(read(`docs/${file}`));
    if (anchor) expect(anchors, page).toContain(anchor);
  }
});

/** Returns the anchors of a page's headings, as GitHub creates them. */
const anchorsOf = (page: string): string[] =>
  page
    .split("\n")
    .filter((line) => line.startsWith("#"))
    .map((line) =>
      line
        .replace(/^#+ /, "")
        .toLowerCase()
        .replaceAll(/[^a-z0-9 -]/g, "")
        .replaceAll(" ", "-"),
    );
