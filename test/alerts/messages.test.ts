import { describe, expect, test } from "vitest";
import type { DeliveryRecord } from "../../shared/alerts/delivery.ts";
import { isDue, lastDigest } from "../../shared/alerts/digest-schedule.ts";
import { mailOf } from "../../shared/alerts/email.ts";
import { incidentOf } from "../../shared/alerts/incident.ts";
import type {
  AssetItem,
  AutomationItem,
  Item,
  ScanFailureItem,
  ScanItem,
  TrackedItem,
  ViolationItem,
} from "../../shared/alerts/items.ts";
import type { Links } from "../../shared/alerts/links.ts";
import { messageOf } from "../../shared/alerts/message.ts";
import { type AlertType, eventTypeOf, type RuleRecord } from "../../shared/alerts/rule.ts";
import { slackOf } from "../../shared/alerts/slack.ts";
import { teamsOf } from "../../shared/alerts/teams.ts";
import { cloudEventOf } from "../../shared/alerts/webhook.ts";
import { eventOf } from "../../shared/alerts/webhook-api.ts";
import { eventSchema } from "../../shared/alerts/webhook-documents.ts";
import { cardProblems, payloadProblems, schemaProblems } from "./payload-schemas.ts";

/** Tests the texts of alerts: mails, cards for Slack and Teams, and the times of digests. */

/** The time at which the messages are created. */
const AT = "2026-11-21T10:00:00.000Z";
const SECOND_IN_HOURS = 1 / 3600;
const DAY_SECONDS = 86_400;
const links: Links = {
  portal: "https://portal.azure.com",
  tenantId: "t-1",
  publicBaseUrl: "https://lifecycle.example/",
  keyVaultSuffix: "vault.azure.net",
  subscriptionName: (id) => (id === "s-1" ? "Payments" : undefined),
};
const delivery: Omit<DeliveryRecord, "news"> = {
  deliveryId: "01KAJ0000000000000000000AA",
  ruleId: "01KAJ0000000000000000000BB",
  ruleName: "Team <A>",
  alertType: "expiration",
  deliveryMethod: "email",
  deliveryMode: "immediate",
  test: false,
  requestedBy: "system",
  createdAt: AT,
  status: "pending",
  parts: [],
  nextAt: AT,
  revivals: 0,
  newsTotal: 1,
};
/** Returns an asset that expires `daysLeft` days after AT. */
const asset = (name: string, daysLeft: number, change: Partial<AssetItem> = {}): AssetItem => ({
  kind: "asset",
  id: `kv-a.secret.${name}`,
  type: "secret",
  name,
  vaultName: "kv-a",
  subscriptionId: "s-1",
  vaultId: "/subscriptions/s-1/resourceGroups/rg app/providers/Microsoft.KeyVault/vaults/kv-a",
  expiresOn: Date.parse(AT) / 1000 + daysLeft * DAY_SECONDS,
  threshold: 7,
  owner: "ann",
  ...change,
});
const SCAN: ScanItem = {
  kind: "scan",
  id: "01KAJ0000000000000000000CC",
  mode: "full",
  status: "partial",
  finishedAt: AT,
  vaultsTotal: 36,
  vaultsFailed: 2,
};
/** Returns the message of one delivery with these items. */
const message = (items: Item[], change: Partial<typeof delivery> = {}) =>
  messageOf([{ delivery: { ...delivery, ...change }, items }], links);

/** Returns the names of the assets that a mail lists, without their vaults: `one` of `LATER: kv-a/one expires in 40 days`. */
const namesIn = (text: string): string[] =>
  [...text.matchAll(/^(?:EXPIRED|WITHIN \d+ (?:HOURS|DAYS)|LATER|RESOLVED): [^/\n]+\/(\S+)/gm)].map(
    (match) => match[1]!,
  );

/** Returns items of every kind, with and without their optional members. */
function itemsOfEveryKind(): Item[] {
  const unixSeconds = (days: number) => Date.parse(AT) / 1000 + days * DAY_SECONDS;
  const timeAt = (days: number) => new Date(unixSeconds(days) * 1000).toISOString();
  const tenantId = "t-9";
  const ofTenant = { owner: undefined, vaultName: "entra-0", subscriptionId: "entra", threshold: 0 };
  const violation = (resourceId: string, change: Partial<ViolationItem> = {}): ViolationItem => ({
    kind: "violation",
    id: `secret-expiry.${resourceId}`,
    checkId: "secret-expiry",
    title: "Secret has no expiration date",
    severity: "high",
    resourceId,
    resourceType: "secret",
    vaultName: "kv-b",
    vaultId: "/subscriptions/s-1/resourceGroups/rg/providers/Microsoft.KeyVault/vaults/kv-b",
    subscriptionId: "s-1",
    owner: "bob",
    firstSeenAt: timeAt(-3),
    ...change,
  });
  const failure = (change: Partial<ScanFailureItem>): ScanFailureItem => ({
    kind: "scanFailure",
    id: "scan",
    scanId: "01KAJ0000000000000000000CC",
    code: "accessDenied",
    message: "The service may not list it.",
    remedy: "Grant Reader.",
    at: timeAt(-1),
    ...change,
  });
  const ofVault = failure({ id: "vault:kv-d", subscriptionId: "s-2", vaultName: "kv-d", list: "secrets" });
  const ofSubscription = failure({ id: "subscription:s-2", subscriptionId: "s-2" });
  const automation = (change: Partial<AutomationItem>): AutomationItem => ({
    kind: "automation",
    id: JSON.stringify(change),
    title: "Payments",
    what: "is due",
    urgency: "warning",
    why: "It expires soon.",
    done: "",
    safe: "All secrets work.",
    next: "Start it.",
    at: AT,
    ...change,
  });
  const tracked = { since: timeAt(-9) };
  return [
    asset("gone", -2, { threshold: 0, owner: undefined }),
    asset("last", 1, { threshold: 1, type: "certificate" }),
    asset("app", 20, {
      ...ofTenant,
      id: `entra.${tenantId}.a-1.k-1`,
      credential: { tenantId, applicationName: "Shop", appId: "a-1", keyId: "k-1", displayName: "ci" },
    }),
    asset("idp", 40, {
      ...ofTenant,
      id: `b2c.${tenantId}.idp.google`,
      credential: { tenantId, kind: "identityProvider", tenantDomain: "b2c.example", applicationName: "Google" },
    }),
    asset("policy", 40, {
      ...ofTenant,
      id: `b2c.${tenantId}.policy.sign`,
      type: "key",
      credential: { tenantId, kind: "policyKey", tenantDomain: "b2c.example", applicationName: "B2C_1A_Sign" },
    }),
    violation("kv-b.secret.x", { severity: "critical" }),
    violation("kv-b.secret.y", { severity: "medium", vaultId: undefined, owner: undefined }),
    { ...SCAN, status: "timedOut", message: "24 hours were not enough." },
    ofVault,
    ofSubscription,
    failure({ code: "timedOut" }),
    {
      kind: "credential",
      id: "c-1",
      what: "API token",
      name: "ci",
      owner: "maria",
      expiresOn: unixSeconds(3),
      threshold: 3,
    },
    {
      kind: "credential",
      id: "apiToken:2",
      what: "API token",
      name: "nightly",
      expiresOn: unixSeconds(2),
      threshold: 3,
    },
    { kind: "credential", id: "c-2", what: "License", name: "PRO", expiresOn: unixSeconds(-1), threshold: 14 },
    { kind: "breakGlass", id: "b-1", username: "admin", address: "192.0.2.1", at: AT },
    { kind: "breakGlass", id: "b-2", username: "other", at: AT },
    automation({ appId: "a-1", rotationId: "r-1", done: "A secret was added." }),
    automation({ recordId: "p-1" }),
    automation({ vaultName: "kv a" }),
    automation({ appId: "a-2", urgency: "notice" }),
    { kind: "renewed", id: "1", of: asset("new", 5), ...tracked, expiresOn: unixSeconds(300), version: "v2" },
    { kind: "renewed", id: "2", of: asset("free", -1), ...tracked },
    { kind: "recovered", id: "3", of: asset("off", 5), ...tracked, reason: "disabled" },
    { kind: "recovered", id: "4", of: violation("kv-b.secret.z"), ...tracked, reason: "mended" },
    { kind: "recovered", id: "5", of: ofVault, ...tracked, reason: "outOfScope" },
    { kind: "stillFailing", id: "6", of: ofSubscription, ...tracked, times: 2 },
    { kind: "escalated", id: "7", of: asset("alone", 2), ...tracked, afterDays: 1 },
  ];
}

describe("a mail", () => {
  const mail = mailOf(message([asset("gone", -2.5), asset("now", 0.2), asset("soon", 6.5), asset("later", 25)]));

  test("has the numbers of items and the most urgent item in its subject", () => {
    expect(mail.subject).toBe(
      "1 asset expired, 2 expire within 7 days, 1 within 30 days (owner: ann); first kv-a/gone expired 2 days ago",
    );
    expect(mailOf(message([asset("soon", 6.5)])).subject).toBe("kv-a/soon expires in 6 days (secret, owner: ann)");
  });

  test.each([
    [72, "expires in 3 days"],
    [48, "expires in 2 days"],
    [48 - SECOND_IN_HOURS, "expires in 1 day"],
    [24, "expires in 1 day"],
    [24 - SECOND_IN_HOURS, "expires in 23 hours"],
    [5.5, "expires in 5 hours"],
    [2 - SECOND_IN_HOURS, "expires in 1 hour"],
    [1, "expires in 1 hour"],
    [1 - SECOND_IN_HOURS, "expires within the hour"],
    [0, "expires within the hour"],
    [-SECOND_IN_HOURS, "expired within the last hour"],
    [SECOND_IN_HOURS - 1, "expired within the last hour"],
    [-1, "expired 1 hour ago"],
    [-5.5, "expired 5 hours ago"],
    [SECOND_IN_HOURS - 24, "expired 23 hours ago"],
    [-24, "expired 1 day ago"],
    [-72, "expired 3 days ago"],
  ])("describes an asset with %s hours left as: %s", (hoursLeft, text) => {
    expect(mailOf(message([asset("one", hoursLeft / 24)])).subject).toBe(`kv-a/one ${text} (secret, owner: ann)`);
  });

  test.each([
    [-1, "Expired", "attention", ":red_circle:"],
    [0, "Within 24 hours", "attention", ":large_orange_circle:"],
    [DAY_SECONDS, "Within 24 hours", "attention", ":large_orange_circle:"],
    [DAY_SECONDS + 1, "Within 7 days", "attention", ":large_orange_circle:"],
    [7 * DAY_SECONDS, "Within 7 days", "attention", ":large_orange_circle:"],
    [7 * DAY_SECONDS + 1, "Within 30 days", "warning", ":large_yellow_circle:"],
    [30 * DAY_SECONDS, "Within 30 days", "warning", ":large_yellow_circle:"],
    [30 * DAY_SECONDS + 1, "Later", "accent", ":large_blue_circle:"],
  ])("and the cards show an asset with %s seconds left as %s", (secondsLeft, label, color, symbol) => {
    const oneAsset = message([asset("one", secondsLeft / DAY_SECONDS)]);
    expect(mailOf(oneAsset).text).toContain(`\n${label.toUpperCase()}: kv-a/one `);
    expect(JSON.stringify(slackOf(oneAsset))).toContain(`${symbol} ${label}: *kv-a/one*`);
    expect(JSON.stringify(teamsOf(oneAsset))).toContain(`${label}: kv-a/one `);
    expect(JSON.stringify(teamsOf(oneAsset)).match(/"color":"\w+"/g)).toEqual([`"color":"${color}"`]);
    expect(JSON.stringify(slackOf(oneAsset)).match(/:[a-z_]+_circle:/g)).toEqual([symbol]);
  });

  test("truncates subjects over 180 characters, reasons over 800 characters, and lists of more than 12 rules", () => {
    const subjectOf = (nameLength: number) => mailOf(message([asset("n".repeat(nameLength), 3)])).subject;
    const lengthWithoutName = subjectOf(0).length;
    const longestName = 180 - lengthWithoutName;
    const suffix = " expires in 3 days (secret, owner: ann)";
    expect(subjectOf(longestName)).toBe(`kv-a/${"n".repeat(longestName)}${suffix}`);
    expect(subjectOf(longestName + 1)).toBe(`kv-a/${"n".repeat(longestName - 1)}…${suffix}`);
    for (const [length, shown] of [
      [800, "r".repeat(800)],
      [801, `${"r".repeat(799)}…`],
    ] as const) {
      const { html, text } = mailOf(message([{ ...SCAN, message: "r".repeat(length) }]));
      expect(text).toContain(`  Reason: ${shown}\n`);
      expect(html).toContain(`<br>Reason: ${shown}</p>`);
    }
    const ofRules = (count: number) =>
      mailOf(
        messageOf(
          Array.from({ length: count }, (_, index) => ({
            delivery: { ...delivery, deliveryId: `d-${index}`, ruleId: `r-${index}` },
            items: [asset("one", 3)],
          })),
          links,
        ),
      );
    const namedRules = (count: number) => ofRules(count).text.match(/^You receive this notification because/gm)!.length;
    const linkedRules = (count: number) => ofRules(count).text.match(/alerts\/history\/d-/g)!.length;
    expect([12, 13].map((count) => [namedRules(count), linkedRules(count)])).toEqual([
      [12, 12],
      [12, 12],
    ]);
  });

  test("of several rules lists and counts each item once, in its newest state, with the rules behind it", () => {
    const since = "2026-11-20T10:00:00.000Z";
    const deliveryOf = (ruleId: string, createdAt: string, change: Partial<typeof delivery> = {}) => ({
      ...delivery,
      ruleId,
      ruleName: `Rule ${ruleId}`,
      deliveryId: `d-${ruleId}-${createdAt}`,
      createdAt,
      ...change,
    });
    const removed = (name: string): Item => ({
      kind: "recovered",
      id: name,
      of: asset(name, 5),
      since,
      reason: "removed",
    });
    const { subject, text } = mailOf(
      messageOf(
        [
          {
            delivery: deliveryOf("b", since),
            items: [asset("both", 3, { threshold: 30 }), removed("old"), asset("one", 4)],
          },
          {
            delivery: deliveryOf("a", AT, { alertType: "credentialExpiry" }),
            items: [asset("both", 3), removed("old")],
          },
          // The same rule again: the asset was replaced, and its new version expires earlier.
          { delivery: deliveryOf("b", AT), items: [asset("one", 1)] },
        ],
        links,
      ),
    );
    expect(subject).toBe("2 assets expire within 7 days, 1 resolved (owner: ann); first kv-a/one expires in 1 day");
    expect(text).toContain("\n\n2 alerts and 1 resolved alert. Resolved alerts need no action.\n\n");
    expect(namesIn(text).sort()).toEqual(["both", "old", "one"]);
    expect(text).toMatch(
      /kv-a\/both expires in 3 days\n.* · Notified because: it expires within 7 days · Rules: Rule a, Rule b\n/,
    );
    expect(text).toMatch(/kv-a\/old was deleted\n.* · Rules: Rule a, Rule b\n/);
    expect(text).toMatch(/kv-a\/one expires in 1 day\n.* · Rule: Rule b\n/);
  });

  test("of a rule about late renewals and one about expiry lists a certificate once, as late", () => {
    const late = { renewedBy: "acmebot" as const, windowEnd: Date.parse(AT) / 1000 - DAY_SECONDS };
    const rule = (ruleId: string, items: Item[]) => ({ delivery: { ...delivery, ruleId, deliveryId: ruleId }, items });
    const byExpiry = rule("expiry", [asset("www", 6, { type: "certificate", threshold: 7 })]);
    const byRenewal = rule("late", [asset("www", 6, { type: "certificate", threshold: 0, late })]);
    for (const sources of [
      [byExpiry, byRenewal],
      [byRenewal, byExpiry],
    ]) {
      const { subject, text } = mailOf(messageOf(sources, links));
      expect(subject).toBe("kv-a/www was not renewed in time and expires in 6 days (certificate, owner: ann)");
      expect(namesIn(text)).toEqual(["www"]);
    }
  });

  test("about a late certificate and another asset says in the subject that the certificate is late", () => {
    const late = { renewedBy: "acmebot" as const, windowEnd: Date.parse(AT) / 1000 - DAY_SECONDS };
    const { subject } = message([asset("www", 3, { type: "certificate", threshold: 0, late }), asset("one", 6)]);
    expect(subject).toBe("2 alerts (owner: ann); first kv-a/www was not renewed in time and expires in 3 days");
  });

  test("of a rule about credentials and one about expiry counts all as assets, whichever rule comes first", () => {
    const credential = { tenantId: "t-1", appId: "app", applicationName: "Payments API" };
    const expiring = [
      {
        delivery: { ...delivery, alertType: "credentialExpiry" as const },
        items: [asset("key", 5, { id: "entra.t-1.app.key", credential })],
      },
      { delivery: { ...delivery, ruleId: "expiry", deliveryId: "expiry" }, items: [asset("one", 6)] },
    ];
    for (const sources of [expiring, expiring.toReversed()])
      expect(messageOf(sources, links).subject).toMatch(/^2 assets expire within 7 days /);
  });

  test("a digest of one rule, and a card, show each item once without naming the rule at each line", () => {
    const digest = { ...delivery, deliveryMode: "digest" as const };
    const [early, late] = [asset("one", 25, { threshold: 30 }), asset("one", 25, { threshold: 26 })];
    const combined = messageOf(
      [
        { delivery: { ...digest, createdAt: "2026-11-20T10:00:00.000Z" }, items: [early] },
        { delivery: digest, items: [late] },
      ],
      links,
    );
    expect(mailOf(combined).subject).toBe("Digest: kv-a/one expires in 25 days (secret, owner: ann)");
    expect(mailOf(combined).text).toContain("1 alert of the rule “Team <A>” since the last digest: 1 new. ");
    expect(mailOf(combined).text).not.toContain("Rule:");
    const [both, single] = [message([early, late]), message([late])];
    expect([slackOf(both), teamsOf(both)]).toEqual([slackOf(single), teamsOf(single)]);
  });

  test("lists the assets of an owner and a vault by their expiry, whatever the order and number of its deliveries", () => {
    const [first, second] = [
      [asset("four", 4), asset("two", 2)],
      [asset("three", 3), asset("one", 1), asset("other", 0.5, { owner: "bob" })],
    ];
    const { text } = mailOf(
      messageOf(
        [
          { delivery, items: first },
          { delivery: { ...delivery, deliveryId: "01KAJ0000000000000000000DD" }, items: second },
        ],
        links,
      ),
    );
    expect(namesIn(text)).toEqual(["other", "one", "two", "three", "four"]);
  });

  test("links the name to the asset's page with the portal link beside it, or only to the portal without a public URL", () => {
    const page = "https://lifecycle.example/#/inventory/kv-a.secret.soon";
    const portal = "/asset/Microsoft_Azure_KeyVault/Secret/https://kv-a.vault.azure.net/secrets/soon";
    const { html, text } = mailOf(message([asset("soon", 6)]));
    expect(html).toContain(`<a href="${page}"><b>kv-a/soon</b></a>`);
    expect(html).toMatch(new RegExp(`<a href="[^"]*${portal}">Open in the Azure portal</a></p>`));
    expect(text).toContain(`  Open asset: ${page}\n`);
    expect(text).not.toContain(portal);
    const withoutPage = mailOf(
      messageOf([{ delivery, items: [asset("soon", 6)] }], { ...links, publicBaseUrl: undefined }),
    );
    expect(withoutPage.html).toMatch(new RegExp(`<a href="[^"]*${portal}"><b>kv-a/soon</b></a>`));
  });

  test("and the cards have one main link below what is wrong: to the page of the items, or to the notification if they have several", () => {
    const history = "https://lifecycle.example/#/alerts/history/01KAJ0000000000000000000AA";
    const late = (name: string) =>
      asset(name, 3, { type: "certificate", late: { renewedBy: "acmebot", windowEnd: 0 } });
    for (const [items, text, url] of [
      [[asset("one", 3)], "Open asset", "https://lifecycle.example/#/inventory/kv-a.secret.one"],
      [[asset("one", 3), asset("two", 4)], "Open the 2 assets", history],
      [[late("one"), late("two")], "Open the 2 certificates", history],
      [[SCAN], "Show what can't be read and the fix", "https://lifecycle.example/#/vaults?unread=true&failing=true"],
    ] as const) {
      const alert = message([...items]);
      expect(mailOf(alert).text.split("\n\n")[2]).toBe(`${text}: ${url}`);
      const { html } = mailOf(alert);
      const buttons = [...html.matchAll(/<a href="([^"]*)" style="[^"]*"><b>([^<]*)<\/b><\/a>/g)];
      expect(buttons.map((button) => button.slice(1))).toEqual([
        [url.replace("&", "&amp;"), text.replaceAll("'", "&#39;")],
      ]);
      expect(buttons[0]!.index).toBeLessThan(html.indexOf(alert.lines[0]!.what, html.indexOf("</h1>")));
      const slack = slackOf(alert) as { blocks: { text?: { text: string } }[] };
      expect(slack.blocks[2]!.text!.text).toBe(`*<${url}|${text}>*`);
      const teams = teamsOf(alert) as { attachments: { content: { body: object[] } }[] };
      expect(teams.attachments[0]!.content.body[2]).toMatchObject({
        type: "ActionSet",
        actions: [{ type: "Action.OpenUrl", title: text, url }],
      });
    }
  });

  test("about resolved alerts says that they are resolved and that no action is needed", () => {
    const resolved: Item[] = ["one", "two"].map((name) => ({
      kind: "renewed",
      id: name,
      of: asset(name, 5),
      since: AT,
      expiresOn: Date.parse(AT) / 1000 + 90 * DAY_SECONDS,
    }));
    const { subject, text } = mailOf(message(resolved));
    expect(subject).toBe("2 alerts resolved (owner: ann); first kv-a/one was renewed and expires in 3 months");
    expect(text).toContain("\n\n2 resolved alerts of the rule “Team <A>”. No action is needed.\n\n");
    expect(text).not.toContain("new item");
    expect(mailOf(message(resolved.slice(0, 1))).text).toContain(
      "\n\n1 resolved alert of the rule “Team <A>”. No action is needed.\n\n",
    );
  });

  test.each([
    [60, "in 60 days"],
    [61, "in 2 months"],
    [89, "in 2 months"],
    [364, "in 12 months"],
    [365, "in 1 year"],
  ])("writes %s days as: %s", (days, text) => {
    expect(mailOf(message([asset("one", days)])).subject).toContain(`kv-a/one expires ${text} (`);
  });

  test("links no line to the JSON of the API", () => {
    for (const item of itemsOfEveryKind()) expect(mailOf(message([item])).text).not.toContain("lifecycle.example/api/");
  });

  test("contains the name, expiry, owner and portal link of an asset, in HTML and text", () => {
    const link =
      "https://portal.azure.com/#@t-1/asset/Microsoft_Azure_KeyVault/Secret/https://kv-a.vault.azure.net/secrets/soon";
    for (const text of [mail.html, mail.text]) {
      for (const part of [
        "kv-a/soon",
        "expires in 6 days",
        "Nov 27, 2026, 22:00 UTC",
        "Owner: ann",
        "subscription Payments",
      ])
        expect(text).toContain(part);
    }
    expect(mail.html).toContain(link);
    const order = ["kv-a/gone", "kv-a/now", "kv-a/soon", "kv-a/later"].map((name) => mail.text.lastIndexOf(name));
    expect(order).toEqual([...order].sort((a, b) => a - b));
  });

  test("names the service and the alert rule, and links the notification", () => {
    for (const text of [mail.text, mail.html.replaceAll("&lt;", "<").replaceAll("&gt;", ">")]) {
      expect(text).toContain("the alert rule “Team <A>” (01KAJ0000000000000000000BB)");
      // A link to the page, which offers the sign-in. A link to the API would return 401 in a browser.
      expect(text).toContain("https://lifecycle.example/#/alerts/history/01KAJ0000000000000000000AA");
    }
  });

  test("removes line breaks in names from the plain text, so that a name can't add a line", () => {
    const forged = "x\r\nURGENT: forged\u2028URGENT: forged\u0085URGENT: forged\nURGENT: forged";
    const { text } = mailOf(message([asset(forged, 3, { owner: forged, vaultName: forged })]));
    expect(text.match(/URGENT: forged/g)!.length).toBeGreaterThan(3);
    expect(text.split(/[\r\n\u0085\u2028\u2029]/).filter((line) => line.startsWith("URGENT: forged"))).toEqual([]);
  });

  test("escapes markup in names", () => {
    const hostile = mailOf(message([asset('<img src=x onerror="alert(1)">\r\nBcc: all', 3, { owner: "<i>" })]));
    expect(hostile.html).not.toMatch(/<img|<i>/);
    expect(hostile.text).not.toMatch(/^Bcc/m);
  });

  test.each([
    ["short names", (index: number) => `name-${index}`, 1000],
    ["the longest names and owners", (index: number) => `${"n".repeat(120)}-${index}`, 1000],
    ["letters of several bytes", (index: number) => `\u{1F511}${"é".repeat(100)}${index}`, 400],
  ])(
    "of many assets with %s contains the most urgent ones within 90 KB, and the number of the others",
    (_name, nameOf, count) => {
      const many = Array.from({ length: count }, (_, index) =>
        asset(nameOf(index), (index - 100) / 4, {
          vaultName: `kv-${index % 7}`,
          owner: `${nameOf(index % 5)}@acme.example`,
        }),
      );
      const { subject, html, text } = mailOf(message(many));
      expect(Buffer.byteLength(subject + html + text)).toBeLessThan(90_000);
      expect(Buffer.byteLength(subject + html + text)).toBeGreaterThan(80_000);
      const shown = [...text.matchAll(/^(?:EXPIRED|WITHIN .+|LATER): kv-/gm)].length;
      expect(text).toContain(`${count - shown} more items are not shown. The most urgent items are above.\n`);
      expect(html).toContain(`${count - shown} more items are not shown`);
      const names = new Set(namesIn(text));
      expect(many.slice(0, shown).every(({ name }) => names.has(name))).toBe(true);
    },
  );

  test("has room for 125 assets of one owner", () => {
    const many = Array.from({ length: 125 }, (_, index) =>
      asset(`asset-${index}`, index / 40, { vaultName: `kv-team-${index % 9}` }),
    );
    expect(namesIn(mailOf(message(many)).text)).toHaveLength(125);
  });

  test("about late renewals says who renews the certificate, since when its renewal is late, and when it expires", () => {
    const late = (name: string, daysLeft: number, renewedBy: "acmebot" | "keyVaultPolicy"): AssetItem =>
      asset(name, daysLeft, {
        type: "certificate",
        threshold: 0,
        late: { renewedBy, windowEnd: Date.parse(AT) / 1000 - DAY_SECONDS },
      });
    const items = [late("far", 57, "acmebot"), late("near", 6, "keyVaultPolicy"), late("gone", -1, "acmebot")];
    const { subject, text, html } = mailOf(message(items, { alertType: "lateRenewal" }));
    expect(subject).toBe("3 certificates were not renewed in time (owner: ann); first kv-a/gone expired 1 day ago");
    const since = "Renewal late since: Nov 20, 2026, 10:00 UTC (1 day ago)";
    const lines = [
      [
        "EXPIRED: kv-a/gone was not renewed in time and expired 1 day ago",
        `Renewer: Acmebot · ${since} · Expired: Nov 20, 2026, 10:00 UTC`,
      ],
      [
        "WITHIN 7 DAYS: kv-a/near was not renewed in time and expires in 6 days",
        `Renewer: Key Vault policy · ${since} · Expires: Nov 27, 2026, 10:00 UTC`,
      ],
      [
        "RENEWAL IS LATE: kv-a/far was not renewed in time and expires in 57 days",
        `Renewer: Acmebot · ${since} · Expires: Jan 17, 2027, 10:00 UTC`,
      ],
    ];
    const shown = lines.map(([line, facts]) => `${line}\n  Type: Certificate · ${facts}\n`);
    expect(shown.filter((line) => !text.includes(line))).toEqual([]);
    for (const [, facts] of lines) expect(html).toContain(facts);
    const [slack, teams] = [slackOf, teamsOf].map((card) =>
      JSON.stringify(card(message([items[0]!], { alertType: "lateRenewal" }))),
    );
    for (const card of [slack, teams]) {
      expect(card).toContain("Renewal is late: ");
      // Teams escapes parentheses.
      expect(card).toContain(`Renewer: Acmebot · ${since.split(" (")[0]}`);
    }
    // A renewed certificate is no longer late.
    const renewed = mailOf(message([{ kind: "renewed", id: "1", of: items[0]!, since: AT }])).text;
    expect(renewed).toContain("RESOLVED: kv-a/far was renewed and has no expiry");
    expect(renewed).not.toContain("late since");
  });

  test("groups items by owner and vault, with the most urgent first in each group", () => {
    const { text, html } = mailOf(
      message([
        asset("a1", -1, { owner: "bob", vaultName: "kv-b" }),
        asset("b1", 2, { owner: "ann" }),
        asset("c1", 2, { owner: undefined, vaultName: "kv-c" }),
        asset("b2", 20, { owner: "ann" }),
        asset("a2", 20, { owner: "bob", vaultName: "kv-c" }),
      ]),
    );
    const order = text.match(/^(#.*|[A-Z0-9 ]+: \S+)/gm);
    expect(order).toEqual([
      "# Owner: bob",
      "## Vault kv-b, subscription Payments",
      "EXPIRED: kv-b/a1",
      "## Vault kv-c, subscription Payments",
      "WITHIN 30 DAYS: kv-c/a2",
      "# Owner: ann",
      "## Vault kv-a, subscription Payments",
      "WITHIN 7 DAYS: kv-a/b1",
      "WITHIN 30 DAYS: kv-a/b2",
      "# No owner",
      "## Vault kv-c, subscription Payments",
      "WITHIN 7 DAYS: kv-c/c1",
    ]);
    expect(html.match(/<h2/g)).toHaveLength(3);
  });

  test("of several deliveries names and links each rule", () => {
    const otherDelivery = {
      ...delivery,
      deliveryId: "01KAJ0000000000000000000DD",
      ruleId: "01KAJ0000000000000000000EE",
      ruleName: "Other",
    };
    const { text } = mailOf(
      messageOf(
        [
          { delivery, items: [asset("one", 20)] },
          { delivery: otherDelivery, items: [asset("two", 2)], reason: "1 because the owner tag is missing" },
        ],
        links,
      ),
    );
    expect(namesIn(text)).toEqual(["two", "one"]);
    for (const part of [
      "“Team <A>”",
      "“Other”",
      delivery.deliveryId,
      otherDelivery.deliveryId,
      "1 because the owner tag is missing",
    ])
      expect(text).toContain(part);
  });

  test("about violations and scans has a subject of its own", () => {
    const violation = (id: string): Item => ({
      kind: "violation",
      id,
      checkId: "secret-expiry",
      title: "Secret has no expiration date",
      severity: "high",
      resourceId: "kv-a.secret.x",
      resourceType: "secret",
      vaultName: "kv-a",
      subscriptionId: "s-1",
      firstSeenAt: AT,
    });
    expect(mailOf(message([violation("v")])).subject).toBe(
      "kv-a/x fails a check: Secret has no expiration date (secret, no owner)",
    );
    expect(mailOf(message([violation("v"), violation("w")])).subject).toBe(
      "2 compliance violations: 2 high (no owner); first kv-a/x fails a check: Secret has no expiration date",
    );
    const scan = mailOf(message([SCAN]));
    expect(scan.text).toContain("Unread vaults: 2 of 36");
    expect(scan.text).toContain("https://lifecycle.example/#/vaults?unread=true&failing=true");
  });

  test("counts a vault or subscription once that can't be read, also beside its reminder and beside failed scans", () => {
    const failure = (id: string, change: Partial<ScanFailureItem>): ScanFailureItem => ({
      kind: "scanFailure",
      id,
      scanId: SCAN.id,
      code: "accessDenied",
      message: "The service may not list it.",
      remedy: "Grant Reader.",
      at: AT,
      ...change,
    });
    const subscription = failure("subscription:s-2", { subscriptionId: "s-2" });
    const vault = failure("vault:kv-d", { subscriptionId: "s-2", vaultName: "kv-d" });
    const reminder = (of: ScanFailureItem): Item => ({ kind: "stillFailing", id: of.id, of, since: AT, times: 2 });
    for (const [items, subject] of [
      [
        [subscription, reminder(subscription), vault],
        "1 subscription and 1 vault can't be read; first Subscription s-2",
      ],
      [
        [reminder(subscription), reminder(vault)],
        "1 subscription and 1 vault still can't be read; first Subscription s-2",
      ],
      [
        [failure("scan", { code: "timedOut" }), reminder(vault)],
        "2 scan failures; first Discovery scans do not complete",
      ],
    ] as const)
      expect(message([...items], { alertType: "scanFailure" }).subject).toBe(subject);
  });

  test("about a denied vault names the identity and the scope, with a command only for safe names and the lists of its role", () => {
    const identity = { name: "func-prod", objectId: "o-1", type: "ServicePrincipal" } as const;
    const denied = (change: Partial<ScanFailureItem>): ScanFailureItem => ({
      kind: "scanFailure",
      id: "vault:kv-d",
      scanId: SCAN.id,
      subscriptionId: "s-1",
      vaultName: "kv-d",
      list: "secrets",
      code: "accessDenied",
      message: "Could not list secrets.",
      remedy: "Give the service's identity the role Key Vault Reader.",
      at: AT,
      ...change,
    });
    const textOf = (item: ScanFailureItem) =>
      mailOf(messageOf([{ delivery, items: [item] }], { ...links, identity })).text;
    const command =
      'az role assignment create --assignee-object-id "o-1" --assignee-principal-type ServicePrincipal --role "Key Vault Reader" --scope "$(az keyvault show --subscription "s-1" --name "kv-d" --query id --output tsv)"';
    const text = textOf(denied({}));
    expect(text).toContain(`  Command: ${command}\n`);
    expect(text).toContain("Identity: func-prod (object ID o-1) · Scope: vault kv-d in subscription Payments (s-1)");
    const oneMessage = messageOf([{ delivery, items: [denied({})] }], { ...links, identity });
    for (const card of [
      slackOf(oneMessage),
      teamsOf(oneMessage),
      incidentOf(delivery, denied({}), { ...links, identity }),
    ])
      expect(JSON.stringify(card)).toContain("Key Vault Reader");
    for (const change of [
      { vaultName: 'kv"; rm -rf /; "' },
      { subscriptionId: "$(reboot)" },
      { list: "diagnosticSettings" },
      { vaultName: undefined, list: undefined },
      { code: "firewall" },
    ])
      expect(textOf(denied(change)), JSON.stringify(change)).not.toContain("Command:");
    expect(mailOf(message([denied({})])).text).not.toContain("Command:");
  });

  test("about a renewal says the old and the new expiry and when the alert was resolved, without the time left of the old one", () => {
    const renewed = asset("one", 0.3);
    const expiresOn = Date.parse(AT) / 1000 + 365 * DAY_SECONDS;
    const { text } = mailOf(message([{ kind: "renewed", id: "1", of: renewed, since: AT, expiresOn, version: "v2" }]));
    expect(text).toContain(
      "New expiry: Nov 21, 2027, 10:00 UTC · Old expiry: Nov 21, 2026, 17:12 UTC · New version: v2 · First notified: Nov 21, 2026, 10:00 UTC · Resolved: Nov 21, 2026, 10:00 UTC\n",
    );
    expect(text).not.toContain("in 7 hours");
  });

  test("says that an asset whose owner tag has no value has no owner", () => {
    const { subject, text } = mailOf(message([asset("one", 6.5, { owner: "" })]));
    expect(subject).toBe("kv-a/one expires in 6 days (secret, no owner)");
    expect(text).not.toContain("Owner:");
  });

  test("describes every kind of item, under headings of owners, vaults and tenants", () => {
    const { subject, text } = mailOf(message(itemsOfEveryKind()));
    expect(subject).toBe(
      "22 alerts, 5 resolved (owners: bob and 1 more, 5 without owner); first kv-a/gone expired 2 days ago",
    );
    expect(text).toContain("\n\n22 alerts and 5 resolved alerts of the rule “Team <A>”. ");
    expect(text).toContain(`\n\n${EVERY_KIND}\n\n--\n`);
  });
});

describe("a card", () => {
  /** Many more assets than a card lists: 20 for Slack, 15 for Teams. */
  const many = message(Array.from({ length: 400 }, (_, index) => asset(`name_*${index}`, index / 20)));

  test("groups its lines by owner, and by vault or application", () => {
    const grouped = message([
      asset("one", 1),
      asset("two", 2, { vaultName: "kv-b", owner: "bob" }),
      asset("three", 3),
      ...itemsOfEveryKind().filter(({ id }) => id === "entra.t-9.a-1.k-1"),
    ]);
    const headings = [
      "Owner: ann · Vault kv-a, subscription Payments",
      "Owner: bob · Vault kv-b, subscription Payments",
      "No owner · Application Shop, Microsoft Entra tenant t-9",
    ];
    const slack = JSON.stringify(slackOf(grouped));
    const teams = JSON.stringify(teamsOf(grouped)).replaceAll("\\\\", "");
    for (const heading of headings) {
      expect(slack.split(heading)).toHaveLength(2);
      expect(teams.split(heading)).toHaveLength(2);
    }
    for (const text of [slack, teams]) {
      const order = ["kv-a/one", "kv-a/three", "kv-b/two", "Shop/ci"].map((name) =>
        text.indexOf(name, text.indexOf("Owner")),
      );
      expect(order).toEqual(order.toSorted((a, b) => a - b));
    }
  });

  test("stays within the limits with a heading for each line and the longest names", () => {
    const items = Array.from({ length: 30 }, (_, index) =>
      asset("я_".repeat(63), index / 20, {
        id: `kv-${index}.secret.x`,
        vaultName: `kv-${index}`,
        owner: "ю*".repeat(128),
      }),
    );
    // Slack shows 50 blocks, Teams accepts 28 KB, and Gmail clips a mail at 102 KB of HTML.
    expect((slackOf(message(items)) as { blocks: object[] }).blocks.length).toBeLessThanOrEqual(50);
    expect(Buffer.byteLength(JSON.stringify(teamsOf(message(items))))).toBeLessThan(28_000);
    expect(Buffer.byteLength(mailOf(message(items)).html)).toBeLessThan(102_000);
  });

  test("shortens a long title to what, how many, how soon and whose, without cutting words", () => {
    const late = (name: string, daysLeft: number, owner: string): AssetItem =>
      asset(name, daysLeft, {
        type: "certificate",
        threshold: 0,
        owner,
        late: { renewedBy: "acmebot", windowEnd: Date.parse(AT) / 1000 - DAY_SECONDS },
      });
    const titleOf = (items: Item[]) =>
      (slackOf(message(items, { alertType: "lateRenewal" })) as { blocks: { text: { text: string } }[] }).blocks[0]!
        .text.text;
    const name = "reporting-tls-".repeat(8);
    expect(titleOf([late(name, 3, "payments@acme.example"), late("b", 12, "bob"), late("c", 57, "")])).toBe(
      "3 certificates were not renewed in time, the first expires in 3 days (owners: payments@acme.example and 1 more, 1 without owner)",
    );
    expect(titleOf([late(name, 3, "o".repeat(200)), late("b", 12, "bob"), late("c", 57, "")])).toBe(
      "3 certificates were not renewed in time, the first expires in 3 days (2 owners, 1 without owner)",
    );
    expect(titleOf([late("n".repeat(127), 3, "ann")])).toMatch(
      /^kv-a\/n+… was not renewed in time and expires in 3 days \(certificate, owner: ann\)$/,
    );
  });

  test("counts new and escalated assets of a digest together", () => {
    const escalated: Item = { kind: "escalated", id: "1", of: asset("old", 2), since: AT, afterDays: 1 };
    const { subject, intro } = message([asset("one", 20), escalated], { deliveryMode: "digest" });
    expect(subject).toMatch(
      /^Digest: 1 asset expires within 7 days, 1 within 30 days \(owner: ann\); first kv-a\/old /,
    );
    expect(intro).toContain("2 alerts of the rule “Team <A>” since the last digest: 1 new, 1 still open. ");
  });

  test("for Slack respects Slack's limits, escapes names and shows the number of omitted items", () => {
    const card = slackOf(many) as { text: string; blocks: { type: string; text?: { text: string } }[] };
    expect(card.blocks.length).toBeLessThanOrEqual(50);
    expect(card.blocks[0]!.text!.text.length).toBeLessThanOrEqual(150);
    for (const { text } of card.blocks) expect((text?.text ?? "").length).toBeLessThanOrEqual(3000);
    expect(JSON.stringify(card)).toContain("380 more are not shown.");
    const hostile = JSON.stringify(slackOf(message([asset("<!channel>&", 3)])));
    expect(hostile).toContain("&lt;!channel&gt;&amp;");
    expect(hostile).toContain(
      "<https://lifecycle.example/#/alerts/history/01KAJ0000000000000000000AA|Show this notification>",
    );
  });

  test("for Teams is an Adaptive Card within 28 KB that Microsoft's library accepts", () => {
    const card = teamsOf(many) as { attachments: { content: object }[] };
    expect(payloadProblems("teams", card)).toEqual([]);
    expect(Buffer.byteLength(JSON.stringify(card))).toBeLessThan(28_000);
    expect(JSON.stringify(card)).toContain("385 more are not shown.");
    expect(cardProblems(card.attachments[0]!.content)).toEqual([]);
    expect(cardProblems({ type: "AdaptiveCard", version: "1.4", body: [{ type: "TextBlok" }] })).not.toEqual([]);
  });

  test("for Teams shows the next step of a failed rotation after long reasons", () => {
    const item: Item = {
      kind: "automation",
      id: "r",
      title: "Payments",
      what: "needs a decision",
      urgency: "critical",
      why: "r".repeat(200),
      done: "d".repeat(200),
      safe: "s".repeat(200),
      next: "Retry the step.",
      at: AT,
    };
    expect(JSON.stringify(teamsOf(message([item], { alertType: "rotationFailed" })))).toContain("Retry the step.");
  });

  test("for Teams shows links, and escapes Markdown links in names", () => {
    const text = JSON.stringify(teamsOf(message([asset("soon", 3)])));
    expect(text).toContain(
      "[Open in the Azure portal](https://portal.azure.com/#@t-1/asset/Microsoft_Azure_KeyVault/Secret/https://kv-a.vault.azure.net/secrets/soon)",
    );
    expect(text).toContain(
      "[Show this notification](https://lifecycle.example/#/alerts/history/01KAJ0000000000000000000AA)",
    );
    expect(text).not.toContain("selectAction");
    const hostile = JSON.stringify(teamsOf(message([asset("[x](http://evil)", 3)])));
    expect(hostile).not.toMatch(/[^\\]\[x\]\(http/);
    expect(hostile).toContain("/secrets/%5Bx%5D%28http%3A%2F%2Fevil%29)");
  });
});

test("an incident about an asset names its vault as the source, one about a credential its application", () => {
  const items = itemsOfEveryKind();
  const credential = items.find(({ id }) => id === "entra.t-9.a-1.k-1")!;
  expect([items[0]!, credential].map((item) => incidentOf(delivery, item, links).source)).toEqual(["kv-a", "Shop"]);
});

test("an incident names its urgency by the time left and its level, apart from the severity of a check", () => {
  const factsOf = (item: Item) => {
    const alertType = item.kind === "violation" ? "complianceViolation" : delivery.alertType;
    return new Map(incidentOf({ ...delivery, alertType }, item, links).facts);
  };
  expect([-1, 3, 20, 40].map((daysLeft) => factsOf(asset("one", daysLeft)).get("Urgency"))).toEqual([
    "expired (level 1 of 4, 1 is the highest)",
    "within 7 days (level 2 of 4, 1 is the highest)",
    "within 30 days (level 3 of 4, 1 is the highest)",
    "later (level 4 of 4, 1 is the highest)",
  ]);
  const violation = factsOf(itemsOfEveryKind().find(({ kind }) => kind === "violation")!);
  expect([violation.get("Urgency"), violation.get("Check severity")]).toEqual([
    "act now (level 1 of 4, 1 is the highest)",
    "critical",
  ]);
  expect(violation.get("Next step")).toBe("Open the asset for the fix, or to exempt the violation.");
  const resolved = factsOf(itemsOfEveryKind().find(({ kind }) => kind === "renewed")!);
  expect([resolved.get("Urgency"), resolved.get("Next step")]).toEqual([undefined, "No action is needed."]);
  const unowned = incidentOf(delivery, asset("one", 3, { owner: undefined }), links);
  expect(unowned.links.map(({ text }) => text)).toEqual([
    "Open asset",
    "Open in the Azure portal",
    "Assign an owner",
    "Show this notification",
  ]);
});

test("the next step names one asset or several, the escalation says where to acknowledge, and only alerts about assets can be snoozed", () => {
  const one = message([asset("one", 3)]);
  expect(one.intro).toContain(" Open the asset to see who uses it,");
  expect(message([asset("one", 3), asset("two", 4)]).intro).toContain(" Open an asset to see who uses it,");
  expect(one.why.at(-1)).toContain("snooze the asset on its page");
  const signIn = message([{ kind: "breakGlass", id: "b-1", username: "admin", at: AT }]);
  expect(signIn.why.at(-1)).toMatch(/^To stop these notifications, ask an administrator /);
  const escalated: Item = { kind: "escalated", id: "3", of: asset("alone", 2), since: AT, afterDays: 1 };
  expect(message([escalated]).intro).toContain("open this notification and select Acknowledge all.");
});

describe("a webhook event", () => {
  const since = AT;
  const renewed: Item = { kind: "renewed", id: "1", of: asset("new", 5), since };
  const recovered: Item = { kind: "recovered", id: "2", of: asset("off", 5), since, reason: "disabled" };
  const escalated: Item = { kind: "escalated", id: "3", of: asset("alone", 2), since, afterDays: 1 };

  test.each<[string, Item[], boolean]>([
    ["no items", [], false],
    ["a new alert", [asset("one", 5)], false],
    ["an escalation", [escalated], false],
    ["a renewal", [renewed], true],
    ["a renewal and a deactivation", [renewed, recovered], true],
    ["a renewal and a new alert", [renewed, asset("one", 5)], false],
  ])("with %s: its data says whether all items are resolved", (_name, items, resolved) => {
    const event = cloudEventOf({ ...delivery, alertType: "expired" }, items, links);
    expect(event).toMatchObject({ type: "lifecycle.alert.expired", data: { resolved, total: items.length } });
  });

  const TYPES: Record<TrackedItem["kind"] | "scan" | "credential" | "breakGlass" | "automation", AlertType> = {
    asset: "expiration",
    violation: "complianceViolation",
    scanFailure: "scanFailure",
    scan: "scanFailure",
    credential: "serviceCredentialExpiry",
    breakGlass: "breakGlass",
    automation: "rotationDue",
  };
  // JSON, because a member that is undefined is not sent.
  test.each(itemsOfEveryKind().map((item) => [item.kind, item.id, item] as const))(
    "about an item of the kind %s (%s) has the members that the API description has, and no others",
    (_kind, _id, item) => {
      const alertType = TYPES["of" in item ? item.of.kind : item.kind];
      const event = JSON.parse(JSON.stringify(cloudEventOf({ ...delivery, alertType }, [item], links)));
      expect(eventOf(alertType).parse(event)).toEqual(event);
      expect(schemaProblems(eventSchema(eventTypeOf(alertType))!, event)).toEqual([]);
    },
  );
});

describe("a digest", () => {
  // Daily digests are sent at 06:00 UTC, weekly ones on Mondays at 06:00 UTC. 2026-11-16 and 2026-11-23 are Mondays.
  test.each([
    ["daily", "2026-11-21T05:59:59.999Z", "2026-11-20T06:00:00.000Z"],
    ["daily", "2026-11-21T06:00:00.000Z", "2026-11-21T06:00:00.000Z"],
    ["weekly", "2026-11-21T12:00:00.000Z", "2026-11-16T06:00:00.000Z"],
    ["weekly", "2026-11-23T05:00:00.000Z", "2026-11-16T06:00:00.000Z"],
    ["weekly", "2026-11-23T06:00:00.000Z", "2026-11-23T06:00:00.000Z"],
    ["weekly", "2026-11-22T23:00:00.000Z", "2026-11-16T06:00:00.000Z"],
  ] as const)("%s at %s: the previous one was due at %s", (frequency, now, expected) => {
    expect(lastDigest(frequency, new Date(now)).toISOString()).toBe(expected);
  });

  test("of a disabled rule is never due", () => {
    const rule = { enabled: false, deliveryMode: "immediate" } as RuleRecord;
    expect(isDue(rule, new Date(0), new Date(AT))).toBe(false);
  });
});

/** The expected text of the mail with every kind of item. */
const EVERY_KIND = `# No owner

## Vault kv-a, subscription Payments
Assign an owner: https://lifecycle.example/#/inventory?vault=kv-a&hasOwner=false

EXPIRED: kv-a/gone expired 2 days ago
  Type: Secret · Expired: Nov 19, 2026, 10:00 UTC
  Open asset: https://lifecycle.example/#/inventory/kv-a.secret.gone

## Application Shop, Microsoft Entra tenant t-9
Assign an owner: https://lifecycle.example/#/inventory/entra.t-9.a-1.k-1

WITHIN 30 DAYS: Shop/ci expires in 20 days
  Type: Client secret of an application · Client ID: a-1 · Key ID: k-1 · Expires: Dec 11, 2026, 10:00 UTC
  Open credential: https://lifecycle.example/#/inventory/entra.t-9.a-1.k-1

## Vault kv-b, subscription Payments
Assign an owner: https://lifecycle.example/#/inventory?vault=kv-b&hasOwner=false

WARNING: kv-b/y fails a check: Secret has no expiration date
  Type: Secret · Check: secret-expiry · Check severity: medium · First seen: Nov 18, 2026, 10:00 UTC (3 days ago)
  Open asset: https://lifecycle.example/#/inventory/kv-b.secret.y

## B2C tenant b2c.example
Assign an owner: https://lifecycle.example/#/inventory/b2c.t-9.idp.google

LATER: Google expires in 40 days
  Type: Identity provider · Tenant: b2c.example · Expires: Dec 31, 2026, 10:00 UTC
  Open credential: https://lifecycle.example/#/inventory/b2c.t-9.idp.google

LATER: B2C_1A_Sign expires in 40 days
  Type: Key of a custom policy · Tenant: b2c.example · Expires: Dec 31, 2026, 10:00 UTC
  Open credential: https://lifecycle.example/#/inventory/b2c.t-9.policy.sign

# Other alerts

EXPIRED: License “PRO” expired 1 day ago
  Expires: Nov 20, 2026, 10:00 UTC (1 day ago) · Notified because: it has expired, and the rule notifies 14 days before

ACT NOW: admin signed in with a password while passwords are turned off
  Time: Nov 21, 2026, 10:00 UTC (within the last hour) · Client address: 192.0.2.1
  Open sessions and users: https://lifecycle.example/#/access

ACT NOW: other signed in with a password while passwords are turned off
  Time: Nov 21, 2026, 10:00 UTC (within the last hour) · Client address: unknown
  Open sessions and users: https://lifecycle.example/#/access

WITHIN 7 DAYS: API token “nightly” expires in 2 days
  Expires: Nov 23, 2026, 10:00 UTC (in 2 days) · When it expires: Programs that call this service with the token get no access. · Notified because: it expires within 3 days
  Replace the credential: https://lifecycle.example/#/access

WITHIN 7 DAYS: API token “ci” expires in 3 days
  Expires: Nov 24, 2026, 10:00 UTC (in 3 days) · User: maria · Notified because: it expires within 3 days

URGENT: Scan 01KAJ0000000000000000000CC timed out
  Mode: full · Ended: Nov 21, 2026, 10:00 UTC (within the last hour) · Unread vaults: 2 of 36 · Reason: 24 hours were not enough.
  Show what can't be read and the fix: https://lifecycle.example/#/vaults?unread=true&failing=true

URGENT: Subscription s-2 can't be read
  Reason: The service may not list it. (accessDenied) · Next step: Grant Reader. · Subscription: s-2 · Found: Nov 20, 2026, 10:00 UTC (1 day ago) · Scan: 01KAJ0000000000000000000CC
  Show what can't be read and the fix: https://lifecycle.example/#/vaults?unread=true&failing=true

URGENT: Discovery scans do not complete
  Reason: The service may not list it. (timedOut) · Next step: Grant Reader. · Found: Nov 20, 2026, 10:00 UTC (1 day ago) · Scan: 01KAJ0000000000000000000CC
  Show what can't be read and the fix: https://lifecycle.example/#/vaults?unread=true&failing=true

URGENT: Subscription s-2 still can't be read
  Reason: The service may not list it. (accessDenied) · Next step: Grant Reader. · Subscription: s-2 · Found: Nov 20, 2026, 10:00 UTC (1 day ago) · Scan: 01KAJ0000000000000000000CC · First notified: Nov 12, 2026, 10:00 UTC (9 days ago)
  Show what can't be read and the fix: https://lifecycle.example/#/vaults?unread=true&failing=true

WARNING: Vault kv-d can't be read
  Reason: The service may not list it. (accessDenied) · Next step: Grant Reader. · Vault: kv-d · Subscription: s-2 · List: secrets · Found: Nov 20, 2026, 10:00 UTC (1 day ago) · Scan: 01KAJ0000000000000000000CC
  Show what can't be read and the fix: https://lifecycle.example/#/vaults?unread=true&failing=true

WARNING: Payments is due
  Reason: It expires soon. · Done so far: A secret was added. · Current state: All secrets work. · Next step: Start it. · Client ID: a-1 · Rotation: r-1
  Open the rotation: https://lifecycle.example/#/rotation/r-1

WARNING: Payments is due
  Reason: It expires soon. · Current state: All secrets work. · Next step: Start it. · Sync: p-1
  Open the sync: https://lifecycle.example/#/sync/p-1

WARNING: Payments is due
  Reason: It expires soon. · Current state: All secrets work. · Next step: Start it.
  Open the references: https://lifecycle.example/#/dependencies?vault=kv%20a&resolved=false

NOTICE: Payments is due
  Reason: It expires soon. · Current state: All secrets work. · Next step: Start it. · Client ID: a-2
  Open the application: https://lifecycle.example/#/rotation/apps/a-2

RESOLVED: Vault kv-d is no longer monitored
  Earlier reason: The service may not list it. (accessDenied) · Vault: kv-d · Subscription: s-2 · List: secrets · First notified: Nov 12, 2026, 10:00 UTC · Resolved: Nov 21, 2026, 10:00 UTC

# Owner: bob

## Vault kv-b, subscription Payments

ACT NOW: kv-b/x fails a check: Secret has no expiration date
  Type: Secret · Check: secret-expiry · Check severity: critical · First seen: Nov 18, 2026, 10:00 UTC (3 days ago)
  Open asset: https://lifecycle.example/#/inventory/kv-b.secret.x

RESOLVED: kv-b/z no longer has the problem “Secret has no expiration date”
  Type: Secret · Check: secret-expiry · Check severity: high · First notified: Nov 12, 2026, 10:00 UTC · Resolved: Nov 21, 2026, 10:00 UTC
  Open asset: https://lifecycle.example/#/inventory/kv-b.secret.z

# Owner: ann

## Vault kv-a, subscription Payments

WITHIN 24 HOURS: kv-a/last expires in 1 day
  Type: Certificate · Expires: Nov 22, 2026, 10:00 UTC · Notified because: it expires within 1 day
  Open asset: https://lifecycle.example/#/inventory/kv-a.secret.last

WITHIN 7 DAYS: kv-a/alone expires in 2 days
  Type: Secret · Expires: Nov 23, 2026, 10:00 UTC · Notified because: it expires within 7 days · First notified: Nov 12, 2026, 10:00 UTC (9 days ago) · Escalated: not acknowledged within 1 day
  Open asset: https://lifecycle.example/#/inventory/kv-a.secret.alone

RESOLVED: kv-a/free was renewed and has no expiry
  Type: Secret · New expiry: none · Old expiry: Nov 20, 2026, 10:00 UTC · First notified: Nov 12, 2026, 10:00 UTC · Resolved: Nov 21, 2026, 10:00 UTC
  Open asset: https://lifecycle.example/#/inventory/kv-a.secret.free

RESOLVED: kv-a/new was renewed and expires in 10 months
  Type: Secret · New expiry: Sep 17, 2027, 10:00 UTC · Old expiry: Nov 26, 2026, 10:00 UTC · New version: v2 · First notified: Nov 12, 2026, 10:00 UTC · Resolved: Nov 21, 2026, 10:00 UTC
  Open asset: https://lifecycle.example/#/inventory/kv-a.secret.new

RESOLVED: kv-a/off was disabled
  Type: Secret · Expires: Nov 26, 2026, 10:00 UTC · First notified: Nov 12, 2026, 10:00 UTC · Resolved: Nov 21, 2026, 10:00 UTC
  Open asset: https://lifecycle.example/#/inventory/kv-a.secret.off`;
