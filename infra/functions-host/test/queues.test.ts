import { once } from "node:events";
import { type AddressInfo, connect, createServer } from "node:net";
import { QueueServiceClient } from "@azure/storage-queue";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { openStorage, type TestStorage } from "../../../test/support/storage.ts";
import { type RunningHost, runHost } from "./run-host.ts";

// Every test starts processes: time for a machine that is busy with others.
const PATIENTLY = { timeout: 150_000 };

let azurite: TestStorage;
let service: QueueServiceClient;
let host: RunningHost | undefined;
let tests = 0;
let prefix = "";

beforeAll(async () => {
  azurite = await openStorage(["hostqueues"]);
  service = QueueServiceClient.fromConnectionString(azurite.connectionString());
});
afterAll(() => azurite.stop());
afterEach(async () => {
  await host?.stop("SIGKILL");
  host = undefined;
});

const packed = (text: string) => Buffer.from(text).toString("base64");

async function start(settings: { args?: string[]; env?: Record<string, string> } = {}): Promise<RunningHost> {
  host = await runHost({
    ...settings,
    env: { PREFIX: prefix, WORK: azurite.connectionString(), ...settings.env },
  });
  return host;
}

/** Returns the queue of this test. */
async function queueOf(name: string) {
  tests += 1;
  prefix = `t${tests}`;
  const queue = service.getQueueClient(`${prefix}-${name}`);
  await queue.create();
  return { queue, poison: service.getQueueClient(`${prefix}-${name}-poison`) };
}

async function peek(queue: ReturnType<typeof service.getQueueClient>): Promise<string[]> {
  if (!(await queue.exists())) return [];
  const { peekedMessageItems } = await queue.peekMessages({ numberOfMessages: 32 });
  return peekedMessageItems.map(({ messageText }) => messageText);
}
const count = async (queue: ReturnType<typeof service.getQueueClient>) =>
  (await queue.getProperties()).approximateMessagesCount;

describe("a queue message", () => {
  it("reaches its function decoded and with parsed JSON and metadata, and is deleted", async () => {
    const { queue } = await queueOf("takes");
    const { messageId } = await queue.sendMessage(packed('{"a":1}'));
    const running = await start();
    const [seen] = await running.saw<{ message: unknown; metadata: Record<string, unknown> }>("takes", 1);
    expect(seen?.message).toEqual({ a: 1 });
    expect(seen?.metadata).toMatchObject({ id: messageId, dequeueCount: 1, queueTrigger: { a: 1 } });
    expect(Object.keys(seen!.metadata).sort()).toEqual(
      ["dequeueCount", "expirationTime", "id", "insertionTime", "nextVisibleTime", "popReceipt", "queueTrigger"].sort(),
    );
    await expect.poll(() => count(queue), PATIENTLY).toBe(0);
  });

  it("is delivered again after a failure and moved to the poison queue after maxDequeueCount failures", async () => {
    const { queue, poison } = await queueOf("fails");
    await queue.sendMessage(packed("text"));
    const running = await start();
    const seen = await running.saw("fails", 2);
    expect(seen).toEqual([
      { message: "text", dequeueCount: 1 },
      { message: "text", dequeueCount: 2 },
    ]);
    await expect.poll(() => peek(poison), PATIENTLY).toEqual([packed("text")]);
    await expect.poll(() => count(queue), PATIENTLY).toBe(0);
  });

  it("is moved to the poison queue without a run when it is not base64 or was received too often", async () => {
    const { queue, poison } = await queueOf("takes");
    await queue.sendMessage(packed("received too often"));
    for (let i = 0; i < 2; i += 1) await queue.receiveMessages({ visibilityTimeout: 1 }).then(waitUntilVisible(queue));
    await queue.sendMessage("not base64!");
    const running = await start();
    await expect
      .poll(async () => (await peek(poison)).sort(), PATIENTLY)
      .toEqual([packed("received too often"), "not base64!"].sort());
    expect(running.lines.some((line) => line.startsWith('{"saw":"takes"'))).toBe(false);
  });

  it("stays invisible for longer than the lease, because the host renews the lease", async () => {
    const { queue } = await queueOf("slowly");
    await queue.sendMessage(packed("long"));
    const running = await start({ args: ["--lease", "2"], env: { SLOW_MS: "4500" } });
    await running.line((line) => line.includes("Executed 'Functions.slowly'"));
    expect(await running.saw("slowly", 1)).toHaveLength(1);
    await expect.poll(() => count(queue), PATIENTLY).toBe(0);
  });

  it("is delivered again when its host was killed", async () => {
    const { queue } = await queueOf("slowly");
    await queue.sendMessage(packed("once more"));
    const first = await start({ args: ["--lease", "1"], env: { SLOW_MS: "60000" } });
    await first.saw("slowly", 1);
    await first.stop("SIGKILL");
    const second = await start({ args: ["--lease", "1"] });
    expect(await second.saw("slowly", 1)).toEqual([{ message: "once more", running: 1 }]);
  });

  it("is received from a queue that is created later", async () => {
    tests += 1;
    prefix = `t${tests}`;
    const running = await start();
    const queue = service.getQueueClient(`${prefix}-takes`);
    await queue.create();
    await queue.sendMessage(packed("late"));
    expect(await running.saw("takes", 1)).toMatchObject([{ message: "late" }]);
  });

  it("can be sent through the admin route", async () => {
    await queueOf("takes");
    const running = await start();
    const answer = await fetch(`${running.url}/admin/functions/takes`, {
      method: "POST",
      body: JSON.stringify({ input: "by hand" }),
    });
    expect(answer.status).toBe(202);
    expect(await running.saw("takes", 1)).toMatchObject([{ message: "by hand" }]);
  });
});

it("runs with at most batchSize + newBatchThreshold messages at once", async () => {
  const { queue } = await queueOf("slowly");
  for (let i = 0; i < 8; i += 1) await queue.sendMessage(packed(String(i)));
  // Long enough that the next messages are fetched while one still runs.
  const running = await start({ env: { SLOW_MS: "250" } });
  const seen = await running.saw<{ running: number }>("slowly", 8);
  expect(Math.max(...seen.map((each) => each.running))).toBe(3);
});

it("is retried while storage is unreachable, with one log entry, and processed when storage is back", async () => {
  const { queue } = await queueOf("takes");
  const storage = new URL(service.url);
  let down = true;
  const proxy = createServer((socket) => {
    if (down) return socket.destroy();
    const upstream = connect(Number(storage.port), storage.hostname);
    for (const end of [socket, upstream]) end.on("error", () => end.destroy());
    return socket.pipe(upstream).pipe(socket);
  });
  proxy.listen(0, "127.0.0.1");
  await once(proxy, "listening");
  const { port } = proxy.address() as AddressInfo;
  const running = await start({ env: { WORK: azurite.connectionString().replaceAll(storage.port, String(port)) } });
  await running.line((line) => line.includes(`Cannot read the queue '${queue.name}'`));
  expect((await fetch(`${running.url}/plain`)).status).toBe(200);
  down = false;
  await queue.sendMessage(packed("at last"));
  expect(await running.saw("takes", 1)).toMatchObject([{ message: "at last" }]);
  expect(running.lines.filter((line) => line.includes(`Cannot read the queue '${queue.name}'`))).toHaveLength(1);
  proxy.close();
});

const waitUntilVisible = (queue: ReturnType<typeof service.getQueueClient>) => () =>
  expect.poll(() => peek(queue), PATIENTLY).toHaveLength(1);
