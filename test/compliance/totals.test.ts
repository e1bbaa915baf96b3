/*
 * The totals: one row with the counts of all vaults' results, so that a score need not read every vault's row. A change marks
 * its vault until `renewTotals` counts it, and readers correct the totals by the marked vaults. Concurrent writers and crashes
 * must not make the score differ from the sum of the vaults' rows. With `changed: true`, `renewTotals` does nothing unless a
 * vault is marked or totals are missing.
 */
import fc from "fast-check";
import { afterAll, beforeAll, expect, test } from "vitest";
import { createCompliance } from "../../shared/compliance/compliance.ts";
import {
  ChangedRows,
  changedVaultsRange,
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
import { findTotalsFault, renewTotals } from "../../shared/compliance/renew-totals.ts";
import { SCOPE_KEY, ScopeRows } from "../../shared/inventory/scope.ts";
import { VAULTS } from "../../shared/inventory/vault.ts";
import { Problem } from "../../shared/platform/http/problem.ts";
import { systemRandomness } from "../../shared/platform/runtime.ts";
import type { Entity } from "../../shared/platform/storage/entity.ts";
import { put, type Range, type Tables } from "../../shared/platform/storage/tables.ts";
import { SECOND_MS } from "../../shared/platform/time.ts";
import { startDelayedWork } from "../support/delayed-tables.ts";
import { IS_CAMPAIGN } from "../support/sampling.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import { asset, caller, type Fixture, openFixture, SUBSCRIPTION, vault } from "./compliance-fixture.ts";

const OTHER_SUBSCRIPTION = "22222222-2222-2222-2222-222222222222";
const VAULT_NAMES = ["kv-a", "kv-b", "kv-c"];
/** The scopes that generated exemptions use. */
const SCOPES = [
  { type: "all" as const },
  { type: "subscription" as const, id: SUBSCRIPTION },
  { type: "subscription" as const, id: OTHER_SUBSCRIPTION },
  ...VAULT_NAMES.flatMap((name) => [
    { type: "vault" as const, id: name },
    { type: "asset" as const, id: `${name}.secret.a` },
    { type: "asset" as const, id: `${name}.secret.b` },
  ]),
];
/** The number of generated schedules. */
const RUNS = IS_CAMPAIGN ? 100 : 8;
const HOUR_MS = 3_600_000;

let storage: TestStorage;
beforeAll(async () => {
  storage = await openStorage(["schedules", "upgraded", "concurrent"]);
});
afterAll(() => storage?.stop());

/**
 * Returns two readers of the results: `byTotals` as in production, and `byRows`, which finds no totals and so counts all
 * vaults' rows. `counts` has how often `byTotals` read the totals and how often all vaults' rows.
 */
function createReaders({ tables, clock }: Fixture) {
  const counts = { totals: 0, readsOfAllRows: 0 };
  const createReader = (pages: (range: Range, read: () => unknown) => unknown) =>
    createCompliance({
      tables: {
        ...tables,
        pages: ((kind: Entity<unknown>, range: Range & { select: never[] }) =>
          pages(range, () => tables.pages(kind, range))) as Tables["pages"],
      },
      licensed: async () => true,
      clock,
    } as never);
  const isTotals = ({ from, before }: Range) => from === totalsRange.from && before === totalsRange.before;
  const byTotals = createReader((range, read) => {
    if (isTotals(range)) counts.totals++;
    else if (range.from === totalsRange.from) counts.readsOfAllRows++;
    return read();
  });
  const byRows = createReader((range, read) => (isTotals(range) ? (async function* () {})() : read()));
  return { counts, byTotals, byRows };
}

/** Expects the same score and frameworks from the totals as from the vaults' rows. */
async function expectCorrectTotals({ byTotals, byRows }: ReturnType<typeof createReaders>): Promise<void> {
  expect(await byTotals.score()).toEqual(await byRows.score());
  expect(await byTotals.frameworks(PAGE)).toEqual(await byRows.frameworks(PAGE));
}
const PAGE = { limit: 100, offset: 0, cursor: undefined };

/** Scans a vault with up to three secrets. The first two have no content type and so fail a check. */
async function scan(fixture: Fixture, name: string, secrets: number): Promise<void> {
  const subscriptionId = name === "kv-c" ? OTHER_SUBSCRIPTION : SUBSCRIPTION;
  const scannedVault = vault(name, { subscriptionId, purgeProtection: secrets % 2 === 0 });
  const secretNames = ["a", "b", "c"].slice(0, secrets);
  const assets = secretNames.map((secretName, index) =>
    asset(name, "secret", secretName, { subscriptionId, ...(index < 2 ? { contentType: undefined } : {}) }),
  );
  await fixture.scan(scannedVault, assets);
}

const randomness = systemRandomness();
/** Generates schedules: sequences of writes by scans, users and evaluations, and of renewals that stop halfway. */
const anySchedule = fc.array(
  fc.oneof(
    // A scan of a vault.
    { weight: 5, arbitrary: fc.record({ name: fc.constantFrom(...VAULT_NAMES), secrets: fc.nat({ max: 3 }) }) },
    // The removal of a vault.
    { weight: 1, arbitrary: fc.record({ removedVault: fc.constantFrom(...VAULT_NAMES) }) },
    // A new exemption, which expires in these hours.
    { weight: 3, arbitrary: fc.record({ exempt: fc.constantFrom(...SCOPES), hours: fc.constantFrom(1, 100) }) },
    // The removal of the exemption with this index.
    { weight: 1, arbitrary: fc.record({ removedExemption: fc.nat({ max: 3 }) }) },
    // Time passes.
    { weight: 1, arbitrary: fc.record({ hours: fc.constantFrom(1, 2) }) },
    // The start of an evaluation of everything, which fails at these vaults.
    { weight: 1, arbitrary: fc.record({ evaluationFailsAt: fc.subarray(VAULT_NAMES) }) },
    // The evaluation of one vault.
    { weight: 2, arbitrary: fc.record({ evaluated: fc.constantFrom(...VAULT_NAMES) }) },
    // The scope of scans is limited to these subscriptions.
    {
      weight: 1,
      arbitrary: fc.record({ scopeSubscriptions: fc.subarray([SUBSCRIPTION, OTHER_SUBSCRIPTION], { minLength: 1 }) }),
    },
    // A renewal that stops before this request, and continues or crashes there when a later step releases it.
    {
      weight: 4,
      arbitrary: fc.record({ stopsBefore: fc.nat({ max: 5 }), crashes: fc.constantFrom(false, false, true) }),
    },
    // The stopped renewal with this index is released.
    { weight: 2, arbitrary: fc.record({ released: fc.nat({ max: 2 }) }) },
  ),
  { minLength: 6, maxLength: 12 },
);

test("the score from the totals equals that from the vaults' rows after any concurrent writes and crashes", async () => {
  const fixture = openFixture(storage.connectionString("schedules"));
  const readers = createReaders(fixture);
  let evaluationId: string | undefined;
  await fc.assert(
    fc.asyncProperty(anySchedule, async (schedule) => {
      const stoppedRenewals: (() => Promise<void>)[] = [];
      await renewTotals(fixture.tables);
      for (const step of schedule) {
        fixture.clock.nowMs += SECOND_MS;
        if ("name" in step) await scan(fixture, step.name, step.secrets);
        else if ("removedVault" in step) await fixture.removeVault(step.removedVault);
        else if ("exempt" in step) await exempt(fixture, step.exempt, step.hours);
        else if ("removedExemption" in step) {
          const exemption = (await fixture.compliance.exemptions.all())[step.removedExemption];
          if (exemption) await fixture.compliance.exemptions.remove(exemption.id, caller);
        } else if ("evaluationFailsAt" in step) {
          evaluationId = randomness.ulid(fixture.clock.now());
          const requestedAt = fixture.clock.now().toISOString();
          const record = {
            evaluationId,
            requestedAt,
            requestedBy: "test",
            vaults: 3,
            failedVaults: step.evaluationFailsAt,
          };
          await fixture.tables.put(Evaluations, STATE, EVALUATION_KEY, record);
        } else if ("evaluated" in step) {
          await fixture.compliance.handle({ kind: "vault", vault: step.evaluated, evaluationId });
        } else if ("scopeSubscriptions" in step) {
          const scope = { watchAll: false, left: {}, names: {}, discovered: {}, unseenSince: {} };
          const namedOnlySince = fixture.clock.now().toISOString();
          await fixture.tables.put(ScopeRows, VAULTS, SCOPE_KEY, {
            ...scope,
            named: step.scopeSubscriptions,
            namedOnlySince,
          });
        } else if ("stopsBefore" in step)
          stoppedRenewals.push(
            startDelayedWork(fixture.tables, { requestNumber: step.stopsBefore, crashes: step.crashes }, renewTotals),
          );
        else if ("released" in step) await stoppedRenewals.splice(step.released, 1)[0]?.();
        else fixture.clock.nowMs += step.hours * HOUR_MS;
        await expectCorrectTotals(readers);
      }
      for (const release of stoppedRenewals.reverse()) await release();
      await expectCorrectTotals(readers);
    }),
    { numRuns: RUNS },
  );
  expect(readers.counts.totals, "queries of the totals").toBeGreaterThan(RUNS * 6);
  expect(readers.counts.readsOfAllRows, "queries that read every vault").toBeLessThan(readers.counts.totals);
  await renewTotals(fixture.tables);
  expect(await findTotalsFault(fixture.tables)).toBe(undefined);
  expect(await readMarks(fixture)).toEqual([]);
}, 600_000);

/** Creates an exemption, if the module accepts it. */
async function exempt(
  fixture: Fixture,
  scope: { type: "all" | "subscription" | "vault" | "asset"; id?: string },
  hours: number,
): Promise<void> {
  const until = new Date(fixture.clock.nowMs + hours * HOUR_MS);
  const request = { checkId: "secret-content-type", scope, category: "waiver" as const, reason: "Legacy", until };
  await fixture.compliance.exemptions.create(request, caller).catch((error: unknown) => {
    // The module rejects an exemption whose vault or asset does not exist, or which exists already.
    if (!(error instanceof Problem)) throw error;
  });
}

/** Returns the row keys of the marks: of vaults that changed after the totals were computed. */
async function readMarks({ tables }: Fixture): Promise<string[]> {
  const rowKeys: string[] = [];
  for await (const rows of tables.pages(ChangedRows, { ...changedVaultsRange, select: [] }))
    rowKeys.push(...rows.map(({ rowKey }) => rowKey));
  return rowKeys;
}

test("the score is counted from the vaults' rows until totals exist, and then from the totals", async () => {
  const fixture = openFixture(storage.connectionString("upgraded"));
  const readers = createReaders(fixture);
  const { counts } = readers;
  for (const [index, name] of VAULT_NAMES.entries()) await scan(fixture, name, index + 1);
  // An earlier version wrote no marks.
  for (const key of await readMarks(fixture)) await fixture.tables.remove(ChangedRows, STATE, key);
  await exempt(fixture, { type: "vault", id: "kv-a" }, 100);
  // `expectCorrectTotals` reads twice: the score and the frameworks.
  await expectCorrectTotals(readers);
  expect(counts).toEqual({ totals: 2, readsOfAllRows: 2 });
  await renewTotals(fixture.tables, { changed: true });
  await expectCorrectTotals(readers);
  expect(counts).toEqual({ totals: 4, readsOfAllRows: 2 });
  await scan(fixture, "kv-b", 1);
  await exempt(fixture, { type: "asset", id: "kv-b.secret.a" }, 100);
  await expectCorrectTotals(readers);
  expect(counts).toEqual({ totals: 6, readsOfAllRows: 2 });

  // The score contains the time of the last evaluation, here that of `kv-c`. Once this vault is removed, only the vaults' rows
  // tell when the evaluation before it was.
  await renewTotals(fixture.tables, { changed: true });
  fixture.clock.nowMs += HOUR_MS;
  await scan(fixture, "kv-c", 2);
  await renewTotals(fixture.tables, { changed: true });
  await fixture.removeVault("kv-c");
  await expectCorrectTotals(readers);
  expect(counts).toEqual({ totals: 8, readsOfAllRows: 4 });

  // There are no changes, so there are no writes.
  await renewTotals(fixture.tables, { changed: true });
  const { etag } = (await fixture.tables.get(TotalsRows, STATE, TOTALS_KEY))!;
  await renewTotals(fixture.tables, { changed: true });
  expect((await fixture.tables.get(TotalsRows, STATE, TOTALS_KEY))!.etag).toBe(etag);

  // A vault's row is lost. The reconciliation calls `restore`, which evaluates the vault again. The totals already count it.
  await fixture.tables.remove(VaultStates, STATE, vaultStateKey("kv-a"));
  await fixture.compliance.restore("kv-a");
  await expectCorrectTotals(readers);
  expect(await findTotalsFault(fixture.tables)).toBe(undefined);
  await renewTotals(fixture.tables, { changed: true });
  await expectCorrectTotals(readers);
  expect(counts).toEqual({ totals: 12, readsOfAllRows: 6 });

  // Totals that were renewed before a change, and whose mark is missing, are reported as stale.
  const totals = (await fixture.tables.get(TotalsRows, STATE, TOTALS_KEY))!;
  await scan(fixture, "kv-b", 3);
  await renewTotals(fixture.tables);
  await fixture.tables.put(TotalsRows, STATE, TOTALS_KEY, { sequence: "other-sequence", totals: totals.totals });
  expect(await findTotalsFault(fixture.tables)).toBe("stale");
});

test("totals stay correct if an exemption is created during their renewal or an evaluation fails at a vault", async () => {
  const fixture = openFixture(storage.connectionString("concurrent"));
  const readers = createReaders(fixture);
  const evaluatedAt = fixture.clock.now().toISOString();
  const results = {
    subscriptionId: SUBSCRIPTION,
    tallies: new Uint8Array(),
    failures: [],
    exemptions: [],
    details: [],
  };
  // 52 vaults with the same last evaluation. The totals list the names of at most 50 vaults of a group.
  const states = Array.from({ length: 52 }, (_, index) => {
    const state = { ...results, name: `kv-${index}`, rbac: true, createdAt: evaluatedAt, evaluatedAt, gone: false };
    return put(VaultStates, vaultStateKey(state.name), state);
  });
  await fixture.tables.write(TABLE, STATE, states);
  // Creates the exemption while the renewal reads the vaults' rows.
  let isExemptionCreated = false;
  const pages = async function* (kind: Entity<unknown>, range: Range) {
    yield* fixture.tables.pages(kind, range);
    if (isExemptionCreated || range.from === changedVaultsRange.from) return;
    isExemptionCreated = true;
    await exempt(fixture, { type: "vault", id: "kv-7" }, 100);
  } as Tables["pages"];
  await renewTotals({ ...fixture.tables, pages });
  expect(isExemptionCreated).toBe(true);
  await expectCorrectTotals(readers);
  expect(readers.counts).toEqual({ totals: 2, readsOfAllRows: 0 });

  fixture.clock.nowMs += SECOND_MS;
  const now = fixture.clock.now();
  const evaluation = { evaluationId: randomness.ulid(now), requestedAt: now.toISOString(), requestedBy: "test" };
  const writeEvaluation = (failedVaults: string[]) =>
    fixture.tables.put(Evaluations, STATE, EVALUATION_KEY, { ...evaluation, vaults: 52, failedVaults });
  await writeEvaluation([]);
  await expectCorrectTotals(readers);
  expect(readers.counts).toEqual({ totals: 4, readsOfAllRows: 0 });
  // Only the vaults' rows tell which vaults this evaluation has not reached.
  await writeEvaluation(["kv-3"]);
  await expectCorrectTotals(readers);
  expect(readers.counts).toEqual({ totals: 6, readsOfAllRows: 2 });
  await renewTotals(fixture.tables);
  await expectCorrectTotals(readers);
  expect(readers.counts).toEqual({ totals: 8, readsOfAllRows: 2 });
});
