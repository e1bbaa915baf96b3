import type { Cloud } from "simulated-cloud/cloud.ts";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { DELIVERY_ROW, Deliveries } from "../../shared/alerts/delivery.ts";
import {
  nextFreeTime,
  nextSlots,
  SENT_MAIL_TIMES_ROW,
  SentMailTimes,
  withSent,
} from "../../shared/alerts/mail-rate-limit.ts";
import { MAILBOX_PREFIX, MAILBOXES, type Mailbox, Mailboxes } from "../../shared/alerts/mailbox.ts";
import type { Tables } from "../../shared/platform/storage/tables.ts";
import { HOUR_MS, MINUTE_MS, SECOND_MS } from "../../shared/platform/time.ts";
import { startTestCloud } from "../azure/live-cloud.ts";
import { IS_CAMPAIGN } from "../support/sampling.ts";
import type { Steps } from "../support/simulated-crash.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import {
  assetNamesIn,
  caller,
  DAY_MS,
  type Fixture,
  type FixtureOptions,
  openFixture,
  START,
  type TestAsset,
} from "./alerts-setup.ts";

/**
 * Tests of mails to owners (a tag of an asset names its owner), of the rate limit of mails, and of crashes while mails are sent.
 * A mailbox is the row that combines the mails to one group of recipients.
 */

let azurite: TestStorage;
let cloud: Cloud;
/** Storage accounts: each test takes the next unused one. */
const ACCOUNTS = Array.from({ length: 34 }, (_, index) => `mailbox${String(index).padStart(2, "0")}`);
let usedAccounts = 0;
let fixture: Fixture;

/** Creates a fixture on the next unused storage account. */
const open = (options: Partial<FixtureOptions> = {}) =>
  openFixture({ connectionString: azurite.connectionString(ACCOUNTS[usedAccounts++]!), cloud, ...options });

beforeAll(async () => {
  azurite = await openStorage(ACCOUNTS);
  ({ cloud } = await startTestCloud({ company: { subscriptions: [] } }));
});
afterAll(async () => {
  await cloud.stop();
  await azurite.stop();
});
beforeEach(() => {
  cloud.control.clearFaults();
  cloud.control.clearMails();
});

const FIRST_PAGE = { limit: 100, offset: 0, cursor: undefined };
const history = async (ruleId: string) => (await fixture.instance().history.list({ ruleId }, FIRST_PAGE)).items;
/** Returns an asset whose tag names an owner. */
const ownedAsset = (name: string, owner: string | undefined, expiresInDays = 5.5): TestAsset => ({
  name,
  expiresInDays,
  ...(owner === undefined ? {} : { tags: { owner } }),
});

/** Evaluates the rules and sends all messages. The clock moves to the time of each delayed message. */
async function deliver() {
  const alerts = fixture.instance();
  await alerts.evaluate();
  await fixture.handleAllMessages(alerts);
}

/** Returns the names of the assets in all mails by recipient, in the order of the mails. */
function received(): Record<string, string[]> {
  const byRecipient: Record<string, string[]> = {};
  for (const { to, bcc, plainText } of cloud.control.mails())
    for (const address of [...to, ...bcc])
      byRecipient[address] = [
        ...(byRecipient[address] ?? []),
        ...assetNamesIn(plainText!).map((name) => name.split("/")[1]!),
      ];
  return byRecipient;
}

/** With these domains, an owner tag that is an address in one of them is a recipient. */
const DOMAINS = { ALERT_OWNER_DOMAINS: ["acme.example", "suppressed.example"] };

describe("an owner", () => {
  test("receives the alerts about their assets, and the rule's recipients receive those without an owner", async () => {
    fixture = open({ environment: DOMAINS });
    await fixture
      .instance()
      .owners.replace([{ owner: "Payments Team", address: "pay@elsewhere.example" }], caller, undefined);
    await fixture.writeAssets("kv-a", [
      ownedAsset("a1", "ann@acme.example"),
      ownedAsset("a2", "Ann@ACME.example", 20),
      ownedAsset("p1", "payments team"),
      ownedAsset("n1", undefined),
      ownedAsset("x1", "bob@other.example"),
    ]);
    const { rule, mails } = await fixture.mailRule();
    const [address] = rule.recipients;
    await deliver();
    expect(received()).toEqual({
      "ann@acme.example": ["a1", "a2"],
      "pay@elsewhere.example": ["p1"],
      [address!]: ["n1", "x1"],
    });
    expect(cloud.control.mails().find(({ to }) => to[0] === "pay@elsewhere.example")!.plainText).toContain(
      "because a tag names you as the owner: “payments team”",
    );
    const [entry] = await history(rule.ruleId);
    expect(entry!.status).toBe("delivered");
    expect(entry!.parts.map(({ owner, items }) => [owner, items?.length])).toEqual([
      ["ann@acme.example", 2],
      ["payments team", 1],
      [undefined, 2],
    ]);
    expect(mails()[0]!.plainText).toContain(
      "Not sent to an owner: 1 because the owner tag is missing, 1 because the owner is neither an address in ALERT_OWNER_DOMAINS nor in the owner table.",
    );
  });

  test("receives no mails if neither domains nor the owner table are configured", async () => {
    fixture = open();
    await fixture.writeAssets("kv-a", [ownedAsset("a1", "ann@acme.example"), ownedAsset("n1", undefined)]);
    const { rule } = await fixture.mailRule();
    await deliver();
    expect(received()).toEqual({ [rule.recipients[0]!]: ["a1", "n1"] });
    expect((await history(rule.ruleId))[0]!.parts).toMatchObject([{ status: "delivered" }]);
    expect((await history(rule.ruleId))[0]!.parts[0]).not.toHaveProperty("reason");
  });

  /** Tags that try to add recipients or to imitate an allowed address or an owner of the table. */
  const hostileTags: [string, string][] = [
    ["a header", "ann@acme.example\r\nBcc: eve@evil.example"],
    ["a line", "ann@acme.example\n"],
    ["several addresses", "ann@acme.example,eve@acme.example"],
    ["several by semicolon", "ann@acme.example;eve@evil.example"],
    ["a display name", "Ann <ann@acme.example>"],
    ["a Cyrillic letter in the domain", "ann@\u0430cme.example"],
    ["a Kelvin sign", "an\u212A@acme.example"],
    ["a full-width letter", "ann@acme.example\uFF4D"],
    ["a combining mark", "a\u0301nn@acme.example"],
    ["a direction mark", "ann\u202E@acme.example"],
    ["another host behind the domain", "ann@acme.example.evil.example"],
    ["a host before the domain", "ann@evil.acme.example"],
    ["two at signs", "ann@evil.example@acme.example"],
    ["a percent route", "ann%evil.example@acme.example@acme.example"],
    ["quotes", '"ann eve"@acme.example'],
    ["a comment", "ann(eve@evil.example)@acme.example"],
    ["an address literal", "ann@[127.0.0.1]"],
    ["blanks around", " ann@acme.example "],
    ["NUL", "ann\u0000@acme.example"],
    ["10,000 characters", `${"a".repeat(10_000)}@acme.example`],
    ["half a surrogate pair", "ann\uD800@acme.example"],
    ["a look-alike of the table", "p\u0430yments"],
    ["a Kelvin sign for a letter of the table", "ba\u212Aery"],
    ["a member of every object", "constructor"],
  ];
  test("is not derived from a manipulated tag", async () => {
    fixture = open({ environment: DOMAINS });
    const table = ["payments", "bakery"].map((owner) => ({ owner, address: `${owner}@acme.example` }));
    await fixture.instance().owners.replace(table, caller, undefined);
    const resolve = (await fixture.instance().owners.resolver())!;
    expect(resolve("ann@acme.example")).toEqual({ address: "ann@acme.example" });
    for (const [what, tag] of hostileTags)
      expect({ what, ...resolve(tag) }).toEqual({ what, reason: expect.any(String) });
    // The same through storage and mails, without the tag of half a surrogate pair, which storage would replace.
    const storableTags = hostileTags.filter(([, tag]) => tag.isWellFormed());
    await fixture.writeAssets(
      "kv-a",
      storableTags.map(([, tag], index) => ownedAsset(`h${index}`, tag)),
    );
    const { rule } = await fixture.mailRule();
    await deliver();
    expect(Object.keys(received())).toEqual(rule.recipients);
    expect(received()[rule.recipients[0]!]).toHaveLength(storableTags.length);
    for (const { subject, plainText } of cloud.control.mails()) {
      expect(subject).not.toMatch(/[\r\n]/);
      expect(plainText).not.toMatch(/^Bcc/m);
    }
  });

  test("whose mail bounces is replaced by the rule's recipients, who receive one mail with the reason", async () => {
    fixture = open({ environment: DOMAINS });
    await fixture.writeAssets("kv-a", [
      ownedAsset("g1", "gone@suppressed.example"),
      ownedAsset("a1", "ann@acme.example"),
    ]);
    const { rule, mails } = await fixture.mailRule();
    await deliver();
    expect(received()).toMatchObject({ "ann@acme.example": ["a1"], [rule.recipients[0]!]: ["g1"] });
    expect(mails()).toHaveLength(1);
    expect(mails()[0]!.plainText).toMatch(/gone@suppressed\.example.+EmailDroppedAllRecipientsSuppressed/);
    const [entry] = await history(rule.ruleId);
    expect(entry!.status).toBe("delivered");
    const outcomes = entry!.parts.map(({ status, replaced = false }) => `${status} ${replaced}`);
    expect(outcomes.sort()).toEqual(["delivered false", "delivered false", "failed true"]);
  });

  test("receives at most as many mails per day as OWNER_MAIL_PER_DAY", async () => {
    fixture = open({ environment: { ...DOMAINS, OWNER_MAIL_PER_DAY: 2 } });
    const { rule, mails } = await fixture.mailRule();
    // Each hour, one more asset of the owner appears.
    for (let hour = 0; hour < 4; hour++) {
      await fixture.writeAssets(
        "kv-a",
        Array.from({ length: hour + 1 }, (_, index) => ownedAsset(`s${index}`, "ann@acme.example")),
      );
      await deliver();
      fixture.clock.add(HOUR_MS);
    }
    expect(received()["ann@acme.example"]).toEqual(["s0", "s1"]);
    expect(received()[rule.recipients[0]!]).toEqual(["s2", "s3"]);
    expect(mails()[0]!.plainText).toContain("OWNER_MAIL_PER_DAY");
    fixture.clock.add(DAY_MS);
    await fixture.writeAssets("kv-b", [ownedAsset("tomorrow", "ann@acme.example")]);
    await deliver();
    expect(received()["ann@acme.example"]).toEqual(["s0", "s1", "tomorrow"]);
  });

  test("can't be in the owner table twice, ignoring case", async () => {
    fixture = open();
    const { owners } = fixture.instance();
    const { etag } = await owners.table();
    const first = await owners.replace([{ owner: "A", address: "a@acme.example" }], caller, etag);
    await expect(owners.replace([], caller, etag)).rejects.toMatchObject({ code: "preconditionFailed" });
    const twice = [
      { owner: "B", address: "b@acme.example" },
      { owner: "b", address: "c@acme.example" },
    ];
    await expect(owners.replace(twice, caller, undefined)).rejects.toMatchObject({
      errors: [{ path: "body.owners.1.owner" }],
    });
    expect(await owners.table()).toEqual(first);
    await owners.replace([{ owner: "A", address: "x@acme.example" }], caller, first.etag);
    expect(
      fixture.events.filter(({ outcome }) => outcome === "intent").map(({ type, details }) => [type, details]),
    ).toEqual([
      ["alertOwners.changed", expect.objectContaining({ added: 1, changed: 0, removed: 0 })],
      ["alertOwners.changed", expect.objectContaining({ added: 0, changed: 1, removed: 0 })],
    ]);
  });
});

describe("the mail rate limit", () => {
  test("is not exceeded in any window of a minute or an hour", () => {
    const limits = { perMinute: 5, perHour: 10 };
    const slots = nextSlots([], 0, limits, 40);
    for (const [length, most] of [
      [MINUTE_MS, 5],
      [HOUR_MS, 10],
    ] as const)
      for (const from of slots)
        expect(slots.filter((at) => at >= from && at < from + length).length).toBeLessThanOrEqual(most);
    // 40 mails at 10 an hour: the last 10 start after 3 hours, and the last 5 of them a minute later.
    expect(slots.at(-1)).toBe(3 * HOUR_MS + MINUTE_MS);
    expect(nextFreeTime(withSent([], 1000), 1000, { perMinute: 1, perHour: 0 })).toBe(1000 + MINUTE_MS);
    expect(nextSlots([1, 2, 3], 5, { perMinute: 0, perHour: 0 }, 3)).toEqual([5, 5, 5]);
  });

  test("sends urgent mails first and combines waiting mails to the same recipients", async () => {
    fixture = open({ environment: { MAIL_PER_MINUTE: 0, MAIL_PER_HOUR: 1 } });
    const first = await fixture.mailRule({ filters: { vault: "kv-first" } });
    const recipients = ["late@acme.example", "later@acme.example"];
    await fixture.mailRule({ name: "soon", recipients, filters: { vault: "kv-soon" } });
    await fixture.mailRule({ name: "soon too", recipients, filters: { vault: "kv-soon-too" } });
    const urgent = await fixture.mailRule({ filters: { vault: "kv-urgent" } });
    await fixture.writeAssets("kv-first", [{ name: "f", expiresInDays: 3 }]);
    const alerts = fixture.instance();
    await alerts.evaluate();
    await fixture.handleVisibleMessages(alerts);
    expect(first.mails()).toHaveLength(1);
    await fixture.writeAssets("kv-soon", [{ name: "s", expiresInDays: 20 }]);
    await fixture.writeAssets("kv-soon-too", [{ name: "t", expiresInDays: 25 }]);
    await fixture.writeAssets("kv-urgent", [{ name: "u", expiresInDays: 2 }]);
    await alerts.evaluate();
    await fixture.handleVisibleMessages(alerts);
    const waiting = (await alerts.history.list({ status: "pending" }, FIRST_PAGE)).items;
    const hoursAfterStart = (hours: number) => new Date(Date.parse(START) + hours * HOUR_MS).toISOString();
    expect(waiting.map(({ ruleName, nextAt }) => [ruleName === urgent.rule.name, nextAt])).toEqual(
      expect.arrayContaining([[true, hoursAfterStart(1)]]),
    );
    for (const { ruleName, parts } of waiting) {
      if (ruleName === urgent.rule.name) continue;
      expect(parts[0]!.waits).toContain("Rate limit: 1 mails per hour");
      expect([hoursAfterStart(1), hoursAfterStart(2)]).toContain(parts[0]!.notBefore);
    }
    await fixture.handleAllMessages(alerts);
    const [, second, third] = cloud.control.mails();
    expect(cloud.control.mails()).toHaveLength(3);
    expect(assetNamesIn(second!.plainText!)).toEqual(["kv-urgent/u"]);
    // Both rules have the same recipients, so one mail contains both.
    expect(third!.bcc).toEqual(recipients);
    expect(assetNamesIn(third!.plainText!).sort()).toEqual(["kv-soon-too/t", "kv-soon/s"]);
    expect(third!.plainText).toContain("“soon”");
    expect(third!.plainText).toContain("“soon too”");
    expect((await alerts.history.list({}, FIRST_PAGE)).items.map(({ status }) => status)).toEqual(
      Array(4).fill("delivered"),
    );
    expect(fixture.clock.now().toISOString() >= hoursAfterStart(2)).toBe(true);
  });

  test("serves a rule's recipients before owners", async () => {
    // Tags can name any number of owners, so mails to owners must not delay the rule's own recipients.
    fixture = open({ environment: { ...DOMAINS, MAIL_PER_MINUTE: 0, MAIL_PER_HOUR: 1 } });
    await fixture.writeAssets("kv-a", [
      ...Array.from({ length: 3 }, (_, index) => ownedAsset(`a${index}`, `owner-${index}@acme.example`)),
      ownedAsset("n1", undefined),
    ]);
    const { rule } = await fixture.mailRule();
    await deliver();
    const mails = cloud.control.mails();
    expect(mails).toHaveLength(4);
    expect(mails[0]!.to).toEqual(rule.recipients);
  });

  test("applies to all instances together", async () => {
    fixture = open({ environment: { MAIL_PER_MINUTE: 3, MAIL_PER_HOUR: 0 } });
    for (let index = 0; index < 8; index++) await fixture.mailRule({ filters: { vault: "kv-a" } });
    await fixture.writeAssets("kv-a", [{ name: "one", expiresInDays: 3 }]);
    const instances = [fixture.instance(), fixture.instance(), fixture.instance()];
    await instances[0]!.evaluate();
    await Promise.all(
      fixture.messages.map(({ message }, index) =>
        instances[index % 3]!.deliver((message as { deliveryId: string }).deliveryId),
      ),
    );
    expect(cloud.control.mails()).toHaveLength(3);
    await fixture.handleAllMessages(instances[0]!);
    expect(cloud.control.mails()).toHaveLength(8);
    expect(new Set(cloud.control.mails().map(({ to }) => to[0])).size).toBe(8);
  });

  test("does not send waiting mails of a rule that was disabled or deleted", async () => {
    fixture = open({ environment: { MAIL_PER_MINUTE: 0, MAIL_PER_HOUR: 1 } });
    const recipients = ["both@acme.example"];
    const rules = [
      await fixture.mailRule({ recipients }),
      await fixture.mailRule({ recipients }),
      await fixture.mailRule(),
    ];
    await fixture.writeAssets("kv-a", [{ name: "one", expiresInDays: 3 }]);
    const alerts = fixture.instance();
    await alerts.evaluate();
    cloud.control.addFault({ match: { operation: "mail.send" }, action: { kind: "fail", status: 500 }, times: 1 });
    await fixture.handleVisibleMessages(alerts);
    await alerts.rules.change(rules[0]!.rule.ruleId, { enabled: false }, caller, undefined);
    await alerts.rules.remove(rules[2]!.rule.ruleId, caller, undefined);
    await fixture.handleAllMessages(alerts);
    const statuses = async (index: number) => (await history(rules[index]!.rule.ruleId)).map(({ status }) => status);
    expect(await Promise.all([statuses(0), statuses(1), statuses(2)])).toEqual([
      ["cancelled"],
      ["delivered"],
      ["cancelled"],
    ]);
    const { plainText } = cloud.control.mails()[0]!;
    expect(cloud.control.mails()).toHaveLength(1);
    expect(plainText).toContain(rules[1]!.rule.name);
    expect(plainText).not.toContain(rules[0]!.rule.name);
  });

  test("continues a mail of an earlier version under its operation id", async () => {
    fixture = open();
    await fixture.writeAssets("kv-a", [{ name: "one", expiresInDays: 3 }]);
    const recipients = Array.from({ length: 60 }, (_, index) => `old${index}@acme.example`);
    // A mail has at most 50 recipients, so the delivery has two parts, and each part is a mail.
    const { rule } = await fixture.mailRule({ recipients });
    const alerts = fixture.instance();
    await alerts.evaluate();
    const { deliveryId } = fixture.messages[0]!.message as { deliveryId: string };
    const row = (await fixture.tables.get(Deliveries, deliveryId, DELIVERY_ROW))!;
    const leasedUntil = new Date(fixture.clock.now().getTime() - 1000).toISOString();
    // An earlier version, without mailboxes, started the mail of the first part. `operationId` is the mail's ID at the provider.
    const operationId = "0b5d2e3c-5f0a-8b4c-8d1e-2f3a4b5c6d7e";
    const started = { ...row.parts[0]!, operationId, status: "sending" as const, attempts: 1, leasedUntil };
    await fixture.tables.replace(Deliveries, { ...row, parts: [started, row.parts[1]!] });
    await fixture.handleAllMessages(alerts);
    expect(
      cloud.control
        .mails()
        .map(({ bcc }) => bcc.length)
        .sort(),
    ).toEqual([10, 50]);
    expect(cloud.control.mails().find(({ bcc }) => bcc.length === 50)!.operationId).toBe(operationId);
    expect((await history(rule.ruleId))[0]!.status).toBe("delivered");
  });

  test("sends an alert that was held while its mail was being sent, although no mailbox has it anymore", async () => {
    fixture = open();
    await fixture.writeAssets("kv-a", [{ name: "one", expiresInDays: 3 }]);
    const { rule } = await fixture.mailRule();
    const alerts = fixture.instance();
    await alerts.evaluate();
    const { deliveryId } = fixture.messages[0]!.message as { deliveryId: string };
    const row = (await fixture.tables.get(Deliveries, deliveryId, DELIVERY_ROW))!;
    const heldAt = fixture.clock.now().toISOString();
    const sending = { ...row.parts[0]!, status: "sending" as const, attempts: 1 };
    await fixture.tables.replace(Deliveries, { ...row, heldAt, fallback: rule.recipients, parts: [sending] });
    await fixture.handleVisibleMessages(alerts);
    expect(cloud.control.mails()).toHaveLength(1);
    await fixture.handleAllMessages(alerts);
    expect((await history(rule.ruleId))[0]!.status).toBe("delivered");
  });

  test("retries immediately when a critical item is added, unless the provider throttles", async () => {
    fixture = open();
    const recipients = ["both@acme.example"];
    const [first, second] = [
      await fixture.mailRule({ recipients, filters: { vault: "kv-soon" } }),
      await fixture.mailRule({ recipients, filters: { vault: "kv-now" } }),
    ];
    await fixture.writeAssets("kv-soon", [{ name: "s", expiresInDays: 20 }]);
    const alerts = fixture.instance();
    const down = cloud.control.addFault({ match: { operation: "mail.send" }, action: { kind: "fail", status: 500 } });
    await alerts.evaluate();
    const partOf = async ({ rule }: typeof first) => (await history(rule.ruleId))[0]!.parts[0]!;
    for (;;) {
      await fixture.handleVisibleMessages(alerts);
      if ((await partOf(first)).attempts === 3) break;
      fixture.clock.set(new Date(Math.min(...fixture.messages.map(({ visibleAt }) => visibleAt))));
    }
    // The pause after the third attempt is 30 minutes.
    expect(Date.parse((await partOf(first)).notBefore!) - fixture.clock.now().getTime()).toBeGreaterThan(
      20 * MINUTE_MS,
    );
    const critical = async (...names: string[]) => {
      await fixture.writeAssets(
        "kv-now",
        names.map((name) => ({ name, expiresInDays: 2 })),
      );
      await alerts.evaluate();
      await fixture.handleVisibleMessages(alerts);
    };
    // The mail is retried immediately with the delays of a new mail, but earlier attempts are counted.
    await critical("a");
    expect([await partOf(first), await partOf(second)].map(({ attempts }) => attempts)).toEqual([4, 4]);
    const wait = Date.parse((await partOf(second)).notBefore!) - fixture.clock.now().getTime();
    expect(wait).toBeLessThan(10_000);

    cloud.control.removeFault(down);
    const busy = { kind: "throttle", retryAfterSeconds: 900 } as const;
    cloud.control.addFault({ match: { operation: "mail.send" }, action: busy, times: 1 });
    fixture.clock.add(10 * SECOND_MS);
    await fixture.handleVisibleMessages(alerts);
    await critical("a", "b");
    expect(cloud.control.mails()).toEqual([]);
    await fixture.handleAllMessages(alerts);
    expect(cloud.control.mails().map(({ plainText }) => assetNamesIn(plainText!).sort())).toEqual([
      ["kv-now/a", "kv-now/b", "kv-soon/s"],
    ]);
  });

  test("stops retrying an undeliverable mail even if critical items are added repeatedly", async () => {
    fixture = open();
    const { rule } = await fixture.mailRule();
    const alerts = fixture.instance();
    cloud.control.addFault({ match: { operation: "mail.send" }, action: { kind: "fail", status: 500 } });
    const names: string[] = [];
    const oldestDelivery = async () => (await history(rule.ruleId)).at(-1);
    for (let hours = 0; (await oldestDelivery())?.status !== "failed"; hours += 10) {
      expect(hours).toBeLessThan(100);
      names.push(`s${hours}`);
      await fixture.writeAssets(
        "kv-a",
        names.map((name) => ({ name, expiresInDays: 3 })),
      );
      await alerts.evaluate();
      await fixture.handleVisibleMessages(alerts);
      fixture.clock.add(10 * HOUR_MS);
      await fixture.handleVisibleMessages(alerts);
    }
  });

  /** Returns the mailboxes, without the row of the rate limit. */
  const storedMailboxes = async (): Promise<Mailbox[]> => {
    const mailboxes: Mailbox[] = [];
    for await (const rows of fixture.tables.pages(Mailboxes, { partitionKey: MAILBOXES, from: MAILBOX_PREFIX }))
      mailboxes.push(...rows);
    return mailboxes;
  };
  /** Runs the clean-up as if each mailbox had been written this long ago, by the storage service's clock. */
  const cleanUpAfter = async (ageMs: number) => {
    const tables: Tables = {
      ...fixture.tables,
      async getWithAge(entity, partitionKey, rowKey) {
        const stored = await fixture.tables.getWithAge(entity, partitionKey, rowKey);
        return stored && { ...stored, ageMs };
      },
    };
    await fixture.instance({ taken: 0 }, { tables, clock: fixture.clock }).cleanUp(caller);
  };

  test("keeps a mailbox that was used within two days in a clean-up, and removes it later", async () => {
    fixture = open();
    await fixture.writeAssets("kv-a", [{ name: "one", expiresInDays: 3 }]);
    await fixture.mailRule();
    await deliver();
    const before = await storedMailboxes();
    expect(before).toHaveLength(1);
    await fixture.instance().cleanUp(caller);
    await cleanUpAfter(2 * DAY_MS);
    expect(await storedMailboxes()).toEqual(before);
    await cleanUpAfter(2 * DAY_MS + 1);
    expect(await storedMailboxes()).toEqual([]);
  });

  test("never removes a mailbox with a waiting entry in a clean-up", async () => {
    fixture = open();
    await fixture.writeAssets("kv-a", [{ name: "one", expiresInDays: 3 }]);
    await fixture.mailRule();
    await deliver();
    const [mailbox] = await storedMailboxes();
    const entry = { deliveryId: "01KAJ0000000000000000000AA", part: 0, urgency: 0 };
    await fixture.tables.replace(Mailboxes, { ...mailbox!, waiting: [entry] });
    await cleanUpAfter(100 * DAY_MS);
    expect(await storedMailboxes()).toMatchObject([{ waiting: [entry] }]);
  });

  test("keeps an owner's mailbox that counts mails of the last 24 hours in a clean-up", async () => {
    fixture = open({ environment: DOMAINS });
    await fixture.writeAssets("kv-a", [ownedAsset("a1", "ann@acme.example")]);
    await fixture.mailRule();
    await deliver();
    await cleanUpAfter(3 * DAY_MS);
    expect(await storedMailboxes()).toMatchObject([{ recipients: ["ann@acme.example"], sent: [expect.any(Number)] }]);
    fixture.clock.add(DAY_MS);
    await cleanUpAfter(3 * DAY_MS);
    expect(await storedMailboxes()).toEqual([]);
  });
});

describe("a crashed process", () => {
  const WHENS = ["before", "after"] as const;
  /** The process crashes at every ninth step: before and after in turn, because 9 is odd. A campaign tries both at each step. */
  const STRIDE = 9;

  /**
   * Sends the alerts of three assets: of an owner, of an owner whose address bounces, and without an owner. The process crashes
   * at the step that `steps` selects, and a new process continues. A step is a call that changes storage or the cloud.
   * `steps.taken` counts them, and `steps.dead` is true from the crash on.
   */
  async function runWithCrash(steps: Steps) {
    fixture.clock.set(START);
    for (const { ruleId } of await fixture.instance().rules.all())
      await fixture.instance().rules.remove(ruleId, caller, undefined);
    // Removes the row of the rate limit, which counts the mails of the last hour.
    const range = { partitionKey: MAILBOXES, from: SENT_MAIL_TIMES_ROW };
    for await (const rows of fixture.tables.pages(SentMailTimes, range))
      for (const { rowKey } of rows) await fixture.tables.remove(SentMailTimes, MAILBOXES, rowKey);
    fixture.messages.length = 0;
    cloud.control.clearMails();
    const { rule } = await fixture.mailRule();
    const sentAt: number[] = [];
    let alerts = fixture.instance(steps);
    /** Repeats the work in a new process if the process crashed. */
    const repeatAfterCrash = async (work: () => Promise<void>) => {
      for (let attempt = 0; attempt < 3; attempt++) {
        const failure = await work().then(
          () => undefined,
          (error: unknown) => error,
        );
        while (sentAt.length < cloud.control.mails().length) sentAt.push(fixture.clock.now().getTime());
        if (failure === undefined) return;
        if (!steps.dead) throw failure;
        steps.dead = false;
        steps.crashAt = -1;
        fixture.clock.add(15 * MINUTE_MS);
        alerts = fixture.instance();
      }
    };
    await repeatAfterCrash(() => alerts.evaluate());
    // A second evaluation must not create another delivery.
    await repeatAfterCrash(() => alerts.evaluate());
    while (fixture.messages.length > 0) {
      const visible = Math.min(...fixture.messages.map(({ visibleAt }) => visibleAt));
      if (visible > fixture.clock.now().getTime()) fixture.clock.set(new Date(visible));
      await repeatAfterCrash(() => fixture.handleVisibleMessages(alerts));
    }
    const byRecipient = received();
    const [entry] = await history(rule.ruleId);
    return {
      // The rule's recipient has a random address, so its assets are returned as `recipients`.
      received: {
        ...byRecipient,
        recipients: byRecipient[rule.recipients[0]!]?.sort(),
        [rule.recipients[0]!]: undefined,
      },
      oneMailPerHour: sentAt.every((at, index) => index === 0 || at - sentAt[index - 1]! >= HOUR_MS),
      status: entry!.status,
      replaced: entry!.parts.filter(({ replaced }) => replaced).length,
    };
  }

  test("causes no lost or duplicate mail, at whichever step it crashes", async () => {
    // The same days are repeated, so the daily limit for owners must not apply.
    const environment = { ...DOMAINS, MAIL_PER_MINUTE: 0, MAIL_PER_HOUR: 1, OWNER_MAIL_PER_DAY: 1000 };
    fixture = open({ environment });
    await fixture.writeAssets("kv-a", [
      ownedAsset("a1", "ann@acme.example", 2),
      ownedAsset("g1", "gone@suppressed.example", 3),
      ownedAsset("n1", undefined, 4),
    ]);
    // The address of g1's owner bounces after the mail was accepted, so the rule's recipients receive g1, too.
    const expected = {
      received: { "ann@acme.example": ["a1"], "gone@suppressed.example": ["g1"], recipients: ["g1", "n1"] },
      oneMailPerHour: true,
      status: "delivered",
      replaced: 1,
    };
    const allSteps: Steps = { taken: 0 };
    expect(await runWithCrash(allSteps)).toEqual(expected);
    expect(allSteps.taken).toBeGreaterThan(40);
    for (let crashAt = 1; crashAt <= allSteps.taken; crashAt += IS_CAMPAIGN ? 1 : STRIDE) {
      for (const when of IS_CAMPAIGN ? WHENS : [WHENS[crashAt % 2]!]) {
        const crashPoint = `crash ${when} step ${crashAt}`;
        const result = await runWithCrash({ taken: 0, crashAt, when });
        expect({ crashPoint, ...result }).toEqual({ crashPoint, ...expected });
      }
    }
    if (IS_CAMPAIGN) console.log({ steps: allSteps.taken });
  }, 600_000);
});

describe("many mails at once", () => {
  /** A sample in the suite; 5,000 assets of 40 owners in a campaign. */
  const [ASSETS, OWNERS, VAULTS] = IS_CAMPAIGN ? [5000, 40, 10] : [120, 12, 3];
  /** The number of steps after which the first, second … process crashes. */
  const CRASH_STEPS = IS_CAMPAIGN ? [40, 75, 130, 60, 95] : [6, 14, 21, 9, 17];

  test("reach each owner once, those with critical items first, despite five crashes", async () => {
    fixture = open({ environment: { ...DOMAINS, MAIL_PER_MINUTE: 5, MAIL_PER_HOUR: 10 } });
    const ownerOf = (index: number) => `owner${index % OWNERS}@acme.example`;
    // Every second owner has assets that expire within days, the others within weeks.
    const daysOf = (index: number) => (index % OWNERS < OWNERS / 2 ? 1.5 + (index % 5) : 15 + (index % 10));
    for (let vault = 0; vault < VAULTS; vault++) {
      const assetNumbers = Array.from({ length: ASSETS }, (_, index) => index).filter(
        (index) => Math.floor(index / OWNERS) % VAULTS === vault,
      );
      await fixture.writeAssets(
        `kv-${vault}`,
        assetNumbers.map((index) => ownedAsset(`asset-${index}`, ownerOf(index), daysOf(index))),
      );
    }
    const { rule } = await fixture.mailRule();
    const crashSteps = [...CRASH_STEPS];
    const newInstance = () => {
      steps = { taken: 0, when: crashSteps.length % 2 ? "after" : "before", crashAt: crashSteps.shift() ?? -1 };
      return fixture.instance(steps);
    };
    let steps: Steps = { taken: 0 };
    let alerts = newInstance();
    const sentAt: number[] = [];
    const states: { at: number; pending: number; sent: number }[] = [];
    /** Repeats the work in a new process if the process crashed. */
    const repeatAfterCrash = async (work: () => Promise<void>) => {
      for (;;) {
        const failure = await work().then(
          () => undefined,
          (error: unknown) => error,
        );
        while (sentAt.length < cloud.control.mails().length) sentAt.push(fixture.clock.now().getTime());
        if (failure === undefined) return;
        if (!steps.dead) throw failure;
        fixture.clock.add(10 * MINUTE_MS);
        alerts = newInstance();
      }
    };
    await repeatAfterCrash(() => alerts.evaluate());
    while (fixture.messages.length > 0) {
      const visible = Math.min(...fixture.messages.map(({ visibleAt }) => visibleAt));
      if (visible > fixture.clock.now().getTime()) fixture.clock.set(new Date(visible));
      await repeatAfterCrash(() => fixture.handleVisibleMessages(alerts));
      await repeatAfterCrash(() => alerts.evaluate());
      const { items } = await fixture.instance().history.list({ ruleId: rule.ruleId }, FIRST_PAGE);
      const waitingParts = items.flatMap(({ parts }) => parts).filter(({ status }) => status === "waiting");
      states.push({
        at: fixture.clock.now().getTime(),
        pending: waitingParts.length,
        sent: cloud.control.mails().length,
      });
      // The history shows unsent mails as pending, with the earliest send time.
      for (const { notBefore } of waitingParts) expect(Date.parse(notBefore ?? "")).toBeGreaterThan(Date.parse(START));
    }
    expect(crashSteps).toEqual([]);

    const mails = cloud.control.mails();
    expect(mails).toHaveLength(OWNERS);
    expect(new Set(mails.map(({ to }) => to[0])).size).toBe(OWNERS);
    /** Address and asset of every listed item. */
    const listedItems = mails.flatMap(({ to, plainText }) =>
      assetNamesIn(plainText!).map((name) => [to[0]!, name.split("/")[1]!]),
    );
    for (const [address, name] of listedItems) expect(address).toBe(ownerOf(Number(name!.slice("asset-".length))));
    expect(listedItems.map(([, name]) => name).sort()).toEqual(
      Array.from({ length: ASSETS }, (_, index) => `asset-${index}`).sort(),
    );
    // The service's limit for one mail.
    for (const { subject, html, plainText } of mails)
      expect(Buffer.byteLength(subject + html! + plainText!)).toBeLessThan(90_000);
    const critical = mails.map(({ plainText }) => /^WITHIN (?:24 HOURS|7 DAYS): /m.test(plainText!));
    expect(critical).toEqual([...Array(OWNERS / 2).fill(true), ...Array(OWNERS / 2).fill(false)]);
    for (const from of sentAt) {
      expect(sentAt.filter((at) => at >= from && at < from + HOUR_MS).length).toBeLessThanOrEqual(10);
      expect(sentAt.filter((at) => at >= from && at < from + MINUTE_MS).length).toBeLessThanOrEqual(5);
    }
    const { items } = await fixture.instance().history.list({ ruleId: rule.ruleId }, FIRST_PAGE);
    expect(items.map(({ status }) => status)).toEqual(items.map(() => "delivered"));
    expect(items.reduce((sum, { newsTotal }) => sum + newsTotal, 0)).toBe(ASSETS);
    expect(states.some(({ pending }) => pending > 0)).toBe(true);
    if (IS_CAMPAIGN) console.log({ mails: mails.length, hours: (sentAt.at(-1)! - sentAt[0]!) / HOUR_MS });
  }, 600_000);
});
