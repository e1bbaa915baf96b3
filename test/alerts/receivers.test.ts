import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { Service } from "../support/service.ts";

/** More than the host handles at once. */
const RULES = 34;

let service: Service;
const stops: (() => void)[] = [];
beforeAll(async () => {
  const vaults = [{ name: "kv-a", secrets: [{ name: "old", expiresInDays: -2 }] }];
  service = await Service.start({
    company: { subscriptions: [{ name: "Main", vaults }] },
    env: { ALLOW_PRIVATE_WEBHOOK_ADDRESSES: "true" },
  });
  expect((await service.scan()).status).toBe("completed");
});
afterAll(() => service?.stop());
afterEach(() => {
  for (const stop of stops.splice(0)) stop();
});

interface Receiver {
  url: string;
  /** The delivery ids of all posts, in their order. */
  posts: string[];
}

/** A receiver of webhooks on a port of its own. */
async function receiver(answer: (request: IncomingMessage, response: ServerResponse) => void): Promise<Receiver> {
  const posts: string[] = [];
  const server = createServer((request, response) => {
    posts.push(String(request.headers["webhook-id"]));
    answer(request, response);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  stops.push(() => {
    server.closeAllConnections();
    server.close();
  });
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/hook`, posts };
}

async function rule(name: string, { url }: Receiver): Promise<void> {
  const body = { name, alertType: "expired", deliveryMethod: "webhook", webhookUrl: url };
  const made = await service.admin("POST", "/alerts/rules", body);
  expect(made.status, made.text).toBe(201);
}

/** Evaluates 34 rules with one receiver, and after them a rule with another one. */
async function evaluate(name: string, bad: Receiver, good: Receiver) {
  const names = Array.from({ length: RULES }, (_, index) => `${name} ${index}`);
  for (const one of names) await rule(one, bad);
  await rule(`beside ${name}`, good);
  const fired = await fetch(`${service.url}/__host/timers/evaluateAlerts`, { method: "POST" });
  expect(await fired.json()).toMatchObject({ succeeded: true });
}

// biome-ignore lint/suspicious/noExplicitAny: a test says what it expects by looking
const deliveries = async (name: string): Promise<any[]> =>
  (await service.all("/alerts/history")).filter(({ ruleName }) => ruleName.startsWith(name));

const POLL = { timeout: 120_000, interval: 50 };

test("a receiver that hangs holds four places of the host, delays no other receiver, and misses nothing", async () => {
  const held = new Set<ServerResponse>();
  const accepted: string[] = [];
  let most = 0;
  let hangs = true;
  const bad = await receiver((request, response) => {
    if (!hangs) {
      accepted.push(String(request.headers["webhook-id"]));
      response.end();
      return;
    }
    held.add(response);
    most = Math.max(most, held.size);
    response.once("close", () => held.delete(response));
  });
  const good = await receiver((_, response) => response.end());
  await evaluate("hanging", bad, good);
  await expect.poll(() => good.posts.length, POLL).toBe(1);
  // Had the good receiver waited for the others, each of them would have been tried first.
  expect(bad.posts.length).toBeLessThanOrEqual(RULES / 2);
  expect((await deliveries("hanging")).map(({ status }) => status)).toEqual(Array(RULES).fill("pending"));
  const tried = new Set(bad.posts);
  expect(tried.size).toBeGreaterThan(0);
  expect(most).toBeLessThanOrEqual(4);

  hangs = false;
  for (const response of held) response.destroy();
  // On a slow machine some were held twice, and wait for five minutes now.
  const isOver = ({ status, attempts }: { status: string; attempts: number }) => status === "delivered" || attempts > 1;
  await expect.poll(async () => (await deliveries("hanging")).filter(isOver).length, POLL).toBe(RULES);
  const ended = await deliveries("hanging");
  const delivered = ended.filter(({ status }) => status === "delivered").map(({ id }) => id);
  expect(delivered.length).toBeGreaterThanOrEqual(RULES / 2);
  expect(accepted.toSorted()).toEqual(delivered.toSorted());
  for (const { id, attempts } of ended) expect(attempts).toBe(bad.posts.filter((post) => post === id).length);
  expect((await deliveries("beside hanging")).map(({ status, attempts }) => [status, attempts])).toEqual([
    ["delivered", 1],
  ]);
  const entries = await service.all("/audit/entries?event_type=alert.sent");
  expect(entries.filter(({ outcome }) => outcome === "intent")).toHaveLength(RULES + 1);
  expect(entries.filter(({ outcome }) => outcome === "success")).toHaveLength(delivered.length + 1);
});

test("a receiver that answers 101 takes no place of the host for good", async () => {
  const bad = await receiver((_, response) => {
    response.socket!.write("HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: other\r\n\r\n");
  });
  const good = await receiver((_, response) => response.end());
  await evaluate("switching", bad, good);
  await expect.poll(() => new Set(bad.posts).size, POLL).toBe(RULES);
  await expect.poll(() => good.posts.length, POLL).toBe(1);
  const pending = await deliveries("switching");
  expect(pending.map(({ status }) => status)).toEqual(Array(RULES).fill("pending"));
});
