import { setTimeout as delay } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { leastCalls, MEASURED_COMPANY, PER_VAULT, VAULTS } from "../support/measured-company.ts";
import { ADMIN, Service } from "../support/service.ts";

/** What a scan may cost in calls to the cloud and requests to the tables, over 36 vaults of 140 assets. */
let service: Service;
beforeAll(async () => {
  service = await Service.start({ company: MEASURED_COMPANY });
  await service.signIn(ADMIN);
  await service.admin("GET", "/auth/me");
});
afterAll(() => service?.stop());

async function counted(mode: string) {
  service.cloud.control.resetCounts();
  service.forgetTables();
  const scan = await service.scan({ mode }, 200_000);
  const counts = service.cloud.control.counts();
  return { scan, counts, total: counts.total ?? 0, tables: service.tableRequests() };
}

/** Requests of the waiting test itself: the token's user, the scan's row, the vaults that are done. */
const isWaiting = (request: { path: string; filter?: string | undefined; select?: string | undefined }) =>
  request.path.startsWith("Users(") ||
  (request.path === "Scans()" && /ge '3!' and RowKey lt '4'/.test(request.filter ?? "")) ||
  /^Scans\(PartitionKey='scan:.*RowKey='0'\)/.test(request.path);

const least = leastCalls();

describe("a scan's cost", () => {
  test("first full scan: few more calls than the least possible, few table requests per asset", async () => {
    const { scan, counts, total, tables } = await counted("full");
    expect(scan).toMatchObject({
      status: "completed",
      progress: { assetsFound: VAULTS * PER_VAULT, vaultsDone: VAULTS },
    });
    expect(total, JSON.stringify(counts)).toBeLessThanOrEqual(1.05 * least.full);
    expect(total).toBeGreaterThanOrEqual(least.full);
    expect(counts["keyvault.challenge"] ?? 0).toBe(0);
    const own = tables.filter((request) => !isWaiting(request));
    console.log(
      `first scan: ${own.length / (VAULTS * PER_VAULT)} table requests an asset, ${total} calls of ${least.full}`,
    );
    expect(own.length / (VAULTS * PER_VAULT)).toBeLessThanOrEqual(0.15);
  });

  test("unchanged delta: the lists alone, no asset written, at most six table requests a vault", async () => {
    const { scan, counts, total, tables } = await counted("delta");
    expect(scan).toMatchObject({
      status: "completed",
      progress: { assetsAdded: 0, assetsUpdated: 0, assetsRemoved: 0 },
    });
    expect(total, JSON.stringify(counts)).toBeLessThanOrEqual(1.05 * least.lists);
    const own = tables.filter((request) => !isWaiting(request));
    expect(own.filter((request) => request.path.startsWith("Assets"))).toEqual([]);
    console.log(`unchanged delta: ${own.length / VAULTS} table requests a vault, ${total} calls of ${least.lists}`);
    expect(own.length / VAULTS).toBeLessThanOrEqual(6);
  });

  test("delta with one changed secret: no detail read but those of what changed, one vault written", async () => {
    service.cloud.control.putSecret("kv-0003", { name: "new-one", expiresInDays: 9 });
    const { scan, total } = await counted("delta");
    expect(scan.progress).toMatchObject({ assetsAdded: 1, assetsUpdated: 0, assetsRemoved: 0 });
    expect(total).toBeLessThanOrEqual(1.05 * least.lists + 1);
  });

  test("unchanged full scan: all details read, nothing of the assets written or even read", async () => {
    const { scan, total, tables } = await counted("full");
    expect(scan.progress).toMatchObject({ assetsAdded: 0, assetsUpdated: 0, assetsRemoved: 0 });
    // What a full scan reads beside the assets, the diagnostic settings, did not change either: nothing is evaluated.
    expect(tables.filter(({ path }) => path.startsWith("Compliance"))).toEqual([]);
    expect(total).toBeLessThanOrEqual(1.05 * (least.full + 1));
    expect(tables.filter((request) => request.path.startsWith("Assets"))).toEqual([]);
  });
});

describe("an asset query's cost", () => {
  // What the last scan has asked for, such as alerts, is over.
  beforeAll(async () => {
    const isQuiet = async () => {
      service.forgetTables();
      await delay(1_000);
      return service.tableRequests().length === 0;
    };
    await vi.waitUntil(isQuiet, { timeout: 60_000 });
  });

  const all = "type=secret&status=healthy&vault=kv-0003&subscription=";
  test.each([
    ["no filter", ""],
    ["a type", "type=key"],
    ["a status", "status=healthy"],
    ["a vault", "vault=kv-0001"],
    ["sorted by expiry", "sort=expiresOn"],
    ["everything at once", all],
  ])("%s: at most 6 table requests besides the 3 of authentication", async (_, query) => {
    const subscription = (await service.admin("GET", "/api/assets/discovery/vaults?limit=1")).body.items[0]
      .subscriptionId;
    await service.admin("GET", "/api/assets/discovery/assets");
    service.forgetTables();
    const { status } = await service.admin(
      "GET",
      `/api/assets/discovery/assets?limit=100&${query.endsWith("=") && query !== "" ? query + subscription : query}`,
    );
    expect(status).toBe(200);
    const own = service.tableRequests();
    expect(own.length, JSON.stringify(own, null, 1)).toBeLessThanOrEqual(6 + 1);
  });

  test("an offset costs one more per 1,000 skipped", async () => {
    service.forgetTables();
    const { body } = await service.admin("GET", "/api/assets/discovery/assets?limit=100&offset=4000");
    expect(body.items).toHaveLength(100);
    expect(service.tableRequests().length).toBeLessThanOrEqual(6 + 1 + 4);
  });

  test("no query of the whole run read more than one partition or more than one range of row keys", async () => {
    const filters = service
      .tableRequests()
      .map((request) => request.filter)
      .filter((filter) => filter !== undefined);
    expect(filters.length).toBeGreaterThan(0);
    for (const filter of filters) expect(filter).toMatch(ONE_RANGE);
  });
});

const ONE_RANGE = /^PartitionKey eq '[^']*'( and RowKey (ge|gt) '[^']*')?( and RowKey lt '[^']*')?$/;
