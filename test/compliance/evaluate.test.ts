import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import { STATE, TOTALS_KEY, TotalsRows, VaultStates, vaultStateKey } from "../../shared/compliance/compliance-rows.ts";
import { VAULTS, Vaults, vaultKey } from "../../shared/inventory/vault.ts";
import { createInventoryWriter } from "../../shared/inventory/write.ts";
import { createTables } from "../../shared/platform/storage/tables.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import { asset, caller, DAY, type Fixture, firstPage, openFixture, START, vault } from "./compliance-fixture.ts";

let azurite: TestStorage;
let connectionString: string;
let fixture: Fixture;
const accounts = Array.from({ length: 14 }, (_, at) => `evaluate${at}`);
const free = [...accounts];
beforeAll(async () => {
  azurite = await openStorage(accounts);
});
afterAll(() => azurite.stop());
beforeEach(() => {
  connectionString = azurite.connectionString(free.pop()!);
  fixture = openFixture(connectionString);
});

const plain = (vaultName: string) => asset(vaultName, "secret", "a", { contentType: undefined });

test("a small inventory is evaluated before the response, which contains the score", async () => {
  fixture.settings.enableComplianceScanning = false;
  await fixture.scan(vault("kv-1"), [plain("kv-1")]);
  await fixture.scan(vault("kv-2"), [plain("kv-2")]);
  fixture.settings.enableComplianceScanning = true;
  const answer = await fixture.compliance.evaluate(caller);
  expect(answer).toMatchObject({ status: "completed", vaults: 2, vaultsLeft: 0, score: { failed: 2 } });
  expect(await fixture.compliance.score()).toMatchObject({
    evaluatedAt: new Date(START).toISOString(),
    evaluation: { evaluationId: answer.evaluationId, status: "completed" },
  });
  const event = { type: "compliance.evaluationRequested", target: { id: answer.evaluationId } };
  expect(fixture.events).toMatchObject([
    { ...event, outcome: "intent" },
    { ...event, outcome: "success" },
  ]);
  // The message that would complete the work after a crash finds nothing to do.
  expect(fixture.delays.at(-1)).toBe(300);
  expect(await fixture.drain()).toEqual([{ kind: "everything", evaluationId: answer.evaluationId }]);
});

test("a message completes an evaluation whose process crashed", async () => {
  await fixture.scan(vault("kv-1"), [plain("kv-1")]);
  await fixture.scan(vault("kv-2"), [plain("kv-2")]);
  fixture.clock.at += 1000;
  const { evaluationId } = await fixture.compliance.evaluate(caller);
  // The process crashes before the second vault.
  const tables = createTables({ connectionString });
  const state = (await tables.get(VaultStates, STATE, vaultStateKey("kv-2")))!;
  await tables.replace(VaultStates, { ...state, evaluationId: undefined });
  // The totals are not marked.
  await tables.remove(TotalsRows, STATE, TOTALS_KEY);
  expect((await fixture.compliance.score()).evaluation).toMatchObject({ status: "running", vaultsLeft: 1 });
  const messages = await fixture.drain();
  expect(messages).toContainEqual({ kind: "vault", vault: "kv-2", evaluationId });
  expect((await fixture.compliance.score()).evaluation).toMatchObject({ status: "completed", vaultsLeft: 0 });
});

test("a large inventory is evaluated through the queue, with its progress and the vaults that failed five times", {
  timeout: 300_000,
}, async () => {
  for (let at = 0; at < 22; at++) await fixture.scan(vault(`kv-${at}`), [plain(`kv-${at}`)]);
  fixture.clock.at += 1000;
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
  await fixture.compliance.failed({ kind: "vault", vault: "kv-4", evaluationId }, "r");
  expect((await fixture.compliance.score()).evaluation).toMatchObject({ vaultsLeft: 20, failedVaults: ["kv-4"] });
  expect(fixture.events.at(-1)).toMatchObject({ type: "compliance.evaluationFailed", target: { id: "kv-4" } });
  await fixture.drain();
  expect((await fixture.compliance.score()).evaluation).toMatchObject({ vaultsLeft: 0, status: "partial" });
});

test("the evaluation of a vault waits while a scan writes it, and then includes the scan's changes", async () => {
  await fixture.scan(vault("kv"), [plain("kv")]);
  const tables = createTables({ connectionString });
  const writer = createInventoryWriter({ tables });
  const known = await writer.readForUpdate("kv");
  const { partitionKey: _p, rowKey: _r, etag: _e, ...before } = known.row!;
  const after = asset("kv", "secret", "a");
  const change = { type: "secret" as const, name: "a", before: plain("kv"), after };
  await writer.apply(known, before, [change], "scan", async () => {
    const write = await fixture.compliance.prepareChange({ vault: before, vaultBefore: before, vaultGone: false });
    return async (...changed) => {
      await write(...changed);
      // The vault's own rows still have the secret's previous state.
      await fixture.compliance.handle({ kind: "vault", vault: "kv" });
      expect(fixture.delays.at(-1)).toBeGreaterThan(0);
      expect((await fixture.compliance.violations({}, firstPage())).total).toBe(0);
    };
  });
  await fixture.drain();
  expect((await fixture.compliance.violations({}, firstPage())).total).toBe(0);
});

test("an evaluation of everything removes a vault that the inventory no longer has", async () => {
  await fixture.scan(vault("kv"), [plain("kv")]);
  const tables = createTables({ connectionString });
  await tables.remove(Vaults, VAULTS, vaultKey("kv"));
  await fixture.compliance.evaluate(caller);
  expect(await fixture.compliance.score()).toMatchObject({ total: 0 });
});

test("concurrent evaluations of one vault lead to the same results", async () => {
  await fixture.scan(vault("kv"), [plain("kv")]);
  fixture.clock.at += 1000;
  await Promise.all(
    Array.from({ length: 3 }, () => fixture.compliance.handle({ kind: "vault", vault: "kv", evaluationId: "0" })),
  );
  expect(await fixture.compliance.score()).toMatchObject({ failed: 1 });
});

test("new violations are returned once settled, oldest first, in parts, without exempted ones", async () => {
  const { violations, cursor: start } = await fixture.compliance.newViolations(undefined, 10);
  expect(violations).toEqual([]);
  await fixture.scan(vault("kv-1"), [asset("kv-1", "secret", "a", { contentType: undefined, tags: { owner: "ops" } })]);
  fixture.clock.at += 60_000;
  await fixture.scan(vault("kv-2", { privateEndpoints: 0 }), [plain("kv-2")]);
  await fixture.scan(vault("kv-3"), [plain("kv-3")]);
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
  const found: string[] = [];
  let [cursor, more] = [start, true];
  while (more) {
    const part = await fixture.compliance.newViolations(cursor, 1);
    found.push(...part.violations.map(({ id }) => id));
    ({ cursor, more } = part);
  }
  expect(found).toEqual([
    "secret-content-type.kv-1.secret.a",
    "vault-private-endpoint.kv-2",
    "secret-content-type.kv-2.secret.a",
  ]);
  expect((await fixture.compliance.newViolations(start, 1)).violations).toMatchObject([
    { tags: { owner: "ops" }, severity: "low", vaultName: "kv-1", firstSeenAt: new Date(START).toISOString() },
  ]);
  // Violations of the last minutes are returned again, since evaluations end at different times. Later they are not.
  expect((await fixture.compliance.newViolations(cursor, 10)).violations).toHaveLength(3);
  fixture.clock.at += 3_600_000;
  ({ cursor } = await fixture.compliance.newViolations(cursor, 10));
  expect((await fixture.compliance.newViolations(cursor, 10)).violations).toEqual([]);
  // A continued failure is not new.
  await fixture.compliance.evaluate(caller);
  expect((await fixture.compliance.newViolations(cursor, 10)).violations).toEqual([]);
});

test("a new violation is returned although another one of its asset, or of its check, is exempted", async () => {
  const { cursor } = await fixture.compliance.newViolations(undefined, 10);
  const exempted = (checkId: string, id: string, days: number) => ({
    checkId,
    scope: { type: "asset" as const, id },
    category: "waiver" as const,
    reason: "x",
    until: new Date(START + days * DAY * 1000),
  });
  await fixture.scan(vault("kv"), [plain("kv"), asset("kv", "secret", "b")]);
  await fixture.compliance.exemptions.create(exempted("secret-content-type", "kv.secret.a", 10), caller);
  await fixture.compliance.exemptions.create(exempted("secret-content-type", "kv.secret.b", 1), caller);
  fixture.clock.at += 2 * DAY * 1000;
  const failing = (name: string) => asset("kv", "secret", name, { contentType: undefined, expiresOn: undefined });
  await fixture.scan(vault("kv"), [failing("a"), failing("b"), failing("c")]);
  const { violations } = await fixture.compliance.newViolations(cursor, 10);
  const found = violations.map(({ checkId, resourceId }) => `${checkId} ${resourceId}`);
  expect(found.filter((one) => one.startsWith("secret-content-type"))).toEqual([
    "secret-content-type kv.secret.b",
    "secret-content-type kv.secret.c",
  ]);
  expect(found.filter((one) => !one.startsWith("secret-content-type"))).toHaveLength(3);
});
