// Stored compliance results: after any history of scans, the score, the violations and their filters match the resources.
import fc from "fast-check";
import { afterAll, beforeAll, expect, test } from "vitest";
import { SEVERITIES, SEVERITY_WEIGHTS } from "../../shared/compliance/check.ts";
import { CHECKS } from "../../shared/compliance/checks/all.ts";
import { Details, detailsKey, Findings, STATE } from "../../shared/compliance/compliance-rows.ts";
import { controlsOfCheck, FRAMEWORK_IDS } from "../../shared/compliance/controls.ts";
import type { ViolationFilter } from "../../shared/compliance/violations.ts";
import type { AssetRecord } from "../../shared/inventory/asset.ts";
import type { VaultRecord } from "../../shared/inventory/vault.ts";
import { encodeCursor } from "../../shared/platform/http/paging.ts";
import { createTables } from "../../shared/platform/storage/tables.ts";
import { HOUR_MS, MINUTE_MS, SECOND_MS } from "../../shared/platform/time.ts";
import { IS_CAMPAIGN, sampled } from "../support/sampling.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import {
  asset,
  caller,
  context,
  DAY_SECONDS,
  type ExpectedResult,
  expectedResults,
  type Fixture,
  firstPage,
  inDays,
  openFixture,
  readAllViolations,
  vault,
} from "./compliance-fixture.ts";

let azurite: TestStorage;
/** Names of storage accounts in the emulator. Each fixture uses one of its own, so that it starts empty. */
const accounts = Array.from({ length: 64 }, (_, index) => `results${index}`);
const unusedAccounts = [...accounts];
beforeAll(async () => {
  azurite = await openStorage(accounts);
});
afterAll(() => azurite.stop());
function openEmptyFixture(): Fixture {
  const account = unusedAccounts.pop();
  if (account === undefined) throw new Error("No storage account is left. Increase the number of `accounts`.");
  return openFixture(azurite.connectionString(account));
}

/** The vaults and assets that exist now in the test, by the vault's name. */
type Inventory = Map<string, { vault: VaultRecord; assets: AssetRecord[] }>;

const failuresIn = (results: ExpectedResult[]) => results.filter(({ result }) => result === "fail");

/** Expects that the score and the list of violations equal those that the checks compute from the vaults and assets. */
async function expectScoreAndViolationsOf(fixture: Fixture, inventory: Inventory): Promise<void> {
  const expected = expectedResults(inventory.values(), context);
  const failed = failuresIn(expected);
  const weight = (results: ExpectedResult[]) =>
    results.reduce((sum, { check }) => sum + SEVERITY_WEIGHTS[check.severity], 0);
  const passed = expected.filter(({ result }) => result === "pass");
  expect(await fixture.compliance.score()).toMatchObject({
    // The weighted share of passed results, in percent with one decimal.
    score: expected.length === 0 ? 100 : Math.round((1000 * weight(passed)) / weight(expected)) / 10,
    passed: passed.length,
    failed: failed.length,
    total: expected.length,
    bySeverity: Object.fromEntries(
      SEVERITIES.map((severity) => [severity, failed.filter(({ check }) => check.severity === severity).length]),
    ),
  });
  const listed = await readAllViolations(fixture.compliance, {}, 7);
  expect(listed.map(({ id }) => id).sort()).toEqual(
    failed.map(({ check, resourceId }) => `${check.id}.${resourceId}`).sort(),
  );
  expect(listed.map(({ id }) => id)).toEqual([...listed].sort(compareViolations).map(({ id }) => id));
}

type ListedViolation = Awaited<ReturnType<typeof readAllViolations>>[number];
/** Violations are listed by severity (worst first), then by check, vault and resource. */
const compareViolations = (a: ListedViolation, b: ListedViolation): number => {
  const key = ({ severity, checkId, vaultName, resourceName }: ListedViolation) =>
    [SEVERITIES.indexOf(severity), checkId, vaultName!.toLowerCase(), resourceName.toLowerCase()].join("!");
  return key(a) < key(b) ? -1 : 1;
};

/** Generates properties of an asset that pass or fail checks. An omitted property has the compliant value of `asset()`. */
const anyAssetProperties = fc.record(
  {
    expiresOn: fc.constantFrom(undefined, inDays(-3), inDays(2), inDays(20), inDays(400), inDays(3000)),
    enabled: fc.boolean(),
    contentType: fc.constantFrom(undefined, "password"),
    keyType: fc.constantFrom("RSA", "EC", "oct"),
    keySize: fc.constantFrom(1024, 2048),
    createdOn: fc.constantFrom(inDays(-10), inDays(-1000)),
    autoRenew: fc.boolean(),
    validityMonths: fc.constantFrom(6, 24),
  },
  { requiredKeys: [] },
);
const anyAsset = fc.tuple(
  fc.constantFrom("secret", "key", "certificate"),
  fc.constantFrom("a", "B", "c-1", "d"),
  anyAssetProperties,
);
const anyVaultProperties = fc.record(
  {
    rbacAuthorization: fc.boolean(),
    purgeProtection: fc.boolean(),
    privateEndpoints: fc.constantFrom(0, 1),
    diagnostics: fc.constantFrom<VaultRecord["diagnostics"][]>(undefined, [], [{ name: "audit", auditEvents: true }]),
  },
  { requiredKeys: [] },
);
/** Generates one event: a scan of a vault, a vault's removal, or an evaluation of everything. */
const anyStep = fc.oneof(
  {
    weight: 6,
    arbitrary: fc.record({
      kind: fc.constant("scan" as const),
      name: fc.constantFrom("kv-a", "kv-a-b", "KV-C"),
      vault: anyVaultProperties,
      assets: fc.uniqueArray(anyAsset, { selector: ([type, name]) => `${type}${name}`, maxLength: 8 }),
      isReportedTwice: fc.boolean(),
    }),
  },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant("remove" as const), name: fc.constantFrom("kv-a", "KV-C") }) },
  { weight: 1, arbitrary: fc.constant({ kind: "evaluate" as const }) },
);

test("score and violations match the resources after any changes, also if changes are reported twice", {
  timeout: 300_000,
}, async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(anyStep, { minLength: 1, maxLength: 8 }), async (steps) => {
      const fixture = openEmptyFixture();
      const inventory: Inventory = new Map();
      for (const step of steps) {
        if (step.kind === "scan") {
          const assets = step.assets.map(([type, name, change]) =>
            asset(step.name, type as AssetRecord["type"], name, change),
          );
          inventory.set(step.name, { vault: vault(step.name, step.vault), assets });
          await fixture.scan(vault(step.name, step.vault), assets, { twice: step.isReportedTwice });
        } else if (step.kind === "remove") {
          inventory.delete(step.name);
          await fixture.removeVault(step.name);
        } else await fixture.compliance.evaluate(caller);
      }
      await expectScoreAndViolationsOf(fixture, inventory);
    }),
    { numRuns: IS_CAMPAIGN ? 40 : 8, endOnFailure: true },
  );
});

test("the filters severity and framework return exactly the matching violations, alone and combined", async () => {
  const fixture = openEmptyFixture();
  const inventory: Inventory = new Map();
  for (const name of ["kv-1", "kv-2", "kv-3"]) {
    const assets = [
      ...[undefined, inDays(-1), inDays(5)].map((expiresOn, index) =>
        asset(name, "secret", `s${index + 1}`, { expiresOn }),
      ),
      asset(name, "key", "k1", { keySize: 1024, rotationPolicy: undefined, expiresOn: undefined }),
      asset(name, "certificate", "c1", { validityMonths: 24, autoRenew: false }),
    ];
    const scannedVault = vault(name, {
      rbacAuthorization: name !== "kv-2",
      purgeProtection: false,
      publicNetworkAccess: "Enabled",
    });
    inventory.set(name, { vault: scannedVault, assets });
    await fixture.scan(scannedVault, assets);
  }
  const expectedFailures = failuresIn(expectedResults(inventory.values(), context));
  const singleFilters = [
    {},
    ...SEVERITIES.map((severity) => ({ severity })),
    ...FRAMEWORK_IDS.map((framework) => ({ framework })),
  ];
  const combinedFilters = SEVERITIES.flatMap((severity) => FRAMEWORK_IDS.map((framework) => ({ severity, framework })));
  let combinedMatches = 0;
  for (const filter of [...singleFilters, ...sampled(combinedFilters, 6)] as ViolationFilter[]) {
    const { severity, framework } = filter;
    const matching = expectedFailures.filter(
      ({ check }) =>
        (!severity || check.severity === severity) &&
        (!framework || controlsOfCheck(check.id).some((control) => control.framework === framework)),
    );
    const wholeList = await fixture.compliance.violations({ severity, framework }, firstPage());
    expect(wholeList.total).toBe(matching.length);
    expect(wholeList.items.map(({ id }) => id).sort()).toEqual(
      matching.map(({ check, resourceId }) => `${check.id}.${resourceId}`).sort(),
    );
    expect(await readAllViolations(fixture.compliance, { severity, framework }, 2)).toEqual(wholeList.items);
    const thirdToFifth = await fixture.compliance.violations({ severity, framework }, firstPage(3, 2));
    expect(thirdToFifth.items).toEqual(wholeList.items.slice(2, 5));
    if (severity && framework) combinedMatches += matching.length;
  }
  expect(combinedMatches, "violations that match a severity and a framework").toBeGreaterThan(0);
});

const OTHER_SUBSCRIPTION = "99999999-9999-4999-8999-999999999999";
/** An owner whose name contains a separator and a character that changes the writing direction. */
const ODD_OWNER = "eve, \u202Ethe other";

/**
 * Opens a fixture with three vaults in two subscriptions. Tags name the owners of two vaults and of their assets. One asset and
 * one vault are exempted from a check that they fail.
 */
async function openFixtureWithOwners(): Promise<Fixture> {
  const fixture = openEmptyFixture();
  for (const [name, subscriptionId, owner] of [
    ["kv-a", vault("kv").subscriptionId, "ada"],
    ["kv-b", OTHER_SUBSCRIPTION, "bob"],
    // A tag without a value names no owner.
    ["kv-c", OTHER_SUBSCRIPTION, " "],
  ] as const) {
    const tags = { owner };
    await fixture.scan(vault(name, { subscriptionId, purgeProtection: false, tags }), [
      ...["one", "two", "three"].map((secret) =>
        asset(name, "secret", secret, { contentType: undefined, subscriptionId, tags }),
      ),
      asset(name, "key", "signing", { expiresOn: inDays(-1), subscriptionId, tags: { owner: ODD_OWNER } }),
    ]);
  }
  const exempt = (checkId: string, scope: { type: "asset" | "vault"; id: string }) =>
    fixture.compliance.exemptions.create(
      {
        checkId,
        scope,
        category: "waiver",
        reason: "Accepted",
        until: new Date(fixture.clock.nowMs + DAY_SECONDS * 1000),
      },
      caller,
    );
  await exempt("secret-content-type", { type: "asset", id: "kv-a.secret.two" });
  await exempt("vault-purge-protection", { type: "vault", id: "kv-b" });
  return fixture;
}

test("every other filter returns exactly the matching violations, alone and in pairs", async () => {
  const fixture = await openFixtureWithOwners();
  const all = await readAllViolations(fixture.compliance, {}, 1000);
  expect(all.filter(({ exempted }) => exempted)).toHaveLength(2);
  expect(new Set(all.map(({ owner }) => owner))).toEqual(new Set(["ada", "bob", ODD_OWNER, null]));
  const singleFilters: ViolationFilter[] = [
    { check: "secret-content-type" },
    { check: "key-rsa-size" },
    { vault: "kv-b" },
    { vault: "kv-none" },
    { subscription: OTHER_SUBSCRIPTION },
    { resource: "kv-a.secret.two" },
    { resource: "kv-b" },
    // The start of a resource's ID matches nothing.
    { resource: "kv-b.secret.on" },
    { owner: "ada" },
    { owner: ODD_OWNER },
    { owner: "nobody" },
    { hasOwner: true },
    { hasOwner: false },
    { exempted: true },
    { exempted: false },
  ];
  const filterPairs = singleFilters.flatMap((first, index) =>
    singleFilters.slice(index + 1).map((second) => ({ ...first, ...second })),
  );
  let [matchesOfSingle, matchesOfPairs] = [0, 0];
  for (const filter of [...singleFilters, ...sampled(filterPairs, 26)]) {
    const matching = all.filter(
      ({ checkId, resourceId, vaultName, subscriptionId, owner, exempted }) =>
        (filter.resource === undefined || resourceId === filter.resource) &&
        (filter.check === undefined || checkId === filter.check) &&
        (filter.vault === undefined || vaultName === filter.vault) &&
        (filter.subscription === undefined || subscriptionId === filter.subscription) &&
        (filter.owner === undefined || owner === filter.owner) &&
        (filter.hasOwner === undefined || (owner !== null) === filter.hasOwner) &&
        (filter.exempted === undefined || exempted === filter.exempted),
    );
    const isSingle = singleFilters.includes(filter);
    if (isSingle) matchesOfSingle += matching.length;
    else matchesOfPairs += matching.length;
    const page = await fixture.compliance.violations(filter, firstPage(1000));
    expect([filter, page.items, page.nextCursor]).toEqual([filter, matching, null]);
    const exempted = matching.filter((violation) => violation.exempted).length;
    expect([page.total, page.open, page.exempted]).toEqual([matching.length, matching.length - exempted, exempted]);
    if (!isSingle) continue;
    expect(await readAllViolations(fixture.compliance, filter, 2)).toEqual(matching);
    expect((await fixture.compliance.violations(filter, firstPage(2, 1))).items).toEqual(matching.slice(1, 3));
  }
  expect(matchesOfSingle).toBeGreaterThan(30);
  expect(matchesOfPairs).toBeGreaterThan(0);
});

test("the list of violations has the same numbers of open and exempted violations as the score", async () => {
  const fixture = await openFixtureWithOwners();
  const { failed, exempted } = await fixture.compliance.score();
  const list = await fixture.compliance.violations({}, firstPage(1));
  expect([list.open, list.exempted, list.total]).toEqual([failed, exempted, failed + exempted]);
});

test("the owner filter finds only violations whose owner was stored at their evaluation", async () => {
  const fixture = await openFixtureWithOwners();
  const idsOfOwner = async (owner: string) =>
    (await fixture.compliance.violations({ owner }, firstPage())).items.map(({ id }) => id);
  expect(await idsOfOwner("bob")).toEqual([
    "vault-purge-protection.kv-b",
    "secret-content-type.kv-b.secret.one",
    "secret-content-type.kv-b.secret.three",
    "secret-content-type.kv-b.secret.two",
  ]);
  // Earlier versions stored findings of assets without `facts`, and so without the owner. Keys of findings start with `1!`.
  for await (const rows of fixture.tables.pages(Findings, { partitionKey: STATE, from: "1!", before: "2!" })) {
    for (const { facts: _, ...row } of rows) await fixture.tables.replace(Findings, row);
  }
  expect(await idsOfOwner("bob")).toEqual(["vault-purge-protection.kv-b"]);
});

test("a violation shows its asset's new owner after the next scan", async () => {
  const fixture = openEmptyFixture();
  const secretsOf = (owner: string) => [asset("kv", "secret", "a", { contentType: undefined, tags: { owner } })];
  await fixture.scan(vault("kv"), secretsOf("ada"));
  await fixture.scan(vault("kv"), secretsOf("bob"));
  const { items } = await fixture.compliance.violations({}, firstPage());
  expect(items.map(({ owner }) => owner)).toEqual(["bob"]);
});

test("an evaluation can be read by its ID until scan history of its age is deleted", async () => {
  const fixture = openEmptyFixture();
  // More than 20 vaults are evaluated through the queue, not within the request.
  for (let index = 0; index < 21; index++) await fixture.scan(vault(`kv-${index}`), []);
  const first = await fixture.compliance.evaluate(caller);
  expect(first).toMatchObject({ status: "queued", score: null });
  fixture.clock.nowMs += MINUTE_MS;
  const second = await fixture.compliance.evaluate(caller);
  const statuses = async () => {
    const both = [first, second].map(({ evaluationId }) => fixture.compliance.evaluation(evaluationId));
    return (await Promise.all(both)).map(({ status, vaults, vaultsLeft }) => [status, vaults, vaultsLeft]);
  };
  await fixture.compliance.handle({ kind: "everything", evaluationId: second.evaluationId });
  await fixture.compliance.handle({ kind: "vault", vault: "kv-1", evaluationId: second.evaluationId });
  expect(await statuses()).toEqual([
    ["queued", null, 0],
    ["running", 21, 20],
  ]);
  await fixture.drain();
  expect(await statuses()).toEqual([
    ["completed", 21, 0],
    ["completed", 21, 0],
  ]);
  expect((await fixture.compliance.evaluation(first.evaluationId)).score).toMatchObject({ failed: 0 });
  const UNKNOWN_ID = "01KAJ4K3M0T5Q8W2Z7X9C1V6BN";
  for (const id of [UNKNOWN_ID, "../x", second.evaluationId.toLowerCase()])
    await expect(fixture.compliance.evaluation(id)).rejects.toMatchObject({ code: "notFound" });
  // One day more than the default retention of scans.
  fixture.clock.nowMs += 91 * DAY_SECONDS * 1000;
  await fixture.compliance.runDue();
  await expect(fixture.compliance.evaluation(first.evaluationId)).rejects.toMatchObject({ code: "notFound" });
  // The newest evaluation is also stored with the score, which is not deleted.
  expect((await fixture.compliance.evaluation(second.evaluationId)).status).toBe("completed");
});

test("a violation contains its check, resource, evidence, times, controls and remediation", async () => {
  const fixture = openEmptyFixture();
  await fixture.scan(vault("kv-Pay"), [asset("kv-Pay", "secret", "Db-Password", { expiresOn: undefined })]);
  fixture.clock.nowMs += HOUR_MS;
  await fixture.scan(vault("kv-Pay"), [
    asset("kv-Pay", "secret", "Db-Password", { expiresOn: undefined, tags: { a: "b" } }),
  ]);
  const { items } = await fixture.compliance.violations({ severity: "high" }, firstPage());
  expect(items).toMatchObject([
    {
      id: "secret-expiry-set-rbac.kv-pay.secret.db-password",
      resourceId: "kv-pay.secret.db-password",
      resourceType: "secret",
      resourceName: "Db-Password",
      vaultName: "kv-Pay",
      checkId: "secret-expiry-set-rbac",
      evidence: "It has no expiration date.",
      firstSeenAt: "2026-11-21T10:00:00.000Z",
      lastSeenAt: "2026-11-21T11:00:00.000Z",
      exempted: false,
      remediation: { cli: expect.stringContaining("--vault-name kv-Pay --name Db-Password") },
    },
  ]);
  expect(items[0]!.controls).toContainEqual({ framework: "cis-azure-5.0.0", control: "8.3.3" });
  expect(items[0]!.frameworks).toEqual(expect.arrayContaining(["pci-dss-4.0.1", "soc-2"]));
});

test("paging returns each unchanged violation exactly once while other violations appear and end", async () => {
  const fixture = openEmptyFixture();
  const names = Array.from({ length: 40 }, (_, index) => `s${String(index).padStart(2, "0")}`);
  const secrets = (removed: string[], added: string[] = []) =>
    [...names.filter((name) => !removed.includes(name)), ...added].map((name) =>
      asset("kv", "secret", name, { contentType: undefined }),
    );
  await fixture.scan(vault("kv"), secrets([]));
  const listedNames: string[] = [];
  let cursor: string | undefined;
  let page = 0;
  do {
    const response = await fixture.compliance.violations({ severity: "low" }, { limit: 10, offset: 0, cursor });
    listedNames.push(...response.items.map(({ resourceName }) => resourceName));
    cursor = response.nextCursor ?? undefined;
    page++;
    // The removed and added secrets lie before the cursor.
    if (page === 1) await fixture.scan(vault("kv"), secrets(["s00", "s01", "s02", "s03"]));
    if (page === 2) await fixture.scan(vault("kv"), secrets(["s00", "s01", "s02", "s03"], ["a1", "a2"]));
  } while (cursor !== undefined);
  expect(listedNames).toEqual(names);
});

test("a cursor is rejected if the filters differ or if it was modified", async () => {
  const fixture = openEmptyFixture();
  await fixture.scan(vault("kv", { privateEndpoints: 0, purgeProtection: false }), []);
  const { nextCursor } = await fixture.compliance.violations({}, firstPage(1));
  const pageAt = (cursor: string) => ({ limit: 1, offset: 0, cursor });
  await expect(fixture.compliance.violations({ severity: "high" }, pageAt(nextCursor!))).rejects.toMatchObject({
    code: "invalidCursor",
  });
  await expect(fixture.compliance.violations({}, pageAt(`x${nextCursor}`))).rejects.toMatchObject({
    code: "invalidCursor",
  });
});

test("the next request continues to skip the violations of an offset that one request could not skip completely", async () => {
  const fixture = await openFixtureWithOwners();
  const filter = { owner: "ada" };
  const all = await readAllViolations(fixture.compliance, filter);
  const { nextCursor } = await fixture.compliance.violations(filter, firstPage(1));
  // A cursor is base64url of JSON. Its member `s` is the number of violations still to skip.
  const position = JSON.parse(Buffer.from(nextCursor!, "base64url").toString());
  const cursor = encodeCursor({ ...position, s: 2 });
  const { items } = await fixture.compliance.violations(filter, { limit: 1, offset: 0, cursor });
  // The first page had one violation, and the cursor skips two more.
  expect([items, items.length]).toEqual([all.slice(3, 4), 1]);
});

test("all violations of a vault with over a thousand failing secrets are listed in order", {
  timeout: 300_000,
}, async () => {
  const fixture = openEmptyFixture();
  const secrets = Array.from({ length: 1205 }, (_, index) =>
    asset("kv-big", "secret", `secret-${String(index).padStart(5, "0")}`, { contentType: undefined }),
  );
  const { cursor: start } = await fixture.compliance.newViolations(undefined, 1);
  await fixture.scan(vault("kv-big"), secrets);
  const { violations } = await fixture.compliance.newViolations(start, 2000);
  expect(violations.map(({ resourceId }) => resourceId)).toEqual(secrets.map(({ name }) => `kv-big.secret.${name}`));
  await fixture.scan(vault("kv-small"), [asset("kv-small", "secret", "only", { contentType: undefined })]);
  const names = async () =>
    (await readAllViolations(fixture.compliance, { severity: "low" }, 300)).map(({ resourceName }) => resourceName);
  expect(await names()).toEqual([...secrets.map(({ name }) => name), "only"]);
  await fixture.scan(vault("kv-big"), secrets.slice(710));
  expect(await names()).toEqual([...secrets.slice(710).map(({ name }) => name), "only"]);
  await fixture.removeVault("kv-big");
  expect(await names()).toEqual(["only"]);
});

test("the next evaluation of a vault repairs results with a missing row", async () => {
  const connectionString = azurite.connectionString(unusedAccounts.pop()!);
  const fixture = openFixture(connectionString);
  const secrets = ["a", "b", "c"].map((name) => asset("kv", "secret", name, { contentType: undefined }));
  await fixture.scan(vault("kv"), secrets);
  // The results of a vault's assets are also in its details rows, which evaluations continue from. This removes the first.
  await createTables({ connectionString }).remove(Details, STATE, detailsKey("kv", 0));
  const changed = secrets.with(1, asset("kv", "secret", "b"));
  await fixture.scan(vault("kv"), changed);
  await expectScoreAndViolationsOf(fixture, new Map([["kv", { vault: vault("kv"), assets: changed }]]));
});

test("a framework reports whether each control passes, fails, is not applicable or needs a manual check", async () => {
  const fixture = openEmptyFixture();
  await fixture.scan(vault("kv-1", { privateEndpoints: 0 }), [asset("kv-1", "secret", "a")]);
  await fixture.scan(vault("kv-2"), [asset("kv-2", "secret", "a", { expiresOn: undefined })]);
  const framework = await fixture.compliance.framework("cis-azure-5.0.0");
  const status = Object.fromEntries(framework.controls.map((control) => [control.id, control.status]));
  expect(status).toMatchObject({
    "8.3.1": "notApplicable",
    "8.3.3": "fail",
    "8.3.4": "notApplicable",
    "8.3.5": "pass",
    "8.3.8": "fail",
    "8.3.10": "manual",
    "8.1.8.1": "manual",
  });
  expect(framework.controls.find(({ id }) => id === "8.3.8")).toMatchObject({
    passed: 1,
    failed: 1,
    checks: [{ id: "vault-private-endpoint", failed: 1, basis: expect.stringContaining("Private endpoints") }],
  });
  expect(framework).toMatchObject({ controlsTotal: 14, controlsByStatus: { manual: 3, fail: 2 } });
  const { items, total } = await fixture.compliance.frameworks(firstPage());
  expect(total).toBe(15);
  const { controls } = await fixture.compliance.framework("dora");
  expect(controls.find(({ id }) => id === "RTS 7(3)")).toMatchObject({
    status: "manual",
    checks: [],
    notAssessed: expect.stringContaining("compromised"),
  });
  // Its checks can fail it, but can't show that it is met.
  expect(controls.find(({ id }) => id === "RTS 6")).toMatchObject({ notAssessed: expect.any(String) });
  // Two vaults' soft delete and purge protection, one expiration date that is set, one secret that has not expired.
  expect(items.find(({ id }) => id === "soc-2")).toMatchObject({ name: "SOC 2", failed: 1, passed: 4 + 1 + 1 });
  await expect(fixture.compliance.framework("cis")).rejects.toMatchObject({ code: "notFound" });
});

test("without results, the score is 100", async () => {
  const fixture = openEmptyFixture();
  expect(await fixture.compliance.score()).toMatchObject({ score: 100, total: 0, evaluatedAt: null, evaluation: null });
  expect(await fixture.compliance.violations({}, firstPage())).toMatchObject({ items: [], total: 0, nextCursor: null });
  // There are checks, so the score is not 100 for lack of them.
  expect(CHECKS.length).toBeGreaterThan(30);
});

test("the violations that two evaluations of a vault add at the same time are all returned as new", async () => {
  const fixture = openEmptyFixture();
  const [a, b] = ["a", "b"].map((name) => asset("kv", "secret", name)) as [AssetRecord, AssetRecord];
  const failing = ({ name }: AssetRecord) => asset("kv", "secret", name, { contentType: undefined });
  await fixture.scan(vault("kv"), [a, b]);
  const { cursor } = await fixture.compliance.newViolations(undefined, 1);
  fixture.clock.nowMs += SECOND_MS;
  // Both scans have the same time, as two attempts of one evaluation do if the second continues after the first one's write.
  await fixture.scan(vault("kv"), [failing(a), b]);
  await fixture.scan(vault("kv"), [failing(a), failing(b)]);
  const { violations } = await fixture.compliance.newViolations(cursor, 100);
  expect(violations.map(({ resourceId }) => resourceId).sort()).toEqual(["kv.secret.a", "kv.secret.b"]);
});
