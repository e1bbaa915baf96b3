import { QueueClient } from "@azure/storage-queue";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import * as z from "zod";
import { declarations } from "../../functions/functions.ts";
import { createFailedMessages, type PoisonMessage } from "../../shared/messages/failed-messages.ts";
import { createQueues } from "../../shared/platform/storage/queues.ts";
import { createTables } from "../../shared/platform/storage/tables.ts";
import { DAY_MS } from "../../shared/platform/time.ts";
import { Service } from "../support/service.ts";

const { endpoints, queues } = await declarations();

let service: Service;
beforeAll(async () => {
  service = await Service.start({ tableProxy: true });
  await service.admin("GET", "/auth/me");
}, 600_000);
afterAll(() => service?.stop());

const queueOf = (name: string) =>
  new QueueClient(service.azurite.connectionString().replace(/TableEndpoint=[^;]+;/, ""), name);
const packed = (text: string) => Buffer.from(text).toString("base64");
const failures = async () => (await service.all("/system/failed-messages")) as { queue: string; readable: boolean }[];

test("every queue has a function for its poison queue", () => {
  const names = queues.map(({ queue }) => queue);
  const work = names.filter((name) => !name.endsWith("-poison"));
  expect(work.length).toBeGreaterThan(6);
  expect(names.filter((name) => name.endsWith("-poison")).sort()).toEqual(work.map((name) => `${name}-poison`).sort());
});

describe("a message that failed five times", () => {
  test("is listed with its content and recorded in the audit log, for every queue", async () => {
    const poisons = queues.map(({ queue }) => queue).filter((name) => name.endsWith("-poison"));
    const areShown = (count: number) =>
      expect.poll(async () => (await failures()).length, { timeout: 300_000, interval: 200 }).toBe(count);
    for (const [at, name] of poisons.entries()) {
      const queue = queueOf(name);
      await queue.createIfNotExists();
      await queue.sendMessage(packed("cut in the mid"));
      await queue.sendMessage(packed('{"of":"nobody"}'));
      await queue.sendMessage(packed("\u0000\u0001"));
      // One after the other, to avoid conflicts in the audit log.
      if (at % 6 === 5) await areShown(3 * (at + 1));
    }
    const scan = queueOf("scan-finish-poison");
    const scanId = "01J00000000000000000000000";
    await scan.sendMessage(packed(JSON.stringify({ scanId })));
    await areShown(poisons.length * 3 + 1);

    const shown = await failures();
    for (const name of poisons)
      expect(shown.filter(({ queue }) => `${queue}-poison` === name).length).toBeGreaterThanOrEqual(3);
    expect(shown).toContainEqual(
      expect.objectContaining({ queue: "scan-finish", readable: true, message: JSON.stringify({ scanId }) }),
    );
    expect(shown.filter(({ readable }) => !readable).length).toBeGreaterThanOrEqual(poisons.length);
    const entries = await service.all("/audit/entries?event_type=queue.messageFailed");
    expect(entries.length).toBe(shown.length);
    expect(entries.every(({ outcome }) => outcome === "failure")).toBe(true);
    // All queues are empty, so no handler threw.
    for (const name of poisons) expect((await queueOf(name).getProperties()).approximateMessagesCount).toBe(0);
  }, 600_000);

  test("is listed in pages, newest first", async () => {
    const all = await failures();
    const { body, tableRequests } = await service.admin("GET", "/system/failed-messages?limit=5");
    expect(body.items).toEqual(all.slice(0, 5));
    // All rows are counted, but only one more than a page is read in full.
    const read = tableRequests().filter(({ path, select }) => path === "FailedMessages()" && select === undefined);
    expect(read.map(({ top }) => top)).toEqual([6]);
    expect(body.total).toBe(all.length);
    const next = await service.admin("GET", `/system/failed-messages?limit=5&cursor=${body.nextCursor}`);
    expect(next.body.items).toEqual(all.slice(5, 10));
    expect(endpoints.find(({ name }) => name === "listFailedMessages")?.access).toBe("user");
  });
});

describe("receiving a poison message", () => {
  const events: object[] = [];
  const fixture = () => {
    const connectionString = service.azurite.connectionString();
    const log = { debug() {}, info() {}, warn() {}, error() {} };
    const clock = { now: () => new Date() };
    const audit = { append: async (event: object) => void events.push(event) };
    const [tables, queues] = [createTables({ connectionString }), createQueues({ connectionString })];
    return createFailedMessages({ tables, queues, audit, clock, log });
  };
  const message = (change: Partial<PoisonMessage>): PoisonMessage => ({
    queue: "test-work",
    messageId: "m1",
    insertedAt: new Date(),
    delivery: 1,
    body: { n: 1 },
    requestId: "r",
    ...change,
  });
  const schema = z.object({ n: z.number() });

  test("twice creates one failure", async () => {
    const twice = message({ messageId: "twice" });
    const before = (await failures()).length;
    await fixture().receive(twice, schema, undefined);
    await fixture().receive(twice, schema, undefined);
    expect((await failures()).length).toBe(before + 1);
    expect(events.length).toBe(1);
  });

  test("that can't be processed is redelivered, and sent as a new message after the last delivery", async () => {
    const failing = async () => {
      throw new Error("storage is away");
    };
    await expect(fixture().receive(message({ messageId: "again" }), schema, failing)).rejects.toThrow(
      "storage is away",
    );
    await fixture().receive(message({ messageId: "again", delivery: 5 }), schema, failing);
    const { approximateMessagesCount } = await queueOf("test-work-poison").getProperties();
    expect(approximateMessagesCount).toBe(1);
  });

  test("keeps the failure for 30 days", async () => {
    await fixture().receive(
      message({ messageId: "old", insertedAt: new Date(Date.now() - 31 * DAY_MS) }),
      schema,
      undefined,
    );
    await fixture().receive(
      message({ messageId: "young", insertedAt: new Date(Date.now() - 29 * DAY_MS) }),
      schema,
      undefined,
    );
    const before = (await failures()).length;
    await fixture().cleanUp();
    expect((await failures()).length).toBe(before - 1);
  });
});
