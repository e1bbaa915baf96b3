import { once } from "node:events";
import { type AddressInfo, connect, createServer } from "node:net";
import { QueueServiceClient } from "@azure/storage-queue";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { openStorage, type TestStorage } from "../../../test/support/storage.ts";
import { type RunningHost, runHost } from "./run-host.ts";

// Tests the queue triggers of the local Functions host. Each test starts host processes that run the app in `fixture-app`,
// against a storage emulator. The settings of host.json that the tests expect are in `fixture-app/host.json`.

/** `batchSize` (2) + `newBatchThreshold` (1) of the fixture app's host.json. */
const MAX_RUNNING_MESSAGES = 3;
/** Long enough for a machine that runs many tests at once. */
const POLL_OPTIONS = { timeout: 150_000 };

let azurite: TestStorage;
let service: QueueServiceClient;
let host: RunningHost | undefined;
let testCount = 0;
/** Each test uses queues with a prefix of its own. The fixture app reads the prefix from the setting PREFIX. */
let queuePrefix = "";

beforeAll(async () => {
  azurite = await openStorage(["hostqueues"]);
  service = QueueServiceClient.fromConnectionString(azurite.connectionString());
});
afterAll(() => azurite.stop());
afterEach(async () => {
  await host?.stop("SIGKILL");
  host = undefined;
});

const toBase64 = (text: string) => Buffer.from(text).toString("base64");

/** Starts a host whose fixture app reads the queues of this test. */
async function start(settings: { args?: string[]; env?: Record<string, string> } = {}): Promise<RunningHost> {
  host = await runHost({
    ...settings,
    env: { PREFIX: queuePrefix, WORK: azurite.connectionString(), ...settings.env },
  });
  return host;
}

/** Creates the queue of the fixture app's function `name` for one test. Its poison queue does not exist yet. */
async function createTestQueue(name: string) {
  testCount += 1;
  queuePrefix = `t${testCount}`;
  const queue = service.getQueueClient(`${queuePrefix}-${name}`);
  await queue.create();
  return { queue, poison: service.getQueueClient(`${queuePrefix}-${name}-poison`) };
}

async function peekTexts(queue: ReturnType<typeof service.getQueueClient>): Promise<string[]> {
  if (!(await queue.exists())) return [];
  const { peekedMessageItems } = await queue.peekMessages({ numberOfMessages: 32 });
  return peekedMessageItems.map(({ messageText }) => messageText);
}
const messageCount = async (queue: ReturnType<typeof service.getQueueClient>) =>
  (await queue.getProperties()).approximateMessagesCount;

describe("a queue message", () => {
  it("reaches its function as parsed JSON with metadata, and is deleted", async () => {
    const { queue } = await createTestQueue("takes");
    const { messageId } = await queue.sendMessage(toBase64('{"a":1}'));
    const running = await start();
    const [reports] = await running.waitForReports<{ message: unknown; metadata: Record<string, unknown> }>("takes", 1);
    expect(reports?.message).toEqual({ a: 1 });
    expect(reports?.metadata).toMatchObject({ id: messageId, dequeueCount: 1, queueTrigger: { a: 1 } });
    expect(Object.keys(reports!.metadata).sort()).toEqual(
      ["dequeueCount", "expirationTime", "id", "insertionTime", "nextVisibleTime", "popReceipt", "queueTrigger"].sort(),
    );
    await expect.poll(() => messageCount(queue), POLL_OPTIONS).toBe(0);
  });

  it("moves to the poison queue after it failed maxDequeueCount times", async () => {
    const { queue, poison } = await createTestQueue("fails");
    await queue.sendMessage(toBase64("text"));
    const running = await start();
    const reports = await running.waitForReports("fails", 2);
    expect(reports).toEqual([
      { message: "text", dequeueCount: 1 },
      { message: "text", dequeueCount: 2 },
    ]);
    await expect.poll(() => peekTexts(poison), POLL_OPTIONS).toEqual([toBase64("text")]);
    await expect.poll(() => messageCount(queue), POLL_OPTIONS).toBe(0);
  });

  it("moves to the poison queue without a run if it is not base64 or exceeds maxDequeueCount", async () => {
    const { queue, poison } = await createTestQueue("takes");
    await queue.sendMessage(toBase64("received too often"));
    // maxDequeueCount of the fixture app is 2, so the host receives this message for the third time.
    for (let i = 0; i < 2; i += 1) await queue.receiveMessages({ visibilityTimeout: 1 }).then(waitUntilVisible(queue));
    await queue.sendMessage("not base64!");
    const running = await start();
    await expect
      .poll(async () => (await peekTexts(poison)).sort(), POLL_OPTIONS)
      .toEqual([toBase64("received too often"), "not base64!"].sort());
    expect(running.lines.some((line) => line.startsWith('{"saw":"takes"'))).toBe(false);
  });

  it("runs only once if it takes longer than its lease, because the host renews the lease", async () => {
    const { queue } = await createTestQueue("slowly");
    await queue.sendMessage(toBase64("long"));
    const running = await start({ args: ["--lease", "2"], env: { SLOW_MS: "4500" } });
    await running.waitForLine((line) => line.includes("Executed 'Functions.slowly'"));
    expect(await running.waitForReports("slowly", 1)).toHaveLength(1);
    await expect.poll(() => messageCount(queue), POLL_OPTIONS).toBe(0);
  });

  it("is delivered again after its host was killed", async () => {
    const { queue } = await createTestQueue("slowly");
    await queue.sendMessage(toBase64("once more"));
    const first = await start({ args: ["--lease", "1"], env: { SLOW_MS: "60000" } });
    await first.waitForReports("slowly", 1);
    await first.stop("SIGKILL");
    const second = await start({ args: ["--lease", "1"] });
    expect(await second.waitForReports("slowly", 1)).toEqual([{ message: "once more", running: 1 }]);
  });

  it("is received from a queue that is created after the host started", async () => {
    testCount += 1;
    queuePrefix = `t${testCount}`;
    const running = await start();
    const queue = service.getQueueClient(`${queuePrefix}-takes`);
    await queue.create();
    await queue.sendMessage(toBase64("late"));
    expect(await running.waitForReports("takes", 1)).toMatchObject([{ message: "late" }]);
  });

  it("can be passed to its function through the admin route", async () => {
    await createTestQueue("takes");
    const running = await start();
    const answer = await fetch(`${running.url}/admin/functions/takes`, {
      method: "POST",
      body: JSON.stringify({ input: "by hand" }),
    });
    expect(answer.status).toBe(202);
    expect(await running.waitForReports("takes", 1)).toMatchObject([{ message: "by hand" }]);
  });
});

it("runs at most batchSize + newBatchThreshold messages of a queue at once", async () => {
  const { queue } = await createTestQueue("slowly");
  for (let i = 0; i < 8; i += 1) await queue.sendMessage(toBase64(String(i)));
  // Even messages take 250 ms and odd ones 1 s, so that the next messages are fetched while one still runs.
  const running = await start({ env: { SLOW_MS: "250" } });
  const reports = await running.waitForReports<{ running: number }>("slowly", 8);
  expect(Math.max(...reports.map((each) => each.running))).toBe(MAX_RUNNING_MESSAGES);
});

it("processes messages again after an outage of the storage account, which it logs once", async () => {
  const { queue } = await createTestQueue("takes");
  const storage = new URL(service.url);
  let storageIsDown = true;
  const proxy = createServer((socket) => {
    if (storageIsDown) return socket.destroy();
    const upstream = connect(Number(storage.port), storage.hostname);
    for (const end of [socket, upstream]) end.on("error", () => end.destroy());
    return socket.pipe(upstream).pipe(socket);
  });
  proxy.listen(0, "127.0.0.1");
  await once(proxy, "listening");
  const { port } = proxy.address() as AddressInfo;
  const running = await start({ env: { WORK: azurite.connectionString().replaceAll(storage.port, String(port)) } });
  await running.waitForLine((line) => line.includes(`Cannot read the queue '${queue.name}'`));
  expect((await fetch(`${running.url}/plain`)).status).toBe(200);
  storageIsDown = false;
  await queue.sendMessage(toBase64("at last"));
  expect(await running.waitForReports("takes", 1)).toMatchObject([{ message: "at last" }]);
  expect(running.lines.filter((line) => line.includes(`Cannot read the queue '${queue.name}'`))).toHaveLength(1);
  proxy.close();
});

const waitUntilVisible = (queue: ReturnType<typeof service.getQueueClient>) => () =>
  expect.poll(() => peekTexts(queue), POLL_OPTIONS).toHaveLength(1);
