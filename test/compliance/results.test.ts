import fc from "fast-check";
import { afterAll, beforeAll, expect, test } from "vitest";
import { SEVERITIES, WEIGHTS } from "../../shared/compliance/check.ts";
import { CHECKS } from "../../shared/compliance/checks/all.ts";
import { controlsOfCheck, FRAMEWORK_IDS } from "../../shared/compliance/controls.ts";
import { Details, detailsKey, STATE } from "../../shared/compliance/layout.ts";
import type { AssetRecord } from "../../shared/inventory/asset.ts";
import type { VaultRecord } from "../../shared/inventory/vault.ts";
import { createTables } from "../../shared/storage/tables.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import {
  asset,
  caller,
  context,
  firstPage,
  inDays,
  openRoom,
  type Pair,
  pairsOf,
  type Room,
  vault,
  walk,
} from "./support.ts";

let azurite: TestStorage;
const accounts = Array.from({ length: 40 }, (_, at) => `results${at}`);
const free = [...accounts];
beforeAll(async () => {
  azurite = await openStorage(accounts);
});
afterAll(() => azurite.stop());
function fresh(): Room {
  const account = free.pop();
  if (account === undefined) throw new Error("Each run needs an account of its own: list more.");
  return openRoom(azurite.connectionString(account));
}

type Estate = Map<string, { vault: VaultRecord; assets: AssetRecord[] }>;

const failing = (pairs: Pair[]) => pairs.filter(({ result }) => result === "fail");

/** The room's answers, all of them, against what follows from the resources alone. */
async function expectAnswersOf(room: Room, estate: Estate, at = context): Promise<void> {
  const pairs = pairsOf(estate.values(), at);
  const weight = (of: Pair[]) => of.reduce((sum, { check }) => sum + WEIGHTS[check.severity], 0);
  const passed = pairs.filter(({ result }) => result === "pass");
  expect(await room.compliance.score()).toMatchObject({
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
  const listed = await walk(room.compliance, {}, 7);
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

test("after any changes, told once or twice, score and violations are what the resources give", {
  timeout: 120_000,
}, async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(anyStep, { minLength: 1, maxLength: 8 }), async (steps) => {
      const room = fresh();
      const estate: Estate = new Map();
      for (const step of steps) {
        if (step.kind === "scan") {
          const assets = step.assets.map(([type, name, change]) =>
            asset(step.name, type as AssetRecord["type"], name, change),
          );
          estate.set(step.name, { vault: vault(step.name, step.vault), assets });
          await room.scan(vault(step.name, step.vault), assets, { twice: step.twice });
        } else if (step.kind === "leave") {
          estate.delete(step.name);
          await room.leave(step.name);
        } else await room.compliance.evaluate(caller);
      }
      await expectAnswersOf(room, estate);
    }),
    { numRuns: 15, seed: 20261121, endOnFailure: true },
  );
});

test("severity and framework filter alone and together, with the exact total, on every page", async () => {
  const room = fresh();
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
    await room.scan(of, assets);
  }
  const all = failing(pairsOf(estate.values(), context));
  for (const severity of [undefined, ...SEVERITIES]) {
    for (const framework of [undefined, ...FRAMEWORK_IDS]) {
      const wanted = all.filter(
        ({ check }) =>
          (!severity || check.severity === severity) &&
          (!framework || controlsOfCheck(check.id).some((control) => control.framework === framework)),
      );
      const whole = await room.compliance.violations({ severity, framework }, firstPage());
      expect(whole.total).toBe(wanted.length);
      expect(whole.items.map(({ id }) => id).sort()).toEqual(
        wanted.map(({ check, resourceId }) => `${check.id}.${resourceId}`).sort(),
      );
      expect(await walk(room.compliance, { severity, framework }, 2)).toEqual(whole.items);
      const later = await room.compliance.violations({ severity, framework }, firstPage(3, 2));
      expect(later.items).toEqual(whole.items.slice(2, 5));
    }
  }
});

test("a violation says what fails, where, since when, by which controls and how to mend it", async () => {
  const room = fresh();
  await room.scan(vault("kv-Pay"), [asset("kv-Pay", "secret", "Db-Password", { expiresOn: undefined })]);
  room.clock.at += 3_600_000;
  await room.scan(vault("kv-Pay"), [
    asset("kv-Pay", "secret", "Db-Password", { expiresOn: undefined, tags: { a: "b" } }),
  ]);
  const { items } = await room.compliance.violations({ severity: "high" }, firstPage());
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

test("a walk neither skips nor repeats what did not change while other violations come and go", async () => {
  const room = fresh();
  const names = Array.from({ length: 40 }, (_, at) => `s${String(at).padStart(2, "0")}`);
  const secrets = (without: string[], more: string[] = []) =>
    [...names.filter((name) => !without.includes(name)), ...more].map((name) =>
      asset("kv", "secret", name, { contentType: undefined }),
    );
  await room.scan(vault("kv"), secrets([]));
  const seen: string[] = [];
  let cursor: string | undefined;
  let page = 0;
  do {
    const answer = await room.compliance.violations({ severity: "low" }, { limit: 10, offset: 0, cursor });
    seen.push(...answer.items.map(({ resourceName }) => resourceName));
    cursor = answer.nextCursor ?? undefined;
    page++;
    if (page === 1) await room.scan(vault("kv"), secrets(["s00", "s01", "s02", "s03"]));
    if (page === 2) await room.scan(vault("kv"), secrets(["s00", "s01", "s02", "s03"], ["a1", "a2"]));
  } while (cursor !== undefined);
  expect(seen).toEqual(names);
});

test("a cursor of other filters is refused, and so is one that was altered", async () => {
  const room = fresh();
  await room.scan(vault("kv", { privateEndpoints: 0, purgeProtection: false }), []);
  const { nextCursor } = await room.compliance.violations({}, firstPage(1));
  const at = (cursor: string) => ({ limit: 1, offset: 0, cursor });
  await expect(room.compliance.violations({ severity: "high" }, at(nextCursor!))).rejects.toMatchObject({
    code: "invalidCursor",
  });
  await expect(room.compliance.violations({}, at(`x${nextCursor}`))).rejects.toMatchObject({ code: "invalidCursor" });
});

test("a vault with thousands of failing secrets is listed whole, in order, after a change as well", {
  timeout: 60_000,
}, async () => {
  const room = fresh();
  const secrets = Array.from({ length: 1205 }, (_, at) =>
    asset("kv-big", "secret", `secret-${String(at).padStart(5, "0")}`, { contentType: undefined }),
  );
  await room.scan(vault("kv-big"), secrets);
  await room.scan(vault("kv-small"), [asset("kv-small", "secret", "only", { contentType: undefined })]);
  const names = async () =>
    (await walk(room.compliance, { severity: "low" }, 300)).map(({ resourceName }) => resourceName);
  expect(await names()).toEqual([...secrets.map(({ name }) => name), "only"]);
  await room.scan(vault("kv-big"), secrets.slice(710));
  expect(await names()).toEqual([...secrets.slice(710).map(({ name }) => name), "only"]);
  await room.leave("kv-big");
  expect(await names()).toEqual(["only"]);
});

test("a vault whose results were half written is made whole by the next evaluation", async () => {
  const connectionString = azurite.connectionString(free.pop()!);
  const room = openRoom(connectionString);
  const secrets = ["a", "b", "c"].map((name) => asset("kv", "secret", name, { contentType: undefined }));
  await room.scan(vault("kv"), secrets);
  await createTables({ connectionString }).remove(Details, STATE, detailsKey("kv", 0));
  const changed = secrets.with(1, asset("kv", "secret", "b"));
  await room.scan(vault("kv"), changed);
  await expectAnswersOf(room, new Map([["kv", { vault: vault("kv"), assets: changed }]]));
});

test("a framework's controls pass, fail, do not apply or need a person", async () => {
  const room = fresh();
  await room.scan(vault("kv-1", { privateEndpoints: 0 }), [asset("kv-1", "secret", "a")]);
  await room.scan(vault("kv-2"), [asset("kv-2", "secret", "a", { expiresOn: undefined })]);
  const framework = await room.compliance.framework("cis-azure-5.0.0");
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
    checks: [{ id: "vault-private-endpoint", failed: 1 }],
  });
  expect(framework).toMatchObject({ controlsTotal: 14, controlsByStatus: { manual: 3, fail: 2 } });
  const { items, total } = await room.compliance.frameworks(firstPage());
  expect(total).toBe(10);
  expect(items.find(({ id }) => id === "soc-2")).toMatchObject({ name: "SOC 2", failed: 1, passed: 1 + 4 });
  await expect(room.compliance.framework("cis")).rejects.toMatchObject({ code: "notFound" });
});

test("nothing to judge is a score of 100 over nothing", async () => {
  const room = fresh();
  expect(await room.compliance.score()).toMatchObject({ score: 100, total: 0, evaluatedAt: null, evaluation: null });
  expect(await room.compliance.violations({}, firstPage())).toMatchObject({ items: [], total: 0, nextCursor: null });
  expect(CHECKS.length).toBeGreaterThan(30);
});
