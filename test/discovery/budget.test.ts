// Limits of what scans and queries cost: calls to the cloud, and requests to the tables. Each vault contains 140 assets.
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { CONCURRENT_PHASE_MS, MAX_CONCURRENT_VAULTS } from "../../shared/discovery/scan-worker.ts";
import { RENEWAL_MS } from "../../shared/discovery/vault-claims.ts";
import { measuredCompany, minimumCalls, PER_VAULT } from "../support/measured-company.ts";
import { ADMIN, Service } from "../support/service.ts";

/** More vaults than one invocation reads at once. The benchmark `npm run bench -- calls` measures 36. */
const VAULT_COUNT = 18;

let service: Service;
beforeAll(async () => {
  // Messages stay hidden as long as on the platform. With a shorter time, a slow machine would deliver some twice.
  service = await Service.start({ tableProxy: true, company: measuredCompany(VAULT_COUNT) });
  await service.signIn(ADMIN);
  await service.admin("GET", "/auth/me");
});
afterAll(() => service?.stop());

/** Returns the numbers of cloud calls and table requests of a scan and of the messages that it sends. */
async function countRequestsOfScan(mode: string) {
  service.cloud.control.resetCounts();
  service.clearTableRequests();
  const scan = await service.scan({ mode }, 200_000);
  await service.waitForEmptyQueues();
  const counts = service.cloud.control.counts();
  const tables = service.queueRequests();
  expect(tables.length).toBeGreaterThan(VAULT_COUNT);
  return { scan, counts, total: counts.total ?? 0, tables };
}

/**
 * Returns the additional requests of a slow machine: lease renewals and, after 15 seconds, up to six requests for each vault that
 * is handed to a message.
 */
const requestsOfSlowMachine = ({ startedAt, finishedAt }: { startedAt: string; finishedAt: string }): number => {
  const durationMs = Date.parse(finishedAt) - Date.parse(startedAt);
  return MAX_CONCURRENT_VAULTS * (Math.floor(durationMs / RENEWAL_MS) + (durationMs > CONCURRENT_PHASE_MS ? 6 : 0));
};

/**
 * Returns the additional requests of a first scan in a new account: a request to a missing table creates the table and is
 * repeated. The number depends on timing.
 */
const requestsForNewTables = (requests: { path: string }[]): number =>
  2 * requests.filter(({ path }) => path === "Tables").length;

const minimum = minimumCalls(VAULT_COUNT);

describe("the cost of a scan", () => {
  test("a first full scan sends at most 5% more cloud calls than the minimum, and 0.17 table requests per asset", async () => {
    const { scan, counts, total, tables } = await countRequestsOfScan("full");
    expect(scan).toMatchObject({
      status: "completed",
      progress: { assetsFound: VAULT_COUNT * PER_VAULT, assetsAdded: VAULT_COUNT * PER_VAULT, vaultsDone: VAULT_COUNT },
    });
    expect(total, JSON.stringify(counts)).toBeLessThanOrEqual(1.05 * minimum.first);
    expect(total).toBeGreaterThanOrEqual(minimum.first);
    expect(counts["keyvault.challenge"] ?? 0).toBe(0);
    console.log(
      `first scan: ${tables.length / (VAULT_COUNT * PER_VAULT)} table requests an asset, ${total} calls of ${minimum.first}`,
    );
    expect(requestsForNewTables(tables)).toBeGreaterThan(0);
    expect(tables.length - requestsOfSlowMachine(scan) - requestsForNewTables(tables)).toBeLessThanOrEqual(
      0.17 * VAULT_COUNT * PER_VAULT,
    );
  });

  test("an unchanged delta scan reads only lists and sends at most six table requests per vault", async () => {
    // The first scan after a change reads the changed vaults' certificates once, to ask their authorities for renewal windows.
    await service.scan({ mode: "delta" }, 200_000);
    const { scan, counts, total, tables } = await countRequestsOfScan("delta");
    expect(scan).toMatchObject({
      status: "completed",
      progress: { assetsAdded: 0, assetsUpdated: 0, assetsRemoved: 0 },
    });
    expect(total, JSON.stringify(counts)).toBeLessThanOrEqual(1.05 * minimum.lists);
    expect(tables.filter((request) => request.path.startsWith("Assets"))).toEqual([]);
    console.log(
      `unchanged delta: ${tables.length / VAULT_COUNT} table requests a vault, ${total} calls of ${minimum.lists}`,
    );
    expect(tables.length - requestsOfSlowMachine(scan)).toBeLessThanOrEqual(6 * VAULT_COUNT);
  });

  test("a delta scan with one new secret sends at most one more call", async () => {
    service.cloud.control.putSecret("kv-0003", { name: "new-one", expiresInDays: 9 });
    const { scan, total } = await countRequestsOfScan("delta");
    expect(scan.progress).toMatchObject({ assetsAdded: 1, assetsUpdated: 0, assetsRemoved: 0 });
    expect(total).toBeLessThanOrEqual(1.05 * minimum.lists + 1);
  });

  test("an unchanged full scan that is requested reads all details in the cloud, and each list's rows once", async () => {
    const { scan, total, tables } = await countRequestsOfScan("full");
    expect(scan.progress).toMatchObject({ assetsAdded: 0, assetsUpdated: 0, assetsRemoved: 0 });
    // There are no changes, so no compliance check is evaluated. Only the end of the scan recomputes the totals.
    const ofTotals = ({ path, filter }: { path: string; filter: string | undefined }) =>
      `${path} ${filter}`.includes("RowKey='4!totals'") || `${filter}`.includes("RowKey ge '4!totals!'");
    expect(tables.filter((one) => one.path.startsWith("Compliance") && !ofTotals(one))).toEqual([]);
    expect(total).toBeLessThanOrEqual(1.05 * (minimum.full + 1));
    const ofAssets = tables.filter((request) => request.path.startsWith("Assets"));
    expect(new Set(ofAssets.map(({ method }) => method))).toEqual(new Set(["GET"]));
    expect(ofAssets.length).toBeLessThanOrEqual(3 * VAULT_COUNT);
  });
});

describe("the cost of an asset query", () => {
  /** The test adds the ID of a subscription at the end. */
  const allFilters = "type=secret&status=healthy&vault=kv-0003&subscription=";
  test.each([
    ["no filter", ""],
    ["a type", "type=key"],
    ["a status", "status=healthy"],
    ["a vault", "vault=kv-0001"],
    ["sorted by expiry", "sort=expiresOn"],
    ["everything at once", allFilters],
  ])("%s costs at most 6 table requests besides authentication", async (_, query) => {
    const subscription = (await service.admin("GET", "/api/assets/discovery/vaults?limit=1")).body.items[0]
      .subscriptionId;
    await service.admin("GET", "/api/assets/discovery/assets");
    service.clearTableRequests();
    const { status, tableRequests } = await service.admin(
      "GET",
      `/api/assets/discovery/assets?limit=100&${query.endsWith("=") && query !== "" ? query + subscription : query}`,
    );
    expect(status).toBe(200);
    const requests = tableRequests();
    expect(requests.length).toBeGreaterThan(1);
    // One request is that of authentication.
    expect(requests.length, JSON.stringify(requests, null, 1)).toBeLessThanOrEqual(6 + 1);
  });

  test("an offset costs one more request per 1,000 skipped assets", async () => {
    const { body, tableRequests } = await service.admin("GET", "/api/assets/discovery/assets?limit=100&offset=2000");
    expect(body.items).toHaveLength(100);
    expect(tableRequests().length).toBeGreaterThan(1);
    expect(tableRequests().length).toBeLessThanOrEqual(6 + 1 + 2);
  });

  test("every table query reads one partition and at most one range of row keys", async () => {
    const filters = service
      .tableRequests()
      .map((request) => request.filter)
      .filter((filter) => filter !== undefined);
    expect(filters.length).toBeGreaterThan(0);
    for (const filter of filters) expect(filter).toMatch(ONE_RANGE);
  });
});

/** Matches filters such as `PartitionKey eq 'vaults' and RowKey ge 'n!' and RowKey lt 'n~'`. */
const ONE_RANGE = /^PartitionKey eq '[^']*'( and RowKey (ge|gt) '[^']*')?( and RowKey lt '[^']*')?$/;
