/*
 * The number of storage requests that evaluations and queries cost, and a response that is lost on the network. The scan of a
 * vault `warm-up` creates the table, so that the tested requests don't.
 */
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from "vitest";
import { SEVERITIES } from "../../shared/compliance/check.ts";
import { STATE, TOTALS_KEY, TotalsRows } from "../../shared/compliance/compliance-rows.ts";
import { FRAMEWORK_IDS } from "../../shared/compliance/controls.ts";
import type { AssetRecord } from "../../shared/inventory/asset.ts";
import { DAY_MS } from "../../shared/platform/time.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import { startTableProxy, type TableProxy } from "../support/table-proxy.ts";
import {
  asset,
  caller,
  type Fixture,
  firstPage,
  inDays,
  openFixture,
  SUBSCRIPTION,
  vault,
} from "./compliance-fixture.ts";

let azurite: TestStorage;
let proxy: TableProxy;
let fixture: Fixture;
/** Names of storage accounts in the emulator. Each test uses one of its own, so that it starts empty. */
const accounts = Array.from({ length: 14 }, (_, index) => `requests${index}`);
const unusedAccounts = [...accounts];
beforeAll(async () => {
  azurite = await openStorage(accounts);
});
afterAll(() => azurite.stop());
beforeEach(async () => {
  const account = azurite.connectionString(unusedAccounts.pop()!);
  proxy = await startTableProxy(account);
  fixture = openFixture(account, proxy.connectionString);
});
afterEach(() => proxy.stop());

/** Returns the table requests that compliance sends during the work, as method and path. Row keys are replaced by `row`. */
async function requestsDuring(work: () => Promise<unknown>): Promise<string[]> {
  proxy.requests.length = 0;
  await work();
  return proxy.requests.map(({ method, path }) => `${method} ${path.replace(/\(.+\)$/, "(row)")}`);
}

/** Returns secrets, keys and certificates, in turn of six kinds that each fail other checks. */
const failingAssets = (vaultName: string, count: number): AssetRecord[] =>
  Array.from({ length: count }, (_, index) => {
    const name = `a-${String(index).padStart(3, "0")}`;
    switch (index % 6) {
      case 0:
        return asset(vaultName, "secret", name, { expiresOn: undefined });
      case 1:
        return asset(vaultName, "secret", name, { expiresOn: inDays(-1), contentType: undefined });
      case 2:
        return asset(vaultName, "key", name, { expiresOn: undefined, rotationPolicy: undefined });
      case 3:
        return asset(vaultName, "key", name, { keySize: 1024, expiresOn: inDays(5) });
      case 4:
        return asset(vaultName, "key", name, { keyType: "oct" });
      default:
        return asset(vaultName, "certificate", name, { validityMonths: 24, autoRenew: false });
    }
  });

test("evaluating a scanned vault costs one request if it is new, three if changed, none if unchanged", async () => {
  await fixture.scan(vault("warm-up"), []);
  expect(await requestsDuring(() => fixture.scan(vault("kv"), failingAssets("kv", 140)))).toEqual(["POST $batch"]);
  // A scan renews the totals at its end. From then on they count the vault's current state.
  await fixture.compliance.renewTotals();
  const changed = failingAssets("kv", 140).with(70, asset("kv", "secret", "a-070", { contentType: "other" }));
  expect(await requestsDuring(() => fixture.scan(vault("kv"), changed))).toEqual([
    "GET Compliance()",
    "GET Compliance(row)",
    "POST $batch",
  ]);
  expect(await requestsDuring(() => fixture.scan(vault("kv"), changed))).toEqual([]);
});

test("a change that is reported twice writes the results once", async () => {
  await fixture.scan(vault("warm-up"), []);
  const requests = await requestsDuring(() => fixture.scan(vault("kv"), failingAssets("kv", 20), { twice: true }));
  expect(requests.filter((request) => request.startsWith("POST"))).toHaveLength(1);
  // The second report only writes the fence, a row whose ETag each write of the vault's results requires.
  expect(
    requests.filter((request) => request.startsWith("PUT")),
    "of the scan's fence row",
  ).toHaveLength(1);
});

test("the score, frameworks and a page of violations under each filter take at most seven requests", {
  timeout: 300_000,
}, async () => {
  // One vault has a few failures of most checks. All others have many failures of two checks, which lie between them in
  // storage. So a page needs the most range queries.
  for (let index = 0; index < 40; index++) {
    const name = `kv-${index}`;
    const fewFailures = index === 7 ? failingAssets(name, 30) : [];
    const expiringAndOld = { expiresOn: inDays(3), createdOn: inDays(-900) };
    const manyFailures = [
      asset(name, "key", "old-key", expiringAndOld),
      asset(name, "secret", "old-secret", expiringAndOld),
    ];
    const weakSettings = { purgeProtection: false, publicNetworkAccess: "Enabled" };
    await fixture.scan(vault(name, index === 7 ? weakSettings : {}), [...fewFailures, ...manyFailures]);
  }
  await fixture.compliance.renewTotals();
  // One of the requests reads the scope: one row with the subscriptions to scan.
  expect(await requestsDuring(() => fixture.compliance.score())).toHaveLength(2);
  expect(await requestsDuring(() => fixture.compliance.score(30))).toHaveLength(3);
  expect(await requestsDuring(() => fixture.compliance.frameworks(firstPage()))).toHaveLength(2);
  for (const severity of [undefined, ...SEVERITIES]) {
    for (const framework of [undefined, ...FRAMEWORK_IDS]) {
      for (const limit of [100, 1000]) {
        const requests = await requestsDuring(() =>
          fixture.compliance.violations({ severity, framework }, firstPage(limit)),
        );
        expect([severity, framework, requests.length <= 7]).toEqual([severity, framework, true]);
      }
    }
  }
  for (const filter of [
    { check: "key-rsa-size" },
    { vault: "kv-7" },
    { subscription: SUBSCRIPTION },
    { exempted: false },
    { owner: "x" },
  ]) {
    const requests = await requestsDuring(() => fixture.compliance.violations(filter, firstPage()));
    expect([filter, requests.length <= 7]).toEqual([filter, true]);
  }
  // Range queries select by keys alone: a filter of other columns would make the table service read every row.
  for (const { path, filter } of proxy.requests) {
    if (path.endsWith("()"))
      expect(filter).toMatch(/^PartitionKey eq '[^']+'( and RowKey g[te] '[^']+')?( and RowKey lt '[^']+')?$/);
  }
});

test("if the totals are unreadable, the score costs one more request: a query of all vaults' rows", async () => {
  await fixture.scan(vault("kv"), failingAssets("kv", 6));
  await fixture.compliance.renewTotals();
  const { sequence } = (await fixture.tables.get(TotalsRows, STATE, TOTALS_KEY))!;
  await fixture.tables.put(TotalsRows, STATE, TOTALS_KEY, { sequence, totals: Buffer.from("garbage") });
  expect(await requestsDuring(() => fixture.compliance.score())).toHaveLength(3);
});

test("only assets that passed a threshold are read for their new evaluation", async () => {
  await fixture.scan(vault("kv-1"), failingAssets("kv-1", 300));
  await fixture.scan(vault("kv-2"), [
    ...failingAssets("kv-2", 300),
    asset("kv-2", "secret", "due", { expiresOn: inDays(30.5) }),
  ]);
  fixture.clock.nowMs += DAY_MS;
  await fixture.compliance.renewTotals();
  await fixture.compliance.runDue();
  const requests = await requestsDuring(() => fixture.drain());
  expect(requests.filter((request) => request === "GET Assets(row)")).toHaveLength(1);
  expect(requests.filter((request) => request === "POST $batch")).toHaveLength(1);
});

test("results are counted once if the response to their write is lost", async () => {
  await fixture.scan(vault("warm-up"), []);
  proxy.fail(["LostAnswer"], ({ path }) => path === "$batch");
  await fixture.scan(vault("kv"), failingAssets("kv", 12));
  const scoreAfterRetry = await fixture.compliance.score();
  await fixture.compliance.evaluate(caller);
  expect(await fixture.compliance.score()).toMatchObject({
    passed: scoreAfterRetry.passed,
    failed: scoreAfterRetry.failed,
  });
});
