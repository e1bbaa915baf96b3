import type { Cloud } from "simulated-cloud/cloud.ts";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { VAULTS, Vaults, vaultKey } from "../../shared/inventory/vault.ts";
import { withoutKeys } from "../../shared/platform/storage/entity.ts";
import { SECOND_MS } from "../../shared/platform/time.ts";
import { Records, type SyncRecordRow } from "../../shared/sync/record.ts";
import { startTestCloud } from "../azure/live-cloud.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import { COPIES, caller, type Fixture, HOUR_MS, openFixture, SOURCE } from "./sync-fixture.ts";

// A record remembers the identity of its key vaults (resource id and creation date). Another vault that later has the same name must
// not get or provide a value until a user confirms it.

const ACCOUNTS = Array.from({ length: 40 }, (_, index) => `vaults${String(index).padStart(2, "0")}`);
let storage: TestStorage;
let cloud: Cloud;
let fixture: Fixture;
let fixtures = 0;
/** IDs of the subscription that has the vaults, and of another one to which they can move. */
let shop: string;
let otherSubscription: string;

beforeAll(async () => {
  storage = await openStorage(ACCOUNTS);
  const company = {
    subscriptions: [
      { name: "Shop", vaults: [] },
      { name: "Stranger", vaults: [] },
    ],
  };
  ({ cloud } = await startTestCloud({ company }));
  [shop, otherSubscription] = cloud.control.subscriptions().map(({ id }) => id) as [string, string];
});
afterAll(async () => {
  await cloud?.stop();
  await storage?.stop();
});
beforeEach(async () => {
  for (const name of [SOURCE, COPIES]) cloud.control.putVault(shop, { name, createdDaysAgo: 400 });
  fixture = openFixture({ cloud, connectionString: storage.connectionString(ACCOUNTS[fixtures++]!) });
  await fixture.discover(SOURCE, COPIES);
});
afterEach(() => cloud.control.clearFaults());

/** Returns the vault of each request during some work that reads, writes, recovers or deletes a secret. */
async function valueRequests(work: () => Promise<unknown>): Promise<string[]> {
  cloud.control.resetCounts();
  await work();
  return cloud.control
    .requests()
    .filter(({ operation }) => /^keyvault\.(getSecret|setSecret|recoverSecret|deleteSecret)$/.test(operation))
    .flatMap(({ vault = "" }) => ([SOURCE, COPIES].includes(vault) ? [vault] : []));
}

/** Runs a record. The service may still use descriptions of the vaults that it has cached. */
const rerunNow = async ({ recordId }: SyncRecordRow): Promise<SyncRecordRow> => {
  await fixture.sync.trigger(recordId, caller);
  return await fixture.runAndGet(recordId);
};
/** Runs a record after the cached descriptions of the vaults have expired. */
const rerun = async (record: SyncRecordRow): Promise<SyncRecordRow> => {
  await fixture.passTime(20 * SECOND_MS);
  return await rerunNow(record);
};
const confirm = async ({ recordId }: SyncRecordRow): Promise<SyncRecordRow> => {
  await fixture.sync.records.change(recordId, { confirmVaults: true }, caller, undefined);
  return await fixture.runAndGet(recordId);
};
/** Creates a record and runs it. */
const createAndRun = async (given: Parameters<Fixture["createRecord"]>[0] = {}) => {
  const record = await fixture.runAndGet((await fixture.createRecord(given)).recordId);
  expect(record).toMatchObject({ state: "inSync" });
  return record;
};

/** Ways in which another vault gets the name of an existing one. In another subscription, a scan finds it first. */
const REPLACEMENTS: [how: string, replace: (name: string) => Promise<void>][] = [
  ["created again in the same subscription", async (name) => cloud.control.putVault(shop, { name })],
  [
    "created in another subscription",
    async (name) => {
      cloud.control.removeVault(name);
      cloud.control.putVault(otherSubscription, { name });
      await fixture.discover(name);
    },
  ],
  [
    "created in another subscription, with a date in the past",
    async (name) => {
      cloud.control.removeVault(name);
      cloud.control.putVault(otherSubscription, { name, createdDaysAgo: 400 });
      await fixture.discover(name);
    },
  ],
];

describe.each(REPLACEMENTS)("a key vault %s", (_how, replace) => {
  test("is not written to as a target until a user confirms it", async () => {
    const record = await createAndRun();
    await replace(COPIES);
    const requests = await valueRequests(() => rerun(record));
    expect(requests).toEqual([]);
    expect(fixture.copyValue(record.targetName)).toBeUndefined();
    const failed = await fixture.sync.get(record.recordId);
    expect(failed).toMatchObject({ state: "failing", failure: { code: "otherPlace", side: "target" } });
    expect(failed.failure!.message).toContain(record.targetIdentity!.id);
    expect(failed.failure!.remedy).toContain("confirmVaults");
    expect(await fixture.historyKinds(record.recordId)).toEqual(["failed", "created"]);
    expect(await fixture.sync.plan(record.recordId)).toMatchObject({ failure: { code: "otherPlace" } });
    await expect(fixture.sync.remove(record.recordId, true, undefined, caller)).rejects.toMatchObject({
      code: "conflict",
    });

    expect(await confirm(record)).toMatchObject({ state: "inSync" });
    expect(fixture.copyValue(record.targetName)).toBe("value-one");
    expect(await fixture.historyKinds(record.recordId)).toEqual(["mended", "failed", "created"]);
  });

  test("is not read as a source until a user confirms it", async () => {
    const record = await createAndRun();
    await replace(SOURCE);
    fixture.putSourceSecret("value-of-a-stranger", record.sourceSecret);
    expect(await valueRequests(() => rerun(record))).toEqual([]);
    expect(fixture.copyValue(record.targetName)).toBe("value-one");
    expect(await fixture.sync.get(record.recordId)).toMatchObject({ failure: { code: "otherPlace", side: "source" } });

    expect(await confirm(record)).toMatchObject({ state: "inSync" });
    expect(fixture.copyValue(record.targetName)).toBe("value-of-a-stranger");
  });
});

test("the source vault of a copy at another provider is checked, too", async () => {
  const { kubernetes } = cloud.control.providers.configurations();
  await fixture.sync.configurations.save("kubernetes", { ...kubernetes }, undefined, caller);
  const target = { targetProvider: "kubernetes", targetService: "secret", targetRegion: undefined };
  const record = await createAndRun({ ...target, targetName: fixture.unusedName("placed") });
  cloud.control.putVault(shop, { name: SOURCE });
  fixture.putSourceSecret("value-of-a-stranger", record.sourceSecret);
  expect(await valueRequests(() => rerun(record))).toEqual([]);
  expect(await fixture.sync.get(record.recordId)).toMatchObject({ failure: { code: "otherPlace", side: "source" } });
});

test("a vault that a scan has not found in its new subscription is not used", async () => {
  const record = await createAndRun();
  cloud.control.removeVault(COPIES);
  cloud.control.putVault(otherSubscription, { name: COPIES, createdDaysAgo: 400 });
  expect(await valueRequests(() => rerun(record))).toEqual([]);
  const { failure } = await fixture.sync.get(record.recordId);
  expect(failure).toMatchObject({ code: "notFound", side: "target" });
  expect(failure!.message).toContain(record.targetIdentity!.id.split("/")[2]);
  expect(fixture.copyValue(record.targetName)).toBeUndefined();
});

test("a vault that was deleted and recovered is the same one", async () => {
  const record = await createAndRun();
  for (const operation of ["arm.getVault", "keyvault.*"]) {
    cloud.control.addFault({ match: { operation, vault: COPIES }, action: { kind: "fail", status: 404 } });
  }
  expect(await rerun(record)).toMatchObject({ failure: { code: "notFound", side: "target" } });
  cloud.control.clearFaults();
  expect(await rerun(record)).toMatchObject({ state: "inSync" });
  expect(await fixture.historyKinds(record.recordId)).toEqual(["recovered", "failed", "created"]);
});

test("a vault that was moved to another resource group must be confirmed once", async () => {
  const record = await createAndRun();
  cloud.control.changeVault(COPIES, { resourceGroup: "rg-new" });
  const row = (await fixture.tables.get(Vaults, VAULTS, vaultKey(COPIES)))!;
  await fixture.tables.replace(Vaults, { ...row, id: row.id.replace("rg-security", "rg-new") });
  expect(await rerun(record)).toMatchObject({ failure: { code: "otherPlace", side: "target" } });
  expect(await confirm(record)).toMatchObject({ state: "inSync" });
  expect(await rerun(record)).toMatchObject({ state: "inSync" });
});

test("a vault that is created again between the check and the write gets no value", async () => {
  const record = await createAndRun();
  fixture.putSourceSecret("value-two", record.sourceSecret);
  fixture.onAuditEvent = async ({ type, outcome }) => {
    if (type === "syncTarget.written" && outcome === "intent") cloud.control.putVault(shop, { name: COPIES });
  };
  expect(await rerun(record)).toMatchObject({ failure: { code: "otherPlace", side: "target" } });
  fixture.onAuditEvent = undefined;
  expect(fixture.copyValue(record.targetName)).toBeUndefined();
});

test.each([SOURCE, COPIES])(
  "%s is not used right after it was created again, despite cached descriptions",
  async (name) => {
    const record = await createAndRun();
    fixture.putSourceSecret("value-two", record.sourceSecret);
    cloud.control.putVault(shop, { name });
    if (name === SOURCE) fixture.putSourceSecret("value-of-a-stranger", record.sourceSecret);
    expect(await valueRequests(() => rerunNow(record))).not.toContain(name);
    expect(await fixture.sync.get(record.recordId)).toMatchObject({ failure: { code: "otherPlace" } });
    expect(fixture.copyValue(record.targetName)).toBe(name === SOURCE ? "value-one" : undefined);
  },
);

test("a vault that is created again after it was confirmed must be confirmed again", async () => {
  const record = await createAndRun();
  cloud.control.putVault(shop, { name: COPIES });
  expect(await confirm(record)).toMatchObject({ state: "inSync" });
  cloud.control.putVault(shop, { name: COPIES, createdDaysAgo: 1 });
  expect(await rerun(record)).toMatchObject({ failure: { code: "otherPlace" } });
});

test("a new record does not use a vault that was created after the record", async () => {
  const record = await fixture.createRecord();
  // The cloud's creation dates have whole seconds, so the date must be clearly later than the record's.
  cloud.control.putVault(shop, { name: COPIES, createdDaysAgo: -1 });
  expect(await fixture.runAndGet(record.recordId)).toMatchObject({ failure: { code: "otherPlace", side: "target" } });
  expect(fixture.copyValue(record.targetName)).toBeUndefined();
});

test("an inventory row that was changed to name another vault does not cause a write to that vault", async () => {
  cloud.control.putVault(otherSubscription, { name: "kv-stranger", createdDaysAgo: 400 });
  const { recordId } = await fixture.createRecord();
  const row = (await fixture.tables.get(Vaults, VAULTS, vaultKey(COPIES)))!;
  const id = row.id.replace(shop, otherSubscription).replace(COPIES, "kv-stranger");
  await fixture.tables.replace(Vaults, { ...row, id, vaultUri: row.vaultUri.replace(COPIES, "kv-stranger") });
  expect(await fixture.runAndGet(recordId)).toMatchObject({ failure: { code: "notFound", side: "target" } });
  expect(cloud.control.items("kv-stranger", "secrets")).toEqual([]);
});

test.each([
  ["can't be read for missing permissions", { kind: "deny" }, "accessDenied"],
  ["are unavailable", { kind: "fail", status: 503 }, "unreachable"],
] as const)("descriptions of vaults that %s end the run before any value is read", async (_, action, code) => {
  const record = await createAndRun();
  fixture.putSourceSecret("value-two", record.sourceSecret);
  await fixture.passTime(20 * SECOND_MS);
  cloud.control.addFault({ match: { operation: "arm.getVault" }, action });
  expect(
    await valueRequests(async () => {
      await fixture.sync.trigger(record.recordId, caller);
      await fixture.drain();
    }),
  ).toEqual([]);
  expect(await fixture.sync.get(record.recordId)).toMatchObject({
    state: "failing",
    failure: { code, side: "source" },
  });
});

describe("a record of an earlier version", () => {
  /** Replaces the row of a record by one that an earlier version wrote an hour ago: without the identities of its vaults. */
  async function replaceByOldRow(record: SyncRecordRow): Promise<void> {
    const row = await fixture.sync.get(record.recordId);
    const { sourceIdentity: _s, targetIdentity: _t, ...before } = withoutKeys(row);
    const at = new Date(fixture.clock.now().getTime() - HOUR_MS).toISOString();
    const earlier = { ...before, createdAt: at, lastCheckedAt: at, lastSyncedAt: at };
    const { partitionKey, rowKey, etag } = row;
    await fixture.tables.replace(Records, { ...earlier, partitionKey, rowKey, etag });
  }

  test("continues and stores the identities of vaults that existed at its last successful run", async () => {
    const record = await createAndRun();
    await replaceByOldRow(record);
    fixture.putSourceSecret("value-two", record.sourceSecret);
    const after = await rerun(record);
    expect(after).toMatchObject({ state: "inSync", sourceIdentity: record.sourceIdentity });
    expect(after.targetIdentity).toEqual(record.targetIdentity);
    expect(record.targetIdentity!.id).toBe(
      `/subscriptions/${shop}/resourcegroups/rg-security/providers/microsoft.keyvault/vaults/${COPIES}`,
    );
    expect(fixture.copyValue(record.targetName)).toBe("value-two");
  });

  test.each([SOURCE, COPIES])("does not use %s if it was created after the last successful run", async (name) => {
    const record = await createAndRun();
    await replaceByOldRow(record);
    cloud.control.putVault(shop, { name });
    expect(await valueRequests(() => rerun(record))).toEqual([]);
    const side = name === SOURCE ? "source" : "target";
    expect(await fixture.sync.get(record.recordId)).toMatchObject({ failure: { code: "otherPlace", side } });
  });
});

test("records of the same vaults share the requests that describe them", async () => {
  const records = await Promise.all(Array.from({ length: 8 }, () => fixture.createRecord()));
  await fixture.drainAll();
  cloud.control.resetCounts();
  for (const { recordId } of records) await fixture.sync.trigger(recordId, caller);
  await fixture.drainAll();
  const { "arm.getVault": described = 0, "keyvault.listSecretVersions": listed } = cloud.control.counts();
  // Each of the 8 records lists the versions of its source and of its target.
  expect(listed).toBe(16);
  // One request for each of the two vaults. Descriptions are cached for ten seconds, so a slow machine needs some more.
  expect(described).toBeLessThanOrEqual(8);
});
