import { afterAll, beforeAll, expect, test } from "vitest";
import { reconciliationView } from "../../shared/reconciliation/api.ts";
import { BEFORE, NEWEST, WALKS, Walks } from "../../shared/reconciliation/walk-record.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import { openReconciliation, type ReconciliationFixture } from "./reconciliation-fixture.ts";

/** The walk's own records, which other programs with access to storage may write too. */

const accounts = ["unreadable", "before", "future"];
let azurite: TestStorage;
beforeAll(async () => {
  azurite = await openStorage(accounts);
});
afterAll(() => azurite.stop());

const spoil = (fixture: ReconciliationFixture, rowKey: string) =>
  fixture.raw(Walks.table).upsertEntity({ partitionKey: WALKS, rowKey, stage: "nowhere" }, "Replace");

test("a walk whose record can't be read starts again, and reports it in its status and in the audit log", async () => {
  const fixture = openReconciliation(azurite.connectionString("unreadable"), { runMs: 0, rowsPerStep: 10, pauseMs: 1 });
  await fixture.reconciliation.run("request");
  expect((await fixture.reconciliation.status()).newest?.finishedAt).toBeUndefined();
  await spoil(fixture, NEWEST);
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

test("an unreadable record of the previous walk is reported, and the next walk replaces it", async () => {
  const fixture = openReconciliation(azurite.connectionString("before"));
  await fixture.walk();
  await spoil(fixture, BEFORE);
  const { newest, completed, unreadable } = await fixture.reconciliation.status();
  expect([completed, unreadable]).toEqual([newest, true]);
  await fixture.walk();
  expect((await fixture.reconciliation.status()).unreadable).toBe(false);
});

test("a record of a walk that starts years in the future does not prevent the next one", async () => {
  const fixture = openReconciliation(azurite.connectionString("future"));
  await fixture.walk();
  const row = await fixture.tables.get(Walks, WALKS, NEWEST);
  const years = (instant: string) => instant.replace(/^\d{4}/, "2199");
  await fixture.tables.replace(Walks, {
    ...row!,
    startedAt: years(row!.startedAt),
    finishedAt: years(row!.finishedAt!),
  });
  await fixture.reconciliation.run("request");
  expect((await fixture.reconciliation.status()).newest?.walkId).not.toBe(row!.walkId);
});
