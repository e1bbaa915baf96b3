import { TableClient } from "@azure/data-tables";
import { PDFDocument, PDFName } from "pdf-lib";
import { parse } from "simulated-cloud/arm/kql.ts";
import type { Company } from "simulated-cloud/company/company.ts";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { Rules } from "../../shared/alerts/rule.ts";
import { summaryQuery } from "../../shared/dependencies/logs/query.ts";
import { toQueryLiteral } from "../../shared/platform/azure/resource-graph.ts";
import { metricsIn } from "../metrics/exposition.ts";
import { HOSTILE_NAMES, NOT_IN_A_LINE } from "../support/hostile-names.ts";
import { licence } from "../support/licence.ts";
import { parseCsv } from "../support/parse-csv.ts";
import { readPages } from "../support/pdf-contents.ts";
import { ADMIN, Service } from "../support/service.ts";

/**
 * Tests that a hostile name adds no line, markup or formula to an export, a query, a metric or the log. Each name is
 * used for a subscription, the owner of a vault, secret, key and certificate, an application, its credential, a username, and the
 * key of a stored row. `hostile-names.test.ts` in test/alerts tests the receivers of alerts.
 */

/** Maximum length of a tag's value and of an application's name. */
const MAX_LENGTH = 256;
const NAMES = HOSTILE_NAMES.map(([, name]) => name.slice(0, MAX_LENGTH));

const company: Company = {
  subscriptions: NAMES.map((name, index) => {
    const tags = { owner: name, [`note-${index}`]: name };
    const item = { name: `item-${index}`, expiresInDays: 3, tags };
    return {
      name,
      id: `11111111-1111-4111-8111-${String(index).padStart(12, "0")}`,
      vaults: [
        {
          name: `kv-${index}-hostile`,
          tags,
          diagnostics: "none",
          secrets: [{ ...item, contentType: name }],
          keys: [item],
          certificates: [item],
        },
      ],
    };
  }),
  applications: NAMES.map((name, index) => ({
    name,
    owners: [`owner-${index}@acme.example`],
    secrets: [{ name, expiresInDays: 3 }],
  })),
};

let service: Service;
let token: string;
beforeAll(async () => {
  service = await Service.start({ company, env: { LICENSE_KEY: await licence() } });
  token = await service.signIn(ADMIN);
  await service.scan();
  const run = await service.admin("POST", "/api/automation/rotation/discover");
  expect(run.status).toBeLessThan(300);
  for (const name of NAMES) {
    const answer = await service.call("POST", "/auth/login", { body: { username: name, password: "wrong" } });
    expect([401, 429]).toContain(answer.status);
  }
  await service.waitForEmptyQueues();
}, 200_000);
afterAll(() => service.stop());

/** Returns the text as a reader of UTF-8 receives it, in which lone surrogates don't exist. */
const asReceived = (name: string): string => name.toWellFormed();

/** A formula, as OWASP and spreadsheets define it, also after characters that spreadsheets skip. */
const STARTS_FORMULA = /^[\s\p{Cc}\p{Cf}]*[=+\-@|%＝＋－＠]/u;

async function readCsv(path: string): Promise<Record<string, string>[]> {
  const { status, text } = await service.admin("GET", path);
  expect(status).toBe(200);
  // `fetch` removes the byte order mark.
  const [header, ...rows] = parseCsv(text);
  return rows.map((row) => {
    expect(row).toHaveLength(header!.length);
    return Object.fromEntries(header!.map((column, index) => [column, row[index]!]));
  });
}

/** Checks that each name is in a column of `count` rows. A very long name can be shortened. */
function expectEachName(rows: Record<string, string>[], column: string, count: number): void {
  const cells = rows.map((row) => row[column]!);
  for (const name of NAMES.filter(({ length }) => length < MAX_LENGTH)) {
    const cell = STARTS_FORMULA.test(name) ? `'${asReceived(name)}` : asReceived(name);
    expect([name, cells.filter((one) => one === cell).length]).toEqual([name, count]);
  }
}
const expectNoFormula = (rows: Record<string, string>[]) =>
  expect(rows.flatMap((row) => Object.values(row)).filter((cell) => STARTS_FORMULA.test(cell))).toEqual([]);

describe("in a CSV file, each name is one cell of one row and no formula", () => {
  test("of assets", async () => {
    const rows = await readCsv("/api/assets/discovery/export/csv");
    // Each name has a secret, a key, a certificate and a credential of an application.
    expect(rows).toHaveLength(4 * NAMES.length);
    expectNoFormula(rows);
    expectEachName(rows, "owner", 3);
    expectEachName(rows, "contentType", 1);
    expectEachName(rows, "applicationName", 1);
    expectEachName(rows, "credentialName", 1);
  });

  test("of violations", async () => {
    const rows = await readCsv("/compliance/violations/csv");
    expectNoFormula(rows);
    const vaults = rows.filter(({ resourceType }) => resourceType === "vault");
    expect(vaults.length % NAMES.length).toBe(0);
    expectEachName(vaults, "owner", vaults.length / NAMES.length);
    for (const type of ["secret", "key", "certificate"]) {
      const owners = new Set(rows.filter(({ resourceType }) => resourceType === type).map(({ owner }) => owner));
      expect(owners.size).toBeGreaterThanOrEqual(NAMES.length);
    }
  });

  test("of certificates and their readiness", async () => {
    const rows = await readCsv("/compliance/certificates/readiness/csv");
    expect(rows).toHaveLength(NAMES.length);
    expectNoFormula(rows);
    expectEachName(rows, "owner", 1);
  });
});

test("in SARIF, a name is no link, no placeholder and no part of an address", async () => {
  const { status, text } = await service.admin("GET", "/compliance/violations/sarif");
  expect(status).toBe(200);
  const [{ results }] = JSON.parse(text).runs;
  const owners = new Set(results.map(({ properties }: { properties: { owner: string } }) => properties.owner));
  expect(NAMES.filter((name) => name.length < MAX_LENGTH && !owners.has(name))).toEqual([]);
  for (const { message, locations } of results) {
    expect(message.text.replaceAll(/\\[\\[\]]|\{\{|\}\}/g, "")).not.toMatch(/[[\]{}\\]/);
    expect(locations[0].physicalLocation.artifactLocation.uri).toMatch(/^[\w.~%!'()*/-]+$/);
  }
});

/** Returns what a PDF shows for a name, without white space: an invisible character is its code point, such as `[U+200B]`. */
const printed = (name: string): string =>
  [...name]
    .map((character) => {
      if (/\s/.test(character)) return "";
      const code = character.codePointAt(0)!.toString(16).toUpperCase().padStart(4, "0");
      return /[\p{Cc}\p{Zl}\p{Zp}\p{Cf}\p{Cs}]/u.test(character) ? `[U+${code}]` : character;
    })
    .join("");

describe("in a PDF, each name is text without lines of its own", () => {
  test.each([
    ["violations", "/compliance/violations/pdf"],
    ["a framework", "/compliance/frameworks/pci-dss-4.0.1/pdf"],
    ["certificates and their readiness", "/compliance/certificates/readiness/pdf"],
  ])("of %s", async (_, path) => {
    const response = await fetch(service.url + path, { headers: { Authorization: `Bearer ${token}` } });
    expect(response.status).toBe(200);
    const data = new Uint8Array(await response.arrayBuffer());
    const texts = (await readPages(data)).flatMap((page) => page.texts.map(({ text }) => text));
    // A long name continues in the next line of its cell.
    const all = texts.join("").replaceAll(/\s/g, "");
    const missing = NAMES.filter((name) => name.length < 100 && !all.includes(printed(name)));
    // A framework's report lists 20 violations of each check.
    if (!path.includes("frameworks")) expect(missing).toEqual([]);
    expect(texts.filter((text) => text.startsWith("FORGED"))).toEqual([]);
    const document = await PDFDocument.load(data);
    for (const { node } of document.getPages()) expect(node.Annots()?.size() ?? 0).toBe(0);
    for (const entry of ["OpenAction", "AA", "Names"]) expect(document.catalog.get(PDFName.of(entry))).toBeUndefined();
  });
});

test("the audit log does not contain usernames of failed sign-ins, which anyone can choose", async () => {
  const rows = await readCsv("/audit/export/csv");
  expectNoFormula(rows);
  const failed = rows.filter(({ eventType }) => eventType === "user.signInFailed");
  expect(failed.length).toBeGreaterThan(0);
  for (const { targetId } of failed) expect(targetId).toMatch(/^unknown:[0-9a-f]{16}$/);
});

test("the metrics follow their grammar and contain no name", async () => {
  const { text } = await service.admin("GET", "/metrics");
  expect(metricsIn(text).length).toBeGreaterThan(10);
  expect(text).not.toContain("FORGED");
});

test("the service's log names rows that can't be read, and no name adds a line or hides a part of one", async () => {
  const table = TableClient.fromConnectionString(service.azurite.connectionString(), Rules.table, {
    allowInsecureConnection: true,
  });
  // A key can't have control characters and the characters / \ # ?
  const keys = new Set(NAMES.map((name) => `r|${name.toWellFormed().replaceAll(/[\p{Cc}/\\#?]/gu, "")}`));
  await table.createTable();
  for (const rowKey of keys) await table.upsertEntity({ partitionKey: "rules", rowKey, name: true });
  expect((await service.admin("GET", "/alerts/rules")).body.unreadableRows.count).toBe(keys.size);
  const lines = service.hosts.flatMap((host) => host.lines);
  expect(lines.filter((line) => line.includes("FORGED")).length).toBeGreaterThanOrEqual(2);
  expect(lines.filter((line) => NOT_IN_A_LINE.test(line) || line.startsWith("FORGED"))).toEqual([]);
});

describe.each(HOSTILE_NAMES)("with %s", (_, name) => {
  test("a query of Resource Graph has one line, and compares with exactly that text", () => {
    const literal = toQueryLiteral(name);
    expect(literal).not.toMatch(NOT_IN_A_LINE);
    const { stages } = parse(`resources | where name == ${literal}`, 0);
    expect(stages).toHaveLength(1);
    const [where] = stages;
    const matches = (text: string) => where?.kind === "where" && where.test({ name: text });
    expect([matches(name), matches(`${name} `), matches("")]).toEqual([true, false, false]);
  });

  test("a query of the logs is unchanged, because it contains only GUIDs", () => {
    expect(summaryQuery([name])).toBe(summaryQuery([]));
  });
});
