import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import * as z from "zod";
import type { AuditEvent } from "../../shared/audit/audit.ts";
import { STATE, TABLE, vaultStateKey } from "../../shared/compliance/compliance-rows.ts";
import { createExemptions, type ExemptionRequest } from "../../shared/compliance/exemptions.ts";
import { systemRandomness } from "../../shared/platform/runtime.ts";
import { entity } from "../../shared/platform/storage/entity.ts";
import { removeUnreadable } from "../../shared/reconciliation/compliance.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import { asset, caller, type Fixture, firstPage, openFixture, SUBSCRIPTION, vault } from "./compliance-fixture.ts";

let azurite: TestStorage;
let fixture: Fixture;
const accounts = Array.from({ length: 34 }, (_, at) => `exempt${at}`);
const free = [...accounts];
beforeAll(async () => {
  azurite = await openStorage(accounts);
});
afterAll(() => azurite.stop());

const plain = (vaultName: string, name: string) => asset(vaultName, "secret", name, { contentType: undefined });
beforeEach(async () => {
  fixture = openFixture(azurite.connectionString(free.pop()!));
  await fixture.scan(vault("kv-1"), [plain("kv-1", "a"), plain("kv-1", "b")]);
  await fixture.scan(vault("kv-2"), [plain("kv-2", "a")]);
});

const request = (scope: ExemptionRequest["scope"], change: Partial<ExemptionRequest> = {}): ExemptionRequest => ({
  checkId: "secret-content-type",
  scope,
  category: "waiver",
  reason: "Legacy system",
  until: new Date(fixture.clock.at + 3_600_000),
  ...change,
});
/** A partition without rows of compliance. */
const Spoiled = entity(TABLE, z.object({ name: z.int() }));
const state = async () => {
  const [{ failed, exempted, total }, { items, total: listed }] = await Promise.all([
    fixture.compliance.score(),
    fixture.compliance.violations({ severity: "low" }, firstPage()),
  ]);
  const marked = items.filter((one) => one.exempted).map(({ resourceId }) => resourceId);
  return { failed, exempted, total, listed, marked };
};

test.each([
  [{ type: "asset" as const, id: "KV-1.secret.A" }, ["kv-1.secret.a"]],
  [{ type: "vault" as const, id: "kv-1" }, ["kv-1.secret.a", "kv-1.secret.b"]],
  [{ type: "subscription" as const, id: SUBSCRIPTION }, ["kv-1.secret.a", "kv-1.secret.b", "kv-2.secret.a"]],
  [{ type: "all" as const }, ["kv-1.secret.a", "kv-1.secret.b", "kv-2.secret.a"]],
])("an exemption of %o leaves the score at once, stays listed, and expires automatically", async (scope, covered) => {
  const before = await state();
  expect(before).toMatchObject({ failed: 3, exempted: 0, listed: 3, marked: [] });
  const exemption = await fixture.compliance.exemptions.create(request(scope), caller);
  expect(await state()).toEqual({
    failed: 3 - covered.length,
    exempted: covered.length,
    total: before.total - covered.length,
    listed: 3,
    marked: covered,
  });
  const { items } = await fixture.compliance.violations({}, firstPage());
  expect(items.find(({ exempted }) => exempted)!.exemptionId).toBe(exemption.id);
  fixture.clock.at += 3_600_000;
  expect(await state()).toEqual(before);
  expect((await fixture.compliance.exemptions.get(exemption.id)).active).toBe(false);
});

test("removing an exemption restores its violations at once, and the audit log has both changes", async () => {
  const before = await state();
  const { id } = await fixture.compliance.exemptions.create(request({ type: "asset", id: "kv-1.secret.b" }), caller);
  expect((await state()).exempted).toBe(1);
  await fixture.compliance.exemptions.end(id, caller);
  expect(await state()).toEqual(before);
  expect(fixture.events.map(({ type, outcome, target }) => [type, outcome, target?.id])).toEqual([
    ["compliance.exemptionCreated", "intent", id],
    ["compliance.exemptionCreated", "success", id],
    ["compliance.exemptionRemoved", "intent", id],
    ["compliance.exemptionRemoved", "success", id],
  ]);
  await expect(fixture.compliance.exemptions.get(id)).rejects.toMatchObject({ code: "notFound" });
  await expect(fixture.compliance.exemptions.end(id, caller)).rejects.toMatchObject({ code: "notFound" });
});

test("an exempted asset is counted once under two exemptions, and only while it fails", async () => {
  await fixture.compliance.exemptions.create(request({ type: "asset", id: "kv-1.secret.a" }), caller);
  await fixture.compliance.exemptions.create(request({ type: "vault", id: "kv-1" }), caller);
  expect(await state()).toMatchObject({ failed: 1, exempted: 2 });
  await fixture.scan(vault("kv-1"), [asset("kv-1", "secret", "a"), plain("kv-1", "b")]);
  expect(await state()).toMatchObject({ failed: 1, exempted: 1, marked: ["kv-1.secret.b"] });
  await fixture.compliance.exemptions.end("secret-content-type.vault.kv-1", caller);
  expect(await state()).toMatchObject({ failed: 2, exempted: 0 });
  await fixture.scan(vault("kv-1"), [plain("kv-1", "a"), plain("kv-1", "b")]);
  expect(await state()).toMatchObject({ failed: 2, exempted: 1, marked: ["kv-1.secret.a"] });
});

test("an asset's exemption is kept when its vault is removed", async () => {
  await fixture.compliance.exemptions.create(request({ type: "asset", id: "kv-1.secret.a" }), caller);
  await fixture.leave("kv-1");
  expect(await state()).toMatchObject({ failed: 1, exempted: 0, listed: 1 });
  await fixture.scan(vault("kv-1"), [plain("kv-1", "a")]);
  expect(await state()).toMatchObject({ failed: 1, exempted: 1, marked: ["kv-1.secret.a"] });
  await fixture.leave("kv-1");
  await fixture.compliance.exemptions.end("secret-content-type.asset.kv-1.secret.a", caller);
  expect(await state()).toMatchObject({ failed: 1, exempted: 0 });
});

test("an asset's exemption is restored when its vault's results can't be read and are rewritten", async () => {
  await fixture.compliance.exemptions.create(request({ type: "asset", id: "kv-1.secret.a" }), caller);
  await fixture.compliance.exemptions.create(request({ type: "asset", id: "kv-2.secret.a" }), caller);
  const before = await state();
  expect(before).toMatchObject({ failed: 1, exempted: 2, marked: ["kv-1.secret.a", "kv-2.secret.a"] });
  await fixture.tables.put(Spoiled, STATE, vaultStateKey("kv-1"), { name: 7 });
  await expect(fixture.compliance.restore("kv-1")).rejects.toThrow("can't be read");
  await removeUnreadable(fixture.tables, "kv-1");
  await fixture.compliance.restore("kv-1");
  expect(await state()).toEqual(before);
  await fixture.compliance.exemptions.end("secret-content-type.asset.kv-1.secret.a", caller);
  expect(await state()).toMatchObject({ failed: 2, exempted: 1, marked: ["kv-2.secret.a"] });
});

test("an asset's exemption is kept for a removed vault whose results can't be read", async () => {
  await fixture.compliance.exemptions.create(request({ type: "asset", id: "kv-1.secret.a" }), caller);
  await fixture.leave("kv-1");
  await fixture.tables.put(Spoiled, STATE, vaultStateKey("kv-1"), { name: 7 });
  await removeUnreadable(fixture.tables, "kv-1");
  await fixture.compliance.restore("kv-1");
  expect(await state()).toMatchObject({ failed: 1, exempted: 0, listed: 1 });
  await fixture.scan(vault("kv-1"), [plain("kv-1", "a")]);
  expect(await state()).toMatchObject({ failed: 1, exempted: 1, marked: ["kv-1.secret.a"] });
});

test("a check has one exemption per scope, which is replaced once it has expired", async () => {
  await fixture.compliance.exemptions.create(request({ type: "vault", id: "kv-1" }), caller);
  await expect(
    fixture.compliance.exemptions.create(request({ type: "vault", id: "KV-1" }), caller),
  ).rejects.toMatchObject({
    code: "alreadyExists",
  });
  fixture.clock.at += 3_600_001;
  await fixture.compliance.exemptions.create(request({ type: "vault", id: "kv-1" }, { category: "mitigated" }), caller);
  const { items, total } = await fixture.compliance.exemptions.list(firstPage());
  expect([total, items.map(({ category, active }) => [category, active])]).toEqual([1, [["mitigated", true]]]);
  expect((await state()).exempted).toBe(2);
});

test("of two exemptions created at once for one scope, one succeeds", async () => {
  const results = await Promise.allSettled(
    [1, 2, 3].map(() => fixture.compliance.exemptions.create(request({ type: "asset", id: "kv-1.secret.a" }), caller)),
  );
  expect(results.filter(({ status }) => status === "fulfilled")).toHaveLength(1);
  for (const result of results) {
    if (result.status === "rejected") expect(result.reason).toMatchObject({ code: "alreadyExists" });
  }
  expect((await state()).exempted).toBe(1);
});

test.each<[string, ExemptionRequest["scope"], Partial<ExemptionRequest>]>([
  ["body.checkId", { type: "all" }, { checkId: "no-such-check" }],
  ["body.until", { type: "all" }, { until: new Date(0) }],
  ["body.scope.id", { type: "all", id: "kv-1" }, {}],
  ["body.scope.id", { type: "vault" }, {}],
  ["body.scope.id", { type: "vault", id: "kv-none" }, {}],
  ["body.scope.id", { type: "vault", id: "../x" }, {}],
  ["body.scope.id", { type: "subscription", id: "kv-1" }, {}],
  ["body.scope.id", { type: "asset", id: "kv-1" }, {}],
  ["body.scope.id", { type: "asset", id: "kv-1.secret.none" }, {}],
  ["body.scope.id", { type: "asset", id: "kv-1.key.a" }, {}],
  ["body.scope.id", { type: "asset", id: "kv-1.secret.a" }, { checkId: "vault-rbac" }],
])("an invalid exemption is rejected with the path %s: %o %o", async (path, scope, change) => {
  await expect(fixture.compliance.exemptions.create(request(scope, change), caller)).rejects.toMatchObject({
    code: "invalidRequest",
    errors: [{ path }],
  });
  expect(fixture.events).toEqual([]);
});

describe("a removal whose exemption another request renews after its intent", () => {
  const scope = { type: "vault" as const, id: "kv-2" };
  const renewed = async () => {
    const { id, etag } = await fixture.compliance.exemptions.create(request(scope), caller);
    fixture.clock.at += 3_600_000;
    const events: AuditEvent[] = [];
    const renewal = () => fixture.compliance.exemptions.create(request(scope, { reason: "Renewed" }), caller);
    const append = async (event: AuditEvent) => {
      if (events.push(event) === 1) await renewal();
    };
    const { tables, clock } = fixture;
    const exemptions = createExemptions({ tables, clock, audit: { append }, randomness: systemRandomness() });
    return { id, etag, events, exemptions };
  };

  test.each([undefined, "*"])("removes the renewed one if it has no condition (If-Match %s)", async (ifMatch) => {
    const { id, events, exemptions } = await renewed();
    await exemptions.end(id, caller, ifMatch);
    expect(events).toMatchObject([
      { outcome: "intent", before: { reason: "Legacy system" } },
      { outcome: "success", before: { reason: "Renewed" } },
    ]);
    await expect(exemptions.get(id)).rejects.toMatchObject({ code: "notFound" });
  });

  test("is rejected if it has a condition", async () => {
    const { id, etag, events, exemptions } = await renewed();
    await expect(exemptions.end(id, caller, etag)).rejects.toMatchObject({ code: "preconditionFailed" });
    expect(events.map(({ outcome }) => outcome)).toEqual(["intent", "refused"]);
    expect((await exemptions.get(id)).active).toBe(true);
  });
});

test("If-Match guards removal", async () => {
  const { id, etag } = await fixture.compliance.exemptions.create(request({ type: "vault", id: "kv-2" }), caller);
  await expect(fixture.compliance.exemptions.end(id, caller, 'W/"stale"')).rejects.toMatchObject({
    code: "preconditionFailed",
  });
  await fixture.compliance.exemptions.end(id, caller, etag);
  expect((await fixture.compliance.exemptions.list(firstPage())).total).toBe(0);
});
