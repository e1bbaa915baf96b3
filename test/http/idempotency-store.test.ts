import { createHash } from "node:crypto";
import { TableClient } from "@azure/data-tables";
import { afterAll, beforeAll, expect, test } from "vitest";
import { createIdempotencyStore } from "../../shared/platform/http/idempotency.ts";
import { systemRandomness } from "../../shared/platform/runtime.ts";
import { createTables } from "../../shared/platform/storage/tables.ts";
import { HOUR_MS, MINUTE_MS } from "../../shared/platform/time.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";

// Tests of the rows of requests with an `Idempotency-Key`, with a clock that the test moves.

const KEYS = [{ key: new Uint8Array(32).fill(1) }];
let azurite: TestStorage;
beforeAll(async () => {
  azurite = await openStorage();
});
afterAll(() => azurite.stop());

/**
 * Opens the store as a process does whose clock is `aheadMs` ahead. All rows are older by that time, too.
 *
 * @param afterPage - Awaited after each page of rows that the process reads.
 */
function openStore(aheadMs = 0, keys = KEYS, afterPage = async () => {}) {
  const tables = createTables({ connectionString: azurite.connectionString() });
  return createIdempotencyStore({
    tables: {
      ...tables,
      getWithAge: async (e, partitionKey, rowKey) => {
        const row = await tables.getWithAge(e, partitionKey, rowKey);
        return row && { ...row, ageMs: row.ageMs + aheadMs };
      },
      pages: async function* (...args: Parameters<typeof tables.pages>) {
        for await (const page of tables.pages(...args)) {
          await afterPage();
          yield page;
        }
      } as never, // TypeScript can't infer that the generator has the generic type of `pages`.
    },
    config: { JWT_SIGNING_KEYS: keys },
    clock: { now: () => new Date(Date.now() + aheadMs) },
    randomness: systemRandomness(),
  });
}

const request = (key: string, body: unknown = { name: "one" }) => ({
  caller: "maria",
  key,
  requestId: "request-1",
  content: ["createThing", undefined, undefined, body],
});

async function reserve(key: string) {
  const begun = await openStore().begin(request(key));
  if ("result" in begun) throw new Error("The key has a result.");
  return begun.reserved;
}

test("a request whose process crashed is never run again, and is reported as unknown after 31 minutes", async () => {
  await reserve("crashed");
  await expect(openStore(30 * MINUTE_MS).begin(request("crashed"))).rejects.toMatchObject({
    code: "requestInProgress",
    headers: { "Retry-After": "5" },
  });
  for (const aheadMs of [32 * MINUTE_MS, 23 * HOUR_MS])
    await expect(openStore(aheadMs).begin(request("crashed"))).rejects.toMatchObject({
      code: "outcomeUnknown",
      members: { requestId: "request-1" },
    });
});

test("a request that failed and may have taken effect is reported as unknown at once", async () => {
  await openStore().markUnknown(await reserve("failed"));
  await expect(openStore().begin(request("failed"))).rejects.toMatchObject({ code: "outcomeUnknown" });
});

test("a result is kept for 24 hours, also if the signing key was renewed", async () => {
  const result = { status: 201, resourceId: "one", location: "/things/one" };
  await openStore().complete(await reserve("kept"), result);
  const renewed = [{ key: new Uint8Array(32).fill(2) }, ...KEYS];
  expect(await openStore(23 * HOUR_MS, renewed).begin(request("kept"))).toEqual({ result });
  await expect(openStore().begin(request("kept", { name: "two" }))).rejects.toMatchObject({
    code: "idempotencyKeyReused",
  });
  await openStore(23 * HOUR_MS).cleanUp();
  expect(await openStore().begin(request("kept"))).toEqual({ result });
  // Afterwards the key is free, whether the timer has run or not.
  expect(await openStore(25 * HOUR_MS).begin(request("kept"))).toMatchObject({ reserved: { state: "running" } });
  await openStore(50 * HOUR_MS).cleanUp();
  expect(await openStore().begin(request("kept", { name: "two" }))).toMatchObject({ reserved: { state: "running" } });
});

test("a row stores neither the key, the caller, the body nor its secret, and no digest that could be guessed", async () => {
  const secret = "value-that-is-stored-nowhere";
  const body = { name: "a name of the body", clientSecret: secret };
  const { key } = request("a-key-of-the-caller");
  const begun = await openStore().begin(request(key, body));
  if ("result" in begun) throw new Error("The key has a result.");
  await openStore().complete(begun.reserved, { status: 201, resourceId: "one", location: "/things/one" });
  const { rowKey } = begun.reserved;
  const table = TableClient.fromConnectionString(azurite.connectionString(), "IdempotencyKeys", {
    allowInsecureConnection: true,
  });
  const stored = await table.getEntity<Record<string, unknown>>(begun.reserved.partitionKey, rowKey);
  const text = JSON.stringify(stored);
  expect(text).toContain("/things/one");
  // Someone who guesses the content could compare a digest without a key, so the row must not contain any of these.
  const content = JSON.stringify(["maria", ...request(key, body).content.map((part) => part ?? null)]);
  const digests = [content, `idempotency\0${content}`, secret, JSON.stringify(body)].flatMap((given) => {
    const digest = createHash("sha256").update(given).digest();
    return [digest.toString("base64url"), digest.toString("base64"), digest.toString("hex")];
  });
  for (const absent of [secret, body.name, key, "maria", ...digests]) expect(text).not.toContain(absent);
});

test("a key that is reserved again while expired rows are removed stays reserved", async () => {
  await reserve("reserved-again");
  const again = async () => void (await openStore(25 * HOUR_MS).begin(request("reserved-again")));
  await openStore(25 * HOUR_MS, KEYS, again).cleanUp();
  await expect(openStore(25 * HOUR_MS).begin(request("reserved-again"))).rejects.toMatchObject({
    code: "outcomeUnknown",
  });
});

test("one of five processes that begin a request at the same time reserves the key", async () => {
  const begun = await Promise.allSettled(Array.from({ length: 5 }, () => openStore().begin(request("contended"))));
  expect(begun.filter(({ status }) => status === "fulfilled")).toHaveLength(1);
  for (const one of begun)
    if (one.status === "rejected") expect(one.reason).toMatchObject({ code: "requestInProgress" });
});

test("a released key is free", async () => {
  await openStore().release(await reserve("released"));
  expect(await openStore().begin(request("released", { name: "two" }))).toMatchObject({ reserved: {} });
});
