/** The mails and chat messages of `npm run pictures`: one of each kind of alert, with invented data, as HTML and as images. */
import { readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { pathToFileURL } from "node:url";
import type { DeliveryRecord } from "../../shared/alerts/delivery.ts";
import { mailOf } from "../../shared/alerts/email.ts";
import { incidentOf } from "../../shared/alerts/incident.ts";
import type { AssetItem, AutomationItem, Item, ScanFailureItem, ViolationItem } from "../../shared/alerts/items.ts";
import type { Links } from "../../shared/alerts/links.ts";
import { messageOf } from "../../shared/alerts/message.ts";
import { pagerDutyEvent } from "../../shared/alerts/pagerduty.ts";
import type { AlertType } from "../../shared/alerts/rule.ts";
import { fieldsOf } from "../../shared/alerts/servicenow.ts";
import { slackOf } from "../../shared/alerts/slack.ts";
import { teamsOf } from "../../shared/alerts/teams.ts";
import { INVENTORY_READER } from "../../shared/platform/azure/watch-roles.ts";
import { openBrowser } from "../../test/support/browser.ts";
import { findBrowser } from "../../test/support/chromium.ts";

const SUBSCRIPTION = "7c9e6679-7425-40de-944b-e07fc1f90ae7";
const TENANT = "0f8fad5b-d9cb-469f-a165-70867728950e";
const NOW = "2026-11-21T10:00:00.000Z";
const DAY_SECONDS = 86_400;
const unixSeconds = (days: number): number => Math.floor(Date.parse(NOW) / 1000 + days * DAY_SECONDS);
const instant = (days: number): string => new Date(unixSeconds(days) * 1000).toISOString();

const links: Links = {
  portal: "https://portal.azure.com",
  tenantId: TENANT,
  publicBaseUrl: "https://lifecycle.acme.example",
  keyVaultSuffix: "vault.azure.net",
  subscriptionName: () => "Acme production",
  identity: {
    name: "func-lifecycle-prod",
    objectId: "0d7b6a3e-5c1f-4a8e-9b2d-7f3c6e1a4b58",
    type: "ServicePrincipal",
  },
};

const vaultIdOf = (vaultName: string): string =>
  `/subscriptions/${SUBSCRIPTION}/resourceGroups/rg-payments/providers/Microsoft.KeyVault/vaults/${vaultName}`;

const asset = (vaultName: string, type: AssetItem["type"], name: string, days: number, owner?: string): AssetItem => ({
  kind: "asset",
  id: `${vaultName}.${type}.${name}`,
  type,
  name,
  vaultName,
  subscriptionId: SUBSCRIPTION,
  vaultId: vaultIdOf(vaultName),
  ...(owner ? { owner } : {}),
  expiresOn: unixSeconds(days),
  threshold: [1, 7, 30, 60].find((threshold) => days < threshold) ?? 90,
});

/** A certificate whose renewal is late. `windowEndDays`: days from NOW to the end of its renewal window, negative. */
const late = (
  vaultName: string,
  name: string,
  renewedBy: NonNullable<AssetItem["late"]>["renewedBy"],
  windowEndDays: number,
  days: number,
  owner?: string,
): AssetItem => ({
  ...asset(vaultName, "certificate", name, days, owner),
  threshold: 0,
  late: { renewedBy, windowEnd: unixSeconds(windowEndDays) },
});

/** A credential of an application, or of a B2C tenant if `tenantDomain` is given. */
function credential(application: string, name: string, days: number, tenantDomain?: string): AssetItem {
  const [appId, keyId] = ["97471835-12cd-444d-ae9b-dc205f8336bf", "c97a9dbf-bd9f-4433-aea9-295c8898e41d"];
  const isB2c = tenantDomain !== undefined;
  return {
    ...asset(isB2c ? "b2c-holder" : "holder", "secret", `${appId}-${keyId}`, days, isB2c ? undefined : "identity-team"),
    id: isB2c ? `b2c.${TENANT}.application.${appId}.${keyId}` : `entra.${TENANT}.${appId}.${keyId}`,
    credential: {
      tenantId: TENANT,
      ...(isB2c && { tenantDomain }),
      appId,
      applicationName: application,
      keyId,
      displayName: name,
    },
  };
}

const violation = (
  checkId: string,
  title: string,
  severity: ViolationItem["severity"],
  name: string,
): ViolationItem => ({
  kind: "violation",
  id: `${checkId}.kv-payments-prod.secret.${name}`,
  checkId,
  title,
  severity,
  resourceId: `kv-payments-prod.secret.${name}`,
  resourceType: "secret",
  vaultName: "kv-payments-prod",
  vaultId: vaultIdOf("kv-payments-prod"),
  subscriptionId: SUBSCRIPTION,
  owner: "payments@acme.example",
  firstSeenAt: instant(-1),
});

const scanFailure = (change: Partial<ScanFailureItem>): ScanFailureItem => ({
  kind: "scanFailure",
  id: "vault:kv-hr-prod",
  scanId: "01KAJ4K3M0T5Q8W2Z7X9C1V6BN",
  subscriptionId: SUBSCRIPTION,
  code: "accessDenied",
  // The texts that `failureOfAnswer` of shared/platform/azure/failure.ts writes.
  message:
    "Could not list secrets (key vault kv-hr-prod): the service's identity does not have the required permission (ForbiddenByRbac).",
  remedy:
    "Give the service's identity the role Key Vault Reader on this vault, or, where it uses access policies, list for secrets, list, get and getrotationpolicy for keys, and list and get for certificates.",
  at: NOW,
  ...change,
});

const automation = (change: Partial<AutomationItem>): AutomationItem => ({
  kind: "automation",
  id: "01KAJ4K3M0T5Q8W2Z7X9C1V6BQ",
  title: "Identity API",
  what: "has a rotation that stopped at the step “Update consumers and check that they use the new secret” and needs a decision",
  urgency: "critical",
  why: "The web app app-orders still uses the old secret.",
  done: "A new secret was created and saved to kv-identity-prod.",
  safe: "The old client secret c97a9dbf-bd9f-4433-aea9-295c8898e41d was not removed. While the rotation waits, it removes no secret that it did not create. Both secrets work until they expire. The new one expires on Nov 21, 2027, 10:00 UTC (in 1 year).",
  next: "Restart app-orders. Then retry this rotation, or cancel it, which rolls everything back.",
  at: NOW,
  appId: "97471835-12cd-444d-ae9b-dc205f8336bf",
  rotationId: "01KAJ4K3M0T5Q8W2Z7X9C1V6BR",
  ...change,
});

/** 300 items, as many as a new rule reports in a large company, to show the layout of a long message. */
function manyAssets(): AssetItem[] {
  const items = [
    asset("kv-payments-prod", "certificate", "checkout-tls", -1.2, "payments@acme.example"),
    asset("kv-payments-prod", "secret", "acquirer-api-password", 0.3, "payments@acme.example"),
    asset("kv-identity-prod", "key", "token-signing-2025", 5.6, "Мария Иванова"),
    credential("Identity API", "current", 3.2),
    credential("Loyalty EU", "current", 4.1, "acmeloyalty.onmicrosoft.com"),
    asset("kv-data-staging", "secret", "a-name-that-is-as-long-as-key-vault-allows-".padEnd(127, "x"), 24.4),
    asset("kv-data-staging", "secret", "reporting-db", 60),
  ];
  const kinds = ["secret", "key", "certificate"] as const;
  const owners = ["payments@acme.example", "identity-team", undefined, "data@acme.example"];
  for (let index = items.length; index < 300; index++) {
    const team = index % 12;
    const days = ((index * 7) % 89) - 4.5;
    items.push(asset(`kv-team-${team}-prod`, kinds[index % 3]!, `service-${index}-credential`, days, owners[team % 4]));
  }
  return items.sort((a, b) => a.expiresOn - b.expiresOn);
}

/** The messages by the name of their files: the kind of the alert, and its items. */
function messages(): [name: string, alertType: AlertType, items: Item[]][] {
  const renewed = asset("kv-payments-prod", "secret", "acquirer-api-password", 0.3, "payments@acme.example");
  return [
    ["mail", "expiration", manyAssets()],
    ["few", "expiration", manyAssets().slice(8, 12)],
    [
      "credentials",
      "credentialExpiry",
      [
        credential("Identity API", "current", 3.2),
        credential("Loyalty EU", "current", 4.1, "acmeloyalty.onmicrosoft.com"),
      ],
    ],
    [
      "late",
      "lateRenewal",
      [
        late("kv-payments-prod", "checkout-tls", "acmebot", -2.4, 12.2, "payments@acme.example"),
        late("kv-identity-prod", "sso-tls", "keyVaultPolicy", -0.3, 57.5, "identity-team"),
        late("kv-data-staging", "reporting-tls", "observed", -9, 3.1),
      ],
    ],
    [
      "violations",
      "complianceViolation",
      [
        violation("secret-expired", "Expired secret is still enabled", "critical", "acquirer-api-password"),
        violation("secret-expiry", "Secret has no expiration date", "medium", "legacy-db"),
      ],
    ],
    [
      "scan-failures",
      "scanFailure",
      [
        scanFailure({ vaultName: "kv-hr-prod", list: "secrets" }),
        scanFailure({
          id: `subscription:${SUBSCRIPTION}`,
          message: `Could not list vaults (subscription ${SUBSCRIPTION}): the service's identity does not have the required permission (AuthorizationFailed).`,
          remedy: `Give the service's identity ${INVENTORY_READER}.`,
        }),
      ],
    ],
    ["unowned", "expiration", [asset("kv-data-staging", "secret", "reporting-db", 5.2)]],
    [
      "service",
      "serviceCredentialExpiry",
      [
        {
          kind: "credential",
          id: "apiToken:1",
          what: "API token",
          name: "ci",
          owner: "maria",
          expiresOn: unixSeconds(3),
          threshold: 7,
        },
      ],
    ],
    ["break-glass", "breakGlass", [{ kind: "breakGlass", id: "1", username: "admin", address: "192.0.2.1", at: NOW }]],
    [
      "digest",
      "expiration",
      [
        asset("kv-identity-prod", "key", "token-signing-2025", 5.6, "identity-team"),
        asset("kv-data-staging", "secret", "reporting-db", 25),
        {
          kind: "escalated",
          id: renewed.id,
          of: asset("kv-payments-prod", "secret", "bank-api", 2, "payments@acme.example"),
          since: instant(-5),
          afterDays: 3,
        },
        {
          kind: "renewed",
          id: renewed.id,
          of: renewed,
          since: instant(-6),
          expiresOn: unixSeconds(365),
          version: "9f2c",
        },
      ],
    ],
    ["rotation", "rotationFailed", [automation({})]],
    [
      "resolved",
      "expiration",
      [
        {
          kind: "renewed",
          id: renewed.id,
          of: renewed,
          since: instant(-6),
          expiresOn: unixSeconds(365),
          version: "9f2c",
        },
        {
          kind: "recovered",
          id: "1",
          of: violation("secret-expired", "Expired secret is still enabled", "critical", "old"),
          since: instant(-1),
          reason: "mended",
        },
      ],
    ],
  ];
}

/** Writes each message to a folder as mail, Slack message, Teams card, and incident, and renders them as images. */
export async function renderAlerts(folder: string): Promise<void> {
  const pages: [name: string, file: string][] = [];
  const write = (name: string, html: string) => {
    const file = path.join(folder, `${name}.html`);
    writeFileSync(file, html);
    pages.push([name, file]);
  };
  for (const [name, alertType, items] of messages()) {
    const delivery = {
      ...deliveryOf(alertType, items.length),
      ...(name === "digest" && { deliveryMode: "digest" as const }),
    };
    const message = messageOf([{ delivery, items }], links);
    const { html, text } = mailOf(message);
    write(name === "mail" ? name : `mail-${name}`, html);
    writeFileSync(path.join(folder, name === "mail" ? "mail.txt" : `mail-${name}.txt`), text);
    write(`slack-${name}`, slackPage(slackOf(message)));
    write(`teams-${name}`, teamsPage(teamsOf(message)));
    const incident = incidentOf(delivery, items[0]!, links);
    const event = pagerDutyEvent(incident, "0".repeat(32), { ruleName: delivery.ruleName, alertType, createdAt: NOW });
    write(`incident-${name}`, incidentPage(event, fieldsOf(incident)));
  }
  if (!findBrowser()) {
    console.log(`Chrome, Edge or Chromium was not found: open the HTML files in ${folder} instead`);
    return;
  }
  const context = await openBrowser();
  try {
    const tab = await context.newPage();
    for (const [name, file] of pages)
      for (const [suffix, width] of [
        ["", 760],
        ...(name.startsWith("mail") ? ([["-phone", 390]] as const) : []),
      ] as const) {
        const picture = path.join(folder, `${name}${suffix}.png`);
        // The long message is cut, because its picture would be too high to see.
        const isLong = /(?:^|-)mail(?:-phone)?$/.test(path.basename(picture, ".png"));
        await tab.setViewportSize({ width, height: isLong ? 1500 : 300 });
        await tab.goto(pathToFileURL(file).href);
        await tab.screenshot({ path: picture, fullPage: !isLong });
        console.log(`Created ${picture}`);
      }
  } finally {
    await context.close();
  }
}

/** One notification of a rule. `news` (its items) are given beside it, and `newsTotal` is their number. */
const deliveryOf = (alertType: AlertType, newsTotal: number): Omit<DeliveryRecord, "news"> => ({
  deliveryId: "01KAJ4K3M0T5Q8W2Z7X9C1V6BN",
  ruleId: "01KAJ4K3M0P4R7S2T9V5W8X1YZ",
  ruleName: "Payments on call",
  alertType,
  deliveryMethod: "email",
  deliveryMode: "immediate",
  test: false,
  requestedBy: "system",
  createdAt: NOW,
  status: "pending",
  parts: [],
  nextAt: NOW,
  revivals: 0,
  newsTotal,
});

const page = (content: string): string => `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Message</title>
<style>body{font:14px/20px 'Segoe UI',Helvetica,Arial,sans-serif;margin:16px;max-width:680px;overflow-wrap:anywhere}section{margin:8px 0;white-space:pre-line}small{color:#616061}</style>
</head><body>${content}</body></html>`;

/** Approximates how Slack shows Block Kit: headers, sections with bold text and links, and context. */
function slackPage(card: object): string {
  const { blocks } = card as { blocks: { type: string; text?: { text: string }; elements?: { text: string }[] }[] };
  // Slack escapes the three characters of HTML too, so the text of a block is HTML apart from its own markup.
  const html = (text: string) =>
    text
      .replace(/<(https:[^|>]*)\|([^>]*)>/g, '<a href="$1">$2</a>')
      .replace(/\*([^*]+)\*/g, "<b>$1</b>")
      .replace(/:(red|large_orange|large_yellow|large_blue)_circle:/g, (symbol) => SYMBOLS[symbol] ?? symbol);
  return page(
    blocks
      .map(({ type, text, elements = [] }) => {
        if (type === "header") return `<h2>${escapeHtml(text?.text ?? "")}</h2>`;
        if (type === "context") return `<small>${elements.map((element) => html(element.text)).join(" ")}</small>`;
        return `<section>${html(text?.text ?? "")}</section>`;
      })
      .join("\n"),
  );
}

const SYMBOLS: Record<string, string> = {
  ":red_circle:": "🔴",
  ":large_orange_circle:": "🟠",
  ":large_yellow_circle:": "🟡",
  ":large_blue_circle:": "🔵",
};

/** Renders a card with Microsoft's library, as Teams does. */
function teamsPage(card: object): string {
  const { content } = (card as { attachments: { content: object }[] }).attachments[0]!;
  const library = readFileSync(
    path.resolve(import.meta.dirname, "../../node_modules/adaptivecards/dist/adaptivecards.min.js"),
    "utf8",
  );
  const json = JSON.stringify(content).replaceAll("<", "\\u003c");
  return page(`<div id="card"></div>
<script>${library.replaceAll("</script", "<\\/script")}</script>
<script>
AdaptiveCards.AdaptiveCard.onProcessMarkdown = (text, result) => {
  const escaped = text.replace(/&/g, "&amp;").replace(/</g, "&lt;");
  result.outputHtml = escaped.replace(/^\\[(.*)\\]\\((.*)\\)$/, '<a href="$2">$1</a>').replace(/\\\\(.)/g, "$1");
  result.didProcess = true;
};
const card = new AdaptiveCards.AdaptiveCard();
card.parse(${json});
document.getElementById("card").append(card.render());
</script>`);
}

/** The alert of PagerDuty and the incident of ServiceNow, with the names that their users see. */
function incidentPage(event: object, fields: Record<string, string>): string {
  const {
    event_action,
    payload,
    links = [],
  } = event as {
    event_action: string;
    payload?: { summary: string; severity: string; source: string; group: string; custom_details: object };
    links?: { href: string; text: string }[];
  };
  const rows = (record: object) =>
    Object.entries(record)
      .map(([label, value]) => `<section><b>${escapeHtml(label)}</b>: ${escapeHtml(String(value))}</section>`)
      .join("");
  const anchors = links.map(({ href, text }) => `<a href="${escapeHtml(href)}">${escapeHtml(text)}</a>`).join(" · ");
  const { summary = "", custom_details: details = {}, severity, source, group } = payload ?? {};
  const alert =
    payload === undefined
      ? "<section>The event has no text: PagerDuty shows the alert as resolved.</section>"
      : `<h2>${escapeHtml(summary)}</h2><section>${anchors}</section>${rows({ Severity: severity, Source: source, Group: group })}<h4>Details</h4>${rows(details)}`;
  return page(
    `<small>PagerDuty, event ${escapeHtml(event_action)}</small>${alert}<hr><small>ServiceNow</small>${rows(fields)}`,
  );
}

const ESCAPES: Record<string, string> = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" };
const escapeHtml = (text: string): string => text.replace(/[&<>"]/g, (character) => ESCAPES[character]!);
