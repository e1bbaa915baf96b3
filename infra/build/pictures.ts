/** Makes pictures of what people get to see on paper or in their mailbox. See HELP. */
import { execFileSync, spawnSync } from "node:child_process";
import { existsSync, mkdirSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";
import type { DeliveryRecord } from "../../shared/alerts/delivery.ts";
import { mailOf } from "../../shared/alerts/email.ts";
import { messageOf } from "../../shared/alerts/message.ts";
import type { AssetNews } from "../../shared/alerts/news.ts";
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
await pdf();

function mail(): void {
  const at = "2026-11-21T10:00:00.000Z";
  const asset = (
    vaultName: string,
    type: AssetNews["type"],
    name: string,
    days: number,
    owner?: string,
  ): AssetNews => ({
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
  const start = Date.parse("2026-11-01T00:00:00Z");
  const actors = ["admin", "ann@acme.example", "Мария", "system", "山田太郎"];
  const entries = Array.from({ length: 60 }, (_, index): AuditEntry => {
    const actor = actors[index % actors.length]!;
    const requestId = `5f0c1b5e-8d53-4c11-9a3e-${String(index).padStart(12, "0")}`;
    const occurredAt = new Date(start + index * 7_234_567).toISOString();
    const always = { id: `01KAJ${String(index).padStart(21, "0")}`, occurredAt, actor, requestId, count: 1 };
    if (index % 3 === 0) {
      return {
        ...always,
        eventType: "settings.changed",
        outcome: "success",
        address: "203.0.113.7",
        target: { type: "settings", id: "compliance-policy" },
        before: { criticalExpiryDays: 7 },
        after: { criticalExpiryDays: 14 },
      };
    }
    if (index % 7 === 0) {
      return {
        ...always,
        eventType: "alertRule.created",
        outcome: "failure",
        address: "198.51.100.24",
        target: { type: "alertRule", id: "01KAJ4K3M0P4R7S2T9V5W8X1YZ" },
        details: { recipients: Array.from({ length: 40 }, (_, number) => `team-${number}@acme.example`) },
      };
    }
    return {
      ...always,
      eventType: "access.refused",
      outcome: "refused",
      address: "2001:db8:1:2::/64",
      target: { type: "endpoint", id: "DELETE /alerts/rules/{rule_id}" },
      details: { code: "forbidden" },
      count: 1 + (index % 4),
    };
  });
  const end = start + 30 * 86_400_000;
  const period = { start: new Date(start), end: new Date(end), createdAt: new Date(end + 30_000_000) };
  const file = path.join(folder, "audit.pdf");
  writeFileSync(file, await createPdf(entries, { ...period, actor: undefined, eventType: undefined }, font));
  const drawn = spawnSync(pdftoppm, ["-r", "80", "-png", file, path.join(folder, "audit")]);
  if (drawn.error || drawn.status !== 0)
    console.log(`No pdftoppm at ${pdftoppm} (poppler-utils has it): look at ${file} instead`);
  else console.log(`Made ${path.join(folder, "audit")}-*.png`);
}
