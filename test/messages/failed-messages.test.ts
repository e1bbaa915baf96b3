import { QueueClient } from "@azure/storage-queue";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import * as z from "zod";
import { declarations } from "../../functions/functions.ts";
import { createFailedMessages, type PoisonMessage } from "../../shared/messages/failed-messages.ts";
import { createQueues } from "../../shared/platform/storage/queues.ts";
import { createTables } from "../../shared/platform/storage/tables.ts";
import { DAY_MS } from "../../shared/platform/time.ts";
import { Service } from "../support/service.ts";

// Tests of failed messages: Azure Functions moves a message that failed five times to the poison queue of its queue. The
// service reads the poison queue and records the message in a table.

const { endpoints, queues } = await declarations();

let service: Service;
beforeAll(async () => {
  service = await Service.start({ tableProxy: true });
  await service.admin("GET", "/auth/me");
}, 600_000);
afterAll(() => service?.stop());

const queueOf = (name: string) => new QueueClient(service.azurite.connectionString(), name);
const encodeMessage = (text: string) => Buffer.from(text).toString("base64");
const listFailures = async () =>
  (await service.listAll("/system/failed-messages")) as { queue: string; readable: boolean }[];

test("every queue has a function for its poison queue", () => {
  const names = queues.map(({ queue }) => queue);
  const workQueues = names.filter((name) => !name.endsWith("-poison"));
  expect(workQueues.length).toBeGreaterThan(6);
  expect(names.filter((name) => name.endsWith("-poison")).sort()).toEqual(
    workQueues.map((name) => `${name}-poison`).sort(),
  );
});

describe("a message that failed five times", () => {
  test("is listed and recorded in the audit log for each queue", async () => {
    const poisonQueues = queues.map(({ queue }) => queue).filter((name) => name.endsWith("-poison"));
    const waitForFailures = (count: number) =>
      expect.poll(async () => (await listFailures()).length, { timeout: 300_000, interval: 200 }).toBe(count);
    for (const [index, name] of poisonQueues.entries()) {
      const queue = queueOf(name);
      await queue.createIfNotExists();
      // Three invalid messages: no JSON, JSON of another shape, and control characters.
      await queue.sendMessage(encodeMessage("cut in the mid"));
      await queue.sendMessage(encodeMessage('{"of":"nobody"}'));
      await queue.sendMessage(encodeMessage("\u0000\u0001"));
      // Waits after each sixth queue, to avoid conflicts in the audit log.
      if (index % 6 === 5) await waitForFailures(3 * (index + 1));
    }
    const scan = queueOf("scan-finish-poison");
    const scanId = "01J00000000000000000000000";
    await scan.sendMessage(encodeMessage(JSON.stringify({ scanId })));
    await waitForFailures(poisonQueues.length * 3 + 1);

    const listed = await listFailures();
    for (const name of poisonQueues)
      expect(listed.filter(({ queue }) => `${queue}-poison` === name).length).toBeGreaterThanOrEqual(3);
    expect(listed).toContainEqual(
      expect.objectContaining({ queue: "scan-finish", readable: true, message: JSON.stringify({ scanId }) }),
    );
    expect(listed.filter(({ readable }) => !readable).length).toBeGreaterThanOrEqual(poisonQueues.length);
    const entries = await service.listAll("/audit/entries?event_type=queue.messageFailed");
    expect(entries.length).toBe(listed.length);
    expect(entries.every(({ outcome }) => outcome === "failure")).toBe(true);
    // All poison queues are empty, so no handler threw an error.
    for (const name of poisonQueues) expect((await queueOf(name).getProperties()).approximateMessagesCount).toBe(0);
  }, 600_000);

  test("is listed in pages, newest first", async () => {
    const allFailures = await listFailures();
    const { body, tableRequests } = await service.admin("GET", "/system/failed-messages?limit=5");
    expect(body.items).toEqual(allFailures.slice(0, 5));
    // The service counts all rows, but reads in full only one more than a page.
    const read = tableRequests().filter(({ path, select }) => path === "FailedMessages()" && select === undefined);
    expect(read.map(({ top }) => top)).toEqual([6]);
    expect(body.total).toBe(allFailures.length);
    const next = await service.admin("GET", `/system/failed-messages?limit=5&cursor=${body.nextCursor}`);
    expect(next.body.items).toEqual(allFailures.slice(5, 10));
    expect(endpoints.find(({ name }) => name === "listFailedMessages")?.access).toBe("user");
  });
});

describe("receiving a poison message", () => {
  const events: object[] = [];
  const createModule = (now?: Date) => {
    const connectionString = service.azurite.connectionString();
    const log = { debug() {}, info() {}, warn() {}, error() {} };
    const clock = { now: () => now ?? new Date() };
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
  const failLastDelivery = async ({ queue, body }: PoisonMessage) =>
    await expect(
      createModule().handleDelivery({ queue, body, delivery: 5 }, () => Promise.reject(new Error("failed"))),
    ).rejects.toThrow("failed");

  test("calls its module only if the last delivery of the same message failed, and once", async () => {
    const handled: unknown[] = [];
    const receive = (change: Partial<PoisonMessage>) =>
      createModule().receive(message(change), schema, async (body) => void handled.push(body));
    const body = { n: 7 };
    await receive({ messageId: "planted", body });
    // Earlier deliveries that fail, and a last delivery that succeeds, do not count.
    const failing = createModule().handleDelivery({ queue: "test-work", body, delivery: 4 }, () =>
      Promise.reject(new Error("failed")),
    );
    await expect(failing).rejects.toThrow("failed");
    await createModule().handleDelivery({ queue: "test-work", body, delivery: 5 }, async () => {});
    await receive({ messageId: "planted-again", body });
    expect(handled).toEqual([]);

    await failLastDelivery(message({ body }));
    await receive({ messageId: "other-body", body: { n: 8 } });
    await receive({ messageId: "other-queue", queue: "test-other", body });
    expect(handled).toEqual([]);
    await receive({ messageId: "failed", body });
    await receive({ messageId: "failed", body });
    expect(handled).toEqual([body]);
  });

  test("has no effect a week after its last delivery", async () => {
    const handled: unknown[] = [];
    const body = { n: 9 };
    const late = message({ messageId: "late", body });
    await failLastDelivery(late);
    await createModule(new Date(Date.now() + 8 * DAY_MS)).cleanUp();
    await createModule().receive(late, schema, async (body) => void handled.push(body));
    expect(handled).toEqual([]);
  });

  test("twice records one failure", async () => {
    const duplicate = message({ messageId: "twice" });
    const countBefore = (await listFailures()).length;
    events.splice(0);
    await createModule().receive(duplicate, schema, undefined);
    await createModule().receive(duplicate, schema, undefined);
    expect((await listFailures()).length).toBe(countBefore + 1);
    expect(events.length).toBe(1);
  });

  test("that can't be recorded throws, and at the last delivery sends the message again", async () => {
    const failToRecord = async () => {
      throw new Error("storage is unavailable");
    };
    await failLastDelivery(message({ messageId: "again" }));
    await expect(createModule().receive(message({ messageId: "again" }), schema, failToRecord)).rejects.toThrow(
      "storage is unavailable",
    );
    await createModule().receive(message({ messageId: "again", delivery: 5 }), schema, failToRecord);
    const { approximateMessagesCount } = await queueOf("test-work-poison").getProperties();
    expect(approximateMessagesCount).toBe(1);
  });

  test("records a failure that the clean-up deletes after 30 days", async () => {
    await createModule().receive(
      message({ messageId: "old", insertedAt: new Date(Date.now() - 31 * DAY_MS) }),
      schema,
      undefined,
    );
    await createModule().receive(
      message({ messageId: "young", insertedAt: new Date(Date.now() - 29 * DAY_MS) }),
      schema,
      undefined,
    );
    const countBefore = (await listFailures()).length;
    await createModule().cleanUp();
    expect((await listFailures()).length).toBe(countBefore - 1);
  });
});
