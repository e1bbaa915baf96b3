import { createHmac } from "node:crypto";
import type { Cloud } from "simulated-cloud/cloud.ts";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { DELIVERY_ROW, Deliveries, operationIdOf } from "../../shared/alerts/delivery.ts";
import { MAILBOXES, Mailboxes, mailboxKey } from "../../shared/alerts/mailbox.ts";
import { withoutSecrets } from "../../shared/alerts/post-webhook.ts";
import { BACK_OFF_SECONDS, LEASE_MS } from "../../shared/alerts/retry-schedule.ts";
import { EventHeaders, eventOf } from "../../shared/alerts/webhook-api.ts";
import { HOUR_MS, MINUTE_MS } from "../../shared/platform/time.ts";
import { startTestCloud } from "../azure/live-cloud.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import { caller, DAY_MS, type Fixture, type FixtureOptions, openFixture, START } from "./alerts-setup.ts";

/**
 * Tests how alerts are delivered by mail and webhook: retries, leases, signatures and the history. A delivery is one message of
 * a rule; it has parts, one per group of recipients or per webhook. A mailbox is the row that combines the mails to one group
 * of recipients.
 */

let azurite: TestStorage;
let cloud: Cloud;
/** Storage accounts: each test takes the next unused one. */
const ACCOUNTS = Array.from({ length: 55 }, (_, index) => `deliver${String(index).padStart(2, "0")}`);
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
beforeEach(async () => {
  cloud.control.clearFaults();
  fixture = open();
  await fixture.writeAssets("kv-a", [{ name: "one", expiresInDays: 5.5, tags: { owner: "ann" } }]);
});

const FIRST_PAGE = { limit: 100, offset: 0, cursor: undefined };
const history = async (ruleId: string) => (await fixture.instance().history.list({ ruleId }, FIRST_PAGE)).items;

/** Evaluates the rules and sends all messages. The clock moves to the time of each delayed message. */
async function deliver() {
  const alerts = fixture.instance();
  await alerts.evaluate();
  await fixture.handleAllMessages(alerts);
}

describe("a mail", () => {
  test("has at most 50 recipients, all in bcc", async () => {
    const recipients = Array.from({ length: 120 }, (_, index) => `p${index}@acme.example`);
    const { rule } = await fixture.mailRule({ recipients });
    await deliver();
    const mails = cloud.control.mails().slice(-3);
    expect(mails.map(({ to, cc, bcc }) => [to.length, cc.length, bcc.length])).toEqual(
      expect.arrayContaining([
        [0, 0, 50],
        [0, 0, 50],
        [0, 0, 20],
      ]),
    );
    const [entry] = await history(rule.ruleId);
    expect(entry).toMatchObject({ status: "delivered", newsTotal: 1 });
    expect(entry!.parts.flatMap((part) => part.recipients)).toEqual(recipients);
  });

  test("that the provider rejects for some recipients is partially delivered", async () => {
    const recipients = [
      ...Array.from({ length: 50 }, (_, index) => `p${index}@acme.example`),
      "gone@suppressed.example",
    ];
    const { rule } = await fixture.mailRule({ recipients });
    await deliver();
    const [entry] = await history(rule.ruleId);
    expect(entry!.status).toBe("partial");
    expect(entry!.parts.map(({ status }) => status)).toEqual(["delivered", "failed"]);
    expect(entry!.parts[1]!.error).toContain("EmailDroppedAllRecipientsSuppressed");
  });

  test("with another worker's lease is not sent until the lease expires, while other mails of the delivery are", async () => {
    const recipients = Array.from({ length: 60 }, (_, index) => `q${index}@acme.example`);
    const { rule } = await fixture.mailRule({ recipients });
    const alerts = fixture.instance();
    await alerts.evaluate();
    const { deliveryId } = fixture.messages[0]!.message as { deliveryId: string };
    const leasedUntil = new Date(fixture.clock.now().getTime() + 60_000).toISOString();
    // `part` is an index in the delivery. Urgency 1 is `critical`. `looks` counts the requests for the mail's status.
    const entry = { deliveryId, part: 0, urgency: 1 };
    const mail = { recipients: recipients.slice(0, 50), operationId: operationIdOf(deliveryId, 0), entries: [entry] };
    const leasedMail = { ...mail, status: "sending" as const, attempts: 1, looks: 0, leasedUntil };
    const key = mailboxKey(leasedMail.recipients, false);
    const box = { recipients: leasedMail.recipients, ofOwner: false, waiting: [], sent: [], mail: leasedMail };
    await fixture.tables.insert(Mailboxes, MAILBOXES, key, box);
    const mailsBefore = cloud.control.mails().length;
    await alerts.deliver(deliveryId);
    const recipientCounts = () =>
      cloud.control
        .mails()
        .slice(mailsBefore)
        .map(({ bcc }) => bcc.length);
    expect(recipientCounts()).toEqual([10]);
    expect((await fixture.tables.get(Mailboxes, MAILBOXES, key))!.mail).toEqual(leasedMail);
    fixture.clock.add(MINUTE_MS);
    await fixture.handleAllMessages(alerts);
    expect(recipientCounts()).toEqual([10, 50]);
    expect((await history(rule.ruleId))[0]).toMatchObject({ status: "delivered" });
  });

  test("that the provider throttles is sent after the Retry-After, without counting an attempt", async () => {
    cloud.control.addFault({
      match: { operation: "mail.send" },
      action: { kind: "throttle", retryAfterSeconds: 40 },
      // More often than a mail is attempted.
      times: 12,
    });
    const { rule, mails } = await fixture.mailRule();
    const start = fixture.clock.now().getTime();
    await deliver();
    expect(mails()).toHaveLength(1);
    expect(fixture.clock.now().getTime() - start).toBe(12 * 40_000);
    expect((await history(rule.ruleId))[0]).toMatchObject({ status: "delivered", parts: [{ attempts: 1 }] });
  });

  test("whose response was lost is not sent again if the provider has it", async () => {
    cloud.control.addFault({ match: { operation: "mail.send" }, action: { kind: "loseAnswer" }, times: 1 });
    const { rule, mails } = await fixture.mailRule();
    await deliver();
    expect(mails()).toHaveLength(1);
    expect((await history(rule.ruleId))[0]).toMatchObject({ status: "delivered", parts: [{ attempts: 1 }] });
  });

  test.each([
    ["resets the connection before it has the mail", { kind: "reset" as const }],
    ["fails", { kind: "fail" as const, status: 500 }],
    ["returns an HTML page", { kind: "garbage" as const, as: "html" as const }],
    ["rejects the key for a while", { kind: "deny" as const }],
  ])("is sent by a later attempt if the provider %s twice", async (_name, action) => {
    cloud.control.addFault({ match: { operation: "mail.send" }, action, times: 2 });
    const { rule, mails } = await fixture.mailRule();
    await deliver();
    expect(mails()).toHaveLength(1);
    expect((await history(rule.ruleId))[0]).toMatchObject({ status: "delivered", parts: [{ attempts: 3 }] });
  });

  test("fails if a proxy returns HTML pages instead of the provider's responses", async () => {
    cloud.control.addFault({ match: { operation: "mail.*" }, action: { kind: "garbage", as: "html" } });
    const { rule, mails } = await fixture.mailRule();
    await deliver();
    expect(mails()).toHaveLength(0);
    expect((await history(rule.ruleId))[0]!.status).toBe("failed");
  });

  test("is sent once even if its response is lost and its status can't be read for a while", async () => {
    cloud.control.addFault({ match: { operation: "mail.send" }, action: { kind: "loseAnswer" }, times: 1 });
    cloud.control.addFault({
      match: { operation: "mail.getOperation" },
      action: { kind: "fail", status: 503 },
      times: 3,
    });
    const { rule, mails } = await fixture.mailRule();
    await deliver();
    expect(mails()).toHaveLength(1);
    expect((await history(rule.ruleId))[0]!.status).toBe("delivered");
  });

  test("fails after the last attempt if the provider denies access, and the history contains the error", async () => {
    cloud.control.addFault({ match: { operation: "mail.send" }, action: { kind: "deny" } });
    const { rule } = await fixture.mailRule();
    await deliver();
    const [entry] = await history(rule.ruleId);
    expect(entry).toMatchObject({ status: "failed", parts: [{ attempts: BACK_OFF_SECONDS.length + 1 }] });
    expect(entry!.parts[0]!.error).toContain("COMMUNICATION_CONNECTION_STRING");
    expect(fixture.events.filter(({ type }) => type === "alert.sent").map(({ outcome }) => outcome)).toEqual([
      "intent",
      "failure",
    ]);
  });

  test("is sent with the service's identity if only the provider's endpoint is configured", async () => {
    const { origin } = new URL(/endpoint=([^;]+)/.exec(cloud.environment.COMMUNICATION_CONNECTION_STRING!)![1]!);
    fixture = open({ environment: { COMMUNICATION_CONNECTION_STRING: undefined, COMMUNICATION_ENDPOINT: origin } });
    await fixture.writeAssets("kv-a", [{ name: "one", expiresInDays: 5 }]);
    const { rule, mails } = await fixture.mailRule();
    await deliver();
    expect(mails()).toHaveLength(1);
    expect((await history(rule.ruleId))[0]!.status).toBe("delivered");

    cloud.control.addFault({ match: { operation: "mail.send" }, action: { kind: "deny" } });
    const { rule: denied } = await fixture.mailRule();
    await deliver();
    expect((await history(denied.ruleId))[0]!.parts[0]!.error).toContain("Communication and Email Service Owner");
  });

  test("from an unknown sender address fails immediately", async () => {
    fixture = open({ environment: { ALERT_SENDER_ADDRESS: "alerts@elsewhere.example" } });
    await fixture.writeAssets("kv-a", [{ name: "one", expiresInDays: 5 }]);
    const { rule } = await fixture.mailRule();
    await deliver();
    expect((await history(rule.ruleId))[0]).toMatchObject({ status: "failed", parts: [{ attempts: 1 }] });
  });

  test("stays pending with an error if no mail provider is configured", async () => {
    fixture = open({ environment: { COMMUNICATION_CONNECTION_STRING: undefined } });
    await fixture.writeAssets("kv-a", [{ name: "one", expiresInDays: 5 }]);
    const { rule } = await fixture.mailRule();
    const alerts = fixture.instance();
    await alerts.evaluate();
    await fixture.handleVisibleMessages(alerts);
    const [entry] = await history(rule.ruleId);
    expect(entry).toMatchObject({ status: "pending" });
    expect(entry!.parts[0]!.error).toContain("ALERT_SENDER_ADDRESS");
  });
});

describe("a webhook", () => {
  /** Verifies a signature as the Standard Webhooks specification requires. */
  const isSignedWith = (secret: string, headers: Record<string, string>, body: string): boolean => {
    const key = Buffer.from(secret.replace(/^whsec_/, ""), "base64");
    const signed = `${headers["webhook-id"]}.${headers["webhook-timestamp"]}.${body}`;
    const expected = createHmac("sha256", key).update(signed).digest("base64");
    return headers["webhook-signature"]!.split(" ").includes(`v1,${expected}`);
  };

  test("is a CloudEvent, signed with the key that was returned at the rule's creation", async () => {
    const { rule, webhookSecret, received } = await fixture.webhookRule();
    await deliver();
    expect(received()).toHaveLength(1);
    const { headers, body } = received()[0]!;
    expect(isSignedWith(webhookSecret!, headers, body)).toBe(true);
    expect(isSignedWith(webhookSecret!, headers, body.replace("one", "two"))).toBe(false);
    expect(headers["content-type"]).toBe("application/cloudevents+json");
    const event = JSON.parse(body) as Record<string, unknown>;
    expect(event).toMatchObject({
      specversion: "1.0",
      id: headers["webhook-id"],
      type: "lifecycle.alert.expiration",
      source: "https://lifecycle.example",
      subject: `alerts/rules/${rule.ruleId}`,
      data: { total: 1, items: [{ id: "kv-a.secret.one", thresholdDays: 7, owner: "ann" }] },
    });
    expect(eventOf("expiration").parse(event)).toEqual(event);
    expect(Object.keys(headers)).toEqual(expect.arrayContaining(Object.keys(EventHeaders.parse(headers))));
    expect(Math.abs(Number(headers["webhook-timestamp"]) * 1000 - fixture.clock.now().getTime())).toBeLessThan(60_000);
  });

  test("is retried with the same id until the receiver responds with success", async () => {
    cloud.control.addFault({ match: { operation: "sink.receive" }, action: { kind: "fail", status: 500 }, times: 2 });
    cloud.control.addFault({ match: { operation: "sink.receive" }, action: { kind: "loseAnswer" }, times: 1 });
    const { rule, received } = await fixture.webhookRule();
    await deliver();
    expect(received()).toHaveLength(2);
    expect(new Set(received().map(({ headers }) => headers["webhook-id"])).size).toBe(1);
    expect((await history(rule.ruleId))[0]).toMatchObject({
      status: "delivered",
      parts: [{ attempts: 4, mayBeRepeated: true, answer: { status: 200, body: "ok" } }],
    });
  });

  // The first retry is after 5 s and up to 20 % more, or after the Retry-After if that is longer, but at most after an hour.
  test.each([
    [1, 5, 6],
    [1000, 1000, 1000],
    [99_999, 3600, 3600],
  ])("with a Retry-After of %i s is retried after %i to %i s", async (retryAfterSeconds, least, most) => {
    const action = { kind: "throttle", retryAfterSeconds } as const;
    cloud.control.addFault({ match: { operation: "sink.receive" }, action, times: 1 });
    const { rule } = await fixture.webhookRule();
    const alerts = fixture.instance();
    await alerts.evaluate();
    await fixture.handleVisibleMessages(alerts);
    const [part] = (await history(rule.ruleId))[0]!.parts;
    const seconds = (Date.parse(part!.notBefore!) - fixture.clock.now().getTime()) / 1000;
    expect(seconds).toBeGreaterThanOrEqual(least);
    expect(seconds).toBeLessThanOrEqual(most);
  });

  test("that the receiver always rejects fails after the last attempt", async () => {
    cloud.control.addFault({ match: { operation: "sink.receive" }, action: { kind: "fail", status: 404 } });
    const { rule } = await fixture.webhookRule();
    await deliver();
    expect((await history(rule.ruleId))[0]).toMatchObject({
      status: "failed",
      parts: [{ attempts: BACK_OFF_SECONDS.length + 1, error: "The receiver returned 404.", answer: { status: 404 } }],
    });
  });

  test.each([
    [200, "delivered", undefined],
    [299, "delivered", undefined],
    [300, "failed", "The receiver returned 300. Redirects are not followed."],
    [399, "failed", "The receiver returned 399. Redirects are not followed."],
    [400, "failed", "The receiver returned 400."],
    [500, "failed", "The receiver returned 500."],
  ])("with the response %s is %s", async (status, expectedStatus, error) => {
    cloud.control.addFault({ match: { operation: "sink.receive" }, action: { kind: "fail", status } });
    const { rule } = await fixture.webhookRule();
    const { parts } = await fixture.instance().test(rule.ruleId, caller);
    expect(parts).toMatchObject([{ status: expectedStatus, attempts: 1, answer: { status } }]);
    expect(parts[0]!.error).toBe(error);
  });

  test("with the response 410 Gone is not retried", async () => {
    cloud.control.addFault({ match: { operation: "sink.receive" }, action: { kind: "fail", status: 410 } });
    const { rule } = await fixture.webhookRule();
    await deliver();
    expect((await history(rule.ruleId))[0]).toMatchObject({ status: "failed", parts: [{ attempts: 1 }] });
  });

  test("is signed with both keys for a day after a key rotation", async () => {
    const { rule, webhookSecret, received } = await fixture.webhookRule();
    const { rotateSecret } = fixture.instance().rules;
    const rotated = await rotateSecret(rule.ruleId, caller, undefined);
    expect(rotated.webhookSecret).not.toBe(webhookSecret);
    await fixture.instance().test(rule.ruleId, caller);
    fixture.clock.add(25 * HOUR_MS);
    await fixture.instance().test(rule.ruleId, caller);
    const [first, second] = received();
    expect(
      [webhookSecret!, rotated.webhookSecret!].map((key) => isSignedWith(key, first!.headers, first!.body)),
    ).toEqual([true, true]);
    expect(
      [webhookSecret!, rotated.webhookSecret!].map((key) => isSignedWith(key, second!.headers, second!.body)),
    ).toEqual([false, true]);
  });

  test("uses a changed URL, also for a waiting retry", async () => {
    cloud.control.addFault({
      match: { operation: "sink.receive", item: "wrong" },
      action: { kind: "fail", status: 404 },
    });
    const sink = (name: string) => cloud.controlUrl.replace("/control", `/sink/${name}`);
    const { rule } = await fixture.webhookRule({ webhookUrl: sink("wrong") });
    const alerts = fixture.instance();
    await alerts.evaluate();
    await fixture.handleVisibleMessages(alerts);
    await alerts.rules.change(rule.ruleId, { webhookUrl: sink("right") }, caller, undefined);
    await fixture.handleAllMessages(alerts);
    expect(cloud.control.sinkRequests("right")).toHaveLength(1);
    expect((await history(rule.ruleId))[0]!.status).toBe("delivered");
  });

  describe("that two workers deliver concurrently", () => {
    /** Runs `work` before the nth transaction from now on. */
    function beforeTransaction(nth: number, work: () => Promise<void>): void {
      const transaction = fixture.tables.transaction;
      let count = 0;
      fixture.tables.transaction = async (...operations) => {
        if (++count === nth) await work();
        return await transaction(...operations);
      };
    }
    /** Evaluates a webhook rule. Returns two instances, and the id of the delivery in its queue message. */
    const startDelivery = async () => {
      const { rule, received } = await fixture.webhookRule();
      const [slow, fast] = [fixture.instance(), fixture.instance()];
      await slow.evaluate();
      const { deliveryId } = fixture.messages[0]!.message as { deliveryId: string };
      return { rule, received, slow, fast, deliveryId };
    };

    test("is posted by the worker that starts it first", async () => {
      const { rule, received, slow, fast, deliveryId } = await startDelivery();
      // The first transaction of a delivery takes the lease.
      beforeTransaction(1, () => fast.deliver(deliveryId));
      await slow.deliver(deliveryId);
      await fixture.handleAllMessages(slow);
      expect(received()).toHaveLength(1);
      expect((await history(rule.ruleId))[0]).toMatchObject({ status: "delivered", parts: [{ attempts: 1 }] });
    });

    test("is posted again with the same id only after the lease of the first worker expires", async () => {
      const { rule, received, slow, fast, deliveryId } = await startDelivery();
      // The slow worker has posted the webhook but not written the outcome.
      beforeTransaction(2, async () => {
        await fast.deliver(deliveryId);
        expect(received()).toHaveLength(1);
        fixture.clock.add(LEASE_MS);
        await fast.deliver(deliveryId);
      });
      await slow.deliver(deliveryId);
      await fixture.handleAllMessages(slow);
      expect(received()).toHaveLength(2);
      expect(new Set(received().map(({ headers }) => headers["webhook-id"])).size).toBe(1);
      const parts = [{ attempts: 2, mayBeRepeated: true }];
      expect((await history(rule.ruleId))[0]).toMatchObject({ status: "delivered", parts });
    });
  });

  test("to a private address is rejected unless the configuration allows it", async () => {
    const { rule } = await fixture.webhookRule();
    await deliver();
    const strict = open({ environment: { ALLOW_PRIVATE_WEBHOOK_ADDRESSES: false as never } });
    await expect(strict.webhookRule({ webhookUrl: cloud.controlUrl })).rejects.toMatchObject({
      code: "invalidRequest",
    });
    const created = await strict.webhookRule({ webhookUrl: "https://metadata.localhost/hook" });
    const tested = await strict.instance().test(created.rule.ruleId, caller);
    expect(tested.parts[0]!.error).toContain("127.0.0.1 of metadata.localhost is blocked");
    expect((await history(rule.ruleId))[0]!.status).toBe("delivered");
  });

  test("does not reveal its URL or key in rows, messages, audit entries or echoed responses", async () => {
    const path = "T0123456/B0123456/abcdefSECRETabcdef";
    const { rule, webhookSecret } = await fixture.webhookRule({
      deliveryMethod: "slack",
      webhookUrl: cloud.controlUrl.replace("/control", `/sink/${path}?token=queryTOKENquery`),
    });
    await fixture.webhookRule();
    await deliver();
    const rows: unknown[] = [];
    for (const table of ["AlertRules", "AlertStates", "AlertDeliveries", "AlertHistory", "AlertTold"])
      rows.push(await readAllRows(table));
    const storedText = JSON.stringify([rows, fixture.events, fixture.messages, await history(rule.ruleId)]);
    expect(webhookSecret).toBeUndefined();
    for (const secret of ["SECRET", "queryTOKENquery", "whsec_"]) expect(storedText).not.toContain(secret);
    expect(storedText).toContain(rule.ruleId);
    const url = "https://hooks.example/T0123456/abc%20defSECRET?token=queryTOKENquery";
    const keys = [{ key: "whsec_c2VjcmV0a2V5" }];
    // A response in which the receiver repeats parts of the URL and the key.
    const echo = `echo ${url} and /T0123456/abc%20defSECRET abc defSECRET queryTOKENquery whsec_c2VjcmV0a2V5`;
    expect(withoutSecrets(echo, { url, keys })).not.toMatch(/SECRET|TOKEN|c2Vj/);
  });

  async function readAllRows(table: string): Promise<unknown[]> {
    const { TableClient } = await import("@azure/data-tables");
    const client = TableClient.fromConnectionString(azurite.connectionString(ACCOUNTS[usedAccounts - 1]!), table, {
      allowInsecureConnection: true,
    });
    const rows: unknown[] = [];
    for await (const row of client.listEntities()) rows.push(row);
    return rows;
  }
});

describe.each([
  ["ten minutes ahead", 10 * MINUTE_MS],
  ["an hour back", -60 * MINUTE_MS],
])("a host whose own clock is %s", (_name, clockOffsetMs) => {
  /** Returns a time relative to now. */
  const inMs = (milliseconds: number) => new Date(Date.now() + milliseconds).toISOString();
  /** Creates the host, and a check that it took one lease, of the usual length by the storage service's clock. */
  function createHost() {
    const { tables, alerts } = fixture.createHostWithClockOffset(clockOffsetMs);
    const leases: number[] = [];
    const transaction = tables.transaction;
    tables.transaction = async (...args) => {
      const until = /leasedUntil\W+([\dT:.-]+Z)/.exec(JSON.stringify(args[2]))?.[1];
      if (until !== undefined) leases.push(Date.parse(until) - Date.now());
      return await transaction(...args);
    };
    const expectUsualLeases = () => {
      expect(leases).toHaveLength(1);
      expect(Math.abs(leases[0]! - LEASE_MS)).toBeLessThan(30_000);
    };
    return { alerts, expectUsualLeases };
  }
  /** Evaluates the rules at the current time of the storage service. Returns the id of the new delivery. */
  async function createDelivery(): Promise<string> {
    // The storage clock has a precision of one second.
    fixture.clock.set(new Date(inMs(-10_000)));
    const expiresInDays = (Date.now() - Date.parse(START)) / DAY_MS + 5.5;
    await fixture.writeAssets("kv-a", [{ name: "one", expiresInDays }]);
    await fixture.instance().evaluate();
    return (fixture.messages[0]!.message as { deliveryId: string }).deliveryId;
  }

  test("posts a webhook only after another host's lease expired, and takes a lease of the usual length", async () => {
    const { received } = await fixture.webhookRule();
    const deliveryId = await createDelivery();
    const { alerts, expectUsualLeases } = createHost();
    const setLease = async (leasedUntil: string) => {
      const row = (await fixture.tables.get(Deliveries, deliveryId, DELIVERY_ROW))!;
      const parts = row.parts.map((part) => ({ ...part, status: "sending" as const, attempts: 1, leasedUntil }));
      await fixture.tables.replace(Deliveries, { ...row, parts, nextAt: leasedUntil });
    };
    await setLease(inMs(LEASE_MS / 2));
    await alerts.deliver(deliveryId);
    expect(received()).toHaveLength(0);
    await setLease(inMs(-5_000));
    await alerts.deliver(deliveryId);
    expect(received()).toHaveLength(1);
    expectUsualLeases();
  });

  test("sends a mail only after another host's lease expired, and takes a lease of the usual length", async () => {
    const { rule, mails } = await fixture.mailRule();
    const deliveryId = await createDelivery();
    const { alerts, expectUsualLeases } = createHost();
    const recipients = rule.recipients!;
    const entries = [{ deliveryId, part: 0, urgency: 1 }];
    const operationId = operationIdOf(deliveryId, 0);
    const setLease = async (leasedUntil: string) => {
      const mail = { recipients, operationId, entries, status: "sending" as const, attempts: 1, looks: 0, leasedUntil };
      const box = { recipients, ofOwner: false, waiting: [], sent: [], mail };
      await fixture.tables.put(Mailboxes, MAILBOXES, mailboxKey(recipients, false), box);
    };
    await setLease(inMs(LEASE_MS / 2));
    await alerts.deliver(deliveryId);
    expect(mails()).toHaveLength(0);
    await setLease(inMs(-5_000));
    await alerts.deliver(deliveryId);
    expect(mails()).toHaveLength(1);
    expectUsualLeases();
  });
});

describe("a test delivery of a rule", () => {
  test("sends a real message and returns the receiver's response", async () => {
    const { rule, mails } = await fixture.mailRule();
    const mailed = await fixture.instance().test(rule.ruleId, caller);
    expect(mailed).toMatchObject({ status: "delivered", test: true, requestedBy: "admin" });
    expect(mails()[0]!.subject).toMatch(/^\[Test\] /);
    const webhook = await fixture.webhookRule();
    cloud.control.addFault({ match: { operation: "sink.receive" }, action: { kind: "fail", status: 403 } });
    const posted = await fixture.instance().test(webhook.rule.ruleId, caller);
    expect(posted).toMatchObject({ status: "failed", parts: [{ attempts: 1, answer: { status: 403 } }] });
  });

  test("waits for the mail provider's report", async () => {
    cloud.control.addFault({
      match: { operation: "mail.getOperation" },
      action: { kind: "fail", status: 500 },
      times: 1,
    });
    const { rule } = await fixture.mailRule();
    // Each reading moves this clock by a second, so that the delay of five seconds before the report ends early.
    let seconds = 0;
    const clock = { now: () => new Date(fixture.clock.now().getTime() + ++seconds * 1000) };
    const { tables } = fixture;
    const mailed = await fixture.instance({ taken: 0 }, { tables, clock }).test(rule.ruleId, caller);
    expect([mailed.status, fixture.messages]).toEqual(["delivered", []]);
  });

  test("does not prevent later notifications of the same assets", async () => {
    const { rule, mails } = await fixture.mailRule({ enabled: false });
    await fixture.instance().test(rule.ruleId, caller);
    await fixture.instance().rules.change(rule.ruleId, { enabled: true }, caller, undefined);
    await deliver();
    expect(mails().map(({ subject }) => subject.startsWith("[Test]"))).toEqual([true, false]);
  });
});

describe("a delivery with a lost or failing queue message", () => {
  test("is sent by a later evaluation if its message was lost", async () => {
    const { mails } = await fixture.mailRule();
    const alerts = fixture.instance();
    await alerts.evaluate();
    fixture.messages.length = 0;
    // A message counts as lost once its delivery is overdue by 30 minutes.
    fixture.clock.add(20 * MINUTE_MS);
    await alerts.evaluate();
    expect(fixture.messages).toHaveLength(0);
    fixture.clock.add(20 * MINUTE_MS);
    await alerts.evaluate();
    await fixture.handleVisibleMessages(alerts);
    expect(mails()).toHaveLength(1);
  });

  test("fails after its message was moved to the poison queue six times", async () => {
    const { rule } = await fixture.mailRule();
    const alerts = fixture.instance();
    await alerts.evaluate();
    const [entry] = await history(rule.ruleId);
    for (let time = 0; time < 5; time++) {
      fixture.messages.length = 0;
      await alerts.reviveDelivery(entry!.deliveryId);
      expect(fixture.messages).toHaveLength(1);
    }
    await alerts.reviveDelivery(entry!.deliveryId);
    expect((await history(rule.ruleId))[0]!.status).toBe("failed");
  });

  test("is recorded as delivered if its mail was sent but the outcome was not written before the last retry", async () => {
    const { rule } = await fixture.mailRule();
    await deliver();
    const { deliveryId } = (await history(rule.ruleId))[0]!;
    const { finishedAt: _, ...row } = (await fixture.tables.get(Deliveries, deliveryId, DELIVERY_ROW))!;
    await fixture.tables.replace(Deliveries, { ...row, status: "pending", revivals: 5 });
    await fixture.instance().reviveDelivery(deliveryId);
    const entries = fixture.events.filter(({ target }) => target?.id === deliveryId).map(({ outcome }) => outcome);
    // The second success: the service recorded the known outcome again.
    expect(entries).toEqual(["intent", "success", "success"]);
    expect((await history(rule.ruleId))[0]!.status).toBe("delivered");
  });
});

// The provider accepts a mail with the same operation id only once.
test("the operation id of each part of a delivery is a different GUID of version 8", () => {
  const ids = Array.from({ length: 64 }, (_, index) => operationIdOf("01JD8Z6Q3M0000000000000000", index));
  for (const id of ids) expect(id).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
  expect(new Set(ids).size).toBe(64);
});
