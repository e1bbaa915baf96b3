// Evaluations: of everything on request, within the request or through the queue, and of one vault while other writers interfere.
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import { STATE, TOTALS_KEY, TotalsRows, VaultStates, vaultStateKey } from "../../shared/compliance/compliance-rows.ts";
import { VAULTS, Vaults, vaultKey } from "../../shared/inventory/vault.ts";
import { createInventoryWriter } from "../../shared/inventory/write.ts";
import { createTables } from "../../shared/platform/storage/tables.ts";
import { HOUR_MS, MINUTE_MS, SECOND_MS } from "../../shared/platform/time.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import {
  asset,
  caller,
  DAY_SECONDS,
  type Fixture,
  firstPage,
  openFixture,
  START,
  vault,
} from "./compliance-fixture.ts";

let azurite: TestStorage;
let connectionString: string;
let fixture: Fixture;
/** Names of storage accounts in the emulator. Each test uses one of its own, so that it starts empty. */
const accounts = Array.from({ length: 14 }, (_, index) => `evaluate${index}`);
const unusedAccounts = [...accounts];
beforeAll(async () => {
  azurite = await openStorage(accounts);
});
afterAll(() => azurite.stop());
beforeEach(() => {
  connectionString = azurite.connectionString(unusedAccounts.pop()!);
  fixture = openFixture(connectionString);
});

/** Returns a secret that fails one check: it has no content type. */
const secretWithoutType = (vaultName: string) => asset(vaultName, "secret", "a", { contentType: undefined });

test("a small inventory is evaluated within the request, and the response contains the score", async () => {
  fixture.settings.enableComplianceScanning = false;
  await fixture.scan(vault("kv-1"), [secretWithoutType("kv-1")]);
  await fixture.scan(vault("kv-2"), [secretWithoutType("kv-2")]);
  fixture.settings.enableComplianceScanning = true;
  const response = await fixture.compliance.evaluate(caller);
  expect(response).toMatchObject({ status: "completed", vaults: 2, vaultsLeft: 0, score: { failed: 2 } });
  expect(await fixture.compliance.score()).toMatchObject({
    evaluatedAt: new Date(START).toISOString(),
    evaluation: { evaluationId: response.evaluationId, status: "completed" },
  });
  const event = { type: "compliance.evaluationRequested", target: { id: response.evaluationId } };
  expect(fixture.events).toMatchObject([
    { ...event, outcome: "intent" },
    { ...event, outcome: "success" },
  ]);
  // A message, delayed by five minutes, would complete the work after a crash. Here nothing is left to do.
  expect(fixture.delays.at(-1)).toBe(300);
  expect(await fixture.drain()).toEqual([{ kind: "everything", evaluationId: response.evaluationId }]);
});

test("a queue message completes an evaluation whose process crashed", async () => {
  await fixture.scan(vault("kv-1"), [secretWithoutType("kv-1")]);
  await fixture.scan(vault("kv-2"), [secretWithoutType("kv-2")]);
  fixture.clock.nowMs += SECOND_MS;
  const { evaluationId } = await fixture.compliance.evaluate(caller);
  // Write the state that a process leaves if it crashes before it evaluates the second vault.
  const tables = createTables({ connectionString });
  const state = (await tables.get(VaultStates, STATE, vaultStateKey("kv-2")))!;
  await tables.replace(VaultStates, { ...state, evaluationId: undefined });
  // Without the totals, the score is counted from the vaults' rows, which were edited here.
  await tables.remove(TotalsRows, STATE, TOTALS_KEY);
  expect((await fixture.compliance.score()).evaluation).toMatchObject({ status: "running", vaultsLeft: 1 });
  const messages = await fixture.drain();
  expect(messages).toContainEqual({ kind: "vault", vault: "kv-2", evaluationId });
  expect((await fixture.compliance.score()).evaluation).toMatchObject({ status: "completed", vaultsLeft: 0 });
});

test("a large inventory is evaluated through the queue, and the score reports progress and failed vaults", {
  timeout: 300_000,
}, async () => {
  // More than 20 vaults are evaluated through the queue.
  for (let index = 0; index < 22; index++) await fixture.scan(vault(`kv-${index}`), [secretWithoutType(`kv-${index}`)]);
  fixture.clock.nowMs += SECOND_MS;
  const { evaluationId, status, score } = await fixture.compliance.evaluate(caller);
  expect([status, score]).toEqual(["queued", null]);
  expect((await fixture.compliance.score()).evaluation).toMatchObject({ status: "queued", vaults: null });
  await fixture.compliance.handle({ kind: "everything", evaluationId });
  expect((await fixture.compliance.score()).evaluation).toMatchObject({
    status: "running",
    vaults: 22,
    vaultsLeft: 22,
  });
  await fixture.compliance.handle({ kind: "vault", vault: "kv-3", evaluationId });
  expect((await fixture.compliance.score()).evaluation).toMatchObject({ vaultsLeft: 21 });
  // The queue calls this after the fifth failed attempt.
  await fixture.compliance.failed({ kind: "vault", vault: "kv-4", evaluationId }, "r");
  expect((await fixture.compliance.score()).evaluation).toMatchObject({ vaultsLeft: 20, failedVaults: ["kv-4"] });
  expect(fixture.events.at(-1)).toMatchObject({ type: "compliance.evaluationFailed", target: { id: "kv-4" } });
  await fixture.drain();
  expect((await fixture.compliance.score()).evaluation).toMatchObject({ vaultsLeft: 0, status: "partial" });
});

test("an evaluation of a vault that a scan is writing is delayed, and then keeps the scan's results", async () => {
  await fixture.scan(vault("kv"), [secretWithoutType("kv")]);
  const tables = createTables({ connectionString });
  const writer = createInventoryWriter({ tables });
  const stored = await writer.readForUpdate("kv");
  const { partitionKey: _p, rowKey: _r, etag: _e, ...record } = stored.row!;
  const after = asset("kv", "secret", "a");
  const change = { type: "secret" as const, name: "a", before: secretWithoutType("kv"), after };
  await writer.apply(stored, record, [change], "scan", async () => {
    const write = await fixture.compliance.prepareChange({ vault: record, vaultBefore: record, vaultGone: false });
    return async (...results) => {
      await write(...results);
      // The inventory's rows still have the secret's previous state: the scan writes them after the results.
      await fixture.compliance.handle({ kind: "vault", vault: "kv" });
      expect(fixture.delays.at(-1)).toBeGreaterThan(0);
      expect((await fixture.compliance.violations({}, firstPage())).total).toBe(0);
    };
  });
  await fixture.drain();
  expect((await fixture.compliance.violations({}, firstPage())).total).toBe(0);
});

test("an evaluation of everything removes a vault that the inventory no longer has", async () => {
  await fixture.scan(vault("kv"), [secretWithoutType("kv")]);
  const tables = createTables({ connectionString });
  await tables.remove(Vaults, VAULTS, vaultKey("kv"));
  await fixture.compliance.evaluate(caller);
  expect(await fixture.compliance.score()).toMatchObject({ total: 0 });
});

test("concurrent evaluations of one vault count each violation once", async () => {
  await fixture.scan(vault("kv"), [secretWithoutType("kv")]);
  fixture.clock.nowMs += SECOND_MS;
  await Promise.all(
    Array.from({ length: 3 }, () => fixture.compliance.handle({ kind: "vault", vault: "kv", evaluationId: "0" })),
  );
  expect(await fixture.compliance.score()).toMatchObject({ failed: 1 });
});

test("newViolations returns violations oldest first, page by page, without exempted ones", async () => {
  const { violations, cursor: start } = await fixture.compliance.newViolations(undefined, 10);
  expect(violations).toEqual([]);
  await fixture.scan(vault("kv-1"), [asset("kv-1", "secret", "a", { contentType: undefined, tags: { owner: "ops" } })]);
  fixture.clock.nowMs += MINUTE_MS;
  await fixture.scan(vault("kv-2", { privateEndpoints: 0 }), [secretWithoutType("kv-2")]);
  await fixture.scan(vault("kv-3"), [secretWithoutType("kv-3")]);
  await fixture.compliance.exemptions.create(
    {
      checkId: "secret-content-type",
      scope: { type: "vault", id: "kv-3" },
      category: "waiver",
      reason: "x",
      until: new Date(START + 1e9),
    },
    caller,
  );
  const returnedIds: string[] = [];
  let [cursor, more] = [start, true];
  while (more) {
    const page = await fixture.compliance.newViolations(cursor, 1);
    returnedIds.push(...page.violations.map(({ id }) => id));
    ({ cursor, more } = page);
  }
  expect(returnedIds).toEqual([
    "secret-content-type.kv-1.secret.a",
    "vault-private-endpoint.kv-2",
    "secret-content-type.kv-2.secret.a",
  ]);
  expect((await fixture.compliance.newViolations(start, 1)).violations).toMatchObject([
    { tags: { owner: "ops" }, severity: "low", vaultName: "kv-1", firstSeenAt: new Date(START).toISOString() },
  ]);
  // Violations of the last minutes are returned again, since a slower evaluation may add older ones. An hour later they are not.
  expect((await fixture.compliance.newViolations(cursor, 10)).violations).toHaveLength(3);
  fixture.clock.nowMs += HOUR_MS;
  ({ cursor } = await fixture.compliance.newViolations(cursor, 10));
  expect((await fixture.compliance.newViolations(cursor, 10)).violations).toEqual([]);
  // A violation that another evaluation confirms is not new.
  await fixture.compliance.evaluate(caller);
  expect((await fixture.compliance.newViolations(cursor, 10)).violations).toEqual([]);
});

test("newViolations skips only the violation that is exempted, not others of its asset or check", async () => {
  const { cursor } = await fixture.compliance.newViolations(undefined, 10);
  const exemptionRequest = (checkId: string, id: string, days: number) => ({
    checkId,
    scope: { type: "asset" as const, id },
    category: "waiver" as const,
    reason: "x",
    until: new Date(START + days * DAY_SECONDS * 1000),
  });
  await fixture.scan(vault("kv"), [secretWithoutType("kv"), asset("kv", "secret", "b")]);
  await fixture.compliance.exemptions.create(exemptionRequest("secret-content-type", "kv.secret.a", 10), caller);
  await fixture.compliance.exemptions.create(exemptionRequest("secret-content-type", "kv.secret.b", 1), caller);
  fixture.clock.nowMs += 2 * DAY_SECONDS * 1000;
  const failing = (name: string) => asset("kv", "secret", name, { contentType: undefined, expiresOn: undefined });
  await fixture.scan(vault("kv"), [failing("a"), failing("b"), failing("c")]);
  const { violations } = await fixture.compliance.newViolations(cursor, 10);
  const returned = violations.map(({ checkId, resourceId }) => `${checkId} ${resourceId}`);
  expect(returned.filter((text) => text.startsWith("secret-content-type"))).toEqual([
    "secret-content-type kv.secret.b",
    "secret-content-type kv.secret.c",
  ]);
  // Each of the three secrets also fails the check for an expiration date.
  expect(returned.filter((text) => !text.startsWith("secret-content-type"))).toHaveLength(3);
});
