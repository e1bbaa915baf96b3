import { afterAll, beforeAll, expect, test } from "vitest";
import { reconciliationView } from "../../shared/reconciliation/api.ts";
import { BEFORE, NEWEST, WALKS, Walks } from "../../shared/reconciliation/walk-record.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import { openRoom, type Room } from "./reconciliation-fixture.ts";

/** The walk's own records, which other programs with access to storage may write too. */

const accounts = ["unreadable", "before", "future"];
let azurite: TestStorage;
beforeAll(async () => {
  azurite = await openStorage(accounts);
});
afterAll(() => azurite.stop());

const spoil = (room: Room, rowKey: string) =>
  room.raw(Walks.table).upsertEntity({ partitionKey: WALKS, rowKey, stage: "nowhere" }, "Replace");

test("a walk whose record can't be read starts again, and reports it in its status and in the audit log", async () => {
  const room = openRoom(azurite.connectionString("unreadable"), { runMs: 0, rowsPerStep: 10, pauseMs: 1 });
  await room.reconciliation.run("request");
  expect((await room.reconciliation.status()).newest?.finishedAt).toBeUndefined();
  await spoil(room, NEWEST);
  expect(reconciliationView(await room.reconciliation.status())).toEqual({
    newest: null,
    completed: null,
    unreadable: true,
  });
  await room.walk();
  const view = reconciliationView(await room.reconciliation.status());
  expect(view).toMatchObject({ newest: { startedOver: true, finishedAt: expect.any(String) }, unreadable: false });
  const target = { type: "reconciliation", id: view.newest!.walkId };
  expect(room.events).toMatchObject(
    ["intent", "success"].map((outcome) => ({ type: "reconciliation.startedOver", outcome, target })),
  );
  await room.walk();
  expect((await room.reconciliation.status()).newest?.startedOver).toBeUndefined();
  expect(room.events).toHaveLength(2);
});

test("an unreadable record of the previous walk is reported, and the next walk replaces it", async () => {
  const room = openRoom(azurite.connectionString("before"));
  await room.walk();
  await spoil(room, BEFORE);
  const { newest, completed, unreadable } = await room.reconciliation.status();
  expect([completed, unreadable]).toEqual([newest, true]);
  await room.walk();
  expect((await room.reconciliation.status()).unreadable).toBe(false);
});

test("a record of a walk that starts years in the future does not prevent the next one", async () => {
  const room = openRoom(azurite.connectionString("future"));
  await room.walk();
  const row = await room.tables.get(Walks, WALKS, NEWEST);
  const years = (instant: string) => instant.replace(/^\d{4}/, "2199");
  await room.tables.replace(Walks, { ...row!, startedAt: years(row!.startedAt), finishedAt: years(row!.finishedAt!) });
  await room.reconciliation.run("request");
  expect((await room.reconciliation.status()).newest?.walkId).not.toBe(row!.walkId);
});
