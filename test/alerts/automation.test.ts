import type { Cloud } from "simulated-cloud/cloud.ts";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import type { AutomationSource, AutomationType, PendingNotice } from "../../shared/alerts/automation-events.ts";
import { createSyncNotices } from "../../shared/alerts/sync-notices.ts";
import { liveIn } from "../azure/live-cloud.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import { caller, type Fixture, openFixture } from "./alerts-setup.ts";

const MINUTES = 60_000;
const ACCOUNTS = Array.from({ length: 16 }, (_, index) => `automation${index}`);

let azurite: TestStorage;
let cloud: Cloud;
let next = 0;
let fixture: Fixture;
/** Events by type. */
let pending: Partial<Record<AutomationType, PendingNotice[]>>;

beforeAll(async () => {
  azurite = await openStorage(ACCOUNTS);
  ({ cloud } = await liveIn({ company: { subscriptions: [] } }));
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
  fixture = openFixture({ connectionString: azurite.connectionString(ACCOUNTS[next++]!), cloud, automation: [source] });
});

const words = {
  title: "Payments <b>API</b>\u202e\r\nSubject: other",
  what: "was not rotated",
  urgency: "critical",
  why: "kv-pay/secret was changed by somebody else.",
  done: "No new secret of this rotation is left.",
  safe: "The old secret works.",
  next: "See who changed it.",
  appId: "11111111-1111-4111-8111-111111111111",
  rotationId: "01JDD000000000000000000000",
} as const;
const pendingNotice = (id: string, more: Partial<PendingNotice> = {}): PendingNotice => ({
  id,
  at: fixture.clock.now().toISOString(),
  notice: async () => words,
  ...more,
});

async function run(): Promise<void> {
  fixture.clock.add(15 * MINUTES);
  const alerts = fixture.instance();
  await alerts.evaluate();
  await fixture.drain(alerts);
}

describe("rules about rotation, sync and dependency events", () => {
  test("notify of each event once, and ignore events that are outdated or older than the rule", async () => {
    pending.rotationFailed = [pendingNotice("end.1")];
    fixture.clock.add(MINUTES);
    const { mails } = await fixture.mailRule({ alertType: "rotationFailed", thresholds: undefined });
    await run();
    expect(mails()).toEqual([]);
    pending.rotationFailed.push(pendingNotice("end.2"), pendingNotice("end.3", { notice: async () => undefined }));
    pending.rotationDone = [pendingNotice("end.4")];
    await run();
    await run();
    expect(mails()).toHaveLength(1);
    // A current state is reported regardless of its age.
    pending.rotationFailed.push(
      { id: "policy.a", notice: async () => ({ ...words, title: "Orders" }) },
      pendingNotice("end.5"),
    );
    await run();
    await run();
    expect(mails().map(({ subject }) => subject)).toHaveLength(2);
    expect(mails()[1]!.subject).toMatch(/^2 rotations need attention; first Orders was not/);
  });

  test("report existing failures on the first evaluation, regardless of their age", async () => {
    pending.syncFailed = [pendingNotice("sync.1"), pendingNotice("sync.2", { notice: async () => undefined })];
    pending.rotationFailed = [pendingNotice("end.1")];
    fixture.clock.add(90 * 24 * 60 * MINUTES);
    const { mails } = await fixture.mailRule({ alertType: "syncFailed", thresholds: undefined });
    const others = await fixture.mailRule({ alertType: "rotationFailed", thresholds: undefined });
    await run();
    await run();
    expect(mails().map(({ subject }) => subject)).toEqual([expect.stringContaining("was not rotated")]);
    expect(others.mails()).toEqual([]);
  });

  test("contain reason, actions, state and next step, and names can't alter the mail", async () => {
    const { mails } = await fixture.mailRule({ alertType: "rotationFailed", thresholds: undefined });
    await run();
    pending.rotationFailed = [pendingNotice("end.1")];
    await run();
    const [mail] = mails();
    for (const text of [words.why, words.done, words.safe, words.next, words.rotationId])
      expect(mail!.plainText).toContain(text);
    expect(mail!.plainText).toContain(`/api/automation/rotation/rotations/${words.rotationId}`);
    expect(mail!.plainText).not.toMatch(/^Subject: other/m);
    expect(mail!.html).not.toContain("<b>API");
    expect(mail!.subject + mail!.plainText + mail!.html).not.toContain("\u202e");
  });

  test("can be tested with an example, also by webhook", async () => {
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

  async function notices(state: "failing" | "drifted" | "inSync", kind: "failed" | "driftFound" | "updated") {
    const record = { enabled: true, state, onDrift: "report", lastSyncedAt: "2026-11-20T10:00:00.000Z" };
    const source = createSyncNotices({
      get: async () => record as never,
      async *entriesSince() {
        yield { ...entry, kind, ...(kind === "failed" && { failure }) };
      },
    });
    const found = [];
    for await (const page of source.notices("syncFailed", new Date(0)))
      for (const { notice } of page) found.push(await notice());
    return found;
  }

  test("are persisting failures and drift only", async () => {
    expect(await notices("failing", "failed")).toMatchObject([
      { title: "kv/a to aws/b", why: "Refused.", next: "Set others." },
    ]);
    expect(await notices("drifted", "driftFound")).toMatchObject([{ done: "The target was not overwritten." }]);
    expect(await notices("inSync", "failed")).toEqual([undefined]);
    expect(await notices("inSync", "updated")).toEqual([]);
  });
});
