/*
 * Plans of scans: a scan's first message lists the vaults (the plan), claims as many as workers are allowed, and scans up to
 * ten of them in the same invocation. Also: vaults that move between subscriptions. The watch is a timer that replaces lost
 * messages. `run.scan(scanId, delivery)` handles a scan's first message. `delivery` is 1 the first time, and 2 if the queue
 * delivers the message again because the first invocation did not end.
 */
import { setTimeout as delay } from "node:timers/promises";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { QUEUES } from "../../shared/discovery/scan.ts";
import { CloudFailure } from "../../shared/platform/azure/failure.ts";
import { MINUTE_MS, SECOND_MS } from "../../shared/platform/time.ts";
import { type MovedStorage, startMovedStorage } from "../support/moved-storage.ts";
import { IS_CAMPAIGN, SEED } from "../support/sampling.ts";
import { crashable, type Steps } from "../support/simulated-crash.ts";
import {
  caller,
  createScanFixture,
  FIRST_SUBSCRIPTION,
  firstThousand,
  type ScanFixture,
  SECOND_SUBSCRIPTION,
} from "./scan-fixture.ts";

/**
 * Names of storage accounts in the emulator. A test, or each of its rounds, uses one of its own, so that it starts empty.
 * Several fixtures on one account act like several processes of the service.
 */
const ACCOUNTS = Array.from({ length: 100 }, (_, index) => `account${index}`);

let storage: MovedStorage;
let usedAccounts = 0;
beforeAll(async () => {
  storage = await startMovedStorage(ACCOUNTS);
});
afterAll(() => storage?.stop());

let fixture: ScanFixture;
beforeEach(() => {
  fixture = createScanFixture(storage.azurite.connectionString(ACCOUNTS[usedAccounts++]!));
});

describe("a plan", () => {
  test("that is delivered twice at the same time is written once", async () => {
    const { discovery, sentMessages } = fixture;
    const { scanId } = await discovery.start({ mode: "full" }, caller);
    sentMessages.length = 0;
    let listings = 0;
    let releaseBoth = () => {};
    const untilBothListed = new Promise<void>((resolve) => {
      releaseBoth = resolve;
    });
    fixture.cloud.whileListingVaults = async () => {
      // Two planners each list two subscriptions.
      if (++listings === 4) releaseBoth();
      await untilBothListed;
    };
    // Each planner waits in its listings for the other. If one ended early, `releaseBoth` would let the other continue.
    await Promise.all([1, 2].map(() => fixture.plan(scanId).then(releaseBoth)));
    expect(
      sentMessages
        .filter(({ queue }) => queue === QUEUES.vaults)
        .map(({ message }) => message.index)
        .sort(),
    ).toEqual(["000000", "000001", "000002"]);
    await fixture.deliverMessages();
    expect(await discovery.progress(scanId)).toMatchObject({ status: "completed", vaultsDone: 3 });
  });

  test("that was overtaken by another delivery does not overwrite the running scan", async () => {
    const { discovery, run, sentMessages } = fixture;
    const { scanId } = await discovery.start({ mode: "full" }, caller);
    sentMessages.length = 0;
    let isOvertaken = false;
    fixture.cloud.whileListingVaults = async () => {
      if (isOvertaken) return;
      isOvertaken = true;
      await run.scan(scanId, 1);
    };
    await run.scan(scanId, 1);
    expect(isOvertaken).toBe(true);
    expect(fixture.cloud.secretListings).toBe(3);
    expect(await discovery.progress(scanId)).toMatchObject({ status: "completed", vaultsTotal: 3, vaultsDone: 3 });
    expect((await discovery.results(scanId, firstThousand)).page.items).toHaveLength(3);
  });

  test("sends no messages for a duplicate, but does for the second delivery of its message", async () => {
    const { discovery, run, sentMessages } = fixture;
    const { scanId } = await discovery.start({ mode: "full" }, caller);
    await fixture.plan(scanId);
    sentMessages.length = 0;
    await run.scan(scanId, 1);
    expect(sentMessages).toEqual([]);
    await run.scan(scanId, 2);
    expect(sentMessages.filter(({ queue }) => queue === QUEUES.vaults)).toHaveLength(3);
  });

  test("that waits for workers gets no additional message from the watch", async () => {
    const { discovery, run, watch, sentMessages, settings } = fixture;
    settings.discoveryMaxWorkers = 1;
    const busy = await discovery.start({ mode: "full" }, caller);
    await run.plan(busy.scanId, 1);
    const waiting = await discovery.start({ mode: "force" }, caller);
    for (let round = 0; round < 3; round++) {
      sentMessages.length = 0;
      await run.plan(waiting.scanId, 1);
      expect(sentMessages).toMatchObject([{ queue: QUEUES.plan, message: { scanId: waiting.scanId } }]);
      await watch();
      expect(sentMessages.filter(({ queue }) => queue === QUEUES.plan)).toHaveLength(1);
      await storage.move(4 * MINUTE_MS);
    }
    // After eleven minutes the message counts as lost, and the watch replaces it once.
    await storage.move(11 * MINUTE_MS);
    sentMessages.length = 0;
    await watch();
    await watch();
    expect(sentMessages.filter(({ queue }) => queue === QUEUES.plan)).toHaveLength(1);
  });
});

/** Methods of `Tables` that write. */
const WRITES = ["insert", "put", "replace", "remove", "modify", "transaction", "write"];
/** Every n-th write is tested with a crash. */
const STRIDE = IS_CAMPAIGN ? 1 : 9;

describe("a scan within the invocation of its one message", () => {
  const vaultNames = (count: number) =>
    Array.from({ length: count }, (_, index) => `kv-${String(index).padStart(2, "0")}`);

  test("is planned, scanned and ended there without another message", async () => {
    fixture.cloud.vaults.set(FIRST_SUBSCRIPTION, vaultNames(12));
    const { scanId } = await fixture.discovery.start({ mode: "full" }, caller);
    expect(fixture.takeMessages(QUEUES.plan)).toHaveLength(1);
    await fixture.run.scan(scanId, 1);
    expect(fixture.sentMessages).toEqual([]);
    expect(fixture.cloud.secretListings).toBe(12);
    expect(await fixture.discovery.progress(scanId)).toMatchObject({ status: "completed", vaultsDone: 12 });
  });

  test("scans ten vaults at once, and leaves those of further workers to messages", async () => {
    fixture.cloud.vaults.set(FIRST_SUBSCRIPTION, vaultNames(16));
    fixture.settings.discoveryMaxWorkers = 12;
    let active = 0;
    let maxActive = 0;
    fixture.cloud.whileListingSecrets = async () => {
      maxActive = Math.max(maxActive, ++active);
      // Each worker waits until ten are active.
      while (maxActive < 10) await delay(5);
      active--;
    };
    const { scanId } = await fixture.discovery.start({ mode: "full" }, caller);
    fixture.takeMessages(QUEUES.plan);
    const first = fixture.run.scan(scanId, 1);
    await expect.poll(() => fixture.sentMessages.length).toBe(2);
    await Promise.all([first, ...fixture.takeMessages(QUEUES.vaults).map((one) => fixture.handleMessage(one))]);
    expect(maxActive).toBeGreaterThanOrEqual(10);
    expect(maxActive).toBeLessThanOrEqual(12);
    expect(await fixture.discovery.progress(scanId)).toMatchObject({ status: "completed", vaultsDone: 16 });
    expect(fixture.cloud.secretListings).toBe(16);
  });

  test("leaves vaults that it did not start within 15 seconds to messages", async () => {
    fixture.cloud.vaults.set(FIRST_SUBSCRIPTION, vaultNames(9));
    fixture.settings.discoveryMaxWorkers = 3;
    let timeMoved: Promise<void> | undefined;
    const moveTime = async () => {
      await storage.move(16 * SECOND_MS);
      await fixture.syncClock();
    };
    // The first three reads wait until the time has passed. Then two of the three workers stop, and each sends a message for
    // the vault that it claimed next. The third worker reads the other vaults.
    fixture.cloud.whileListingSecrets = () => {
      timeMoved ??= moveTime();
      return timeMoved;
    };
    const { scanId } = await fixture.discovery.start({ mode: "full" }, caller);
    fixture.takeMessages(QUEUES.plan);
    await fixture.run.scan(scanId, 1);
    expect(fixture.sentMessages).toHaveLength(2);
    expect(await fixture.discovery.progress(scanId)).toMatchObject({ status: "running", vaultsDone: 7 });
    await fixture.deliverMessages();
    expect(await fixture.discovery.progress(scanId)).toMatchObject({ status: "completed", vaultsDone: 9 });
    expect(fixture.cloud.secretListings).toBe(9);
  });

  test("scans its claimed vaults although the response to its start was lost and the scan was canceled", async () => {
    const connection = storage.azurite.connectionString(ACCOUNTS[usedAccounts++]!);
    const other = createScanFixture(connection);
    let isLost = false;
    const worker = createScanFixture(connection, (tables) => ({
      ...tables,
      replace: async (entity, row) => {
        const written = await tables.replace(entity, row);
        if (isLost || (row as { status?: string }).status !== "running") return written;
        // The response is lost, and the scan is canceled before the request is retried.
        isLost = true;
        await other.discovery.cancel(scanId, caller);
        return await tables.replace(entity, row);
      },
    }));
    worker.cloud.vaults.set(FIRST_SUBSCRIPTION, vaultNames(14));
    worker.settings.discoveryMaxWorkers = 12;
    const { scanId } = await other.discovery.start({ mode: "full" }, caller);
    await worker.run.scan(scanId, 1);
    expect(worker.takeMessages(QUEUES.vaults).map(({ message }) => message.index)).toEqual(["000010", "000011"]);
    expect(worker.cloud.secretListings).toBe(10);
    for (const index of ["000010", "000011"]) await worker.run.scanVaults({ scanId, index }, 1);
    expect(await other.discovery.progress(scanId)).toMatchObject({ status: "cancelled", vaultsDone: 12 });
  });

  test("scans the other vaults if one fails, and its next delivery sends a message for that vault", async () => {
    fixture.cloud.vaults.set(FIRST_SUBSCRIPTION, vaultNames(5));
    const { readForUpdate } = fixture.writer;
    fixture.writer.readForUpdate = async (name) => {
      if (name === "kv-03") throw new Error("storage fails");
      return await readForUpdate(name);
    };
    const { scanId } = await fixture.discovery.start({ mode: "full" }, caller);
    fixture.takeMessages(QUEUES.plan);
    await expect(fixture.run.scan(scanId, 1)).rejects.toThrow("storage fails");
    expect(await fixture.discovery.progress(scanId)).toMatchObject({ status: "running", vaultsDone: 4 });
    fixture.writer.readForUpdate = readForUpdate;
    await fixture.run.scan(scanId, 2);
    expect(fixture.sentMessages).toEqual([
      { queue: QUEUES.vaults, message: { scanId, index: "000003" }, delaySeconds: 0 },
    ]);
    await fixture.deliverMessages();
    expect(await fixture.discovery.progress(scanId)).toMatchObject({ status: "completed", vaultsDone: 5 });
  });

  test("is completed by the next delivery after a crash at any write", async () => {
    let crashes = 0;
    for (let crashAt = 1 + (SEED % STRIDE); ; crashAt += STRIDE) {
      const connection = storage.azurite.connectionString(ACCOUNTS[usedAccounts++]!);
      const other = createScanFixture(connection);
      const { scanId } = await other.discovery.start({ mode: "full" }, caller);
      other.takeMessages(QUEUES.plan);
      const steps: Steps = { taken: 0, crashAt: crashAt, when: crashAt % 2 ? "before" : "after" };
      const crashing = createScanFixture(connection, (tables) =>
        crashable(tables, steps, (method) => WRITES.includes(method)),
      );
      await crashing.run.scan(scanId, 1).catch(() => {});
      if (!steps.dead) break;
      crashes++;
      const { status } = await other.discovery.progress(scanId);
      if (status === "queued" || status === "running") {
        await storage.move(11 * MINUTE_MS);
        await other.run.scan(scanId, 2);
        await other.deliverMessages();
        await other.watch();
        await other.deliverMessages();
      }
      expect(await other.discovery.progress(scanId), `crash ${crashAt}`).toMatchObject({
        status: "completed",
        vaultsDone: 3,
      });
      expect(await other.assetLines()).toHaveLength(6);
      expect(await other.auditEntriesOf("scan.finished")).toHaveLength(1);
      expect(await other.active.all()).toEqual([]);
    }
    expect(crashes).toBeGreaterThan(1);
  });
});

describe("the list of scans", () => {
  test("shows the current status of a scan while it runs", async () => {
    const { discovery } = fixture;
    const { scanId } = await discovery.start({ mode: "full" }, caller);
    fixture.sentMessages.length = 0;
    const readStatuses = async () => (await discovery.list(firstThousand)).items.map(({ status }) => status);
    expect(await readStatuses()).toEqual(["queued"]);
    await fixture.plan(scanId);
    expect(await readStatuses()).toEqual(["running"]);
    await fixture.deliverMessages();
    expect(await readStatuses()).toEqual(["completed"]);
  });
});

describe("a vault that moved to another subscription", () => {
  test.each(["first", "last"] as const)("is stored only there if the %s message is delivered first", async (order) => {
    await fixture.scan("full");
    fixture.cloud.vaults = new Map([
      [FIRST_SUBSCRIPTION, ["kv-one", "kv-two"]],
      [SECOND_SUBSCRIPTION, ["kv-three"]],
    ]);
    expect(await fixture.scan("delta", order)).toMatchObject({ status: "completed" });
    const expectedLines = ["1 kv-one", "1 kv-two", "2 kv-three"].flatMap((vault) => [
      `${vault} certificate`,
      `${vault} secret`,
    ]);
    expect(await fixture.assetLines()).toEqual(expectedLines);
    expect(await fixture.assetLines({ subscription: FIRST_SUBSCRIPTION })).toEqual(expectedLines.slice(0, 4));
    expect(await fixture.assetLines({ subscription: SECOND_SUBSCRIPTION })).toEqual(expectedLines.slice(4));
  });

  test("is not removed by a scan that planned its removal before another scan found it", async () => {
    await fixture.scan("full");
    fixture.cloud.vaults.set(FIRST_SUBSCRIPTION, ["kv-one", "kv-two"]);
    const { discovery, sentMessages } = fixture;
    const removing = await discovery.start({ mode: "delta", subscriptions: [FIRST_SUBSCRIPTION] }, caller);
    await fixture.plan(removing.scanId);
    const messages = sentMessages.splice(0);
    fixture.cloud.vaults.set(SECOND_SUBSCRIPTION, ["kv-three"]);
    await discovery.start({ mode: "delta", subscriptions: [SECOND_SUBSCRIPTION] }, caller);
    await fixture.deliverMessages();
    sentMessages.push(...messages.filter(({ message }) => message.scanId === removing.scanId && "index" in message));
    await fixture.deliverMessages();
    expect(await fixture.assetLines({ subscription: SECOND_SUBSCRIPTION })).toEqual([
      "2 kv-three certificate",
      "2 kv-three secret",
    ]);
  });
});

describe("details that could not be read", () => {
  test("make scans partial until a scan of any mode has read them", async () => {
    fixture.cloud.certificate = () => {
      throw new CloudFailure("throttled", "Too many requests.", { remedy: "Wait." });
    };
    expect(await fixture.scan("full")).toMatchObject({ status: "partial" });
    expect(await fixture.scan("delta")).toMatchObject({ status: "partial" });
    fixture.cloud.certificate = () => ({ version: "1", subject: "CN=www" });
    expect(await fixture.scan("delta")).toMatchObject({ status: "completed" });
    const { items } = await fixture.assets.list({ type: "certificate" }, firstThousand, {
      now: 0,
      criticalDays: 7,
      warningDays: 30,
    });
    expect(items.map(({ asset }) => asset.subject)).toEqual(["CN=www", "CN=www", "CN=www"]);
    let detailReads = 0;
    fixture.cloud.certificate = () => {
      detailReads++;
      return {};
    };
    expect(await fixture.scan("delta")).toMatchObject({ status: "completed" });
    expect(detailReads).toBe(0);
  });
});
