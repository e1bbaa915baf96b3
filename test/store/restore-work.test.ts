import type { Cloud } from "simulated-cloud/cloud.ts";
import { afterAll, beforeAll, expect, test } from "vitest";
import { createTables } from "../../shared/platform/storage/tables.ts";
import { HOUR_MS, MINUTE_MS, SECOND_MS } from "../../shared/platform/time.ts";
import { openFixture as openAlerts } from "../alerts/alerts-setup.ts";
import { eventBy, openFixture as openAudit, START } from "../audit/support.ts";
import { startTestCloud } from "../azure/live-cloud.ts";
import { createScanFixture, firstThousand } from "../discovery/scan-fixture.ts";
import { type MovedStorage, startMovedStorage } from "../support/moved-storage.ts";
import { LONG_MS } from "../support/sampling.ts";
import type { Steps } from "../support/simulated-crash.ts";
import { COPIES, caller, openFixture as openSync, SOURCE } from "../sync/sync-fixture.ts";
import { copyAccount, newFolder, openExistingTables, restoreAccount, withHookAfterWrites } from "./copies.ts";

// Each test copies the tables after each step of some work: a sync, a scan, the delivery of an alert or the sealing of the audit
// log. The work then completes, and the copy is restored. So the cloud, the key vault and the recipients of alerts are ahead of
// the restored tables.

const REGION = "eu-west-1";
/** Longer than a lease of a sync record (6 minutes), so that another worker takes over. */
const TAKEOVER_MS = 7 * MINUTE_MS;

const ALERT_ACCOUNTS = Array.from({ length: 40 }, (_, index) => `alerts${index + 1}`);

let storage: MovedStorage;
let cloud: Cloud;

beforeAll(async () => {
  storage = await startMovedStorage([
    "keyvault",
    "secretsmanager",
    "replaced",
    "scan",
    "seal",
    "replaced-empty",
    ...ALERT_ACCOUNTS,
  ]);
  const vaults = [{ name: SOURCE }, { name: COPIES }];
  ({ cloud } = await startTestCloud({ company: { subscriptions: [{ name: "Shop", vaults }] } }));
});
afterAll(async () => {
  await cloud?.stop();
  await storage?.stop();
});

const copy = async (connectionString: string, folder: string) =>
  await copyAccount(connectionString, folder, { tables: await openExistingTables(connectionString) });
const restore = async (connectionString: string, folder: string, options: Parameters<typeof restoreAccount>[2] = {}) =>
  await restoreAccount(connectionString, folder, {
    ...options,
    wholeTables: await openExistingTables(connectionString),
  });

async function openSyncAccount(account: string) {
  const connectionString = storage.azurite.connectionString(account);
  const fixture = openSync({ cloud, connectionString, storage });
  await fixture.discover(SOURCE, COPIES);
  const { secretsManager } = cloud.control.providers.aws;
  const isAws = account === "secretsmanager";
  if (isAws)
    await fixture.sync.configurations.save(
      "aws",
      { ...cloud.control.providers.aws.key, region: REGION },
      undefined,
      caller,
    );
  const target = isAws ? { targetProvider: "aws", targetService: "secretsmanager", targetRegion: REGION } : {};
  return {
    fixture,
    connectionString,
    createRecord: () => fixture.createRecord(target),
    valueOf: (name: string) => (isAws ? secretsManager.value(REGION, name) : fixture.copyValue(name)),
    countWrites: () =>
      isAws
        ? secretsManager.written()
        : cloud.control.requests({ operation: "keyvault.setSecret", vault: COPIES }).length,
    /** Restores the account. Messages are not part of a copy: the timer finds the due records. */
    async restoreAndRun(folder: string): Promise<void> {
      await restore(connectionString, folder);
      fixture.messages.splice(0);
      await fixture.passTime(TAKEOVER_MS);
      await fixture.sync.sendDueRecords();
      await fixture.drainAll();
    },
  };
}

test.each(["keyvault", "secretsmanager"])(
  "a sync to %s that completed writes nothing again if the store is restored from a copy of any of its steps",
  { timeout: LONG_MS },
  async (account) => {
    const { fixture, connectionString, ...sync } = await openSyncAccount(account);
    let copies = 0;
    // A worker crashes after its step number `crashAt`, and the copy is made then. The loop ends when a sync has fewer steps.
    for (let crashAt = 1; ; crashAt++) {
      const record = await fixture.runAndGet((await sync.createRecord()).recordId);
      const newVersion = async (value: string) => {
        fixture.putSourceSecret(value, record.sourceSecret);
        await fixture.sync.runFor(SOURCE, record.sourceSecret);
      };
      await newVersion("value-two");
      const steps: Steps = { taken: 0, crashAt, when: "after" };
      await fixture.drain(fixture.instance(steps)).catch((error: unknown) => {
        if (!steps.dead) throw error;
      });
      if (!steps.dead) break;
      const folder = newFolder();
      await copy(connectionString, folder);
      copies++;
      await fixture.passTime(TAKEOVER_MS);
      await fixture.drainAll();
      await newVersion("value-three");
      await fixture.drainAll();
      expect(sync.valueOf(record.targetName)).toBe("value-three");
      const written = sync.countWrites();
      await sync.restoreAndRun(folder);
      const copied = `copied after step ${crashAt}`;
      expect([copied, sync.countWrites() - written]).toEqual([copied, 0]);
      expect(sync.valueOf(record.targetName), copied).toBe("value-three");
      // A record that was not due in the copy runs again at its next scheduled time.
      await fixture.makeDue(record);
      const after = await fixture.runAndGet(record.recordId);
      expect([copied, after.state, sync.countWrites() - written]).toEqual([copied, "inSync", 0]);
      await fixture.removeAllRecords();
    }
    expect(copies).toBeGreaterThan(8);
  },
);

test("a restored record does not overwrite a target that another record took over after the copy", async () => {
  const { fixture, connectionString, ...sync } = await openSyncAccount("replaced");
  const { recordId, targetName, scheduleHours } = await fixture.runAndGet((await sync.createRecord()).recordId);
  const folder = newFolder();
  await copy(connectionString, folder);
  await fixture.removeAllRecords();
  const sourceSecret = fixture.putSourceSecret("of the new record");
  await fixture.runAndGet((await fixture.createRecord({ targetName, sourceSecret, adopt: true })).recordId);
  await sync.restoreAndRun(folder);
  await fixture.makeDue({ scheduleHours });
  const { state, failure } = await fixture.runAndGet(recordId);
  expect([state, failure?.code]).toEqual(["failing", "targetNotOwned"]);
  expect(sync.valueOf(targetName)).toBe("of the new record");
});

test("a scan that completed continues if the store is restored from a copy of any of its steps, and a full scan finds everything", {
  timeout: LONG_MS,
}, async () => {
  const connectionString = storage.azurite.connectionString("scan");
  let copyAt = 1;
  for (; ; copyAt++) {
    let writes = 0;
    let folder: string | undefined;
    const takeCopy = async () => {
      if (++writes !== copyAt) return;
      folder = newFolder();
      await copy(connectionString, folder);
    };
    const scanning = createScanFixture(connectionString, (tables) => withHookAfterWrites(tables, takeCopy));
    scanning.cloud.listedEntries = { secrets: [{ name: `password-${copyAt}` }] };
    expect(await scanning.scan("full")).toMatchObject({ status: "completed" });
    if (folder === undefined) break;
    await restore(connectionString, folder);

    const restarted = createScanFixture(connectionString);
    restarted.cloud.listedEntries = { secrets: [{ name: "added after the copy" }] };
    // After 61 seconds, a claim of a crashed worker has expired. The watch sends the lost message of a scan that is queued after 10
    // minutes, and that of a vault after 11: on one of the two later passes.
    for (const passed of [61 * SECOND_MS, TAKEOVER_MS, 11 * MINUTE_MS]) {
      await storage.move(passed);
      await restarted.syncClock();
      await restarted.watch();
      await restarted.deliverMessages();
    }
    const copied = `copied after write ${copyAt}`;
    const { items } = await restarted.discovery.list(firstThousand);
    expect([copied, items.filter(({ status }) => status === "queued" || status === "running")]).toEqual([copied, []]);
    expect(await restarted.scan("full")).toMatchObject({ status: "completed" });
    expect([copied, await restarted.assetLines()]).toEqual([
      copied,
      ["1 kv-one secret", "1 kv-three secret", "1 kv-two secret"],
    ]);
    const found = await restarted.assets.list({}, firstThousand, { now: Date.now(), criticalDays: 7, warningDays: 30 });
    expect(found.items.every(({ asset }) => asset.name === "added after the copy")).toBe(true);
  }
  expect(copyAt).toBeGreaterThan(8);
});

test("verification names what was lost if the store is restored from a copy of any step of a seal", {
  timeout: LONG_MS,
}, async () => {
  const connectionString = storage.azurite.connectionString("seal");
  let copyAt = 1;
  for (; ; copyAt++) {
    const fixture = openAudit(connectionString, { start: START });
    let writes = 0;
    let folder: string | undefined;
    const takeCopy = async () => {
      if (++writes !== copyAt) return;
      folder = newFolder();
      await copy(connectionString, folder);
    };
    const tables = withHookAfterWrites(createTables({ connectionString }), takeCopy);
    await fixture.audit.append(eventBy("before"));
    fixture.clock.addMinutes(12);
    await fixture.instance({ tables }).seal();
    await fixture.audit.append(eventBy("lost"));
    fixture.clock.addMinutes(12);
    await fixture.audit.seal();
    expect(await fixture.audit.verify({})).toMatchObject({ intact: true });

    if (folder !== undefined)
      await restore(connectionString, folder, { append: fixture.audit.append, clock: fixture.clock });
    const restarted = fixture.instance();
    const copied = `copied after write ${copyAt}`;
    if (folder === undefined) break;
    for (const when of ["before the next seal", "after it"]) {
      const { intact, findings, anchor } = await restarted.verify({});
      const state = [copied, when, anchor.state, JSON.stringify(findings)];
      expect([...state, intact]).toEqual([...state, false]);
      // Names the digests that the key vault remembers and the restored tables lack.
      expect(state.join(" ")).toMatch(when === "after it" ? /digestsCut/ : /differs.*digestsCut/);
      fixture.clock.addMinutes(12);
      await restarted.seal();
    }
    const actors = (await restarted.list({}, firstThousand)).items.map(
      ({ actor, eventType }) => `${actor} ${eventType}`,
    );
    expect(actors).toContain("system store.restored");
    expect(actors).not.toContain("lost settings.changed");
    // Empties the account for the next step.
    await restore(connectionString, await emptyCopy());
  }
  expect(copyAt).toBeGreaterThan(3);
});

test("an alert that was delivered after the copy is not sent again if the store is restored from a copy of any step of its delivery", {
  timeout: LONG_MS,
}, async () => {
  const statuses = new Set<string>();
  let copyAt = 1;
  for (; ; copyAt++) {
    // A restore marks the account, so each copy needs an account of its own.
    const connectionString = storage.azurite.connectionString(`alerts${copyAt}`);
    const fixture = openAlerts({ connectionString, cloud });
    const { clock } = fixture;
    await fixture.writeAssets("kv-a", [{ name: "one", expiresInDays: 8.5 }]);
    const [hook, mail] = [await fixture.webhookRule(), await fixture.mailRule()];
    const sent = () => [hook.received().length, mail.mails().length];
    let writes = 0;
    let folder: string | undefined;
    const takeCopy = async () => {
      if (++writes !== copyAt) return;
      folder = newFolder();
      await copyAccount(connectionString, folder, { clock });
    };
    const tables = withHookAfterWrites(fixture.tables, takeCopy);
    const alerts = fixture.instance(undefined, { tables, clock });
    await alerts.evaluate();
    await fixture.handleAllMessages(alerts);
    expect(sent()).toEqual([1, 1]);
    if (folder === undefined) break;
    await restoreAccount(connectionString, folder, { clock });

    const restarted = fixture.instance();
    for (let round = 0; round < 2; round++) {
      clock.add(HOUR_MS);
      await restarted.evaluate();
      await fixture.handleAllMessages(restarted);
    }
    const copied = `copied after write ${copyAt}`;
    const { items } = await restarted.history.list({}, firstThousand);
    expect([copied, ...sent(), items.length]).toEqual([copied, 1, 1, 2]);
    for (const { status } of items) statuses.add(status);
    // A copy from after the delivery says that the alert was sent. With an earlier copy the alert is held, because it may have
    // been sent, until a user sends or drops it.
    for (const { status, deliveryId } of items) if (status === "inDoubt") await restarted.held.drop(deliveryId, caller);
    await restarted.evaluate();
    await fixture.handleAllMessages(restarted);
    expect([copied, ...sent()]).toEqual([copied, 1, 1]);
  }
  expect(copyAt).toBeGreaterThan(8);
  expect([...statuses].sort()).toEqual(["delivered", "inDoubt"]);
});

/** Returns a copy of an account without rows. */
async function emptyCopy(): Promise<string> {
  const folder = newFolder();
  await copy(storage.azurite.connectionString("replaced-empty"), folder);
  return folder;
}
