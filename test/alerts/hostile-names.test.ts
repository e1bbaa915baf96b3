import { describe, expect, test } from "vitest";
import type { DeliveryRecord } from "../../shared/alerts/delivery.ts";
import { mailOf } from "../../shared/alerts/email.ts";
import { incidentOf } from "../../shared/alerts/incident.ts";
import { type AssetItem, ITEM_KINDS, type Item, type ScanFailureItem } from "../../shared/alerts/items.ts";
import type { Links } from "../../shared/alerts/links.ts";
import { messageOf } from "../../shared/alerts/message.ts";
import { pagerDutyEvent } from "../../shared/alerts/pagerduty.ts";
import { openServiceNow } from "../../shared/alerts/servicenow.ts";
import { slackOf } from "../../shared/alerts/slack.ts";
import { teamsOf } from "../../shared/alerts/teams.ts";
import { cloudEventOf } from "../../shared/alerts/webhook.ts";
import { HOSTILE_NAMES, NOT_IN_A_LINE } from "../support/hostile-names.ts";
import { payloadProblems } from "./payload-schemas.ts";

/**
 * Tests that a hostile name, such as an owner tag, adds no line and no markup to a message. They send each of these names in
 * each kind of item to each receiver. Webhooks get the names unchanged, because they are data.
 */

const PLAIN = "name";

const AT = "2026-11-21T10:00:00.000Z";
const expiresOn = Date.parse(AT) / 1000 + 5 * 86_400;
const since = AT;
const linksWith = (name: string): Links => ({
  portal: "https://portal.azure.com",
  tenantId: "t-1",
  publicBaseUrl: "https://lifecycle.example/",
  keyVaultSuffix: "vault.azure.net",
  subscriptionName: () => name,
});
const deliveryWith = (name: string): Omit<DeliveryRecord, "news"> => ({
  deliveryId: "01KAJ0000000000000000000AA",
  ruleId: "01KAJ0000000000000000000BB",
  ruleName: name,
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
});

/** Returns the items of each kind with a name in every member that can contain one. */
function itemsWith(name: string): Record<Item["kind"], Item[]> {
  const vaultId = `/subscriptions/s-1/resourceGroups/${name}/providers/Microsoft.KeyVault/vaults/${name}`;
  const asset: AssetItem = {
    kind: "asset",
    id: `kv.secret.${name}`,
    type: "secret",
    name,
    vaultName: name,
    vaultId,
    subscriptionId: name,
    owner: name,
    expiresOn,
    threshold: 7,
  };
  const ofApplication: AssetItem = {
    ...asset,
    id: "b2c.t-1.a-1.k-1",
    credential: {
      tenantId: name,
      tenantDomain: name,
      appId: name,
      applicationName: name,
      keyId: name,
      displayName: name,
    },
  };
  const violation: Item = {
    kind: "violation",
    id: name,
    checkId: "secret-expiry",
    title: name,
    severity: "high",
    resourceId: name,
    resourceType: "secret",
    vaultName: name,
    vaultId,
    subscriptionId: name,
    owner: name,
    firstSeenAt: AT,
  };
  const scanFailure: ScanFailureItem = {
    kind: "scanFailure",
    id: name,
    scanId: name,
    subscriptionId: name,
    vaultName: name,
    list: name,
    code: "accessDenied",
    message: name,
    remedy: name,
    at: AT,
  };
  const ofSubscription = { ...scanFailure, vaultName: undefined };
  const automation: Item = {
    kind: "automation",
    id: name,
    title: name,
    what: name,
    urgency: "critical",
    why: name,
    done: name,
    safe: name,
    next: name,
    at: AT,
  };
  const tracked = { id: name, since };
  return {
    asset: [asset, ofApplication],
    violation: [violation],
    scan: [
      {
        kind: "scan",
        id: name,
        mode: name,
        status: name,
        finishedAt: AT,
        vaultsTotal: 2,
        vaultsFailed: 1,
        message: name,
      },
    ],
    scanFailure: [scanFailure, ofSubscription],
    credential: [{ kind: "credential", id: name, what: name, name, owner: name, expiresOn, threshold: 7 }],
    breakGlass: [{ kind: "breakGlass", id: name, username: name, address: name, at: AT }],
    automation: [
      { ...automation, appId: name },
      { ...automation, rotationId: name },
      { ...automation, recordId: name },
      { ...automation, vaultName: name },
    ],
    renewed: [{ kind: "renewed", ...tracked, of: asset, expiresOn: expiresOn * 2, version: name }],
    recovered: [
      { kind: "recovered", ...tracked, of: violation, reason: "mended" },
      { kind: "recovered", ...tracked, of: scanFailure, reason: "removed" },
    ],
    stillFailing: [{ kind: "stillFailing", ...tracked, of: scanFailure, times: 2 }],
    escalated: [
      { kind: "escalated", ...tracked, of: asset, afterDays: 2 },
      { kind: "escalated", ...tracked, of: ofApplication, afterDays: 2 },
    ],
  };
}

/** Returns all texts of a payload. */
function textsIn(payload: unknown): string[] {
  if (typeof payload === "string") return [payload];
  return typeof payload === "object" && payload !== null ? Object.values(payload).flatMap(textsIn) : [];
}

/** Returns the tags of an HTML text, without the values of their attributes. */
const tagsOf = (html: string): string[] =>
  [...html.matchAll(/<[^>]*>/g)].map(([tag]) => tag.replace(/="[^"]*"/g, '=""'));

/** Returns what Slack reads as markup in a text: links and mentions, references, and formatting around words. */
const slackMarkup = (text: string): string[] =>
  [...text.matchAll(/<([^|>]*)(?:\|[^>]*)?>|&(?!(?:amp|lt|gt);)|[*~`]|(?<![\p{L}\p{N}_])_|_(?![\p{L}\p{N}_])/gu)].map(
    ([markup, target]) => (target?.startsWith("https://") ? new URL(target).host : markup),
  );

/**
 * Returns what Teams reads as markup in a text block: unescaped formatting, links and tags, and the start of a list. The target of
 * a link is no markup, if it can't end the link.
 */
const teamsMarkup = (text: string): string[] =>
  [...text.replace(/(?<=[^\\]\]\(https:\/\/)[^()\s]*(?=\)$)/, "").matchAll(/\\.|[*_[\]()`#~<>]|^\s*(?:[-+]|\d+\.)/gs)]
    .map(([markup]) => markup)
    .filter((markup) => !markup.startsWith("\\"));

/** Returns the body of the ServiceNow request that creates the incident of an item. */
async function serviceNowBody(item: Item, name: string): Promise<Record<string, string>> {
  const bodies: string[] = [];
  const answer = { status: 200, headers: {}, body: Buffer.from('{"result":[]}') };
  const outgoing = {
    send: async (_url: string, { body }: { body?: string }) => {
      if (body !== undefined) bodies.push(body);
      return { ...answer, status: body === undefined ? 200 : 201 };
    },
  };
  const serviceNow = await openServiceNow(outgoing as never, "https://snow.example", { username: "u", password: "p" });
  await serviceNow.apply({ ...incidentOf(deliveryWith(name), item, linksWith(name)), action: "open" });
  return JSON.parse(bodies[0]!);
}

const messageWith = (item: Item, name: string) =>
  messageOf(
    [{ delivery: deliveryWith(name), items: [item], reason: `1 because of ${name}`, owner: name }],
    linksWith(name),
  );

test("the names cover every kind of item", () => {
  expect(HOSTILE_NAMES).toHaveLength(34);
  expect(Object.keys(itemsWith(PLAIN)).sort()).toEqual([...ITEM_KINDS].sort());
});

/** Checks each hostile item beside the same item with a plain name. */
function forEachItem(name: string, check: (hostile: Item, plain: Item) => void): void {
  const [hostile, plain] = [itemsWith(name), itemsWith(PLAIN)];
  for (const kind of ITEM_KINDS) for (const [index, item] of hostile[kind].entries()) check(item, plain[kind][index]!);
}

describe.each(HOSTILE_NAMES)("a name with %s adds neither lines nor markup", (_what, name) => {
  test("to a mail in HTML and text", () => {
    forEachItem(name, (hostile, plain) => {
      const [mail, plainMail] = [mailOf(messageWith(hostile, name)), mailOf(messageWith(plain, PLAIN))];
      expect(mail.subject).not.toMatch(NOT_IN_A_LINE);
      // A line that does not fit into the mail is left out, such as one with a link of 100,000 characters.
      if (name.length > 3000) {
        expect(new Set(tagsOf(plainMail.html))).toEqual(new Set([...tagsOf(plainMail.html), ...tagsOf(mail.html)]));
        return;
      }
      expect(tagsOf(mail.html)).toEqual(tagsOf(plainMail.html));
      for (const [text, plainText] of [
        [mail.html, plainMail.html],
        [mail.text, plainMail.text],
      ] as const) {
        expect(text.split("\n")).toHaveLength(plainText.split("\n").length);
        expect(text.replaceAll("\n", "")).not.toMatch(NOT_IN_A_LINE);
      }
    });
  });

  test("to Slack", () => {
    forEachItem(name, (hostile, plain) => {
      const [card, plainCard] = [slackOf(messageWith(hostile, name)), slackOf(messageWith(plain, PLAIN))] as {
        text: string;
        blocks: { type: string; text?: { text: string }; elements?: { text: string }[] }[];
      }[];
      expect(payloadProblems("slack", card)).toEqual([]);
      const textsOf = ({ text, blocks }: NonNullable<typeof card>) => [
        text,
        ...blocks
          .filter(({ type }) => type !== "header")
          .flatMap((block) => block.text?.text ?? block.elements!.map((element) => element.text)),
      ];
      const plainTexts = textsOf(plainCard!);
      for (const [index, text] of textsOf(card!).entries()) {
        // A link that does not fit is left out, such as one with a name of 100,000 characters.
        const expected = slackMarkup(plainTexts[index]!);
        if (name.length > 3000) expect(expected).toEqual(expect.arrayContaining(slackMarkup(text)));
        else expect(slackMarkup(text)).toEqual(expected);
        if (name.length <= 3000) expect(text.split("\n")).toHaveLength(plainTexts[index]!.split("\n").length);
      }
      for (const text of textsIn(card)) expect(text.replaceAll("\n", "")).not.toMatch(NOT_IN_A_LINE);
    });
  });

  test("to Teams", () => {
    forEachItem(name, (hostile, plain) => {
      const [card, plainCard] = [teamsOf(messageWith(hostile, name)), teamsOf(messageWith(plain, PLAIN))];
      expect(payloadProblems("teams", card)).toEqual([]);
      const blocksOf = (payload: unknown): string[] => {
        if (typeof payload !== "object" || payload === null) return [];
        const own =
          "type" in payload && payload.type === "TextBlock" && "text" in payload ? [String(payload.text)] : [];
        return [...own, ...Object.values(payload).flatMap(blocksOf)];
      };
      const [markup, plainMarkup] = [card, plainCard].map((one) => blocksOf(one).map(teamsMarkup));
      // A message about an item with such a long address ends with the notification's link, which is then not repeated.
      if (name.length > 3000) expect(plainMarkup).toEqual(expect.arrayContaining(markup!));
      else expect(markup).toEqual(plainMarkup);
      for (const text of textsIn(card)) expect(text).not.toMatch(NOT_IN_A_LINE);
    });
  });

  test("to PagerDuty", () => {
    forEachItem(name, (hostile) => {
      const incident = { ...incidentOf(deliveryWith(name), hostile, linksWith(name)), action: "open" } as const;
      const event = pagerDutyEvent(incident, "0".repeat(32), { ruleName: "Team", alertType: "expired", createdAt: AT });
      expect(payloadProblems("pagerDuty", event)).toEqual([]);
      for (const text of textsIn(event)) expect(text).not.toMatch(NOT_IN_A_LINE);
      const { payload } = pagerDutyEvent(incident, "", deliveryWith(name)) as { payload: { group: string } };
      expect(payload.group).not.toMatch(NOT_IN_A_LINE);
    });
  });

  test("to ServiceNow", async () => {
    const [hostile, plain] = [itemsWith(name), itemsWith(PLAIN)];
    for (const kind of ITEM_KINDS) {
      for (const [index, item] of hostile[kind].entries()) {
        const body = await serviceNowBody(item, name);
        const plainBody = await serviceNowBody(plain[kind][index]!, PLAIN);
        expect(payloadProblems("serviceNowIncident", body)).toEqual([]);
        expect(body.short_description).not.toMatch(NOT_IN_A_LINE);
        const labels = (text: string) => text.split("\n").map((line) => line.split(":")[0]);
        if (name.length < 1000) expect(labels(body.description!)).toEqual(labels(plainBody.description!));
        expect(body.description!.replaceAll("\n", "")).not.toMatch(NOT_IN_A_LINE);
      }
    }
  });

  test("but a webhook receives it unchanged", () => {
    forEachItem(name, (hostile) => {
      const event = cloudEventOf(deliveryWith(name), [hostile], linksWith(name)) as {
        data: { rule: { name: string }; items: object[] };
      };
      expect(event.data.rule.name).toBe(name);
      const sent = textsIn(JSON.parse(JSON.stringify(event.data.items)));
      expect(sent).toContain(name);
      expect(payloadProblems("cloudEvent", event)).toEqual([]);
    });
  });
});

test("names stay readable in Slack and Teams", () => {
  const name = "DB_PASSWORD-1 (R&D) <ops>";
  const item = itemsWith(name).asset[0]!;
  expect(JSON.stringify(slackOf(messageWith(item, name)))).toContain("DB_PASSWORD-1 (R&amp;D) &lt;ops&gt;");
  expect(JSON.stringify(teamsOf(messageWith(item, name)))).toContain("DB\\\\_PASSWORD-1 \\\\(R&D\\\\) \\\\<ops\\\\>");
});
