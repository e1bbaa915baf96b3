/** Makes pictures of what people get to see on paper or in their mailbox. See HELP. */
import { execFileSync, spawnSync } from "node:child_process";
import { existsSync, mkdirSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";
import type { DeliveryRecord } from "../../shared/alerts/delivery.ts";
import { mailOf } from "../../shared/alerts/email.ts";
import type { AssetItem } from "../../shared/alerts/items.ts";
import { messageOf } from "../../shared/alerts/message.ts";
import type { Verification } from "../../shared/audit/api.ts";
import type { AuditEntry } from "../../shared/audit/entry.ts";
import { createPdf } from "../../shared/audit/export/pdf.ts";
import { commandLine } from "./command-line.ts";

const HELP = `npm run pictures -- [FOLDER]

Makes pictures of an alert's mail and of the audit log's PDF, to be looked at.

  FOLDER         where they go (.local/pictures)
  CHROMIUM_PATH  the browser that draws the mail (/usr/bin/chromium)
  PDFTOPPM       the program that draws the PDF (/usr/bin/pdftoppm, of poppler-utils)

Where a program is missing, the file itself is written and the command says so.`;

const root = path.resolve(import.meta.dirname, "../..");
const { positionals } = commandLine(HELP, { allowPositionals: true, options: {} });
const folder = path.resolve(positionals[0] ?? path.join(root, ".local/pictures"));
const chromium = process.env.CHROMIUM_PATH ?? "/usr/bin/chromium";
const pdftoppm = process.env.PDFTOPPM ?? "/usr/bin/pdftoppm";

mkdirSync(folder, { recursive: true });
mail();

function mail(): void {
  const at = "2026-11-21T10:00:00.000Z";
  const asset = (
    vaultName: string,
    type: AssetItem["type"],
    name: string,
    days: number,
    owner?: string,
  ): AssetItem => ({
    kind: "asset",
    id: `${vaultName}.${type}.${name}`,
    type,
    name,
    vaultName,
    subscriptionId: "7c9e6679-7425-40de-944b-e07fc1f90ae7",
    vaultId: `/subscriptions/7c9e6679-7425-40de-944b-e07fc1f90ae7/resourceGroups/rg-payments/providers/Microsoft.KeyVault/vaults/${vaultName}`,
    ...(owner ? { owner } : {}),
    expiresOn: Math.floor(Date.parse(at) / 1000 + days * 86_400),
    threshold: [1, 7, 30, 60].find((threshold) => days < threshold) ?? 90,
  });
  const news = [
    asset("kv-payments-prod", "certificate", "checkout-tls", -1.2, "payments@acme.example"),
    asset("kv-payments-prod", "secret", "acquirer-api-password", 0.3, "payments@acme.example"),
    asset("kv-identity-prod", "key", "token-signing-2025", 5.6, "Мария Иванова"),
    asset("kv-data-staging", "secret", "a-name-that-is-as-long-as-key-vault-allows-".padEnd(127, "x"), 24.4),
    asset("kv-data-staging", "secret", "reporting-db", 60),
  ];
  const delivery: Omit<DeliveryRecord, "news"> = {
    deliveryId: "01KAJ4K3M0T5Q8W2Z7X9C1V6BN",
    ruleId: "01KAJ4K3M0P4R7S2T9V5W8X1YZ",
    ruleName: "Payments on call",
    alertType: "expiration",
    deliveryMethod: "email",
    deliveryMode: "immediate",
    test: false,
    requestedBy: "system",
    createdAt: at,
    status: "pending",
    parts: [],
    nextAt: at,
    revivals: 0,
    newsTotal: news.length,
  };
  const links = {
    portal: "https://portal.azure.com",
    tenantId: "acme.example",
    publicBaseUrl: "https://lifecycle.acme.example",
  };
  const { html, text } = mailOf(messageOf(delivery, news, links));
  const page = path.join(folder, "mail.html");
  writeFileSync(page, html);
  writeFileSync(path.join(folder, "mail.txt"), text);
  if (!existsSync(chromium)) {
    console.log(`No browser at ${chromium}: look at ${page} instead`);
    return;
  }
  for (const [name, width] of [
    ["mail.png", 760],
    ["mail-phone.png", 500],
  ] as const) {
    const picture = path.join(folder, name);
    const size = ["--hide-scrollbars", `--window-size=${width},1500`, `--screenshot=${picture}`];
    execFileSync(chromium, ["--headless", "--no-sandbox", "--disable-gpu", ...size, `file://${page}`], {
      stdio: "ignore",
    });
    console.log(`Made ${picture}`);
  }
}

async function pdf(): Promise<void> {
  const font = createRequire(import.meta.url).resolve("@fontsource/unifontex/files/unifontex-latin-400-normal.woff");
  const start = new Date("2026-11-01T00:00:00Z");
  const end = new Date("2026-12-01T00:00:00Z");
  const entries = Array.from({ length: 98 }, (_, index) => eventAt(index, start.getTime() + index * 7_234_567)).flat();
  const about = {
    start,
    end,
    actor: undefined,
    eventType: undefined,
    createdAt: new Date("2026-12-01T08:20:00Z"),
    verified: [verification],
  };
  const file = path.join(folder, "audit.pdf");
  writeFileSync(file, await createPdf(entries, about, font));
  const drawn = spawnSync(pdftoppm, ["-r", "80", "-png", file, path.join(folder, "audit")]);
  if (drawn.error || drawn.status !== 0)
    console.log(`No pdftoppm at ${pdftoppm} (poppler-utils has it): look at ${file} instead`);
  else console.log(`Made ${path.join(folder, "audit")}-*.png`);
}

/** One event: a change by an administrator with its intent, a refusal, or what a timer did. */
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

/** As GET /audit/verify answers it. */
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

await pdf();
