import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import type { Identity } from "../../shared/azure/identity.ts";
import type { KeyVaults } from "../../shared/azure/key-vault.ts";
import type { ResourceManager } from "../../shared/azure/resource-manager.ts";
import { Problem } from "../../shared/http/problem.ts";
import { createTables, type Tables } from "../../shared/storage/tables.ts";
import {
  createSubscriptions,
  SUBSCRIPTIONS_PARTITION,
  type SubscriptionInventory,
  SubscriptionRow,
} from "../../shared/subscriptions/subscriptions.ts";
import { admin, configWith, problemOf, recordingAudit, stillClock } from "../settings/support.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";

const PAYMENTS = "11111111-1111-4111-8111-111111111111";
const CLAIMS = "22222222-2222-4222-8222-222222222222";
const SHARED = "aaaaaaaa-aaaa-4aaa-8aaa-aaaaaaaaaaaa";

let azurite: TestStorage;
let tables: Tables;
let account = 0;

beforeAll(async () => {
  azurite = await openStorage(Array.from({ length: 20 }, (_, i) => `subscriptions${i}`));
});
afterAll(() => azurite.stop());
beforeEach(() => {
  tables = createTables({ connectionString: azurite.connectionString(`subscriptions${account++}`) });
});

/** Of these rooms nothing is asked here: the connection test has its own. */
const unused = { resourceManager: {} as ResourceManager, keyVaults: {} as KeyVaults, identity: {} as Identity };

interface RoomOptions {
  configured?: string[];
  forget?: SubscriptionInventory["forget"];
  refuseWhileScanned?: SubscriptionInventory["refuseWhileScanned"];
}

function room({ configured = [], forget, refuseWhileScanned = async () => {} }: RoomOptions = {}) {
  const audit = recordingAudit();
  const forgotten: string[] = [];
  const inventory: SubscriptionInventory = {
    refuseWhileScanned,
    forget:
      forget ??
      (async (id) => {
        forgotten.push(id);
        return { vaults: 3, assets: 40 };
      }),
  };
  const config = configWith({ AZURE_SUBSCRIPTION_IDS: configured.join(",") });
  const subscriptions = createSubscriptions({ tables, config, clock: stillClock(), audit, inventory, ...unused });
  return { audit, forgotten, subscriptions };
}

const firstPage = { limit: 100, offset: 0, cursor: undefined };

describe("listing", () => {
  test("those added and those of the configuration are listed by name, each once", async () => {
    const { subscriptions } = room({ configured: [SHARED.toUpperCase()] });
    await subscriptions.add({ subscriptionId: PAYMENTS, name: "payments" }, admin);
    await subscriptions.add({ subscriptionId: CLAIMS, name: "Claims" }, admin);
    const { items, total } = await subscriptions.list(firstPage);
    expect(total).toBe(3);
    expect(items).toEqual([
      {
        subscriptionId: SHARED,
        name: SHARED,
        source: "configuration",
        state: "active",
        addedAt: null,
        addedBy: null,
        etag: '"configuration"',
      },
      expect.objectContaining({ subscriptionId: CLAIMS, name: "Claims", source: "api" }),
      {
        subscriptionId: PAYMENTS,
        name: "payments",
        source: "api",
        state: "active",
        addedAt: "2026-11-21T10:00:00.000Z",
        addedBy: "ada",
        etag: expect.any(String),
      },
    ]);
    const first = await subscriptions.list({ ...firstPage, limit: 2 });
    const second = await subscriptions.list({ limit: 2, offset: 0, cursor: first.nextCursor! });
    expect([...first.items, ...second.items]).toEqual(items);
    expect(second.nextCursor).toBeNull();
  });

  test("the ids to scan are those of both, in lower case and each once", async () => {
    const earlier = room();
    await earlier.subscriptions.add({ subscriptionId: SHARED.toUpperCase(), name: "shared" }, admin);
    const { subscriptions } = room({ configured: [SHARED.toUpperCase(), PAYMENTS] });
    expect((await subscriptions.configured()).sort()).toEqual([PAYMENTS, SHARED]);
    expect((await subscriptions.list(firstPage)).items.map((one) => [one.subscriptionId, one.source])).toEqual([
      [PAYMENTS, "configuration"],
      [SHARED, "api"],
    ]);
  });
});

describe("adding", () => {
  test("the same subscription twice is refused, in whatever case, at once or one after the other", async () => {
    const { subscriptions, audit } = room({ configured: [SHARED] });
    const results = await Promise.allSettled([
      subscriptions.add({ subscriptionId: PAYMENTS, name: "a" }, admin),
      subscriptions.add({ subscriptionId: PAYMENTS.toUpperCase(), name: "b" }, admin),
    ]);
    expect(results.filter(({ status }) => status === "fulfilled")).toHaveLength(1);
    for (const subscriptionId of [PAYMENTS, SHARED.toUpperCase()]) {
      expect((await problemOf(subscriptions.add({ subscriptionId, name: "again" }, admin))).code).toBe("alreadyExists");
    }
    expect(audit.events.filter((event) => event.outcome === "success")).toMatchObject([
      { type: "subscription.added", caller: admin, target: { type: "subscription", id: PAYMENTS } },
    ]);
  });

  test("what was added is found under its id in any case", async () => {
    const { subscriptions } = room();
    const added = await subscriptions.add({ subscriptionId: PAYMENTS, name: "payments" }, admin);
    expect(await subscriptions.get(PAYMENTS.toUpperCase())).toEqual(added);
    expect((await problemOf(subscriptions.get(CLAIMS))).code).toBe("notFound");
    expect((await problemOf(subscriptions.test(CLAIMS))).code).toBe("notFound");
  });
});

describe("removing", () => {
  test("a subscription leaves with its inventory, and the answer and the audit log say what left", async () => {
    const { subscriptions, audit, forgotten } = room();
    await subscriptions.add({ subscriptionId: PAYMENTS, name: "payments" }, admin);
    expect(await subscriptions.remove(PAYMENTS.toUpperCase(), admin)).toEqual({
      outcome: "removed",
      vaults: 3,
      assets: 40,
    });
    expect(forgotten).toEqual([PAYMENTS]);
    expect((await problemOf(subscriptions.get(PAYMENTS))).code).toBe("notFound");
    expect((await problemOf(subscriptions.remove(PAYMENTS, admin))).code).toBe("notFound");
    expect(audit.events.slice(-2)).toMatchObject([
      { type: "subscription.removed", outcome: "intent", before: { name: "payments", addedBy: "ada" } },
      { outcome: "success", details: { inventory: { outcome: "removed", vaults: 3, assets: 40 } } },
    ]);
  });

  test("one that the configuration names too keeps its inventory", async () => {
    await room().subscriptions.add({ subscriptionId: SHARED, name: "shared" }, admin);
    const { subscriptions, forgotten } = room({ configured: [SHARED] });
    expect(await subscriptions.remove(SHARED, admin)).toEqual({ outcome: "kept", vaults: 0, assets: 0 });
    expect(forgotten).toEqual([]);
    expect((await subscriptions.get(SHARED)).source).toBe("configuration");
    expect((await problemOf(subscriptions.remove(SHARED, admin))).code).toBe("conflict");
  });

  test("a removal that fails halfway is shown, scanned no more, and finished by the next one", async () => {
    const failing = room({ forget: () => Promise.reject(new Error("cut off")) });
    await failing.subscriptions.add({ subscriptionId: PAYMENTS, name: "payments" }, admin);
    await expect(failing.subscriptions.remove(PAYMENTS, admin)).rejects.toThrow("cut off");
    expect(failing.audit.events.at(-1)).toMatchObject({ type: "subscription.removed", outcome: "failure" });

    const { subscriptions, forgotten } = room();
    expect((await subscriptions.get(PAYMENTS)).state).toBe("removing");
    expect(await subscriptions.configured()).toEqual([]);
    expect((await problemOf(subscriptions.add({ subscriptionId: PAYMENTS, name: "x" }, admin))).code).toBe("conflict");
    await subscriptions.remove(PAYMENTS, admin);
    expect(forgotten).toEqual([PAYMENTS]);
    expect((await problemOf(subscriptions.get(PAYMENTS))).code).toBe("notFound");
  });

  test.each([
    ["runs already", 1],
    ["began just before the removal was marked", 2],
  ])("while a scan of it %s, a removal is refused and the subscription stays as it was", async (_, refusedAt) => {
    let asked = 0;
    const { subscriptions, audit, forgotten } = room({
      refuseWhileScanned: async () => {
        if (++asked === refusedAt) throw new Problem("scanRunning", "A scan covers this subscription.");
      },
    });
    const { etag: _e, ...added } = await subscriptions.add({ subscriptionId: PAYMENTS, name: "payments" }, admin);
    expect((await problemOf(subscriptions.remove(PAYMENTS, admin))).code).toBe("scanRunning");
    expect(await subscriptions.get(PAYMENTS)).toMatchObject({ ...added, state: "active" });
    expect([await subscriptions.configured(), forgotten]).toEqual([[PAYMENTS], []]);
    expect(audit.events.at(-1)).toMatchObject({ type: "subscription.removed", outcome: "refused" });
    expect((await subscriptions.remove(PAYMENTS, admin)).outcome).toBe("removed");
  });

  test("no scan can take the subscription in while its inventory leaves", async () => {
    let during: string[] | undefined;
    const { subscriptions } = room({
      forget: async () => {
        during = await subscriptions.configured();
        return { vaults: 0, assets: 0 };
      },
    });
    await subscriptions.add({ subscriptionId: PAYMENTS, name: "payments" }, admin);
    await subscriptions.remove(PAYMENTS, admin);
    expect(during).toEqual([]);
  });

  test("a stale etag is refused and nothing leaves", async () => {
    const { subscriptions, forgotten, audit } = room();
    const { etag } = await subscriptions.add({ subscriptionId: PAYMENTS, name: "payments" }, admin);
    const row = await tables.get(SubscriptionRow, SUBSCRIPTIONS_PARTITION, PAYMENTS);
    await tables.replace(SubscriptionRow, { ...row!, name: "renamed" });
    const before = audit.events.length;
    expect((await problemOf(subscriptions.remove(PAYMENTS, admin, etag))).code).toBe("preconditionFailed");
    expect([forgotten, audit.events.length]).toEqual([[], before]);
    const current = await subscriptions.get(PAYMENTS);
    expect((await subscriptions.remove(PAYMENTS, admin, current.etag)).outcome).toBe("removed");
  });
});
