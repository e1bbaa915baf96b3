import { PDFDocument } from "pdf-lib";
import { afterAll, beforeAll, expect, test } from "vitest";
import { controlsOf } from "../../shared/compliance/controls.ts";
import { violationsCsv } from "../../shared/compliance/report/csv.ts";
import { createComplianceReports, MAX_PDF_VIOLATIONS } from "../../shared/compliance/report/reports.ts";
import { pdfText } from "../support/pdf-text.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import { asset, caller, inDays, openRoom, type Room, vault, walk } from "./compliance-fixture.ts";

let storage: TestStorage;
let room: Room;
const reportsOf = ({ compliance, clock }: Room) =>
  createComplianceReports({
    compliance,
    clock,
    unreadableVaults: async () => 2,
    unreadSubscriptions: async () => ({ names: ["Finance"], isListRead: false }),
  });

beforeAll(async () => {
  storage = await openStorage(["reports", "many"]);
  room = openRoom(storage.connectionString("reports"));
  await room.scan(vault("kv-pay", { purgeProtection: false }), [
    ...Array.from({ length: 25 }, (_, at) =>
      asset("kv-pay", "secret", `expired-${String(at).padStart(2, "0")}`, {
        expiresOn: inDays(-at - 1),
        tags: { owner: '=HYPERLINK("http://evil.example")' },
      }),
    ),
    asset("kv-pay", "key", "signing", { expiresOn: inDays(-3) }),
    asset("kv-pay", "certificate", "web"),
  ]);
  await room.compliance.exemptions.create(
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

test("the CSV has a line for each violation, and no cell that a spreadsheet executes", async () => {
  const all = await walk(room.compliance);
  const { csv, nextCursor } = await reportsOf(room).violationsCsv({}, undefined);
  expect(nextCursor).toBeNull();
  expect(csv).toBe(violationsCsv(all));
  expect(csv).toContain(`"'=HYPERLINK(""http://evil.example"")"`);
  expect(csv).not.toMatch(/(^|,)"=/m);
  const { csv: some } = await reportsOf(room).violationsCsv({ check: "key-expired", exempted: true }, undefined);
  expect(some.trimEnd().split("\r\n").length).toBe(2);
});

test("the framework's CSV has a line for each control and check, and marks manual controls", async () => {
  const { id, csv } = await reportsOf(room).frameworkCsv("CIS-Azure-6.0.0");
  expect(id).toBe("cis-azure-6.0.0");
  const lines = controlsOf(id).reduce((sum, { checks }) => sum + Math.max(1, checks.size), 0);
  expect(csv.trimEnd().split("\r\n").length).toBe(1 + lines);
  expect(csv).toContain('"cis-azure-6.0.0","8.3.10","Managed HSM is used when required","manual"');
});

test("an assessor's report has scope, period, method, every control's result, and evidence with its limits", async () => {
  const { id, data } = await reportsOf(room).frameworkPdf("pci-dss-4.0.1", 30);
  const text = await pdfText(data);
  expect(await PDFDocument.load(data).then((document) => document.getTitle())).toBe("Assessment: PCI DSS 4.0.1");
  for (const words of [
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
    expect(text, words).toContain(words);
  for (const control of controlsOf(id)) expect(text).toContain(control.title.slice(0, 20));
  const { controls } = await room.compliance.framework(id);
  expect(controls.find((control) => control.id === "8.6.3")).toMatchObject({ status: "fail", failed: 25 });
  expect(controls.find((control) => control.id === "3.7.5")).toMatchObject({ exempted: 1, failed: 0 });
});

test("a PDF of violations has its filters and remediations, and too many violations are rejected", async () => {
  const text = await pdfText(await reportsOf(room).violationsPdf({ check: "secret-expired" }));
  for (const words of ["check secret-expired", "25 open (25 critical", "az keyvault secret set --vault-name kv-pay"])
    expect(text, words).toContain(words);
  const many = openRoom(storage.connectionString("many"));
  const secrets = Array.from({ length: MAX_PDF_VIOLATIONS + 1 }, (_, at) =>
    asset("kv", "secret", `s${at}`, { contentType: undefined }),
  );
  await many.scan(vault("kv"), secrets);
  await expect(reportsOf(many).violationsPdf({})).rejects.toMatchObject({ code: "invalidRequest" });
  expect(await reportsOf(many).violationsPdf({ vault: "kv-other" })).toBeInstanceOf(Uint8Array);
});
