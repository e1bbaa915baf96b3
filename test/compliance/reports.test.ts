// The CSV files and PDF reports of violations and frameworks.
import { PDFDocument } from "pdf-lib";
import { afterAll, beforeAll, expect, test } from "vitest";
import { controlsOf } from "../../shared/compliance/controls.ts";
import { violationsCsv } from "../../shared/compliance/report/csv.ts";
import { createComplianceReports, MAX_PDF_VIOLATIONS } from "../../shared/compliance/report/reports.ts";
import { readPages } from "../support/pdf-contents.ts";
import { pdfText } from "../support/pdf-text.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import { asset, caller, type Fixture, inDays, openFixture, readAllViolations, vault } from "./compliance-fixture.ts";

let storage: TestStorage;
let fixture: Fixture;
/** Creates the reports of a fixture, for a service that could not read two vaults and one subscription. */
const reportsOf = ({ compliance, clock }: Fixture) =>
  createComplianceReports({
    compliance,
    clock,
    unreadableVaults: async () => 2,
    unreadSubscriptions: async () => ({ names: ["Finance"], isListRead: false }),
  });

beforeAll(async () => {
  storage = await openStorage(["reports", "many"]);
  fixture = openFixture(storage.connectionString("reports"));
  await fixture.scan(vault("kv-pay", { purgeProtection: false }), [
    ...Array.from({ length: 25 }, (_, index) =>
      asset("kv-pay", "secret", `expired-${String(index).padStart(2, "0")}`, {
        expiresOn: inDays(-index - 1),
        tags: { owner: '=HYPERLINK("http://evil.example")' },
      }),
    ),
    asset("kv-pay", "key", "signing", { expiresOn: inDays(-3) }),
    asset("kv-pay", "certificate", "web"),
  ]);
  await fixture.compliance.exemptions.create(
    {
      checkId: "key-expired",
      scope: { type: "asset", id: "kv-pay.key.signing" },
      category: "waiver",
      reason: "Replaced with the new terminal",
      ticket: "SEC-7",
      until: new Date(inDays(60) * 1000),
    },
    caller,
  );
});
afterAll(() => storage.stop());

test("the CSV of violations contains no cell that a spreadsheet executes", async () => {
  const violations = await readAllViolations(fixture.compliance);
  const { csv, nextCursor } = await reportsOf(fixture).violationsCsv({}, undefined);
  expect(nextCursor).toBeNull();
  expect(csv).toBe(violationsCsv(violations));
  expect(csv).toContain(`"'=HYPERLINK(""http://evil.example"")"`);
  expect(csv).not.toMatch(/(^|,)"=/m);
  const { csv: filteredCsv } = await reportsOf(fixture).violationsCsv(
    { check: "key-expired", exempted: true },
    undefined,
  );
  expect(filteredCsv.trimEnd().split("\r\n"), "the header and one violation").toHaveLength(2);
});

test("a framework's CSV has a line for each check of each control, and one for each manual control", async () => {
  const { id, csv } = await reportsOf(fixture).frameworkCsv("CIS-Azure-6.0.0");
  expect(id).toBe("cis-azure-6.0.0");
  const lines = controlsOf(id).reduce((sum, { checks }) => sum + Math.max(1, checks.size), 0);
  expect(csv.trimEnd().split("\r\n").length).toBe(1 + lines);
  expect(csv).toContain('"cis-azure-6.0.0","8.3.10","Managed HSM is used when required","manual"');
});

test("the assessment PDF contains its scope, period, method, limits, controls and evidence", async () => {
  const { id, data } = await reportsOf(fixture).frameworkPdf("pci-dss-4.0.1", 30);
  const text = await pdfText(data);
  expect(await PDFDocument.load(data).then((document) => document.getTitle())).toBe("Assessment: PCI DSS 4.0.1");
  for (const passage of [
    "1 key vault with what they hold, of 1 subscription",
    "2026-10-22 10:00:00 to 2026-11-21 10:00:00 UTC",
    "could not read the list of subscriptions. Vaults may be missing from this report.",
    "did not read 1 subscription: Finance. Vaults may be missing from this report.",
    "could not read 2 key vaults. Their results are older.",
    "Method",
    "Limits: checks inspect configurations",
    "kv-pay.secret.expired-00",
    "and 5 more: GET /compliance/violations/csv?check=secret-expired",
    "key-expired.asset.kv-pay.key.signing",
    "Replaced with the new terminal",
    "ticket SEC-7",
  ])
    expect(text, passage).toContain(passage);
  for (const control of controlsOf(id)) expect(text).toContain(control.title.slice(0, 20));
  const { controls } = await fixture.compliance.framework(id);
  expect(controls.find((control) => control.id === "8.6.3")).toMatchObject({ status: "fail", failed: 25 });
  expect(controls.find((control) => control.id === "3.7.5")).toMatchObject({ exempted: 1, failed: 0 });
});

test("in the PDF of violations, a table does not touch the command above it", async () => {
  const pages = await readPages(await reportsOf(fixture).violationsPdf({ check: "secret-expired" }));
  const { boxes, texts } = pages[0]!;
  const top = boxes[0]!.y + boxes[0]!.height;
  const lowest = Math.min(...texts.map(({ y }) => y).filter((y) => y > top));
  // The descenders of a text of 8 points are 2 points high.
  expect(lowest - top).toBeGreaterThan(5);
});

test("the PDF of violations contains filters and remediations, and has a maximum number of violations", async () => {
  const text = await pdfText(await reportsOf(fixture).violationsPdf({ check: "secret-expired" }));
  for (const passage of [
    "check secret-expired",
    "25 violations: 25 open (25 critical), 0 exempted.",
    "az keyvault secret set --vault-name kv-pay",
  ])
    expect(text, passage).toContain(passage);
  const largeFixture = openFixture(storage.connectionString("many"));
  const secrets = Array.from({ length: MAX_PDF_VIOLATIONS + 1 }, (_, index) =>
    asset("kv", "secret", `s${index}`, { contentType: undefined }),
  );
  await largeFixture.scan(vault("kv"), secrets);
  await expect(reportsOf(largeFixture).violationsPdf({})).rejects.toMatchObject({ code: "invalidRequest" });
  expect(await reportsOf(largeFixture).violationsPdf({ vault: "kv-other" })).toBeInstanceOf(Uint8Array);
});
