import { RestError } from "@azure/core-rest-pipeline";
import { describe, expect, test, vi } from "vitest";
import * as z from "zod";
import { type Invocation, queue } from "../../functions/declare.ts";
import { createGate } from "../../functions/gate.ts";
import { admit, type Gate, type UnauthenticatedRequest } from "../../shared/platform/http/admission.ts";
import type { Role, Tier } from "../../shared/platform/http/endpoint.ts";
import { RowChanged } from "../../shared/platform/storage/tables.ts";

/*
 * Tests of `functions/gate.ts`: the checks that run before an endpoint's handler (authentication, role, license, rate limit),
 * and the conversion of errors into problem documents. The last test is about queue handlers of `functions/declare.ts`. The
 * tests use no HTTP and no storage.
 */

const allowed = { allowed: true, limit: 0, remaining: 0, resetSeconds: 0, retryAfterSeconds: 0 };
/** A rate limiter that allows every call. */
const unlimited = { take: async () => allowed, cleanUp: async () => {} };

/** Creates checks that authenticate every caller as maria with this role, and record rejections as `maria licenseRequired`. */
function createTestGate(role: Role, tier: Tier): { gate: Gate; auditedRejections: string[] } {
  const auditedRejections: string[] = [];
  return {
    auditedRejections,
    gate: {
      checkStore: async () => {},
      authenticate: async () => ({
        username: "maria",
        role,
        credential: { kind: "session", id: "1", since: new Date() },
      }),
      tier: async () => tier,
      recordRejection: async (caller, _endpoint, code) => void auditedRejections.push(`${caller.actor} ${code}`),
      confirmations: async () => ({ stepUp: false, approval: false }),
      confirm: async () => {},
      limiter: unlimited,
      signInLimiter: unlimited,
      pace: { waitForSlot: async () => {} },
      translate: () => undefined,
    },
  };
}

describe("admission to an endpoint of the tier pro", () => {
  const proEndpoint = { method: "GET", route: "rotation", tier: "pro", access: "user" } as const;
  const request: UnauthenticatedRequest = {
    headers: new Headers({ authorization: "Bearer x" }),
    address: "x",
    requestId: "1",
    origin: undefined,
  };

  test("fails without a license, and the rejection is recorded in the audit log", async () => {
    const { gate: unlicensed, auditedRejections } = createTestGate("admin", "core");
    await expect(admit(proEndpoint, request, unlicensed, {})).rejects.toMatchObject({
      code: "licenseRequired",
      members: { requiredTier: "pro" },
    });
    expect(auditedRejections).toEqual(["maria licenseRequired"]);
  });

  test("succeeds with a license", async () => {
    const { gate } = createTestGate("user", "pro");
    expect(await admit(proEndpoint, request, gate, {})).toMatchObject({ username: "maria" });
  });

  test("reports a missing role before a missing license", async () => {
    const { gate: unlicensed } = createTestGate("operator", "core");
    const admission = admit({ ...proEndpoint, access: "admin" }, request, unlicensed, {});
    await expect(admission).rejects.toMatchObject({ code: "forbidden", members: { requiredRole: "admin" } });
  });
});

test("admission to an endpoint of the tier core needs no license", async () => {
  const endpoint = { method: "GET", route: "subscriptions", tier: "core", access: "user" } as const;
  const headers = new Headers({ authorization: "Bearer x" });
  const request = { headers, address: "x", requestId: "1", origin: undefined };
  expect(await admit(endpoint, request, createTestGate("user", "core").gate, {})).toBeDefined();
});

describe("an error of a handler", () => {
  const { translate } = createGate({} as never);

  test.each([
    ["storage does not respond", new RestError("getaddrinfo ENOTFOUND", { code: "REQUEST_SEND_ERROR" })],
    ["storage responds with 503", new RestError("busy", { statusCode: 503 })],
    ["storage responds with 500", new RestError("failed", { statusCode: 500 })],
  ])("becomes a 503 with Retry-After if %s", (_condition, error) => {
    expect(translate(error)).toMatchObject({ code: "unavailable", status: 503, headers: { "Retry-After": "10" } });
  });

  test.each([
    ["AuthorizationPermissionMismatch", "Storage Table Data Contributor"],
    ["AuthorizationFailure", "private endpoints"],
  ])("becomes a 503 that says what to do if storage denies the service: %s", (code, remedy) => {
    const problem = translate(new RestError("denied", { code, statusCode: 403 }));
    expect(problem).toMatchObject({ code: "unavailable", status: 503, headers: { "Retry-After": "10" } });
    expect(problem?.message).toContain(remedy);
  });

  test("becomes a 409 if another writer changed the row", () => {
    expect(translate(new RowChanged("Things", "p", "r"))).toMatchObject({ code: "conflict", status: 409 });
  });

  test.each([
    ["a request that storage rejects with 400", new RestError("bad filter", { statusCode: 400 })],
    ["a bug", new TypeError("x is not a function")],
    ["a thrown value that is no error", "text"],
  ])("is not converted if it is %s", (_kind, error) => {
    expect(translate(error)).toBeUndefined();
  });
});

test("sign-ins from unknown addresses are counted four at a time, and an address with a recent sign-in is not queued", async () => {
  const RECENT_ADDRESS = "203.0.113.9";
  const startedCounts: string[] = [];
  const finishCount: (() => void)[] = [];
  /** Stands in for the count of a sign-in. Does not finish until the test calls its function in `finishCount`. */
  const take = async (caller: string) => {
    startedCounts.push(caller);
    await new Promise<void>((resolve) => finishCount.push(resolve));
    return allowed;
  };
  const recentAddresses = { has: (address: string) => address === RECENT_ADDRESS, add: () => {} };
  const { signInLimiter } = createGate({ access: { recentAddresses }, signInLimiter: { ...unlimited, take } } as never);
  const unknownAddresses = ["a", "b", "c", "d", "e", "f"];
  const decisions = unknownAddresses.map((address) => signInLimiter.take(`address:${address}`));
  // Only a key with the prefix `address:` identifies an address. A user whose name looks like the address is queued.
  decisions.push(signInLimiter.take(`address:${RECENT_ADDRESS}`), signInLimiter.take(`user:${RECENT_ADDRESS}`));
  await new Promise(setImmediate);
  expect(startedCounts.toSorted()).toEqual([
    `address:${RECENT_ADDRESS}`,
    "address:a",
    "address:b",
    "address:c",
    "address:d",
  ]);
  for (let finish = finishCount.shift(); finish !== undefined; finish = finishCount.shift()) {
    finish();
    await new Promise(setImmediate);
  }
  expect(await Promise.all(decisions)).toEqual(decisions.map(() => allowed));
  expect(startedCounts.slice(5)).toEqual(["address:e", "address:f", `user:${RECENT_ADDRESS}`]);
});

/*
 * The pace delays rejected requests, which a client could otherwise repeat in a tight loop: each request waits for a slot, and
 * one slot starts every 10 ms. At most 100 requests wait. Further requests are answered at once.
 */
test("of 150 concurrent requests, 100 wait for a slot of the pace", async () => {
  // The clock of the pace stands still, so that no slot starts while the requests arrive.
  vi.useFakeTimers({ toFake: ["performance"] });
  try {
    const { pace } = createGate({} as never);
    let answeredRequests = 0;
    const waits = Array.from({ length: 150 }, () => pace.waitForSlot().then(() => answeredRequests++));
    await waits.at(-1);
    // The first request takes the free slot. The last 49 requests don't wait, because 100 requests wait already.
    expect(answeredRequests).toBe(50);
    await Promise.all(waits);
  } finally {
    vi.useRealTimers();
  }
});

describe("a queue's handler", () => {
  const handledMessages: unknown[] = [];
  const declaredQueue = queue({
    name: "test",
    queue: "test",
    message: z.object({ scanId: z.string() }),
    handle: async (message) => void handledMessages.push(message),
  });

  test("receives only messages that match its schema, without unknown members", async () => {
    const failedMessages = { handleDelivery: (_: unknown, run: () => Promise<void>) => run() };
    const invocation = { delivery: 1, services: { failedMessages } } as unknown as Invocation;
    await declaredQueue.handle({ scanId: "1", more: true }, invocation);
    expect(handledMessages).toEqual([{ scanId: "1" }]);
    for (const invalidMessage of [undefined, "text", {}, { scanId: 1 }]) {
      await expect(declaredQueue.handle(invalidMessage, invocation)).rejects.toThrow();
    }
    expect(handledMessages).toHaveLength(1);
  });
});
