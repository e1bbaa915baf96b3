import { QueueClient } from "@azure/storage-queue";
import { afterAll, beforeAll, expect, test } from "vitest";
import { createQueues, type Queues } from "../../shared/platform/storage/queues.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import { startTableProxy } from "../support/table-proxy.ts";

// Tests of sending messages to storage queues.

let azurite: TestStorage;
let queues: Queues;

beforeAll(async () => {
  azurite = await openStorage(["queues"]);
  queues = createQueues({ connectionString: azurite.connectionString() });
});
afterAll(() => azurite.stop());

const receive = async (queue: string) =>
  (await new QueueClient(azurite.connectionString(), queue).receiveMessages({ numberOfMessages: 32 }))
    .receivedMessageItems;

test("a message is base64-encoded JSON, in a queue that is created for it", async () => {
  await queues.send("vault-scans", { vault: "kv-payments", note: "é€😀" });
  await queues.send("vault-scans", { vault: "kv-other" });
  const messages = (await receive("vault-scans")).map(({ messageText }) =>
    JSON.parse(Buffer.from(messageText, "base64").toString()),
  );
  expect(messages).toEqual([{ vault: "kv-payments", note: "é€😀" }, { vault: "kv-other" }]);
});

test("a delayed message is hidden at first", async () => {
  await queues.send("later", { n: 1 }, { delaySeconds: 3600 });
  expect(await receive("later")).toEqual([]);
  const { approximateMessagesCount } = await new QueueClient(azurite.connectionString(), "later").getProperties();
  expect(approximateMessagesCount).toBe(1);
});

test("a message can have up to 48 KiB", async () => {
  await queues.send("large", "x".repeat(48 * 1024 - 2));
  expect(await receive("large")).toHaveLength(1);
  await expect(queues.send("large", "x".repeat(48 * 1024 - 1))).rejects.toThrow(RangeError);
  await expect(queues.send("large", "é".repeat(24 * 1024))).rejects.toThrow(RangeError);
});

test("a credential that could not be acquired is requested again for the next message", async () => {
  let attempts = 0;
  const credential = async (): Promise<never> => {
    attempts++;
    throw new Error("no identity yet");
  };
  const address = "http://127.0.0.1:1/account";
  const queuesWithoutCredential = createQueues({ tableServiceUri: address, queueServiceUri: address, credential });
  for (let sends = 1; sends <= 2; sends++) {
    await expect(queuesWithoutCredential.send("work", {})).rejects.toThrow("no identity yet");
    expect(attempts).toBe(sends);
  }
});

test("a busy service is retried after a pause that doubles", async () => {
  const pauses: number[] = [];
  const warn = (_: string, fields?: Record<string, unknown>) => void pauses.push(Number(fields?.pauseMs));
  const proxy = await startTableProxy(azurite.connectionString(), "Queue");
  proxy.fail(["ServerBusy", "ServerBusy"]);
  const log = { debug() {}, info() {}, warn, error() {} };
  await createQueues({ connectionString: proxy.connectionString }, { log }).send("busy", { n: 1 });
  await proxy.stop();
  expect(pauses).toHaveLength(2);
  // Between half of the pause and the whole pause, so that rejected callers don't retry at the same time.
  for (const [index, pause] of pauses.entries()) {
    expect(pause).toBeGreaterThanOrEqual(250 * 2 ** index);
    expect(pause).toBeLessThanOrEqual(500 * 2 ** index);
  }
});

test("a message that is not JSON, or a delay that the service rejects, is not sent", async () => {
  await expect(queues.send("bad", undefined)).rejects.toThrow(TypeError);
  for (const delaySeconds of [-1, 1.5, 7 * 24 * 3600])
    await expect(queues.send("bad", {}, { delaySeconds })).rejects.toThrow(RangeError);
});
