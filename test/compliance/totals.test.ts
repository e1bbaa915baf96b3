import fc from "fast-check";
import { afterAll, beforeAll, expect, test } from "vitest";
import { createCompliance } from "../../shared/compliance/compliance.ts";
import {
  ChangedRows,
  changedRange,
  EVALUATION_KEY,
  Evaluations,
  STATE,
  TABLE,
  TOTALS_KEY,
  TotalsRows,
  totalsRange,
  VaultStates,
  vaultStateKey,
} from "../../shared/compliance/compliance-rows.ts";
import { faultOfTotals, renewTotals } from "../../shared/compliance/renew-totals.ts";
import { SCOPE_KEY, ScopeRows } from "../../shared/inventory/scope.ts";
import { VAULTS } from "../../shared/inventory/vault.ts";
import { Problem } from "../../shared/platform/http/problem.ts";
import { systemRandomness } from "../../shared/platform/runtime.ts";
import type { Entity } from "../../shared/platform/storage/entity.ts";
import { put, type Range, type Tables } from "../../shared/platform/storage/tables.ts";
import { held } from "../support/delayed-tables.ts";
import { IS_CAMPAIGN } from "../support/sampling.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import { asset, caller, type Fixture, openFixture, SUBSCRIPTION, vault } from "./compliance-fixture.ts";

const OTHER = "22222222-2222-2222-2222-222222222222";
const NAMES = ["kv-a", "kv-b", "kv-c"];
const SCOPES = [
  { type: "all" as const },
  { type: "subscription" as const, id: SUBSCRIPTION },
  { type: "subscription" as const, id: OTHER },
  ...NAMES.flatMap((name) => [
    { type: "vault" as const, id: name },
    { type: "asset" as const, id: `${name}.secret.a` },
    { type: "asset" as const, id: `${name}.secret.b` },
  ]),
];
const RUNS = IS_CAMPAIGN ? 100 : 8;
const HOUR = 3_600_000;

let storage: TestStorage;
beforeAll(async () => {
  storage = await openStorage(["schedules", "upgraded", "apart"]);
});
afterAll(() => storage?.stop());

/** Returns readers of the results: from the totals, and from the vaults' own rows. Counts the reads of the former. */
function createReaders({ tables, clock }: Fixture) {
  const counts = { totals: 0, fullScans: 0 };
  const over = (pages: (range: Range, read: () => unknown) => unknown) =>
    createCompliance({
      tables: {
        ...tables,
        pages: ((e: Entity<unknown>, range: Range & { select: never[] }) =>
          pages(range, () => tables.pages(e, range))) as Tables["pages"],
      },
      licensed: async () => true,
      clock,
    } as never);
  const isTotals = ({ from, before }: Range) => from === totalsRange.from && before === totalsRange.before;
  const byTotals = over((range, read) => {
    if (isTotals(range)) counts.totals++;
    else if (range.from === totalsRange.from) counts.fullScans++;
    return read();
  });
  const byRows = over((range, read) => (isTotals(range) ? (async function* () {})() : read()));
  return { counts, byTotals, byRows };
}

async function expectRight({ byTotals, byRows }: ReturnType<typeof createReaders>): Promise<void> {
  expect(await byTotals.score()).toEqual(await byRows.score());
  expect(await byTotals.frameworks(PAGE)).toEqual(await byRows.frameworks(PAGE));
}
const PAGE = { limit: 100, offset: 0, cursor: undefined };

/** Some of the secrets have no content type, which is a finding. */
async function scan(fixture: Fixture, name: string, secrets: number): Promise<void> {
  const subscriptionId = name === "kv-c" ? OTHER : SUBSCRIPTION;
  const of = vault(name, { subscriptionId, purgeProtection: secrets % 2 === 0 });
  const named = ["a", "b", "c"].slice(0, secrets);
  const assets = named.map((one, at) =>
    asset(name, "secret", one, { subscriptionId, ...(at < 2 ? { contentType: undefined } : {}) }),
  );
  await fixture.scan(of, assets);
}

const randomness = systemRandomness();
const steps = fc.array(
  fc.oneof(
    { weight: 5, arbitrary: fc.record({ name: fc.constantFrom(...NAMES), secrets: fc.nat({ max: 3 }) }) },
    { weight: 1, arbitrary: fc.record({ gone: fc.constantFrom(...NAMES) }) },
    { weight: 3, arbitrary: fc.record({ exempt: fc.constantFrom(...SCOPES), hours: fc.constantFrom(1, 100) }) },
    { weight: 1, arbitrary: fc.record({ ended: fc.nat({ max: 3 }) }) },
    { weight: 1, arbitrary: fc.record({ hours: fc.constantFrom(1, 2) }) },
    { weight: 1, arbitrary: fc.record({ begun: fc.boolean(), failed: fc.subarray(NAMES) }) },
    { weight: 2, arbitrary: fc.record({ evaluated: fc.constantFrom(...NAMES) }) },
    { weight: 1, arbitrary: fc.record({ named: fc.subarray([SUBSCRIPTION, OTHER], { minLength: 1 }) }) },
    { weight: 4, arbitrary: fc.record({ held: fc.nat({ max: 5 }), dies: fc.constantFrom(false, false, true) }) },
    { weight: 2, arbitrary: fc.record({ release: fc.nat({ max: 2 }) }) },
  ),
  { minLength: 6, maxLength: 12 },
);

test("after any concurrent writes, crashes and late requests during renewals, the score equals that of the vaults' rows", async () => {
  const fixture = openFixture(storage.connectionString("schedules"));
  const asked = createReaders(fixture);
  let evaluationId: string | undefined;
  await fc.assert(
    fc.asyncProperty(steps, async (schedule) => {
      const waiting: (() => Promise<void>)[] = [];
      await renewTotals(fixture.tables);
      for (const step of schedule) {
        fixture.clock.at += 1000;
        if ("name" in step) await scan(fixture, step.name, step.secrets);
        else if ("gone" in step) await fixture.leave(step.gone);
        else if ("exempt" in step) await exempt(fixture, step.exempt, step.hours);
        else if ("ended" in step) {
          const one = (await fixture.compliance.exemptions.all())[step.ended];
          if (one) await fixture.compliance.exemptions.end(one.id, caller);
        } else if ("begun" in step) {
          evaluationId = randomness.ulid(fixture.clock.now());
          const requestedAt = fixture.clock.now().toISOString();
          const record = { evaluationId, requestedAt, requestedBy: "test", vaults: 3, failedVaults: step.failed };
          await fixture.tables.put(Evaluations, STATE, EVALUATION_KEY, record);
        } else if ("evaluated" in step) {
          await fixture.compliance.handle({ kind: "vault", vault: step.evaluated, evaluationId });
        } else if ("named" in step) {
          const scope = { watchAll: false, left: {}, names: {}, discovered: {}, unseenSince: {} };
          const namedOnlySince = fixture.clock.now().toISOString();
          await fixture.tables.put(ScopeRows, VAULTS, SCOPE_KEY, { ...scope, named: step.named, namedOnlySince });
        } else if ("held" in step) waiting.push(held(fixture.tables, { at: step.held, dies: step.dies }, renewTotals));
        else if ("release" in step) await waiting.splice(step.release, 1)[0]?.();
        else fixture.clock.at += step.hours * HOUR;
        await expectRight(asked);
      }
      for (const letGo of waiting.reverse()) await letGo();
      await expectRight(asked);
    }),
    { numRuns: RUNS },
  );
  expect(asked.counts.totals, "questions").toBeGreaterThan(RUNS * 6);
  expect(asked.counts.fullScans, "queries that read every vault").toBeLessThan(asked.counts.totals);
  await renewTotals(fixture.tables);
  expect(await faultOfTotals(fixture.tables)).toBe(undefined);
  expect(await changes(fixture)).toEqual([]);
}, 600_000);

async function exempt(
  fixture: Fixture,
  scope: { type: "all" | "subscription" | "vault" | "asset"; id?: string },
  hours: number,
): Promise<void> {
  const until = new Date(fixture.clock.at + hours * HOUR);
  const request = { checkId: "secret-content-type", scope, category: "waiver" as const, reason: "Legacy", until };
  await fixture.compliance.exemptions.create(request, caller).catch((error: unknown) => {
    // Of a vault or an asset that does not exist, or has no violations.
    if (!(error instanceof Problem)) throw error;
  });
}

async function changes({ tables }: Fixture): Promise<string[]> {
  const found: string[] = [];
  for await (const rows of tables.pages(ChangedRows, { ...changedRange, select: [] }))
    found.push(...rows.map(({ rowKey }) => rowKey));
  return found;
}

test("a store without totals is counted from its vaults, and from the totals after a renewal; restoring a vault repairs its lost row", async () => {
  const fixture = openFixture(storage.connectionString("upgraded"));
  const asked = createReaders(fixture);
  const { counts } = asked;
  for (const [at, name] of NAMES.entries()) await scan(fixture, name, at + 1);
  // The state written by an earlier version, without marks of changed vaults.
  for (const key of await changes(fixture)) await fixture.tables.remove(ChangedRows, STATE, key);
  await exempt(fixture, { type: "vault", id: "kv-a" }, 100);
  await expectRight(asked);
  expect(counts).toEqual({ totals: 2, fullScans: 2 });
  await renewTotals(fixture.tables, { changed: true });
  await expectRight(asked);
  expect(counts).toEqual({ totals: 4, fullScans: 2 });
  await scan(fixture, "kv-b", 1);
  await exempt(fixture, { type: "asset", id: "kv-b.secret.a" }, 100);
  await expectRight(asked);
  expect(counts).toEqual({ totals: 6, fullScans: 2 });

  // The vault that was evaluated last is removed. The vaults' rows show which vault was evaluated before it.
  await renewTotals(fixture.tables, { changed: true });
  fixture.clock.at += HOUR;
  await scan(fixture, "kv-c", 2);
  await renewTotals(fixture.tables, { changed: true });
  await fixture.leave("kv-c");
  await expectRight(asked);
  expect(counts).toEqual({ totals: 8, fullScans: 4 });

  // Nothing has changed, so nothing is written.
  await renewTotals(fixture.tables, { changed: true });
  const { etag } = (await fixture.tables.get(TotalsRows, STATE, TOTALS_KEY))!;
  await renewTotals(fixture.tables, { changed: true });
  expect((await fixture.tables.get(TotalsRows, STATE, TOTALS_KEY))!.etag).toBe(etag);

  // A row is lost. `restore`, which the reconciliation calls, evaluates the vault again, which the totals already count.
  await fixture.tables.remove(VaultStates, STATE, vaultStateKey("kv-a"));
  await fixture.compliance.restore("kv-a");
  await expectRight(asked);
  expect(await faultOfTotals(fixture.tables)).toBe(undefined);
  await renewTotals(fixture.tables, { changed: true });
  await expectRight(asked);
  expect(counts).toEqual({ totals: 12, fullScans: 6 });

  const totals = (await fixture.tables.get(TotalsRows, STATE, TOTALS_KEY))!;
  await scan(fixture, "kv-b", 3);
  await renewTotals(fixture.tables);
  await fixture.tables.put(TotalsRows, STATE, TOTALS_KEY, { sequence: "another", totals: totals.totals });
  expect(await faultOfTotals(fixture.tables)).toBe("stale");
});

test("the score comes from the totals after an exemption during a renewal; after an evaluation that failed at a vault, it comes from the vaults' rows until the next renewal", async () => {
  const fixture = openFixture(storage.connectionString("apart"));
  const asked = createReaders(fixture);
  const at = fixture.clock.now().toISOString();
  const results = {
    subscriptionId: SUBSCRIPTION,
    tallies: new Uint8Array(),
    failures: [],
    exemptions: [],
    details: [],
  };
  const states = Array.from({ length: 52 }, (_, index) => {
    const state = { ...results, name: `kv-${index}`, rbac: true, createdAt: at, evaluatedAt: at, gone: false };
    return put(VaultStates, vaultStateKey(state.name), state);
  });
  await fixture.tables.write(TABLE, STATE, states);
  let made = false;
  const pages = async function* (e: Entity<unknown>, range: Range) {
    yield* fixture.tables.pages(e, range);
    if (made || range.from === changedRange.from) return;
    made = true;
    await exempt(fixture, { type: "vault", id: "kv-7" }, 100);
  } as Tables["pages"];
  await renewTotals({ ...fixture.tables, pages });
  expect(made).toBe(true);
  await expectRight(asked);
  expect(asked.counts).toEqual({ totals: 2, fullScans: 0 });

  fixture.clock.at += 1000;
  const now = fixture.clock.now();
  const evaluation = { evaluationId: randomness.ulid(now), requestedAt: now.toISOString(), requestedBy: "test" };
  const failedAt = (failedVaults: string[]) =>
    fixture.tables.put(Evaluations, STATE, EVALUATION_KEY, { ...evaluation, vaults: 52, failedVaults });
  await failedAt([]);
  await expectRight(asked);
  expect(asked.counts).toEqual({ totals: 4, fullScans: 0 });
  // The vaults' rows show which of many vaults the evaluation has not covered yet.
  await failedAt(["kv-3"]);
  await expectRight(asked);
  expect(asked.counts).toEqual({ totals: 6, fullScans: 2 });
  await renewTotals(fixture.tables);
  await expectRight(asked);
  expect(asked.counts).toEqual({ totals: 8, fullScans: 2 });
});
