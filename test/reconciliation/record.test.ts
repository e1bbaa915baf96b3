import { afterAll, beforeAll, expect, test } from "vitest";
import { reconciliationView } from "../../shared/reconciliation/api.ts";
import { BEFORE, NEWEST, WALKS, Walks } from "../../shared/reconciliation/walk-record.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import { openReconciliation, type ReconciliationFixture } from "./reconciliation-fixture.ts";

/**
 * Tests of the record of a walk. A walk is one pass of the reconciliation over all stored rows, in many steps; its record has
 * the position, and anyone with access to storage may have damaged it. `NEWEST` is the row of the newest walk, `BEFORE` that of
 * the previous one.
 */

const accounts = ["unreadable", "before", "future"];
let azurite: TestStorage;
beforeAll(async () => {
  azurite = await openStorage(accounts);
});
afterAll(() => azurite.stop());

/** Overwrites a record with an invalid one. */
const overwriteRecord = (fixture: ReconciliationFixture, rowKey: string) =>
  fixture.raw(Walks.table).upsertEntity({ partitionKey: WALKS, rowKey, stage: "nowhere" }, "Replace");

test("a walk whose record can't be read starts from the beginning, which its status and the audit log show", async () => {
  const oneStepPerRun = { runMs: 0, rowsPerStep: 10, pauseMs: 1 };
  const fixture = openReconciliation(azurite.connectionString("unreadable"), oneStepPerRun);
  await fixture.reconciliation.run("request");
  expect((await fixture.reconciliation.status()).newest?.finishedAt).toBeUndefined();
  await overwriteRecord(fixture, NEWEST);
  expect(reconciliationView(await fixture.reconciliation.status())).toEqual({
    newest: null,
    completed: null,
    unreadable: true,
  });
  await fixture.walk();
  const view = reconciliationView(await fixture.reconciliation.status());
  expect(view).toMatchObject({ newest: { startedOver: true, finishedAt: expect.any(String) }, unreadable: false });
  const target = { type: "reconciliation", id: view.newest!.walkId };
  expect(fixture.events).toMatchObject(
    ["intent", "success"].map((outcome) => ({ type: "reconciliation.startedOver", outcome, target })),
  );
  await fixture.walk();
  expect((await fixture.reconciliation.status()).newest?.startedOver).toBeUndefined();
  expect(fixture.events).toHaveLength(2);
});

test("an unreadable record of the previous walk is reported until the next walk replaces it", async () => {
  const fixture = openReconciliation(azurite.connectionString("before"));
  await fixture.walk();
  await overwriteRecord(fixture, BEFORE);
  const { newest, completed, unreadable } = await fixture.reconciliation.status();
  expect([completed, unreadable]).toEqual([newest, true]);
  await fixture.walk();
  expect((await fixture.reconciliation.status()).unreadable).toBe(false);
});

test("a record of a walk that starts years in the future does not prevent the next one", async () => {
  const fixture = openReconciliation(azurite.connectionString("future"));
  await fixture.walk();
  const row = await fixture.tables.get(Walks, WALKS, NEWEST);
  const inYear2199 = (instant: string) => instant.replace(/^\d{4}/, "2199");
  await fixture.tables.replace(Walks, {
    ...row!,
    startedAt: inYear2199(row!.startedAt),
    finishedAt: inYear2199(row!.finishedAt!),
  });
  await fixture.reconciliation.run("request");
  expect((await fixture.reconciliation.status()).newest?.walkId).not.toBe(row!.walkId);
});
