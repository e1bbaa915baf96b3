// Exemptions: an exempted violation does not lower the score until its exemption expires or is removed.
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import * as z from "zod";
import type { AuditEvent } from "../../shared/audit/audit.ts";
import { STATE, TABLE, vaultStateKey } from "../../shared/compliance/compliance-rows.ts";
import { createExemptions, type ExemptionRequest } from "../../shared/compliance/exemptions.ts";
import { systemRandomness } from "../../shared/platform/runtime.ts";
import { entity } from "../../shared/platform/storage/entity.ts";
import { DAY_MS, HOUR_MS } from "../../shared/platform/time.ts";
import { removeUnreadable } from "../../shared/reconciliation/compliance.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import { asset, caller, type Fixture, firstPage, openFixture, SUBSCRIPTION, vault } from "./compliance-fixture.ts";

let azurite: TestStorage;
let fixture: Fixture;
/**
 * Names of storage accounts in the emulator, more than there are tests. Each test uses one of its own, so that it starts empty.
 */
const accounts = Array.from({ length: 34 }, (_, index) => `exempt${index}`);
const unusedAccounts = [...accounts];
beforeAll(async () => {
  azurite = await openStorage(accounts);
});
afterAll(() => azurite.stop());

/** Returns a secret that fails one check: it has no content type. */
const secretWithoutType = (vaultName: string, name: string) =>
  asset(vaultName, "secret", name, { contentType: undefined });
beforeEach(async () => {
  fixture = openFixture(azurite.connectionString(unusedAccounts.pop()!));
  await fixture.scan(vault("kv-1"), [secretWithoutType("kv-1", "a"), secretWithoutType("kv-1", "b")]);
  await fixture.scan(vault("kv-2"), [secretWithoutType("kv-2", "a")]);
});

/** Returns the request for an exemption from that check, which expires in one hour. */
const request = (scope: ExemptionRequest["scope"], change: Partial<ExemptionRequest> = {}): ExemptionRequest => ({
  checkId: "secret-content-type",
  scope,
  category: "waiver",
  reason: "Legacy system",
  until: new Date(fixture.clock.nowMs + HOUR_MS),
  ...change,
});
/** Writes rows to the table of compliance with a schema that its readers reject, as damaged rows. */
const DamagedRows = entity(TABLE, z.object({ name: z.int() }));
/** Returns numbers of the score and of the list, and the IDs of the listed resources that are exempted. */
const countViolations = async () => {
  const [{ failed, exempted, total }, { items, total: listed }] = await Promise.all([
    fixture.compliance.score(),
    fixture.compliance.violations({ severity: "low" }, firstPage()),
  ]);
  const exemptedIds = items.filter((violation) => violation.exempted).map(({ resourceId }) => resourceId);
  return { failed, exempted, total, listed, exemptedIds };
};

test.each([
  [{ type: "asset" as const, id: "KV-1.secret.A" }, ["kv-1.secret.a"]],
  [{ type: "vault" as const, id: "kv-1" }, ["kv-1.secret.a", "kv-1.secret.b"]],
  [{ type: "subscription" as const, id: SUBSCRIPTION }, ["kv-1.secret.a", "kv-1.secret.b", "kv-2.secret.a"]],
  [{ type: "all" as const }, ["kv-1.secret.a", "kv-1.secret.b", "kv-2.secret.a"]],
])("violations under an exemption of %o stay listed, but leave the score until it expires", async (scope, covered) => {
  const before = await countViolations();
  expect(before).toMatchObject({ failed: 3, exempted: 0, listed: 3, exemptedIds: [] });
  const exemption = await fixture.compliance.exemptions.create(request(scope), caller);
  expect(await countViolations()).toEqual({
    failed: 3 - covered.length,
    exempted: covered.length,
    total: before.total - covered.length,
    listed: 3,
    exemptedIds: covered,
  });
  const { items } = await fixture.compliance.violations({}, firstPage());
  expect(items.find(({ exempted }) => exempted)!.exemptionId).toBe(exemption.id);
  fixture.clock.nowMs += HOUR_MS;
  expect(await countViolations()).toEqual(before);
  expect((await fixture.compliance.exemptions.get(exemption.id)).active).toBe(false);
});

test("removing an exemption returns its violations to the score, and is recorded in the audit log", async () => {
  const before = await countViolations();
  const { id } = await fixture.compliance.exemptions.create(request({ type: "asset", id: "kv-1.secret.b" }), caller);
  expect((await countViolations()).exempted).toBe(1);
  await fixture.compliance.exemptions.remove(id, caller);
  expect(await countViolations()).toEqual(before);
  expect(fixture.events.map(({ type, outcome, target }) => [type, outcome, target?.id])).toEqual([
    ["compliance.exemptionCreated", "intent", id],
    ["compliance.exemptionCreated", "success", id],
    ["compliance.exemptionRemoved", "intent", id],
    ["compliance.exemptionRemoved", "success", id],
  ]);
  await expect(fixture.compliance.exemptions.get(id)).rejects.toMatchObject({ code: "notFound" });
  await expect(fixture.compliance.exemptions.remove(id, caller)).rejects.toMatchObject({ code: "notFound" });
});

test("an operator can't create or remove an exemption that expires in more than 90 days", async () => {
  const { exemptions } = fixture.compliance;
  const operator = { ...caller, role: "operator" as const };
  const after90Days = fixture.clock.nowMs + 90 * DAY_MS;
  const scope = { type: "vault" as const, id: "kv-1" };
  const longer = request(scope, { until: new Date(after90Days + 1) });
  const isForbidden = { code: "forbidden", members: { requiredRole: "admin" } };
  await expect(exemptions.create(longer, operator)).rejects.toMatchObject(isForbidden);
  const { id } = await exemptions.create(longer, caller);
  await expect(exemptions.remove(id, operator)).rejects.toMatchObject(isForbidden);
  expect((await exemptions.get(id)).active).toBe(true);
  await exemptions.remove(id, caller);
  await exemptions.create(request(scope, { until: new Date(after90Days) }), operator);
  await exemptions.remove(id, operator);
  await expect(exemptions.get(id)).rejects.toMatchObject({ code: "notFound" });
});

test("a violation under two exemptions is counted as exempted once", async () => {
  await fixture.compliance.exemptions.create(request({ type: "asset", id: "kv-1.secret.a" }), caller);
  await fixture.compliance.exemptions.create(request({ type: "vault", id: "kv-1" }), caller);
  expect(await countViolations()).toMatchObject({ failed: 1, exempted: 2 });
  await fixture.scan(vault("kv-1"), [asset("kv-1", "secret", "a"), secretWithoutType("kv-1", "b")]);
  expect(await countViolations()).toMatchObject({ failed: 1, exempted: 1, exemptedIds: ["kv-1.secret.b"] });
  await fixture.compliance.exemptions.remove("secret-content-type.vault.kv-1", caller);
  expect(await countViolations()).toMatchObject({ failed: 2, exempted: 0 });
  await fixture.scan(vault("kv-1"), [secretWithoutType("kv-1", "a"), secretWithoutType("kv-1", "b")]);
  expect(await countViolations()).toMatchObject({ failed: 2, exempted: 1, exemptedIds: ["kv-1.secret.a"] });
});

test("an asset's exemption applies again when its removed vault returns", async () => {
  await fixture.compliance.exemptions.create(request({ type: "asset", id: "kv-1.secret.a" }), caller);
  await fixture.removeVault("kv-1");
  expect(await countViolations()).toMatchObject({ failed: 1, exempted: 0, listed: 1 });
  await fixture.scan(vault("kv-1"), [secretWithoutType("kv-1", "a")]);
  expect(await countViolations()).toMatchObject({ failed: 1, exempted: 1, exemptedIds: ["kv-1.secret.a"] });
  await fixture.removeVault("kv-1");
  await fixture.compliance.exemptions.remove("secret-content-type.asset.kv-1.secret.a", caller);
  expect(await countViolations()).toMatchObject({ failed: 1, exempted: 0 });
});

test("an asset's exemption survives the repair of its vault's unreadable results", async () => {
  await fixture.compliance.exemptions.create(request({ type: "asset", id: "kv-1.secret.a" }), caller);
  await fixture.compliance.exemptions.create(request({ type: "asset", id: "kv-2.secret.a" }), caller);
  const before = await countViolations();
  expect(before).toMatchObject({ failed: 1, exempted: 2, exemptedIds: ["kv-1.secret.a", "kv-2.secret.a"] });
  await fixture.tables.put(DamagedRows, STATE, vaultStateKey("kv-1"), { name: 7 });
  await expect(fixture.compliance.restore("kv-1")).rejects.toThrow("can't be read");
  await removeUnreadable(fixture.tables, "kv-1");
  await fixture.compliance.restore("kv-1");
  expect(await countViolations()).toEqual(before);
  await fixture.compliance.exemptions.remove("secret-content-type.asset.kv-1.secret.a", caller);
  expect(await countViolations()).toMatchObject({ failed: 2, exempted: 1, exemptedIds: ["kv-2.secret.a"] });
});

test("an asset's exemption survives the repair of a removed vault's unreadable results", async () => {
  await fixture.compliance.exemptions.create(request({ type: "asset", id: "kv-1.secret.a" }), caller);
  await fixture.removeVault("kv-1");
  await fixture.tables.put(DamagedRows, STATE, vaultStateKey("kv-1"), { name: 7 });
  await removeUnreadable(fixture.tables, "kv-1");
  await fixture.compliance.restore("kv-1");
  expect(await countViolations()).toMatchObject({ failed: 1, exempted: 0, listed: 1 });
  await fixture.scan(vault("kv-1"), [secretWithoutType("kv-1", "a")]);
  expect(await countViolations()).toMatchObject({ failed: 1, exempted: 1, exemptedIds: ["kv-1.secret.a"] });
});

test("a check has one exemption per scope, which only replaces an expired one", async () => {
  await fixture.compliance.exemptions.create(request({ type: "vault", id: "kv-1" }), caller);
  await expect(
    fixture.compliance.exemptions.create(request({ type: "vault", id: "KV-1" }), caller),
  ).rejects.toMatchObject({
    code: "alreadyExists",
  });
  fixture.clock.nowMs += 3_600_001;
  await fixture.compliance.exemptions.create(request({ type: "vault", id: "kv-1" }, { category: "mitigated" }), caller);
  const { items, total } = await fixture.compliance.exemptions.list(firstPage());
  expect([total, items.map(({ category, active }) => [category, active])]).toEqual([1, [["mitigated", true]]]);
  expect((await countViolations()).exempted).toBe(2);
});

test("only one of three concurrent requests for the same exemption succeeds", async () => {
  const results = await Promise.allSettled(
    [1, 2, 3].map(() => fixture.compliance.exemptions.create(request({ type: "asset", id: "kv-1.secret.a" }), caller)),
  );
  expect(results.filter(({ status }) => status === "fulfilled")).toHaveLength(1);
  for (const result of results) {
    if (result.status === "rejected") expect(result.reason).toMatchObject({ code: "alreadyExists" });
  }
  expect((await countViolations()).exempted).toBe(1);
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
])("an invalid exemption is rejected with the field %s: %o %o", async (path, scope, change) => {
  await expect(fixture.compliance.exemptions.create(request(scope, change), caller)).rejects.toMatchObject({
    code: "invalidRequest",
    errors: [{ path }],
  });
  expect(fixture.events).toEqual([]);
});

describe("a removal during which another request renews the exemption", () => {
  const scope = { type: "vault" as const, id: "kv-2" };
  /** Creates `Exemptions` with an audit log that renews the exemption as soon as the removal's intent is recorded. */
  const openWithRenewal = async () => {
    const { id, etag } = await fixture.compliance.exemptions.create(request(scope), caller);
    fixture.clock.nowMs += HOUR_MS;
    const events: AuditEvent[] = [];
    const renewal = () => fixture.compliance.exemptions.create(request(scope, { reason: "Renewed" }), caller);
    const append = async (event: AuditEvent) => {
      if (events.push(event) === 1) await renewal();
    };
    const { tables, clock } = fixture;
    const exemptions = createExemptions({ tables, clock, audit: { append }, randomness: systemRandomness() });
    return { id, etag, events, exemptions };
  };

  test.each([undefined, "*"])(
    "removes the renewed exemption if the request has no condition (If-Match: %s)",
    async (ifMatch) => {
      const { id, events, exemptions } = await openWithRenewal();
      await exemptions.remove(id, caller, ifMatch);
      expect(events).toMatchObject([
        { outcome: "intent", before: { reason: "Legacy system" } },
        { outcome: "success", before: { reason: "Renewed" } },
      ]);
      await expect(exemptions.get(id)).rejects.toMatchObject({ code: "notFound" });
    },
  );

  test("is rejected if its If-Match names the earlier version", async () => {
    const { id, etag, events, exemptions } = await openWithRenewal();
    await expect(exemptions.remove(id, caller, etag)).rejects.toMatchObject({ code: "preconditionFailed" });
    expect(events.map(({ outcome }) => outcome)).toEqual(["intent", "refused"]);
    expect((await exemptions.get(id)).active).toBe(true);
  });
});

test("a removal is rejected if its If-Match is stale", async () => {
  const { id, etag } = await fixture.compliance.exemptions.create(request({ type: "vault", id: "kv-2" }), caller);
  await expect(fixture.compliance.exemptions.remove(id, caller, 'W/"stale"')).rejects.toMatchObject({
    code: "preconditionFailed",
  });
  await fixture.compliance.exemptions.remove(id, caller, etag);
  expect((await fixture.compliance.exemptions.list(firstPage())).total).toBe(0);
});
