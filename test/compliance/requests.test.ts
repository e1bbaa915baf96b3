import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from "vitest";
import { SEVERITIES } from "../../shared/compliance/check.ts";
import { STATE, TOTALS_KEY, TotalsRows } from "../../shared/compliance/compliance-rows.ts";
import { FRAMEWORK_IDS } from "../../shared/compliance/controls.ts";
import type { AssetRecord } from "../../shared/inventory/asset.ts";
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
const accounts = Array.from({ length: 14 }, (_, at) => `requests${at}`);
const free = [...accounts];
beforeAll(async () => {
  azurite = await openStorage(accounts);
});
afterAll(() => azurite.stop());
beforeEach(async () => {
  const account = azurite.connectionString(free.pop()!);
  proxy = await startTableProxy(account);
  fixture = openFixture(account, proxy.connectionString);
});
afterEach(() => proxy.stop());

/** The table requests of compliance, as method and path. */
async function asked(work: () => Promise<unknown>): Promise<string[]> {
  proxy.requests.length = 0;
  await work();
  return proxy.requests.map(({ method, path }) => `${method} ${path.replace(/\(.+\)$/, "(row)")}`);
}

/** Secrets that each fail a different check. */
const assets = (vaultName: string, count: number): AssetRecord[] =>
  Array.from({ length: count }, (_, at) => {
    const name = `a-${String(at).padStart(3, "0")}`;
    switch (at % 6) {
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

test("a new vault costs one request, a changed one three, an unchanged one none", async () => {
  await fixture.scan(vault("warm-up"), []);
  expect(await asked(() => fixture.scan(vault("kv"), assets("kv", 140)))).toEqual(["POST $batch"]);
  // As at the end of a scan: from then on the totals count the vault's current state.
  await fixture.compliance.renewTotals();
  const changed = assets("kv", 140).with(70, asset("kv", "secret", "a-070", { contentType: "other" }));
  expect(await asked(() => fixture.scan(vault("kv"), changed))).toEqual([
    "GET Compliance()",
    "GET Compliance(row)",
    "POST $batch",
  ]);
  expect(await asked(() => fixture.scan(vault("kv"), changed))).toEqual([]);
});

test("if a change is reported again, only the fence is written", async () => {
  await fixture.scan(vault("warm-up"), []);
  const requests = await asked(() => fixture.scan(vault("kv"), assets("kv", 20), { twice: true }));
  expect(requests.filter((request) => request.startsWith("POST"))).toHaveLength(1);
  expect(requests.filter((request) => request.startsWith("PUT"))).toHaveLength(1);
});

test("score, frameworks and the first page under every filter take at most seven requests", {
  timeout: 300_000,
}, async () => {
  // Few failures of each check, with many of others between: the most ranges a page can need.
  for (let at = 0; at < 40; at++) {
    const name = `kv-${at}`;
    const few = at === 7 ? assets(name, 30) : [];
    const between = ["key-near", "key-weak"].flatMap((kind) =>
      kind === "key-near"
        ? [asset(name, "key", kind, { expiresOn: inDays(3), createdOn: inDays(-900) })]
        : [asset(name, "secret", kind, { expiresOn: inDays(3), createdOn: inDays(-900) })],
    );
    const of = at === 7 ? vault(name, { purgeProtection: false, publicNetworkAccess: "Enabled" }) : vault(name);
    await fixture.scan(of, [...few, ...between]);
  }
  await fixture.compliance.renewTotals();
  // One request is for the scope, which is one row.
  expect(await asked(() => fixture.compliance.score())).toHaveLength(2);
  expect(await asked(() => fixture.compliance.score(30))).toHaveLength(3);
  expect(await asked(() => fixture.compliance.frameworks(firstPage()))).toHaveLength(2);
  for (const severity of [undefined, ...SEVERITIES]) {
    for (const framework of [undefined, ...FRAMEWORK_IDS]) {
      for (const limit of [100, 1000]) {
        const requests = await asked(() => fixture.compliance.violations({ severity, framework }, firstPage(limit)));
        expect([severity, framework, requests.length <= 7]).toEqual([severity, framework, true]);
      }
    }
  }
  const subscription = SUBSCRIPTION;
  for (const filter of [
    { check: "key-rsa-size" },
    { vault: "kv-7" },
    { subscription },
    { exempted: false },
    { owner: "x" },
  ]) {
    const requests = await asked(() => fixture.compliance.violations(filter, firstPage()));
    expect([filter, requests.length <= 7]).toEqual([filter, true]);
  }
  for (const { path, filter } of proxy.requests) {
    if (path.endsWith("()"))
      expect(filter).toMatch(/^PartitionKey eq '[^']+'( and RowKey g[te] '[^']+')?( and RowKey lt '[^']+')?$/);
  }
});

test("unreadable totals are requested once, before every vault's row is read", async () => {
  await fixture.scan(vault("kv"), assets("kv", 6));
  await fixture.compliance.renewTotals();
  const { sequence } = (await fixture.tables.get(TotalsRows, STATE, TOTALS_KEY))!;
  await fixture.tables.put(TotalsRows, STATE, TOTALS_KEY, { sequence, totals: Buffer.from("garbage") });
  expect(await asked(() => fixture.compliance.score())).toHaveLength(3);
});

test("of a thousand assets only those that passed a threshold are read", async () => {
  await fixture.scan(vault("kv-1"), assets("kv-1", 300));
  await fixture.scan(vault("kv-2"), [
    ...assets("kv-2", 300),
    asset("kv-2", "secret", "due", { expiresOn: inDays(30.5) }),
  ]);
  fixture.clock.at += 86_400_000;
  await fixture.compliance.renewTotals();
  await fixture.compliance.runDue();
  const requests = await asked(() => fixture.drain());
  expect(requests.filter((request) => request === "GET Assets(row)")).toHaveLength(1);
  expect(requests.filter((request) => request === "POST $batch")).toHaveLength(1);
});

test("a lost response to the write of results does not change them", async () => {
  await fixture.scan(vault("warm-up"), []);
  proxy.fail(["LostAnswer"], ({ path }) => path === "$batch");
  await fixture.scan(vault("kv"), assets("kv", 12));
  const once = await fixture.compliance.score();
  await fixture.compliance.evaluate(caller);
  expect(await fixture.compliance.score()).toMatchObject({ passed: once.passed, failed: once.failed });
});
