import type { Cloud } from "simulated-cloud/cloud.ts";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import type { AutomationSource, AutomationType, PendingNotice } from "../../shared/alerts/automation-events.ts";
import { NotificationRows } from "../../shared/alerts/notification-log.ts";
import { createSyncNotices } from "../../shared/alerts/sync-notices.ts";
import { startTestCloud } from "../azure/live-cloud.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import { caller, type Fixture, openFixture } from "./alerts-setup.ts";

/**
 * Tests of alert rules about events of automation: rotations (the service replaces a secret) and syncs (it copies a secret to
 * another store). A source returns the events as notices, texts that say what happened.
 */

const MINUTE_MS = 60_000;
const DAY_MS = 24 * 60 * MINUTE_MS;
/** Storage accounts: each test takes the next unused one. */
const ACCOUNTS = Array.from({ length: 16 }, (_, index) => `automation${index}`);

let azurite: TestStorage;
let cloud: Cloud;
let usedAccounts = 0;
let fixture: Fixture;
/** The events that the source returns, by type. */
let pending: Partial<Record<AutomationType, PendingNotice[]>>;

beforeAll(async () => {
  azurite = await openStorage(ACCOUNTS);
  ({ cloud } = await startTestCloud({ company: { subscriptions: [] } }));
});
afterAll(async () => {
  await cloud.stop();
  await azurite.stop();
});
beforeEach(() => {
  pending = {};
  const source: AutomationSource = {
    async *notices(type) {
      yield pending[type] ?? [];
    },
  };
  fixture = openFixture({
    connectionString: azurite.connectionString(ACCOUNTS[usedAccounts++]!),
    cloud,
    automation: [source],
  });
});

/** A notice whose title tries to alter the mail: markup, a right-to-left override, and a line that looks like a header. */
const noticeText = {
  title: "Payments <b>API</b>\u202e\r\nSubject: other",
  what: "was not rotated",
  urgency: "critical",
  why: "kv-pay/secret was changed by another user.",
  done: "The rotation left no new secret.",
  safe: "The old secret works.",
  next: "Find out who changed it.",
  appId: "11111111-1111-4111-8111-111111111111",
  rotationId: "01JDD000000000000000000000",
} as const;
/**
 * Returns an event of the current time. Its id begins with the kind of event. Its notice is `undefined` if the event is
 * outdated.
 */
const pendingNotice = (id: string, change: Partial<PendingNotice> = {}): PendingNotice => ({
  id,
  at: fixture.clock.now().toISOString(),
  notice: async () => noticeText,
  ...change,
});

/** Moves the clock by the interval of the timer, evaluates the rules and sends the messages. */
async function run(): Promise<void> {
  fixture.clock.add(15 * MINUTE_MS);
  const alerts = fixture.instance();
  await alerts.evaluate();
  await fixture.handleVisibleMessages(alerts);
}

describe("rules about rotation, sync and dependency events", () => {
  test("send each event once, except outdated events and those older than the rule", async () => {
    pending.rotationFailed = [pendingNotice("end.1")];
    fixture.clock.add(MINUTE_MS);
    const { mails } = await fixture.mailRule({ alertType: "rotationFailed", thresholds: undefined });
    await run();
    expect(mails()).toEqual([]);
    pending.rotationFailed.push(pendingNotice("end.2"), pendingNotice("end.3", { notice: async () => undefined }));
    pending.rotationDone = [pendingNotice("end.4")];
    await run();
    await run();
    expect(mails()).toHaveLength(1);
    // A notice without a time describes a current state. It is sent regardless of its age.
    pending.rotationFailed.push(
      { id: "policy.a", notice: async () => ({ ...noticeText, title: "Orders" }) },
      pendingNotice("end.5"),
    );
    await run();
    await run();
    expect(mails().map(({ subject }) => subject)).toHaveLength(2);
    expect(mails()[1]!.subject).toMatch(/^2 rotations need attention; first Orders was not/);
  });

  test("send existing sync failures on the first evaluation, whatever their age", async () => {
    pending.syncFailed = [pendingNotice("sync.1"), pendingNotice("sync.2", { notice: async () => undefined })];
    pending.rotationFailed = [pendingNotice("end.1")];
    fixture.clock.add(90 * 24 * 60 * MINUTE_MS);
    const { mails } = await fixture.mailRule({ alertType: "syncFailed", thresholds: undefined });
    const rotationRule = await fixture.mailRule({ alertType: "rotationFailed", thresholds: undefined });
    await run();
    await run();
    expect(mails().map(({ subject }) => subject)).toEqual([expect.stringContaining("was not rotated")]);
    expect(rotationRule.mails()).toEqual([]);
  });

  test("send the reason, actions, state and next step, without markup or control characters of the title", async () => {
    const { mails } = await fixture.mailRule({ alertType: "rotationFailed", thresholds: undefined });
    await run();
    pending.rotationFailed = [pendingNotice("end.1")];
    await run();
    const [mail] = mails();
    for (const text of [noticeText.why, noticeText.done, noticeText.safe, noticeText.next, noticeText.rotationId])
      expect(mail!.plainText).toContain(text);
    expect(mail!.plainText).toContain(`https://lifecycle.example/#/rotation/${noticeText.rotationId}`);
    expect(mail!.plainText).not.toMatch(/^Subject: other/m);
    expect(mail!.html).not.toContain("<b>API");
    expect(mail!.subject + mail!.plainText + mail!.html).not.toContain("\u202e");
  });

  test("are remembered for 30 days, and longer while the source lists the event", async () => {
    const { rule, mails } = await fixture.mailRule({ alertType: "rotationFailed", thresholds: undefined });
    await run();
    const policy: PendingNotice = { id: "policy.a", notice: async () => noticeText };
    pending.rotationFailed = [pendingNotice("end.1"), policy];
    await run();
    /** Returns the row keys of the rule's notifications of automation events. */
    const notifiedKeys = async () => {
      const keys: string[] = [];
      const range = { partitionKey: rule.ruleId, from: "m!", before: "n!", select: [] as const };
      for await (const rows of fixture.tables.pages(NotificationRows, range))
        keys.push(...rows.map((row) => row.rowKey));
      return keys;
    };
    pending.rotationFailed = [policy];
    fixture.clock.add(29 * DAY_MS);
    await fixture.instance().cleanUp(caller);
    expect(await notifiedKeys()).toEqual(["m!end.1", "m!policy.a"]);
    fixture.clock.add(2 * DAY_MS);
    await fixture.instance().cleanUp(caller);
    expect(await notifiedKeys()).toEqual(["m!policy.a"]);
    await run();
    expect(mails()).toHaveLength(1);
  });

  test("can be tested with an example by webhook", async () => {
    for (const alertType of ["rotationDue", "rotationDone", "rotationFailed", "syncFailed"] as const) {
      const hook = await fixture.webhookRule({ alertType, thresholds: undefined });
      await fixture.instance().test(hook.rule.ruleId, caller);
      expect(JSON.parse(hook.received()[0]!.body)).toMatchObject({
        type: `lifecycle.alert.${alertType}`,
        data: { test: true, items: [{ id: "example", what: expect.any(String), next: "No action is needed." }] },
      });
    }
  });

  test("reject all filters", async () => {
    await expect(
      fixture.mailRule({ alertType: "syncFailed", thresholds: undefined, filters: { vault: "kv-a" } }),
    ).rejects.toMatchObject({
      code: "invalidRequest",
    });
  });
});

describe("events of sync", () => {
  const failure = {
    code: "badCredentials",
    side: "target",
    message: "Refused.",
    remedy: "Set others.",
    since: "",
  } as const;
  const entry = {
    entryId: "01JDD000000000000000000001",
    recordId: "r",
    at: "2026-11-21T10:00:00.000Z",
    source: "kv/a",
    target: "aws/b",
  };

  /** Returns the notices of one sync record in a state, after one event. */
  async function noticesOf(state: "failing" | "drifted" | "inSync", kind: "failed" | "driftFound" | "updated") {
    const record = { enabled: true, state, onDrift: "report", lastSyncedAt: "2026-11-20T10:00:00.000Z" };
    const source = createSyncNotices({
      get: async () => record as never,
      async *entriesSince() {
        yield { ...entry, kind, ...(kind === "failed" && { failure }) };
      },
    });
    const notices = [];
    for await (const page of source.notices("syncFailed", new Date(0)))
      for (const { notice } of page) notices.push(await notice());
    return notices;
  }

  test("cause a notice only for failures that persist and for drift", async () => {
    expect(await noticesOf("failing", "failed")).toMatchObject([
      { title: "kv/a to aws/b", why: "Refused.", next: "Set others." },
    ]);
    expect(await noticesOf("drifted", "driftFound")).toMatchObject([{ done: "The target was not overwritten." }]);
    expect(await noticesOf("inSync", "failed")).toEqual([undefined]);
    expect(await noticesOf("inSync", "updated")).toEqual([]);
  });
});
