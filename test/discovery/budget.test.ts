import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { TOGETHER_MS, VAULTS_AT_ONCE } from "../../shared/discovery/scan-worker.ts";
import { RENEWAL_MS } from "../../shared/discovery/vault-claims.ts";
import { leastCalls, measuredCompany, PER_VAULT } from "../support/measured-company.ts";
import { ADMIN, Service } from "../support/service.ts";

/** More vaults than one invocation reads at once. `npm run bench -- calls` counts all 36. */
const VAULTS = 18;

/** Limits of a scan's calls to the cloud and requests to the tables, for vaults of 140 assets. */
let service: Service;
beforeAll(async () => {
  // Messages stay hidden as long as on the platform, so that on a slow machine none is delivered and counted twice.
  service = await Service.start({ tableProxy: true, company: measuredCompany(VAULTS) });
  await service.signIn(ADMIN);
  await service.admin("GET", "/auth/me");
});
afterAll(() => service?.stop());

/** Counts the requests of a scan and all that it starts. */
async function counted(mode: string) {
  service.cloud.control.resetCounts();
  service.forgetTables();
  const scan = await service.scan({ mode }, 200_000);
  await service.settled();
  const counts = service.cloud.control.counts();
  const tables = service.queueRequests();
  expect(tables.length).toBeGreaterThan(VAULTS);
  return { scan, counts, total: counts.total ?? 0, tables };
}

/**
 * Additional requests on a slow machine: lease renewals, and after 15 seconds the requests for vaults that continue in
 * messages.
 */
const whenSlow = ({ startedAt, finishedAt }: { startedAt: string; finishedAt: string }): number => {
  const took = Date.parse(finishedAt) - Date.parse(startedAt);
  return VAULTS_AT_ONCE * (Math.floor(took / RENEWAL_MS) + (took > TOGETHER_MS ? 6 : 0));
};

/**
 * Additional requests of a first scan in a new account: each request that finds no table creates the table and is repeated.
 * Their number depends on timing.
 */
const whenNew = (requests: { path: string }[]): number => 2 * requests.filter(({ path }) => path === "Tables").length;

const least = leastCalls(VAULTS);

describe("the cost of a scan", () => {
  test("first full scan: few more calls than the minimum, few table requests per asset", async () => {
    const { scan, counts, total, tables } = await counted("full");
    expect(scan).toMatchObject({
      status: "completed",
      // Only a first attempt can be measured: at a second one there is nothing left to add.
      progress: { assetsFound: VAULTS * PER_VAULT, assetsAdded: VAULTS * PER_VAULT, vaultsDone: VAULTS },
    });
    expect(total, JSON.stringify(counts)).toBeLessThanOrEqual(1.05 * least.full);
    expect(total).toBeGreaterThanOrEqual(least.full);
    expect(counts["keyvault.challenge"] ?? 0).toBe(0);
    console.log(
      `first scan: ${tables.length / (VAULTS * PER_VAULT)} table requests an asset, ${total} calls of ${least.full}`,
    );
    expect(whenNew(tables)).toBeGreaterThan(0);
    expect(tables.length - whenSlow(scan) - whenNew(tables)).toBeLessThanOrEqual(0.15 * VAULTS * PER_VAULT);
  });

  test("unchanged delta scan: only the lists, no asset written, at most six table requests per vault", async () => {
    const { scan, counts, total, tables } = await counted("delta");
    expect(scan).toMatchObject({
      status: "completed",
      progress: { assetsAdded: 0, assetsUpdated: 0, assetsRemoved: 0 },
    });
    expect(total, JSON.stringify(counts)).toBeLessThanOrEqual(1.05 * least.lists);
    expect(tables.filter((request) => request.path.startsWith("Assets"))).toEqual([]);
    console.log(`unchanged delta: ${tables.length / VAULTS} table requests a vault, ${total} calls of ${least.lists}`);
    expect(tables.length - whenSlow(scan)).toBeLessThanOrEqual(6 * VAULTS);
  });

  test("delta scan with one changed secret: only the details of the changed secret are read, and one vault is written", async () => {
    service.cloud.control.putSecret("kv-0003", { name: "new-one", expiresInDays: 9 });
    const { scan, total } = await counted("delta");
    expect(scan.progress).toMatchObject({ assetsAdded: 1, assetsUpdated: 0, assetsRemoved: 0 });
    expect(total).toBeLessThanOrEqual(1.05 * least.lists + 1);
  });

  test("unchanged full scan: all details are read, no assets are read or written", async () => {
    const { scan, total, tables } = await counted("full");
    expect(scan.progress).toMatchObject({ assetsAdded: 0, assetsUpdated: 0, assetsRemoved: 0 });
    // The diagnostic settings did not change either, so nothing is evaluated. The end only recomputes the totals.
    const ofTotals = ({ path, filter }: { path: string; filter: string | undefined }) =>
      `${path} ${filter}`.includes("RowKey='4!totals'") || `${filter}`.includes("RowKey ge '4!totals!'");
    expect(tables.filter((one) => one.path.startsWith("Compliance") && !ofTotals(one))).toEqual([]);
    expect(total).toBeLessThanOrEqual(1.05 * (least.full + 1));
    expect(tables.filter((request) => request.path.startsWith("Assets"))).toEqual([]);
  });
});

describe("the cost of an asset query", () => {
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
    const { status, tableRequests } = await service.admin(
      "GET",
      `/api/assets/discovery/assets?limit=100&${query.endsWith("=") && query !== "" ? query + subscription : query}`,
    );
    expect(status).toBe(200);
    const own = tableRequests();
    expect(own.length).toBeGreaterThan(1);
    expect(own.length, JSON.stringify(own, null, 1)).toBeLessThanOrEqual(6 + 1);
  });

  test("an offset costs one more request per 1,000 skipped", async () => {
    const { body, tableRequests } = await service.admin("GET", "/api/assets/discovery/assets?limit=100&offset=2000");
    expect(body.items).toHaveLength(100);
    expect(tableRequests().length).toBeGreaterThan(1);
    expect(tableRequests().length).toBeLessThanOrEqual(6 + 1 + 2);
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
