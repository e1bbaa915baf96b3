import { afterAll, beforeAll, expect, test } from "vitest";
import * as z from "zod";
import type { Gate } from "../../shared/platform/http/admission.ts";
import type { Endpoint, Role } from "../../shared/platform/http/endpoint.ts";
import { createIdempotencyStore } from "../../shared/platform/http/idempotency.ts";
import { serve } from "../../shared/platform/http/pipeline.ts";
import { Problem } from "../../shared/platform/http/problem.ts";
import { created } from "../../shared/platform/http/reply.ts";
import { systemClock, systemRandomness } from "../../shared/platform/runtime.ts";
import { entity } from "../../shared/platform/storage/entity.ts";
import { createTables } from "../../shared/platform/storage/tables.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";

// Tests of what the pipeline does with an `Idempotency-Key`, with an endpoint whose effect each test chooses.

const LOG = { debug() {}, info() {}, warn() {}, error() {} };
const allowed = { allowed: true, limit: 0, remaining: 0, resetSeconds: 0, retryAfterSeconds: 0 };
const unlimited = { take: async () => allowed, cleanUp: async () => {} };

let azurite: TestStorage;
let keyCount = 0;
beforeAll(async () => {
  azurite = await openStorage();
});
afterAll(() => azurite.stop());

const Things = entity("Things", z.object({ text: z.string() }));
const tables = () => createTables({ connectionString: azurite.connectionString() });
const write = () => tables().put(Things, "things", "one", { text: "one" });

/** Names of the things for which the endpoint ran. */
const effects: string[] = [];

const endpointWith = (name: string, effect: () => Promise<void>) =>
  ({
    name,
    method: "POST",
    route: "things/{name}",
    summary: "",
    tag: "",
    access: "admin",
    tier: "core",
    params: z.object({ name: z.string() }),
    responds: { 201: z.object({ id: z.string() }) },
    repeat: { idOf: ({ id }) => id, answer: async ({ id }) => ({ id }) },
    async handle({ params }) {
      effects.push(params.name);
      await effect();
      return created({ id: params.name }, `/things/${params.name}`);
    },
  }) satisfies Endpoint<object>;

/** Sends a request of Maria. Returns its status, and the code of its problem, or whether it was a repeat. */
async function send(
  key: string,
  {
    name = "one",
    endpoint = "createThing",
    role = "admin" as Role,
    effect = async () => {},
  }: { name?: string; endpoint?: string; role?: Role; effect?: () => Promise<void> } = {},
): Promise<[status: number, codeOrReplayed: string | undefined]> {
  const deps = { clock: systemClock, randomness: systemRandomness() };
  const gate: Gate = {
    checkStore: async () => {},
    authenticate: async () => ({
      username: "maria",
      role,
      credential: { kind: "session", id: "1", since: new Date() },
    }),
    tier: async () => "pro",
    recordRejection: async () => {},
    confirmations: async () => ({ stepUp: false, approval: false }),
    confirm: async () => {},
    idempotency: createIdempotencyStore({
      ...deps,
      tables: tables(),
      config: { JWT_SIGNING_KEYS: [{ key: new Uint8Array(32).fill(1) }] },
    }),
    limiter: unlimited,
    signInLimiter: unlimited,
    pace: { waitForSlot: async () => {} },
    translate: () => undefined,
  };
  const { status, headers, body } = await serve(
    async () => endpointWith(endpoint, effect),
    {
      method: "POST",
      url: `https://lifecycle.acme.example/things/${name}`,
      headers: new Headers({ authorization: "Bearer x", "idempotency-key": key }),
      params: { name },
      bytes: async () => new Uint8Array(),
    },
    {
      ...deps,
      loadServices: async () => ({ gate, services: {} }),
      trustedProxyHops: 0,
      publicBaseUrl: undefined,
      log: LOG,
      within: (_requestId, work) => work(),
    },
  );
  return [status, headers["Idempotency-Replayed"] ?? (JSON.parse(String(body)).code as string | undefined)];
}

function newKey(): string {
  effects.length = 0;
  return `key-${++keyCount}`;
}
const failing = (error: Error) => async () => {
  throw error;
};

test("a request that sent a change and fails without a clear outcome is not run again", async () => {
  const key = newKey();
  const effect = async () => {
    await write();
    throw new Error("The connection was lost.");
  };
  expect(await send(key, { effect })).toEqual([500, "internal"]);
  expect(await send(key)).toEqual([409, "outcomeUnknown"]);
  expect(effects).toEqual(["one"]);
});

test("a request that fails before it sent any change is run again", async () => {
  const key = newKey();
  const effect = async () => {
    await tables().get(Things, "things", "one");
    throw new Error("The row can't be read.");
  };
  expect(await send(key, { effect })).toEqual([500, "internal"]);
  expect(await send(key)).toEqual([201, undefined]);
  expect(effects).toEqual(["one", "one"]);
});

test("a rejected request is run again", async () => {
  const key = newKey();
  const problem = new Problem("alreadyExists", "The thing exists.");
  expect(await send(key, { effect: failing(problem) })).toEqual([409, "alreadyExists"]);
  expect(await send(key)).toEqual([201, undefined]);
  expect(await send(key)).toEqual([201, "true"]);
  expect(effects).toEqual(["one", "one"]);
});

test("a key belongs to the endpoint and the parameters of its first request", async () => {
  const key = newKey();
  expect(await send(key)).toEqual([201, undefined]);
  expect(await send(key, { name: "two" })).toEqual([422, "idempotencyKeyReused"]);
  expect(await send(key, { endpoint: "removeThing" })).toEqual([422, "idempotencyKeyReused"]);
  expect(effects).toEqual(["one"]);
});

test("a caller whose role was taken away gets no earlier answer", async () => {
  const key = newKey();
  expect(await send(key)).toEqual([201, undefined]);
  expect(await send(key, { role: "user" })).toEqual([403, "forbidden"]);
});
