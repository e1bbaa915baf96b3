import { RestError } from "@azure/core-rest-pipeline";
import { describe, expect, test, vi } from "vitest";
import * as z from "zod";
import { type Invocation, queue } from "../../functions/declare.ts";
import { createGate } from "../../functions/gate.ts";
import { admit, type Gate, type UnauthenticatedRequest } from "../../shared/platform/http/admission.ts";
import type { Role, Tier } from "../../shared/platform/http/endpoint.ts";
import { RowChanged } from "../../shared/platform/storage/tables.ts";

const allowed = { allowed: true, limit: 0, remaining: 0, resetSeconds: 0, retryAfterSeconds: 0 };
const limiter = { take: async () => allowed, cleanUp: async () => {} };

function gate(role: Role, tier: Tier): { gate: Gate; refusals: string[] } {
  const refusals: string[] = [];
  return {
    refusals,
    gate: {
      authenticate: async () => ({
        username: "maria",
        role,
        credential: { kind: "session", id: "1", since: new Date() },
      }),
      tier: async () => tier,
      recordRejection: async (caller, _endpoint, code) => void refusals.push(`${caller.actor} ${code}`),
      limiter,
      signInLimiter: limiter,
      pace: { waitForSlot: async () => {} },
      translate: () => undefined,
    },
  };
}

describe("an endpoint of the tier pro", () => {
  const endpoint = { method: "GET", route: "rotation", tier: "pro", access: "user" } as const;
  const arrival: UnauthenticatedRequest = {
    headers: new Headers({ authorization: "Bearer x" }),
    address: "x",
    requestId: "1",
    origin: undefined,
  };

  test("is rejected without a license, which is recorded in the audit log", async () => {
    const { gate: core, refusals } = gate("admin", "core");
    await expect(admit(endpoint, arrival, core, {})).rejects.toMatchObject({
      code: "licenseRequired",
      members: { requiredTier: "pro" },
    });
    expect(refusals).toEqual(["maria licenseRequired"]);
  });

  test("is available with a license, after the check of the role", async () => {
    expect(await admit(endpoint, arrival, gate("user", "pro").gate, {})).toMatchObject({ username: "maria" });
    const refused = admit({ ...endpoint, access: "admin" }, arrival, gate("operator", "core").gate, {});
    await expect(refused).rejects.toMatchObject({ code: "forbidden", members: { requiredRole: "admin" } });
  });

  test("needs no license in the tier core", async () => {
    expect(await admit({ ...endpoint, tier: "core" }, arrival, gate("user", "core").gate, {})).toBeDefined();
  });
});

describe("an expected error", () => {
  const { translate } = createGate({} as never);

  test.each([
    ["no answer of storage at all", new RestError("getaddrinfo ENOTFOUND", { code: "REQUEST_SEND_ERROR" })],
    ["storage that is busy", new RestError("busy", { statusCode: 503 })],
    ["storage that fails", new RestError("failed", { statusCode: 500 })],
  ])("is answered as unavailable: %s", (_what, error) => {
    const problem = translate(error);
    expect(problem).toMatchObject({ code: "unavailable", status: 503, headers: { "Retry-After": "10" } });
  });

  test("is answered as a conflict if another writer was faster", () => {
    expect(translate(new RowChanged("Things", "p", "r"))).toMatchObject({ code: "conflict", status: 409 });
  });

  test.each([
    ["a request of ours that storage refuses", new RestError("bad filter", { statusCode: 400 })],
    ["a mistake in the program", new TypeError("x is not a function")],
    ["no error at all", "text"],
  ])("does not convert %s", (_what, error) => {
    expect(translate(error)).toBeUndefined();
  });
});

test("four sign-ins are counted at once, and an address with a recent sign-in does not wait behind the others", async () => {
  const started: string[] = [];
  const ends: (() => void)[] = [];
  const take = async (caller: string) => {
    started.push(caller);
    await new Promise<void>((resolve) => ends.push(resolve));
    return allowed;
  };
  const recentAddresses = { has: (address: string) => address === "203.0.113.9", add: () => {} };
  const { signInLimiter } = createGate({ access: { recentAddresses }, signInLimiter: { ...limiter, take } } as never);
  const unknownClients = ["a", "b", "c", "d", "e", "f"];
  const answers = unknownClients.map((one) => signInLimiter.take(`address:${one}`));
  answers.push(signInLimiter.take("address:203.0.113.9"), signInLimiter.take("user:203.0.113.9"));
  await new Promise(setImmediate);
  expect(started.toSorted()).toEqual(["address:203.0.113.9", "address:a", "address:b", "address:c", "address:d"]);
  for (let end = ends.shift(); end !== undefined; end = ends.shift()) {
    end();
    await new Promise(setImmediate);
  }
  expect(await Promise.all(answers)).toEqual(answers.map(() => allowed));
  expect(started.slice(5)).toEqual(["address:e", "address:f", "user:203.0.113.9"]);
});

test("at most 100 callers wait for an answer that is cheap to repeat, and a further caller does not wait", async () => {
  vi.useFakeTimers({ toFake: ["performance"] });
  try {
    const { pace } = createGate({} as never);
    let over = 0;
    const turns = Array.from({ length: 150 }, () => pace.waitForSlot().then(() => over++));
    // One caller has its slot, and 49 callers find a hundred slots taken.
    await turns.at(-1);
    expect(over).toBe(50);
    await Promise.all(turns);
  } finally {
    vi.useRealTimers();
  }
});

describe("a queue's handler", () => {
  const seen: unknown[] = [];
  const declared = queue({
    name: "test",
    queue: "test",
    message: z.object({ scanId: z.string() }),
    handle: async (message) => void seen.push(message),
  });

  test("receives only messages that match its schema", async () => {
    await declared.handle({ scanId: "1", more: true }, {} as Invocation);
    expect(seen).toEqual([{ scanId: "1" }]);
    for (const garbage of [undefined, "text", {}, { scanId: 1 }]) {
      await expect(declared.handle(garbage, {} as Invocation)).rejects.toThrow();
    }
    expect(seen).toHaveLength(1);
  });
});
