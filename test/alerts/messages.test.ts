import { describe, expect, test } from "vitest";
import type { DeliveryRecord } from "../../shared/alerts/delivery.ts";
import { isDue, lastDigest } from "../../shared/alerts/due.ts";
import { mailOf } from "../../shared/alerts/email.ts";
import type { AssetItem, Item } from "../../shared/alerts/items.ts";
import type { Links } from "../../shared/alerts/links.ts";
import { messageOf } from "../../shared/alerts/message.ts";
import type { RuleRecord } from "../../shared/alerts/rule.ts";
import { slackOf } from "../../shared/alerts/slack.ts";
import { teamsOf } from "../../shared/alerts/teams.ts";
import { cardProblems, payloadProblems } from "./payload-schemas.ts";

const AT = "2026-11-21T10:00:00.000Z";
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
const asset = (name: string, daysLeft: number, change: Partial<AssetItem> = {}): AssetItem => ({
  kind: "asset",
  id: `kv-a.secret.${name}`,
  type: "secret",
  name,
  vaultName: "kv-a",
  subscriptionId: "s-1",
  vaultId: "/subscriptions/s-1/resourceGroups/rg app/providers/Microsoft.KeyVault/vaults/kv-a",
  expiresOn: Date.parse(AT) / 1000 + daysLeft * 86_400,
  threshold: 7,
  owner: "ann",
  ...change,
});
const message = (items: Item[], change: Partial<typeof delivery> = {}) =>
  messageOf([{ delivery: { ...delivery, ...change }, items }], links);

const namesIn = (text: string): string[] =>
  [...text.matchAll(/^(?:ACT NOW|URGENT|SOON|NOTICE): [^/\n]+\/(\S+)/gm)].map((match) => match[1]!);

describe("a mail", () => {
  const mail = mailOf(message([asset("gone", -2.5), asset("now", 0.2), asset("soon", 6.5), asset("later", 25)]));

  test("says in its subject how many and what comes first", () => {
    expect(mail.subject).toBe("1 expired, 3 expire soon; first kv-a/gone expired 2 days ago");
    expect(mailOf(message([asset("soon", 6.5)])).subject).toBe("kv-a/soon expires in 6 days");
  });

  test.each([
    [72, "expires in 3 days"],
    [36, "expires in 1 day"],
    [5.5, "expires in 5 hours"],
    [1.5, "expires in 1 hour"],
    [0.5, "expires within the hour"],
    [-0.5, "expired within the last hour"],
    [-1.5, "expired 1 hour ago"],
    [-5.5, "expired 5 hours ago"],
    [-36, "expired 1 day ago"],
    [-72, "expired 3 days ago"],
  ])("says of an asset with %s hours left that it %s", (hoursLeft, words) => {
    expect(mailOf(message([asset("one", hoursLeft / 24)])).subject).toBe(`kv-a/one ${words}`);
  });

  test("says of each asset what expires, when, whose it is and where to mend it, in HTML and text", () => {
    const link =
      "https://portal.azure.com/#@t-1/asset/Microsoft_Azure_KeyVault/Secret/https://kv-a.vault.azure.net/secrets/soon";
    for (const text of [mail.html, mail.text]) {
      for (const part of [
        "kv-a/soon",
        "expires in 6 days",
        "27 November 2026, 22:00 UTC",
        "Owner: ann",
        "Payments (s-1)",
        link,
      ])
        expect(text).toContain(part);
    }
    const order = ["kv-a/gone", "kv-a/now", "kv-a/soon", "kv-a/later"].map((name) => mail.text.lastIndexOf(name));
    expect(order).toEqual([...order].sort((a, b) => a - b));
  });

  test("says why one gets it and how to stop it", () => {
    for (const text of [mail.text, mail.html.replaceAll("&lt;", "<").replaceAll("&gt;", ">")]) {
      expect(text).toContain("the alert rule “Team <A>” (01KAJ0000000000000000000BB)");
      // The page, which signs in; the API would answer a browser with 401.
      expect(text).toContain("https://lifecycle.example/#/alerts/history/01KAJ0000000000000000000AA");
      expect(text).toMatch(/https:\/\/lifecycle\.example\/["\s]/);
    }
  });

  test("lets nothing that others wrote begin a line of its own in the plain text", () => {
    const forged = "x\r\nURGENT: forged\u2028URGENT: forged\u0085URGENT: forged\nURGENT: forged";
    const { text } = mailOf(message([asset(forged, 3, { owner: forged, vaultName: forged })]));
    expect(text.match(/URGENT: forged/g)!.length).toBeGreaterThan(3);
    expect(text.split(/[\r\n\u0085\u2028\u2029]/).filter((line) => line.startsWith("URGENT: forged"))).toEqual([]);
  });

  test("does not let a name become markup or a line of its own", () => {
    const hostile = mailOf(message([asset('<img src=x onerror="alert(1)">\r\nBcc: all', 3, { owner: "<i>" })]));
    expect(hostile.html).not.toMatch(/<img|<i>/);
    expect(hostile.text).not.toMatch(/^Bcc/m);
  });

  test.each([
    ["short names", (index: number) => `name-${index}`, 1000],
    ["the longest names and owners", (index: number) => `${"n".repeat(120)}-${index}`, 1000],
    ["letters of several bytes", (index: number) => `\u{1F511}${"é".repeat(100)}${index}`, 400],
  ])("of many assets with %s holds the most urgent in 90 KB, and counts and links the rest", (_name, nameOf, count) => {
    const many = Array.from({ length: count }, (_, index) =>
      asset(nameOf(index), (index - 100) / 4, {
        vaultName: `kv-${index % 7}`,
        owner: `${nameOf(index % 5)}@acme.example`,
      }),
    );
    const { subject, html, text } = mailOf(message(many));
    expect(Buffer.byteLength(subject + html + text)).toBeLessThan(90_000);
    expect(Buffer.byteLength(subject + html + text)).toBeGreaterThan(80_000);
    const shown = [...text.matchAll(/^(?:ACT NOW|URGENT|SOON|NOTICE): /gm)].length;
    expect(text).toContain(
      `… and ${count - shown} more, none more urgent than these. https://lifecycle.example/#/alerts`,
    );
    expect(html).toContain(`… and ${count - shown} more`);
    const names = new Set(namesIn(text));
    expect(many.slice(0, shown).every(({ name }) => names.has(name))).toBe(true);
  });

  test("holds 125 assets of one owner whole", () => {
    const many = Array.from({ length: 125 }, (_, index) =>
      asset(`asset-${index}`, index / 40, { vaultName: `kv-team-${index % 9}` }),
    );
    expect(namesIn(mailOf(message(many)).text)).toHaveLength(125);
  });

  test("is grouped by owner and vault, each with its name, and by urgency within", () => {
    const { text, html } = mailOf(
      message([
        asset("a1", -1, { owner: "bob", vaultName: "kv-b" }),
        asset("b1", 2, { owner: "ann" }),
        asset("c1", 2, { owner: undefined, vaultName: "kv-c" }),
        asset("b2", 20, { owner: "ann" }),
        asset("a2", 20, { owner: "bob", vaultName: "kv-c" }),
      ]),
    );
    const order = text.match(/^(#.*|[A-Z ]+: \S+)/gm);
    expect(order).toEqual([
      "# Owner: bob",
      "## Vault kv-b, subscription Payments (s-1)",
      "ACT NOW: kv-b/a1",
      "## Vault kv-c, subscription Payments (s-1)",
      "SOON: kv-c/a2",
      "# Owner: ann",
      "## Vault kv-a, subscription Payments (s-1)",
      "URGENT: kv-a/b1",
      "SOON: kv-a/b2",
      "# No owner given",
      "## Vault kv-c, subscription Payments (s-1)",
      "URGENT: kv-c/c1",
    ]);
    expect(html.match(/<h2/g)).toHaveLength(3);
  });

  test("of several deliveries says of each rule why it came, and links each", () => {
    const other = {
      ...delivery,
      deliveryId: "01KAJ0000000000000000000DD",
      ruleId: "01KAJ0000000000000000000EE",
      ruleName: "Other",
    };
    const { text } = mailOf(
      messageOf(
        [
          { delivery, items: [asset("one", 20)] },
          { delivery: other, items: [asset("two", 2)], reason: "1 because it names no owner" },
        ],
        links,
      ),
    );
    expect(namesIn(text)).toEqual(["two", "one"]);
    for (const part of ["“Team <A>”", "“Other”", delivery.deliveryId, other.deliveryId, "1 because it names no owner"])
      expect(text).toContain(part);
  });

  test("tells of violations and scans too", () => {
    const violation = (id: string): Item => ({
      kind: "violation",
      id,
      checkId: "secret-expiry",
      title: "Secrets have an expiry",
      severity: "high",
      resourceId: "kv-a.secret.x",
      resourceType: "secret",
      vaultName: "kv-a",
      subscriptionId: "s-1",
      firstSeenAt: AT,
    });
    expect(mailOf(message([violation("v")])).subject).toBe("kv-a.secret.x breaks the check secret-expiry");
    expect(mailOf(message([violation("v"), violation("w")])).subject).toBe(
      "2 new compliance violations, the most severe high",
    );
    const scan = mailOf(
      message([
        {
          kind: "scan",
          id: "01KAJ0000000000000000000CC",
          mode: "full",
          status: "partial",
          finishedAt: AT,
          vaultsTotal: 36,
          vaultsFailed: 2,
        },
      ]),
    );
    expect(scan.text).toContain("Vaults not read: 2 of 36");
    expect(scan.text).toContain("/api/assets/discovery/scan/01KAJ0000000000000000000CC/results");
  });
});

describe("a card", () => {
  const many = message(Array.from({ length: 400 }, (_, index) => asset(`name_*${index}`, index / 20)));

  test("for Slack keeps within its limits, escapes names and says how many are left out", () => {
    const card = slackOf(many) as { text: string; blocks: { type: string; text?: { text: string } }[] };
    expect(card.blocks.length).toBeLessThanOrEqual(50);
    expect(card.blocks[0]!.text!.text.length).toBeLessThanOrEqual(150);
    for (const { text } of card.blocks) expect((text?.text ?? "").length).toBeLessThanOrEqual(3000);
    expect(JSON.stringify(card)).toContain("and 380 more");
    const hostile = JSON.stringify(slackOf(message([asset("<!channel>&", 3)])));
    expect(hostile).toContain("&lt;!channel&gt;&amp;");
    expect(hostile).toContain(
      "<https://lifecycle.example/#/alerts/history/01KAJ0000000000000000000AA|Show in the history> · <https://lifecycle.example/|Open the service>",
    );
  });

  test("for Teams is an Adaptive Card within 28 KB that Microsoft's own library takes without a complaint", () => {
    const card = teamsOf(many) as { attachments: { content: object }[] };
    expect(payloadProblems("teams", card)).toEqual([]);
    expect(Buffer.byteLength(JSON.stringify(card))).toBeLessThan(28_000);
    expect(JSON.stringify(card)).toContain("and 385 more");
    expect(cardProblems(card.attachments[0]!.content)).toEqual([]);
    expect(cardProblems({ type: "AdaptiveCard", version: "1.4", body: [{ type: "TextBlok" }] })).not.toEqual([]);
  });

  test("for Teams shows its links, and takes no name for one", () => {
    const text = JSON.stringify(teamsOf(message([asset("soon", 3)])));
    expect(text).toContain(
      "[Open in the Azure portal](https://portal.azure.com/#@t-1/asset/Microsoft_Azure_KeyVault/Secret/https://kv-a.vault.azure.net/secrets/soon)",
    );
    expect(text).toContain('"url":"https://lifecycle.example/#/alerts/history/01KAJ0000000000000000000AA"');
    expect(text).not.toContain("selectAction");
    const hostile = JSON.stringify(teamsOf(message([asset("[x](http://evil)", 3)])));
    expect(hostile).not.toMatch(/[^\\]\[x\]\(http/);
    expect(hostile).toContain("/secrets/%5Bx%5D%28http%3A%2F%2Fevil%29)");
  });
});

describe("when a digest is due", () => {
  test.each([
    ["daily", "2026-11-21T05:59:59.999Z", "2026-11-20T06:00:00.000Z"],
    ["daily", "2026-11-21T06:00:00.000Z", "2026-11-21T06:00:00.000Z"],
    ["weekly", "2026-11-21T12:00:00.000Z", "2026-11-16T06:00:00.000Z"],
    ["weekly", "2026-11-23T05:00:00.000Z", "2026-11-16T06:00:00.000Z"],
    ["weekly", "2026-11-23T06:00:00.000Z", "2026-11-23T06:00:00.000Z"],
    ["weekly", "2026-11-22T23:00:00.000Z", "2026-11-16T06:00:00.000Z"],
  ] as const)("%s at %s: the last was due at %s", (frequency, now, expected) => {
    expect(lastDigest(frequency, new Date(now)).toISOString()).toBe(expected);
  });

  test("a disabled rule never is", () => {
    const rule = { enabled: false, deliveryMode: "immediate" } as RuleRecord;
    expect(isDue(rule, new Date(0), new Date(AT))).toBe(false);
  });
});
