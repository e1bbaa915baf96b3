import { createHmac } from "node:crypto";
import type { Cloud } from "simulated-cloud/cloud.ts";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { DELIVERY_ROW, Deliveries, operationIdOf } from "../../shared/alerts/delivery.ts";
import { MAILBOXES, Mailboxes, mailboxKey } from "../../shared/alerts/mailbox.ts";
import { scrubbed } from "../../shared/alerts/post-webhook.ts";
import { BACK_OFF_SECONDS, LEASE_MS } from "../../shared/alerts/retry-schedule.ts";
import { MINUTE_MS } from "../../shared/platform/time.ts";
import { liveIn } from "../azure/live-cloud.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import { caller, DAY_MS, type Fixture, type FixtureOptions, openFixture, START } from "./alerts-setup.ts";

let azurite: TestStorage;
let cloud: Cloud;
const ACCOUNTS = Array.from({ length: 55 }, (_, index) => `deliver${String(index).padStart(2, "0")}`);
let next = 0;
let fixture: Fixture;

const open = (options: Partial<FixtureOptions> = {}) =>
  openFixture({ connectionString: azurite.connectionString(ACCOUNTS[next++]!), cloud, ...options });

beforeAll(async () => {
  azurite = await openStorage(ACCOUNTS);
  ({ cloud } = await liveIn({ company: { subscriptions: [] } }));
});
afterAll(async () => {
  await cloud.stop();
  await azurite.stop();
});
beforeEach(async () => {
  cloud.control.clearFaults();
  fixture = open();
  await fixture.scanned("kv-a", [{ name: "one", expiresInDays: 5.5, tags: { owner: "ann" } }]);
});

const all = { limit: 100, offset: 0, cursor: undefined };
const history = async (ruleId: string) => (await fixture.instance().history.list({ ruleId }, all)).items;

/** Evaluates and sends, moving the clock to each waiting message. */
async function deliver() {
  const alerts = fixture.instance();
  await alerts.evaluate();
  await fixture.drainAll(alerts);
}

describe("a mail", () => {
  test("has at most 50 recipients who don't see each other, and the history lists each of them", async () => {
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

  test("that some recipients can't receive is partially delivered", async () => {
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

  test("in progress at another worker is left to it, while other mails of the delivery are sent", async () => {
    const recipients = Array.from({ length: 60 }, (_, index) => `q${index}@acme.example`);
    const { rule } = await fixture.mailRule({ recipients });
    const alerts = fixture.instance();
    await alerts.evaluate();
    const { deliveryId } = fixture.messages[0]!.message as { deliveryId: string };
    const leasedUntil = new Date(fixture.clock.now().getTime() + 60_000).toISOString();
    const entry = { deliveryId, part: 0, urgency: 1 };
    const mail = { recipients: recipients.slice(0, 50), operationId: operationIdOf(deliveryId, 0), entries: [entry] };
    const held = { ...mail, status: "sending" as const, attempts: 1, looks: 0, leasedUntil };
    const key = mailboxKey(held.recipients, false);
    const box = { recipients: held.recipients, ofOwner: false, waiting: [], sent: [], mail: held };
    await fixture.tables.insert(Mailboxes, MAILBOXES, key, box);
    const sent = cloud.control.mails().length;
    await alerts.deliver(deliveryId);
    const lengths = () =>
      cloud.control
        .mails()
        .slice(sent)
        .map(({ bcc }) => bcc.length);
    expect(lengths()).toEqual([10]);
    expect((await fixture.tables.get(Mailboxes, MAILBOXES, key))!.mail).toEqual(held);
    fixture.clock.add(60_000);
    await fixture.drainAll(alerts);
    expect(lengths()).toEqual([10, 50]);
    expect((await history(rule.ruleId))[0]).toMatchObject({ status: "delivered" });
  });

  test("waits while the provider throttles, without counting an attempt", async () => {
    cloud.control.addFault({
      match: { operation: "mail.send" },
      action: { kind: "throttle", retryAfterSeconds: 40 },
      times: 12,
    });
    const { rule, mails } = await fixture.mailRule();
    const start = fixture.clock.now().getTime();
    await deliver();
    expect(mails()).toHaveLength(1);
    expect(fixture.clock.now().getTime() - start).toBe(12 * 40_000);
    expect((await history(rule.ruleId))[0]).toMatchObject({ status: "delivered", parts: [{ attempts: 1 }] });
  });

  test("without a response is looked up at the provider and not resent", async () => {
    cloud.control.addFault({ match: { operation: "mail.send" }, action: { kind: "loseAnswer" }, times: 1 });
    const { rule, mails } = await fixture.mailRule();
    await deliver();
    expect(mails()).toHaveLength(1);
    expect((await history(rule.ruleId))[0]).toMatchObject({ status: "delivered", parts: [{ attempts: 1 }] });
  });

  test.each([
    ["is cut off before it has the mail", { kind: "reset" as const }],
    ["fails", { kind: "fail" as const, status: 500 }],
    ["is in the wrong hands", { kind: "garbage" as const, as: "html" as const }],
    ["refuses the key for a while", { kind: "deny" as const }],
  ])("is sent if the provider %s", async (_name, action) => {
    cloud.control.addFault({ match: { operation: "mail.send" }, action, times: 2 });
    const { rule, mails } = await fixture.mailRule();
    await deliver();
    expect(mails()).toHaveLength(1);
    expect((await history(rule.ruleId))[0]).toMatchObject({ status: "delivered", parts: [{ attempts: 3 }] });
  });

  test("does not count as delivered if a proxy responds instead of the provider", async () => {
    cloud.control.addFault({ match: { operation: "mail.*" }, action: { kind: "garbage", as: "html" } });
    const { rule, mails } = await fixture.mailRule();
    await deliver();
    expect(mails()).toHaveLength(0);
    expect((await history(rule.ruleId))[0]!.status).toBe("failed");
  });

  test("is sent once even if the provider can't report its status for a while", async () => {
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

  test("fails after the last attempt if the provider never accepts it, and the history shows why", async () => {
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
    await fixture.scanned("kv-a", [{ name: "one", expiresInDays: 5 }]);
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
    await fixture.scanned("kv-a", [{ name: "one", expiresInDays: 5 }]);
    const { rule } = await fixture.mailRule();
    await deliver();
    expect((await history(rule.ruleId))[0]).toMatchObject({ status: "failed", parts: [{ attempts: 1 }] });
  });

  test("waits, with a message, if no mail provider is configured", async () => {
    fixture = open({ environment: { COMMUNICATION_CONNECTION_STRING: undefined } });
    await fixture.scanned("kv-a", [{ name: "one", expiresInDays: 5 }]);
    const { rule } = await fixture.mailRule();
    const alerts = fixture.instance();
    await alerts.evaluate();
    await fixture.drain(alerts);
    const [entry] = await history(rule.ruleId);
    expect(entry).toMatchObject({ status: "pending" });
    expect(entry!.parts[0]!.error).toContain("ALERT_SENDER_ADDRESS");
  });
});

describe("a webhook", () => {
  /** Verifies a signature as the Standard Webhooks specification requires. */
  const signs = (secret: string, headers: Record<string, string>, body: string): boolean => {
    const key = Buffer.from(secret.replace(/^whsec_/, ""), "base64");
    const signed = `${headers["webhook-id"]}.${headers["webhook-timestamp"]}.${body}`;
    const expected = createHmac("sha256", key).update(signed).digest("base64");
    return headers["webhook-signature"]!.split(" ").includes(`v1,${expected}`);
  };

  test("is a CloudEvent with a valid signature by the key returned at creation", async () => {
    const { rule, webhookSecret, received } = await fixture.webhookRule();
    await deliver();
    expect(received()).toHaveLength(1);
    const { headers, body } = received()[0]!;
    expect(signs(webhookSecret!, headers, body)).toBe(true);
    expect(signs(webhookSecret!, headers, body.replace("one", "two"))).toBe(false);
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
    expect(Math.abs(Number(headers["webhook-timestamp"]) * 1000 - fixture.clock.now().getTime())).toBeLessThan(60_000);
  });

  test("is retried with growing delays and the same id until it is received", async () => {
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

  test.each([
    [1, 5, 6],
    [1000, 1000, 1000],
    [99_999, 3600, 3600],
  ])("with a Retry-After of %i s is retried after %i to %i s", async (asked, least, most) => {
    const action = { kind: "throttle", retryAfterSeconds: asked } as const;
    cloud.control.addFault({ match: { operation: "sink.receive" }, action, times: 1 });
    const { rule } = await fixture.webhookRule();
    const alerts = fixture.instance();
    await alerts.evaluate();
    await fixture.drain(alerts);
    const [part] = (await history(rule.ruleId))[0]!.parts;
    const seconds = (Date.parse(part!.notBefore!) - fixture.clock.now().getTime()) / 1000;
    expect(seconds).toBeGreaterThanOrEqual(least);
    expect(seconds).toBeLessThanOrEqual(most);
  });

  test("that is never received fails after the last attempt", async () => {
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
  ])("with the response %s is %s", async (status, became, error) => {
    cloud.control.addFault({ match: { operation: "sink.receive" }, action: { kind: "fail", status } });
    const { rule } = await fixture.webhookRule();
    const { parts } = await fixture.instance().test(rule.ruleId, caller);
    expect(parts).toMatchObject([{ status: became, attempts: 1, answer: { status } }]);
    expect(parts[0]!.error).toBe(error);
  });

  test("with the response 410 has one attempt", async () => {
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
    fixture.clock.add(25 * 3_600_000);
    await fixture.instance().test(rule.ruleId, caller);
    const [first, second] = received();
    expect([webhookSecret!, rotated.webhookSecret!].map((key) => signs(key, first!.headers, first!.body))).toEqual([
      true,
      true,
    ]);
    expect([webhookSecret!, rotated.webhookSecret!].map((key) => signs(key, second!.headers, second!.body))).toEqual([
      false,
      true,
    ]);
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
    await fixture.drain(alerts);
    await alerts.rules.change(rule.ruleId, { webhookUrl: sink("right") }, caller, undefined);
    await fixture.drainAll(alerts);
    expect(cloud.control.sunk("right")).toHaveLength(1);
    expect((await history(rule.ruleId))[0]!.status).toBe("delivered");
  });

  describe("at two workers concurrently", () => {
    /** Runs `work` before the nth transaction from now on. */
    function beforeTransaction(nth: number, work: () => Promise<void>): void {
      const transaction = fixture.tables.transaction;
      let count = 0;
      fixture.tables.transaction = async (...operations) => {
        if (++count === nth) await work();
        return await transaction(...operations);
      };
    }
    const startDelivery = async () => {
      const { rule, received } = await fixture.webhookRule();
      const [slow, fast] = [fixture.instance(), fixture.instance()];
      await slow.evaluate();
      const { deliveryId } = fixture.messages[0]!.message as { deliveryId: string };
      return { rule, received, slow, fast, deliveryId };
    };

    test("is posted by the worker that starts it first", async () => {
      const { rule, received, slow, fast, deliveryId } = await startDelivery();
      beforeTransaction(1, () => fast.deliver(deliveryId));
      await slow.deliver(deliveryId);
      await fixture.drainAll(slow);
      expect(received()).toHaveLength(1);
      expect((await history(rule.ruleId))[0]).toMatchObject({ status: "delivered", parts: [{ attempts: 1 }] });
    });

    test("is left to the worker with the lease, and posted again with the same id after the lease expires", async () => {
      const { rule, received, slow, fast, deliveryId } = await startDelivery();
      // The slow worker has posted the webhook but not written the outcome.
      beforeTransaction(2, async () => {
        await fast.deliver(deliveryId);
        expect(received()).toHaveLength(1);
        fixture.clock.add(LEASE_MS);
        await fast.deliver(deliveryId);
      });
      await slow.deliver(deliveryId);
      await fixture.drainAll(slow);
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
    const made = await strict.webhookRule({ webhookUrl: "https://metadata.localhost/hook" });
    const tested = await strict.instance().test(made.rule.ruleId, caller);
    expect(tested.parts[0]!.error).toContain("127.0.0.1 of metadata.localhost is refused");
    expect((await history(rule.ruleId))[0]!.status).toBe("delivered");
  });

  test("never reveals its URL or key in rows, messages, audit entries or echoed responses", async () => {
    const path = "T0123456/B0123456/abcdefSECRETabcdef";
    const { rule, webhookSecret } = await fixture.webhookRule({
      deliveryMethod: "slack",
      webhookUrl: cloud.controlUrl.replace("/control", `/sink/${path}?token=queryTOKENquery`),
    });
    await fixture.webhookRule();
    await deliver();
    const rows: unknown[] = [];
    for (const table of ["AlertRules", "AlertStates", "AlertDeliveries", "AlertHistory", "AlertTold"])
      rows.push(await everything(table));
    const kept = JSON.stringify([rows, fixture.events, fixture.messages, await history(rule.ruleId)]);
    expect(webhookSecret).toBeUndefined();
    for (const secret of ["SECRET", "queryTOKENquery", "whsec_"]) expect(kept).not.toContain(secret);
    expect(kept).toContain(rule.ruleId);
    const url = "https://hooks.example/T0123456/abc%20defSECRET?token=queryTOKENquery";
    const keys = [{ key: "whsec_c2VjcmV0a2V5" }];
    const repeated = `echo ${url} and /T0123456/abc%20defSECRET abc defSECRET queryTOKENquery whsec_c2VjcmV0a2V5`;
    expect(scrubbed(repeated, { url, keys })).not.toMatch(/SECRET|TOKEN|c2Vj/);
  });

  async function everything(table: string): Promise<unknown[]> {
    const { TableClient } = await import("@azure/data-tables");
    const client = TableClient.fromConnectionString(azurite.connectionString(ACCOUNTS[next - 1]!), table, {
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
])("a host whose own clock is %s", (_name, off) => {
  const inMs = (milliseconds: number) => new Date(Date.now() + milliseconds).toISOString();
  /** Leases of this host expire like those of any host. */
  function hostOff() {
    const { tables, alerts } = fixture.hostOff(off);
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
  /** The delivery of the rule's current items, by the storage clock. */
  async function due(): Promise<string> {
    // The storage clock has a precision of one second.
    fixture.clock.set(new Date(inMs(-10_000)));
    const expiresInDays = (Date.now() - Date.parse(START)) / DAY_MS + 5.5;
    await fixture.scanned("kv-a", [{ name: "one", expiresInDays }]);
    await fixture.instance().evaluate();
    return (fixture.messages[0]!.message as { deliveryId: string }).deliveryId;
  }

  test("respects the lease of a webhook, continues after the lease, and holds leases no longer than other hosts", async () => {
    const { received } = await fixture.webhookRule();
    const deliveryId = await due();
    const { alerts, expectUsualLeases } = hostOff();
    const held = async (leasedUntil: string) => {
      const row = (await fixture.tables.get(Deliveries, deliveryId, DELIVERY_ROW))!;
      const parts = row.parts.map((part) => ({ ...part, status: "sending" as const, attempts: 1, leasedUntil }));
      await fixture.tables.replace(Deliveries, { ...row, parts, nextAt: leasedUntil });
    };
    await held(inMs(LEASE_MS / 2));
    await alerts.deliver(deliveryId);
    expect(received()).toHaveLength(0);
    await held(inMs(-5_000));
    await alerts.deliver(deliveryId);
    expect(received()).toHaveLength(1);
    expectUsualLeases();
  });

  test("respects the lease of a mail, continues after the lease, and holds leases no longer than other hosts", async () => {
    const { rule, mails } = await fixture.mailRule();
    const deliveryId = await due();
    const { alerts, expectUsualLeases } = hostOff();
    const recipients = rule.recipients!;
    const entries = [{ deliveryId, part: 0, urgency: 1 }];
    const operationId = operationIdOf(deliveryId, 0);
    const held = async (leasedUntil: string) => {
      const mail = { recipients, operationId, entries, status: "sending" as const, attempts: 1, looks: 0, leasedUntil };
      const box = { recipients, ofOwner: false, waiting: [], sent: [], mail };
      await fixture.tables.put(Mailboxes, MAILBOXES, mailboxKey(recipients, false), box);
    };
    await held(inMs(LEASE_MS / 2));
    await alerts.deliver(deliveryId);
    expect(mails()).toHaveLength(0);
    await held(inMs(-5_000));
    await alerts.deliver(deliveryId);
    expect(mails()).toHaveLength(1);
    expectUsualLeases();
  });
});

describe("a test of a rule", () => {
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

  test("does not affect the rule's notifications", async () => {
    const { rule, mails } = await fixture.mailRule({ enabled: false });
    await fixture.instance().test(rule.ruleId, caller);
    await fixture.instance().rules.change(rule.ruleId, { enabled: true }, caller, undefined);
    await deliver();
    expect(mails().map(({ subject }) => subject.startsWith("[Test]"))).toEqual([true, false]);
  });
});

describe("a delivery with a lost or failing queue message", () => {
  test("is found by the evaluation if its message is lost", async () => {
    const { mails } = await fixture.mailRule();
    const alerts = fixture.instance();
    await alerts.evaluate();
    fixture.messages.length = 0;
    fixture.clock.add(20 * 60_000);
    await alerts.evaluate();
    expect(fixture.messages).toHaveLength(0);
    fixture.clock.add(20 * 60_000);
    await alerts.evaluate();
    await fixture.drain(alerts);
    expect(mails()).toHaveLength(1);
  });

  test("is retried from the poison queue several times and then fails", async () => {
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

  test("that arrived is recorded as delivered, even if the record could not be written before the last retry", async () => {
    const { rule } = await fixture.mailRule();
    await deliver();
    const { deliveryId } = (await history(rule.ruleId))[0]!;
    const { finishedAt: _, ...row } = (await fixture.tables.get(Deliveries, deliveryId, DELIVERY_ROW))!;
    await fixture.tables.replace(Deliveries, { ...row, status: "pending", revivals: 5 });
    await fixture.instance().reviveDelivery(deliveryId);
    const entries = fixture.events.filter(({ target }) => target?.id === deliveryId).map(({ outcome }) => outcome);
    expect(entries).toEqual(["intent", "success", "success"]);
    expect((await history(rule.ruleId))[0]!.status).toBe("delivered");
  });
});

test("the id of a mail at the provider is a unique GUID of version 8", () => {
  const ids = Array.from({ length: 64 }, (_, index) => operationIdOf("01JD8Z6Q3M0000000000000000", index));
  for (const id of ids) expect(id).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
  expect(new Set(ids).size).toBe(64);
});
