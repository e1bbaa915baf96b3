import { describe, expect, test } from "vitest";
import type { DeliveryRecord } from "../../shared/alerts/delivery.ts";
import { isDue, lastDigest } from "../../shared/alerts/due.ts";
import { mailOf } from "../../shared/alerts/email.ts";
import type { AssetItem, Item } from "../../shared/alerts/items.ts";
import { messageOf } from "../../shared/alerts/message.ts";
import type { RuleRecord } from "../../shared/alerts/rule.ts";
import { slackOf } from "../../shared/alerts/slack.ts";
import { teamsOf } from "../../shared/alerts/teams.ts";

const AT = "2026-11-21T10:00:00.000Z";
const links = { portal: "https://portal.azure.com", tenantId: "t-1", publicBaseUrl: "https://lifecycle.example/" };
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
const message = (news: Item[], change: Partial<typeof delivery> = {}) =>
  messageOf({ ...delivery, ...change }, news, links);

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
      "https://portal.azure.com/#@t-1/resource/subscriptions/s-1/resourceGroups/rg%20app/providers/Microsoft.KeyVault/vaults/kv-a/secrets";
    for (const text of [mail.html, mail.text]) {
      for (const part of ["kv-a/soon", "expires in 6 days", "27 November 2026, 22:00 UTC", "ann", link])
        expect(text).toContain(part);
    }
    const order = ["kv-a/gone", "kv-a/now", "kv-a/soon", "kv-a/later"].map((name) => mail.text.lastIndexOf(name));
    expect(order).toEqual([...order].sort((a, b) => a - b));
  });

  test("says why one gets it and how to stop it", () => {
    for (const text of [mail.text, mail.html.replaceAll("&lt;", "<").replaceAll("&gt;", ">")]) {
      expect(text).toContain("the alert rule “Team <A>” (01KAJ0000000000000000000BB)");
      expect(text).toContain("https://lifecycle.example/alerts/history/01KAJ0000000000000000000AA");
    }
  });

  test("lets nothing that others wrote begin a line of its own in the plain text", () => {
    const forged = "x\r\nURGENT: forged\u2028URGENT: forged\u0085URGENT: forged\nURGENT: forged";
    const { text } = mailOf(message([asset(forged, 3, { owner: forged, vaultName: forged })]));
    expect(text.match(/URGENT: forged/g)!.length).toBeGreaterThan(3);
    expect(text.split(/[\r\n\u0085\u2028\u2029]/).filter((line) => line.startsWith("URGENT: forged"))).toEqual([]);
  });

  test("does not let a name become markup or a line of its own", () => {
    const hostile = mailOf(message([asset('<img src=x onerror="alert(1)">\r\nBcc: all', 3, { owner: "<b>" })]));
    expect(hostile.html).not.toMatch(/<img|<b>/);
    expect(hostile.text).not.toMatch(/^Bcc/m);
  });

  test("of a thousand assets stays far below the provider's 10 MB", () => {
    const many = mailOf(message(Array.from({ length: 1000 }, (_, index) => asset(`name-${index}`, index / 40))));
    expect(Buffer.byteLength(JSON.stringify(many))).toBeLessThan(3_000_000);
    expect(many.text.match(/Open in the Azure portal/g)).toHaveLength(1000);
  });

  test("tells of violations and scans too", () => {
    const violation = mailOf(
      message([
        {
          kind: "violation",
          id: "v",
          checkId: "secret-expiry",
          title: "Secrets have an expiry",
          severity: "high",
          resourceId: "kv-a.secret.x",
          resourceType: "secret",
          vaultName: "kv-a",
          subscriptionId: "s-1",
          firstSeenAt: AT,
        },
      ]),
    );
    expect(violation.subject).toBe("kv-a.secret.x breaks the check secret-expiry");
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
  });

  test("for Teams is an Adaptive Card within 28 KB", () => {
    const card = teamsOf(many) as {
      type: string;
      attachments: { contentType: string; content: { body: unknown[] } }[];
    };
    expect(card.type).toBe("message");
    expect(card.attachments[0]!.contentType).toBe("application/vnd.microsoft.card.adaptive");
    expect(Buffer.byteLength(JSON.stringify(card))).toBeLessThan(28_000);
    expect(JSON.stringify(card)).toContain("and 385 more");
    expect(JSON.stringify(teamsOf(message([asset("[x](http://evil)", 3)])))).not.toContain("[x](http");
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
