/**
 * `npm run pictures`: renders sample alerts of each kind and channel and sample PDF reports with invented data as images, for
 * visual review.
 */
import { spawnSync } from "node:child_process";
import { mkdirSync, writeFileSync } from "node:fs";
import path from "node:path";
import type { Verification } from "../../shared/audit/api.ts";
import type { AuditEntry } from "../../shared/audit/entry.ts";
import { createPdf } from "../../shared/audit/export/pdf.ts";
import type { Check } from "../../shared/compliance/check.ts";
import { CHECKS } from "../../shared/compliance/checks/all.ts";
import type { Assessment } from "../../shared/compliance/compliance.ts";
import { frameworkResults } from "../../shared/compliance/frameworks.ts";
import type { Overview, VaultOverview } from "../../shared/compliance/overview.ts";
import { assessmentDocument } from "../../shared/compliance/report/assessment-pdf.ts";
import { violationsDocument } from "../../shared/compliance/report/violations-pdf.ts";
import { violationOf } from "../../shared/compliance/violation.ts";
import type { ViolationPage } from "../../shared/compliance/violations.ts";
import { renderAlerts } from "./alert-pictures.ts";
import { commandLine } from "./command-line.ts";

const HELP = `npm run pictures -- [FOLDER]

Renders alerts as mails, chat messages and incidents, and the audit and compliance PDF documents, as images, for visual review.

  FOLDER         output folder (default: .local/pictures)
  CHROMIUM_PATH  environment variable: browser that renders the alerts (Chrome, Edge or Chromium, as in the tests of the page)
  PDFTOPPM       environment variable: program that renders PDF documents (default: /usr/bin/pdftoppm of poppler-utils)

If a program is missing, the command writes the alert or document without a picture and prints its path.`;

const root = path.resolve(import.meta.dirname, "../..");
const { positionals } = commandLine(HELP, { allowPositionals: true, options: {} });
const folder = path.resolve(positionals[0] ?? path.join(root, ".local/pictures"));
const pdftoppm = process.env.PDFTOPPM ?? "/usr/bin/pdftoppm";

mkdirSync(folder, { recursive: true });

async function renderAuditExport(): Promise<void> {
  const start = new Date("2026-11-01T00:00:00Z");
  const end = new Date("2026-12-01T00:00:00Z");
  const entries = Array.from({ length: 98 }, (_, index) => eventAt(index, start.getTime() + index * 7_234_567)).flat();
  const exportInfo = {
    start,
    end,
    actor: undefined,
    eventType: undefined,
    createdAt: new Date("2026-12-01T08:20:00Z"),
    verified: [verification],
  };
  renderPdf("audit", await createPdf(entries, exportInfo, undefined));
}

function renderPdf(name: string, document: Uint8Array): void {
  const file = path.join(folder, `${name}.pdf`);
  writeFileSync(file, document);
  const rendering = spawnSync(pdftoppm, ["-r", "80", "-png", file, path.join(folder, name)]);
  if (rendering.error || rendering.status !== 0)
    console.log(`No pdftoppm at ${pdftoppm} (package poppler-utils). See ${file} instead.`);
  else console.log(`Created ${path.join(folder, name)}-*.png`);
}

/**
 * Returns the audit entries of one invented event. Four kinds of events take turns by `index`: a changed setting, a created
 * alert rule (the intent, then the result), a denied request, and a finished scan.
 */
function eventAt(index: number, at: number): AuditEntry[] {
  const actors = ["admin", "ann@acme.example", "Мария", "山田太郎"];
  const entry = (change: Partial<AuditEntry>, later = 0): AuditEntry => ({
    id: `01KAJ${String(index * 2 + (later > 0 ? 1 : 0)).padStart(21, "0")}`,
    occurredAt: new Date(at + later).toISOString(),
    eventType: "settings.changed",
    outcome: "success",
    actor: actors[index % actors.length]!,
    address: "203.0.113.7",
    requestId: `5f0c1b5e-8d53-4c11-9a3e-${String(index).padStart(12, "0")}`,
    count: 1,
    ...change,
  });
  if (index % 4 === 0) {
    const target = { type: "settings", id: "compliance-policy" };
    const before = { criticalExpiryDays: 7, warningExpiryDays: 30 };
    return [entry({ target, before, after: { ...before, criticalExpiryDays: 7 + (index % 9) + 1 } })];
  }
  if (index % 4 === 1) {
    const target = { type: "alertRule", id: "01KAJ4K3M0P4R7S2T9V5W8X1YZ" };
    const rule = { eventType: "alertRule.created", target };
    const recipients = Array.from({ length: 12 }, (_, number) => `team-${number}@acme.example`);
    const after = { name: "Payments on call", thresholds: [60, 30, 7, 1], recipients, enabled: true };
    const outcome = index % 8 === 1 ? "success" : "failure";
    return [entry({ ...rule, outcome: "intent" }), entry({ ...rule, outcome, after }, index % 3 === 0 ? 4_000 : 120)];
  }
  if (index % 4 === 2) {
    const target = { type: "endpoint", id: "DELETE /alerts/rules/{rule_id}" };
    const details = { code: "forbidden", role: "user" };
    const address = "2001:db8:1:2::/64";
    return [
      entry({ eventType: "access.refused", outcome: "refused", address, target, details, count: 1 + (index % 5) }),
    ];
  }
  const target = { type: "scan", id: "01KAJ4K3M0T5Q8W2Z7X9C1V6BN" };
  const details = { status: "completed", vaultsDone: 36, vaultsFailed: 0, assetsFound: 542, added: 3, updated: 12 };
  return [entry({ eventType: "scan.finished", actor: "system", address: undefined, target, details })];
}

/** A response of GET /audit/verify. */
const verification: Verification = {
  intact: true,
  sealing: "configured",
  checkedFrom: "2026-11-01T00:00:00.000Z",
  checkedTo: "2026-12-01T00:00:00.000Z",
  digests: 4320,
  entries: 147,
  lastDigest: {
    number: 12_815,
    interval: "2026-11-30T23:50Z",
    hash: "AG2EQVDz7YrMLl3aFUTzshF-O50qLj2c7Z-SxJOolac",
    sealedAt: "2026-12-01T00:01:30.000Z",
    kid: "2026-11",
  },
  index: { filters: 24, filtersChecked: 24 },
  findings: [],
  findingsTotal: 0,
  lateEntries: { total: 0, listed: [] },
  beginning: "2026-09-03T00:10:00.000Z",
  unsealedFrom: "2026-12-01T08:10:00.000Z",
  unsealedEntries: 3,
  entriesWithoutCode: 0,
  authenticatedFrom: "2026-09-03T00:10:00.000Z",
  purges: [],
  anchor: { state: "matches", number: 12_864 },
  publicKeys: [
    {
      kid: "2026-11",
      publicKey: "gTl3Dqh9F19Wo1Rmw0x+zMuNipG07jeiXfYPW4/Js5Q=",
      fingerprint: "6b3d9f4c2b0f1c9a3c5d7e8f90a1b2c3d4e5f60718293a4b5c6d7e8f90a1b2c3",
    },
  ],
  nextCursor: null,
};

/** Returns the compliance results of three vaults, with passed and failed checks. */
function overviewOf(now: number): Overview {
  const vaults = ["kv-payments-prod", "kv-identity-prod", "kv-data-staging"].map((name, index): VaultOverview => {
    // Invented numbers of failures, which differ by check and vault.
    const failed = (check: Check) => (check.resourceType === "vault" ? 0 : [3, 0, 1, 8, 0][(check.code + index) % 5]!);
    const tallies = CHECKS.map((check) => [check.code, { passed: 12 + index, failed: failed(check) }] as const);
    return {
      name,
      subscriptionId: "7c9e6679-7425-40de-944b-e07fc1f90ae7",
      tallies: new Map(tallies),
      failures: [],
      exemptions: [],
      createdAt: new Date(now).toISOString(),
      evaluatedAt: new Date(now - index * 3_600_000).toISOString(),
      gone: false,
    };
  });
  return { vaults, exemptionFor: () => undefined, evaluation: undefined, vaultsLeft: 0, evaluatedAt: null, now };
}

/** Returns the name of an invented asset that fails a check. Remedies of credentials read the IDs from the name. */
function assetNameFor(check: Check, number: number): string {
  if (check.resourceType === "vault" || check.source === undefined) return `acquirer-api-password-${number}`;
  if (check.resourceType === "key") return `B2C_1A_TokenSigning-${String(number).padStart(16, "0")}`;
  return `97471835-12cd-444d-ae9b-dc205f8336bf-c97a9dbf-bd9f-4433-aea9-${String(number).padStart(12, "0")}`;
}

/** Returns the first `maximum` violations of a check, as many in total as the overview counts. Undefined if there are none. */
function violationsOf(check: Check, overview: Overview, maximum: number): ViolationPage | undefined {
  const all = overview.vaults.flatMap((vault) => {
    const failed = vault.tallies.get(check.code)?.failed ?? 0;
    const slice = { check, vault, from: 0, count: failed, failed };
    return Array.from({ length: failed }, (_, index) => {
      const facts = { owners: [["payments@acme.example", "Мария Иванова", "山田太郎"][index % 3]!], keyType: "EC-HSM" };
      const evidence = "Its expiration date is 2026-11-17T09:30:00Z.";
      const since = Math.floor(overview.now / 1000) - index * 86_400;
      // A stored finding is a tuple: name of the asset, start in Unix seconds, evidence, and further facts.
      return violationOf(slice, [assetNameFor(check, index + 1), since, evidence, facts], overview, new Map());
    });
  });
  if (all.length === 0) return undefined;
  const items = all.slice(0, maximum);
  return { items, total: all.length, open: all.length, exempted: 0, limit: maximum, offset: 0, nextCursor: null };
}

async function renderComplianceReports(): Promise<void> {
  const now = Date.parse("2026-12-01T08:20:00Z");
  const overview = overviewOf(now);
  const framework = frameworkResults(overview).find(({ id }) => id === "pci-dss-4.0.1")!;
  const { score, passed, failed, total } = framework;
  const history = Array.from({ length: 90 }, (_, index) => {
    const date = new Date(now - (89 - index) * 86_400_000).toISOString().slice(0, 10);
    return {
      date,
      score: score - (89 - index) / 4 + (index % 7) / 2,
      passed,
      failed,
      total,
      edition: index < 30 ? 1 : 2,
    };
  });
  const violations = CHECKS.flatMap((check) => {
    const page = violationsOf(check, overview, 20);
    return page ? [[check.id, page] as const] : [];
  });
  const assessment: Assessment = {
    framework: { ...framework, history: [...history.slice(0, -1), { ...history.at(-1)!, score }] },
    violations: new Map(violations),
    scope: {
      vaults: 3,
      directories: 16,
      subscriptions: ["7c9e6679-7425-40de-944b-e07fc1f90ae7"],
      evaluatedFrom: "2026-11-30T05:10:00Z",
      evaluatedTo: "2026-12-01T08:10:00Z",
    },
    exemptions: [
      {
        id: "key-expired.asset.kv-payments-prod.key.terminal-2024",
        checkId: "key-expired",
        scopeType: "asset",
        scopeId: "kv-payments-prod.key.terminal-2024",
        category: "waiver",
        reason: "The terminals are replaced in January; until then the old key decrypts what they sent.",
        ticket: "SEC-1207",
        until: "2027-01-31T00:00:00.000Z",
        createdAt: "2026-11-02T10:11:12.000Z",
        createdBy: "ann@acme.example",
        active: true,
        etag: "",
      },
    ],
    createdAt: new Date(now),
  };
  renderPdf(
    "assessment",
    await assessmentDocument(assessment, {
      days: 90,
      unread: { names: ["Acme Finance"], isListRead: true },
      unreadableVaults: 1,
      unicodeFont: undefined,
    }),
  );
  const listed = violations.slice(0, 6).flatMap(([, { items }]) => items);
  const exportInfo = { filter: { severity: "critical" as const }, createdAt: new Date(now), unicodeFont: undefined };
  renderPdf("violations", await violationsDocument(listed, exportInfo));
}

// At the end of the file, because the functions use the constants above.
await renderAlerts(folder);
await renderAuditExport();
await renderComplianceReports();
