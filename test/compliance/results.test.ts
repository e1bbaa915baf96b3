import fc from "fast-check";
import { afterAll, beforeAll, expect, test } from "vitest";
import { SEVERITIES, WEIGHTS } from "../../shared/compliance/check.ts";
import { CHECKS } from "../../shared/compliance/checks/all.ts";
import { Details, detailsKey, Findings, STATE } from "../../shared/compliance/compliance-rows.ts";
import { controlsOfCheck, FRAMEWORK_IDS } from "../../shared/compliance/controls.ts";
import type { ViolationFilter } from "../../shared/compliance/violations.ts";
import type { AssetRecord } from "../../shared/inventory/asset.ts";
import type { VaultRecord } from "../../shared/inventory/vault.ts";
import { encodeCursor } from "../../shared/platform/http/paging.ts";
import { createTables } from "../../shared/platform/storage/tables.ts";
import { IS_CAMPAIGN, sampled } from "../support/sampling.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import {
  asset,
  caller,
  context,
  type Fixture,
  firstPage,
  inDays,
  openFixture,
  type Pair,
  pairsOf,
  vault,
  walk,
} from "./compliance-fixture.ts";

let azurite: TestStorage;
const accounts = Array.from({ length: 64 }, (_, at) => `results${at}`);
const free = [...accounts];
beforeAll(async () => {
  azurite = await openStorage(accounts);
});
afterAll(() => azurite.stop());
function fresh(): Fixture {
  const account = free.pop();
  if (account === undefined) throw new Error("Each run needs an account of its own: list more.");
  return openFixture(azurite.connectionString(account));
}

type Estate = Map<string, { vault: VaultRecord; assets: AssetRecord[] }>;

const failing = (pairs: Pair[]) => pairs.filter(({ result }) => result === "fail");

/** Compares all responses of the module with the expected results of the resources. */
async function expectAnswersOf(fixture: Fixture, estate: Estate, at = context): Promise<void> {
  const pairs = pairsOf(estate.values(), at);
  const weight = (of: Pair[]) => of.reduce((sum, { check }) => sum + WEIGHTS[check.severity], 0);
  const passed = pairs.filter(({ result }) => result === "pass");
  expect(await fixture.compliance.score()).toMatchObject({
    score: pairs.length === 0 ? 100 : Math.round((1000 * weight(passed)) / weight(pairs)) / 10,
    passed: passed.length,
    failed: failing(pairs).length,
    total: pairs.length,
    bySeverity: Object.fromEntries(
      SEVERITIES.map((severity) => [
        severity,
        failing(pairs).filter(({ check }) => check.severity === severity).length,
      ]),
    ),
  });
  const listed = await walk(fixture.compliance, {}, 7);
  expect(listed.map(({ id }) => id).sort()).toEqual(
    failing(pairs)
      .map(({ check, resourceId }) => `${check.id}.${resourceId}`)
      .sort(),
  );
  expect(listed.map(({ id }) => id)).toEqual([...listed].sort(inOrder).map(({ id }) => id));
}

type Listed = Awaited<ReturnType<typeof walk>>[number];
const inOrder = (a: Listed, b: Listed): number => {
  const key = ({ severity, checkId, vaultName, resourceName }: Listed) =>
    [SEVERITIES.indexOf(severity), checkId, vaultName!.toLowerCase(), resourceName.toLowerCase()].join("!");
  return key(a) < key(b) ? -1 : 1;
};

const anyChange = fc.record(
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
  anyChange,
);
const anyVault = fc.record(
  {
    rbacAuthorization: fc.boolean(),
    purgeProtection: fc.boolean(),
    privateEndpoints: fc.constantFrom(0, 1),
    diagnostics: fc.constantFrom<VaultRecord["diagnostics"][]>(undefined, [], [{ name: "audit", auditEvents: true }]),
  },
  { requiredKeys: [] },
);
const anyStep = fc.oneof(
  {
    weight: 6,
    arbitrary: fc.record({
      kind: fc.constant("scan" as const),
      name: fc.constantFrom("kv-a", "kv-a-b", "KV-C"),
      vault: anyVault,
      assets: fc.uniqueArray(anyAsset, { selector: ([type, name]) => `${type}${name}`, maxLength: 8 }),
      twice: fc.boolean(),
    }),
  },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant("leave" as const), name: fc.constantFrom("kv-a", "KV-C") }) },
  { weight: 1, arbitrary: fc.constant({ kind: "evaluate" as const }) },
);

test("after any changes, reported once or twice, score and violations match the resources", {
  timeout: 300_000,
}, async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(anyStep, { minLength: 1, maxLength: 8 }), async (steps) => {
      const fixture = fresh();
      const estate: Estate = new Map();
      for (const step of steps) {
        if (step.kind === "scan") {
          const assets = step.assets.map(([type, name, change]) =>
            asset(step.name, type as AssetRecord["type"], name, change),
          );
          estate.set(step.name, { vault: vault(step.name, step.vault), assets });
          await fixture.scan(vault(step.name, step.vault), assets, { twice: step.twice });
        } else if (step.kind === "leave") {
          estate.delete(step.name);
          await fixture.leave(step.name);
        } else await fixture.compliance.evaluate(caller);
      }
      await expectAnswersOf(fixture, estate);
    }),
    { numRuns: IS_CAMPAIGN ? 40 : 8, endOnFailure: true },
  );
});

test("severity and framework filter alone and together, with the exact total, on every page", async () => {
  const fixture = fresh();
  const estate: Estate = new Map();
  for (const name of ["kv-1", "kv-2", "kv-3"]) {
    const assets = [
      ...["s1", "s2", "s3"].map((one, at) =>
        asset(name, "secret", one, { expiresOn: [undefined, inDays(-1), inDays(5)][at] }),
      ),
      asset(name, "key", "k1", { keySize: 1024, rotationPolicy: undefined, expiresOn: undefined }),
      asset(name, "certificate", "c1", { validityMonths: 24, autoRenew: false }),
    ];
    const of = vault(name, {
      rbacAuthorization: name !== "kv-2",
      purgeProtection: false,
      publicNetworkAccess: "Enabled",
    });
    estate.set(name, { vault: of, assets });
    await fixture.scan(of, assets);
  }
  const all = failing(pairsOf(estate.values(), context));
  const alone = [
    {},
    ...SEVERITIES.map((severity) => ({ severity })),
    ...FRAMEWORK_IDS.map((framework) => ({ framework })),
  ];
  const together = SEVERITIES.flatMap((severity) => FRAMEWORK_IDS.map((framework) => ({ severity, framework })));
  let matched = 0;
  for (const filter of [...alone, ...sampled(together, 6)] as ViolationFilter[]) {
    const { severity, framework } = filter;
    const wanted = all.filter(
      ({ check }) =>
        (!severity || check.severity === severity) &&
        (!framework || controlsOfCheck(check.id).some((control) => control.framework === framework)),
    );
    const whole = await fixture.compliance.violations({ severity, framework }, firstPage());
    expect(whole.total).toBe(wanted.length);
    expect(whole.items.map(({ id }) => id).sort()).toEqual(
      wanted.map(({ check, resourceId }) => `${check.id}.${resourceId}`).sort(),
    );
    expect(await walk(fixture.compliance, { severity, framework }, 2)).toEqual(whole.items);
    const later = await fixture.compliance.violations({ severity, framework }, firstPage(3, 2));
    expect(later.items).toEqual(whole.items.slice(2, 5));
    if (severity && framework) matched += wanted.length;
  }
  expect(matched, "violations of a severity and a framework").toBeGreaterThan(0);
});

/** Two subscriptions, owners by tag, exemptions of one asset, of a vault and of a check. */
async function withOwners(): Promise<Fixture> {
  const fixture = fresh();
  const other = "99999999-9999-4999-8999-999999999999";
  for (const [name, subscriptionId, owner] of [
    ["kv-a", vault("kv").subscriptionId, "ada"],
    ["kv-b", other, "bob"],
    ["kv-c", other, undefined],
  ] as const) {
    const tags = owner === undefined ? undefined : { owner };
    await fixture.scan(vault(name, { subscriptionId, purgeProtection: false, ...(tags && { tags }) }), [
      ...["one", "two", "three"].map((secret) =>
        asset(name, "secret", secret, { contentType: undefined, subscriptionId, ...(tags && { tags }) }),
      ),
      asset(name, "key", "own", { expiresOn: inDays(-1), subscriptionId, tags: { owner: "eve, \u202Ethe other" } }),
    ]);
  }
  const exempt = (checkId: string, scope: { type: "asset" | "vault"; id: string }) =>
    fixture.compliance.exemptions.create(
      { checkId, scope, category: "waiver", reason: "It is", until: new Date(fixture.clock.at + 86_400_000) },
      caller,
    );
  await exempt("secret-content-type", { type: "asset", id: "kv-a.secret.two" });
  await exempt("vault-purge-protection", { type: "vault", id: "kv-b" });
  return fixture;
}

test("check, vault, subscription, resource, owner and exempted filter alone and together, with the exact total, on every page", async () => {
  const fixture = await withOwners();
  const all = await walk(fixture.compliance, {}, 1000);
  expect(all.filter(({ exempted }) => exempted)).toHaveLength(2);
  const choices: ViolationFilter[] = [
    { check: "secret-content-type" },
    { check: "key-rsa-size" },
    { vault: "kv-b" },
    { vault: "kv-none" },
    { subscription: "99999999-9999-4999-8999-999999999999" },
    { resource: "kv-a.secret.two" },
    { resource: "kv-b" },
    { resource: "kv-b.secret.on" },
    { owner: "ada" },
    { owner: "eve, \u202Ethe other" },
    { owner: "nobody" },
    { exempted: true },
    { exempted: false },
  ];
  const together = choices.flatMap((one, at) => choices.slice(at + 1).map((other) => ({ ...one, ...other })));
  const pairs = sampled(together, 26);
  let [byOne, byTwo] = [0, 0];
  for (const filter of [...choices, ...pairs]) {
    const wanted = all.filter(
      ({ checkId, resourceId, vaultName, subscriptionId, owner, exempted }) =>
        (filter.resource === undefined || resourceId === filter.resource) &&
        (filter.check === undefined || checkId === filter.check) &&
        (filter.vault === undefined || vaultName === filter.vault) &&
        (filter.subscription === undefined || subscriptionId === filter.subscription) &&
        (filter.owner === undefined || owner === filter.owner) &&
        (filter.exempted === undefined || exempted === filter.exempted),
    );
    if (choices.includes(filter)) byOne += wanted.length;
    else byTwo += wanted.length;
    const page = await fixture.compliance.violations(filter, firstPage(1000));
    expect([filter, page.items, page.nextCursor]).toEqual([filter, wanted, null]);
    const exempted = wanted.filter((one) => one.exempted).length;
    expect([page.total, page.open, page.exempted]).toEqual([wanted.length, wanted.length - exempted, exempted]);
    if (!choices.includes(filter)) continue;
    expect(await walk(fixture.compliance, filter, 2)).toEqual(wanted);
    expect((await fixture.compliance.violations(filter, firstPage(2, 1))).items).toEqual(wanted.slice(1, 3));
  }
  expect(byOne).toBeGreaterThan(30);
  expect(byTwo).toBeGreaterThan(0);
});

test("the list's numbers of open and exempted violations equal those of the score", async () => {
  const fixture = await withOwners();
  const { failed, exempted } = await fixture.compliance.score();
  const list = await fixture.compliance.violations({}, firstPage(1));
  expect([list.open, list.exempted, list.total]).toEqual([failed, exempted, failed + exempted]);
});

test("owners are those of the evaluation, and findings of earlier versions have none", async () => {
  const fixture = await withOwners();
  const owned = async (owner: string) =>
    (await fixture.compliance.violations({ owner }, firstPage())).items.map(({ id }) => id);
  expect(await owned("bob")).toEqual([
    "vault-purge-protection.kv-b",
    "secret-content-type.kv-b.secret.one",
    "secret-content-type.kv-b.secret.three",
    "secret-content-type.kv-b.secret.two",
  ]);
  // The findings of an earlier version.
  for await (const rows of fixture.tables.pages(Findings, { partitionKey: STATE, from: "1!", before: "2!" })) {
    for (const { facts: _, ...row } of rows) await fixture.tables.replace(Findings, row);
  }
  expect(await owned("bob")).toEqual(["vault-purge-protection.kv-b"]);
});

test("a new owner of a failing asset is shown at once", async () => {
  const fixture = fresh();
  const owned = (owner: string) => [asset("kv", "secret", "a", { contentType: undefined, tags: { owner } })];
  await fixture.scan(vault("kv"), owned("ada"));
  await fixture.scan(vault("kv"), owned("bob"));
  const { items } = await fixture.compliance.violations({}, firstPage());
  expect(items.map(({ owner }) => owner)).toEqual(["bob"]);
});

test("evaluations can be read by ID, earlier ones and those of many vaults too, as long as scans are kept", async () => {
  const fixture = fresh();
  for (let at = 0; at < 21; at++) await fixture.scan(vault(`kv-${at}`), []);
  const first = await fixture.compliance.evaluate(caller);
  expect(first).toMatchObject({ status: "queued", score: null });
  fixture.clock.at += 60_000;
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
  const unknown = "01KAJ4K3M0T5Q8W2Z7X9C1V6BN";
  for (const id of [unknown, "../x", second.evaluationId.toLowerCase()])
    await expect(fixture.compliance.evaluation(id)).rejects.toMatchObject({ code: "notFound" });
  fixture.clock.at += 91 * 86_400_000;
  await fixture.compliance.runDue();
  await expect(fixture.compliance.evaluation(first.evaluationId)).rejects.toMatchObject({ code: "notFound" });
  // The score contains the newest evaluation.
  expect((await fixture.compliance.evaluation(second.evaluationId)).status).toBe("completed");
});

test("a violation contains the failure, its resource, time, controls and remediation", async () => {
  const fixture = fresh();
  await fixture.scan(vault("kv-Pay"), [asset("kv-Pay", "secret", "Db-Password", { expiresOn: undefined })]);
  fixture.clock.at += 3_600_000;
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

test("paging neither skips nor repeats unchanged violations while others arise and end", async () => {
  const fixture = fresh();
  const names = Array.from({ length: 40 }, (_, at) => `s${String(at).padStart(2, "0")}`);
  const secrets = (without: string[], more: string[] = []) =>
    [...names.filter((name) => !without.includes(name)), ...more].map((name) =>
      asset("kv", "secret", name, { contentType: undefined }),
    );
  await fixture.scan(vault("kv"), secrets([]));
  const seen: string[] = [];
  let cursor: string | undefined;
  let page = 0;
  do {
    const answer = await fixture.compliance.violations({ severity: "low" }, { limit: 10, offset: 0, cursor });
    seen.push(...answer.items.map(({ resourceName }) => resourceName));
    cursor = answer.nextCursor ?? undefined;
    page++;
    if (page === 1) await fixture.scan(vault("kv"), secrets(["s00", "s01", "s02", "s03"]));
    if (page === 2) await fixture.scan(vault("kv"), secrets(["s00", "s01", "s02", "s03"], ["a1", "a2"]));
  } while (cursor !== undefined);
  expect(seen).toEqual(names);
});

test("a cursor of other filters is rejected, and so is a modified one", async () => {
  const fixture = fresh();
  await fixture.scan(vault("kv", { privateEndpoints: 0, purgeProtection: false }), []);
  const { nextCursor } = await fixture.compliance.violations({}, firstPage(1));
  const at = (cursor: string) => ({ limit: 1, offset: 0, cursor });
  await expect(fixture.compliance.violations({ severity: "high" }, at(nextCursor!))).rejects.toMatchObject({
    code: "invalidCursor",
  });
  await expect(fixture.compliance.violations({}, at(`x${nextCursor}`))).rejects.toMatchObject({
    code: "invalidCursor",
  });
});

test("if a call ends before the whole offset is skipped, its cursor skips the rest", async () => {
  const fixture = await withOwners();
  const filter = { owner: "ada" };
  const all = await walk(fixture.compliance, filter);
  const { nextCursor } = await fixture.compliance.violations(filter, firstPage(1));
  const place = JSON.parse(Buffer.from(nextCursor!, "base64url").toString());
  const cursor = encodeCursor({ ...place, s: 2 });
  const { items } = await fixture.compliance.violations(filter, { limit: 1, offset: 0, cursor });
  expect([items, items.length]).toEqual([all.slice(3, 4), 1]);
});

test("a vault with thousands of failing secrets is listed completely, in order, and after a change too", {
  timeout: 300_000,
}, async () => {
  const fixture = fresh();
  const secrets = Array.from({ length: 1205 }, (_, at) =>
    asset("kv-big", "secret", `secret-${String(at).padStart(5, "0")}`, { contentType: undefined }),
  );
  const { cursor: start } = await fixture.compliance.newViolations(undefined, 1);
  await fixture.scan(vault("kv-big"), secrets);
  const { violations } = await fixture.compliance.newViolations(start, 2000);
  expect(violations.map(({ resourceId }) => resourceId)).toEqual(secrets.map(({ name }) => `kv-big.secret.${name}`));
  await fixture.scan(vault("kv-small"), [asset("kv-small", "secret", "only", { contentType: undefined })]);
  const names = async () =>
    (await walk(fixture.compliance, { severity: "low" }, 300)).map(({ resourceName }) => resourceName);
  expect(await names()).toEqual([...secrets.map(({ name }) => name), "only"]);
  await fixture.scan(vault("kv-big"), secrets.slice(710));
  expect(await names()).toEqual([...secrets.slice(710).map(({ name }) => name), "only"]);
  await fixture.leave("kv-big");
  expect(await names()).toEqual(["only"]);
});

test("the next evaluation completes half-written results of a vault", async () => {
  const connectionString = azurite.connectionString(free.pop()!);
  const fixture = openFixture(connectionString);
  const secrets = ["a", "b", "c"].map((name) => asset("kv", "secret", name, { contentType: undefined }));
  await fixture.scan(vault("kv"), secrets);
  await createTables({ connectionString }).remove(Details, STATE, detailsKey("kv", 0));
  const changed = secrets.with(1, asset("kv", "secret", "b"));
  await fixture.scan(vault("kv"), changed);
  await expectAnswersOf(fixture, new Map([["kv", { vault: vault("kv"), assets: changed }]]));
});

test("a framework's controls pass, fail, are not applicable or manual", async () => {
  const fixture = fresh();
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
  expect(total).toBe(10);
  // Two vaults' soft delete and purge protection, one expiration date that is set, one secret that has not expired.
  expect(items.find(({ id }) => id === "soc-2")).toMatchObject({ name: "SOC 2", failed: 1, passed: 4 + 1 + 1 });
  await expect(fixture.compliance.framework("cis")).rejects.toMatchObject({ code: "notFound" });
});

test("without results, the score is 100", async () => {
  const fixture = fresh();
  expect(await fixture.compliance.score()).toMatchObject({ score: 100, total: 0, evaluatedAt: null, evaluation: null });
  expect(await fixture.compliance.violations({}, firstPage())).toMatchObject({ items: [], total: 0, nextCursor: null });
  expect(CHECKS.length).toBeGreaterThan(30);
});

test("violations that arose in two evaluations of a vault at the same time are all returned", async () => {
  const fixture = fresh();
  const [a, b] = ["a", "b"].map((name) => asset("kv", "secret", name)) as [AssetRecord, AssetRecord];
  const failing = (one: AssetRecord) => asset("kv", "secret", one.name, { contentType: undefined });
  await fixture.scan(vault("kv"), [a, b]);
  const { cursor } = await fixture.compliance.newViolations(undefined, 1);
  fixture.clock.at += 1000;
  // Like two attempts of one evaluation, of which the second continues after the first one's write.
  await fixture.scan(vault("kv"), [failing(a), b]);
  await fixture.scan(vault("kv"), [failing(a), failing(b)]);
  const { violations } = await fixture.compliance.newViolations(cursor, 100);
  expect(violations.map(({ resourceId }) => resourceId).sort()).toEqual(["kv.secret.a", "kv.secret.b"]);
});
