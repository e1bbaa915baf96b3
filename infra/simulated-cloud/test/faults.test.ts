import { once } from "node:events";
import { type IncomingMessage, request } from "node:http";
import type { Socket } from "node:net";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { type Cloud, startCloud } from "../cloud.ts";
import { SdkClient } from "./sdk-client.ts";

// Tests the faults that a test can add to the simulated cloud, with Azure's SDK clients.

let cloud: Cloud;
let sdk: SdkClient;
beforeAll(async () => {
  cloud = await startCloud({
    company: {
      subscriptions: [{ name: "Main", vaults: [{ name: "kv-a", generate: { secrets: 30 } }, { name: "kv-b" }] }],
    },
  });
  sdk = await SdkClient.start(cloud);
});
afterEach(() => {
  cloud.control.clearFaults();
  cloud.control.resetCounts();
});
afterAll(async () => {
  await sdk?.stop();
  await cloud?.stop();
});

const matchVaultA = { vault: "kv-a" };

test("a fault skips the first `after` matching requests and then applies `times` times", async () => {
  cloud.control.addFault({
    match: { vault: "kv-a", operation: "keyvault.list*" },
    action: { kind: "fail", status: 500 },
    after: 1,
    times: 1,
  });
  expect(await sdk.call("listSecrets", "kv-a")).toHaveLength(30);
  const listRequests = cloud.control.requests({ operation: "keyvault.listSecrets" });
  expect(listRequests.map(({ status }) => status)).toEqual([200, 500, 200]);
  expect(cloud.control.faults()).toMatchObject([{ id: listRequests[1]!.fault, happened: 1 }]);
  expect(await sdk.call("listSecrets", "kv-b")).toEqual([]);
});

test.each([
  [{ kind: "deny" }, { statusCode: 403 }],
  [{ kind: "firewall" }, { statusCode: 403 }],
  [{ kind: "fail", status: 503 }, { statusCode: 503 }],
  [{ kind: "reset" }, { code: "ECONNRESET" }],
] as const)("the fault %j results in %j", async (action, failure) => {
  cloud.control.addFault({ match: matchVaultA, action });
  expect(await sdk.failure("listSecrets", "kv-a")).toMatchObject(failure);
  expect(await sdk.call("listSecrets", "kv-b")).toEqual([]);
});

test.each(["html", "truncated", "otherShape"] as const)("a garbage response (%s) makes the client fail", async (as) => {
  cloud.control.addFault({ match: matchVaultA, action: { kind: "garbage", as } });
  expect(await sdk.failure("listSecrets", "kv-a")).toBeInstanceOf(Error);
});

test("the fault loseAnswer runs the operation, but closes the connection without a response", async () => {
  cloud.control.addFault({
    match: { vault: "kv-b", operation: "keyvault.setSecret" },
    action: { kind: "loseAnswer" },
  });
  expect(await sdk.failure("setSecret", "kv-b", "kept", "value", {})).toMatchObject({ code: "ECONNRESET" });
  expect(cloud.control.secretValue("kv-b", "kept")).toBe("value");
  expect(cloud.control.remove("kv-b", "secrets", "kept")).toBe(true);
});

test("a client that follows a nextLink to a foreign host is recorded, with the fact that it sent its token", async () => {
  cloud.control.addFault({
    match: { ...matchVaultA, operation: "keyvault.listSecrets" },
    action: { kind: "foreignNextLink" },
  });
  await sdk.failure("listSecrets", "kv-a");
  expect(cloud.control.foreignRequests()[0]).toMatchObject({ host: "evil.localhost", token: true });
});

test("the fault switchProtocols responds with 101 and leaves the connection open", async () => {
  cloud.control.addFault({ action: { kind: "switchProtocols" }, match: { item: "switches" } });
  const url = new URL(cloud.controlUrl.replace("/control", "/sink/switches"));
  const call = request(url, { method: "POST" }).end("x");
  const [answer, socket] = (await once(call, "upgrade")) as [IncomingMessage, Socket];
  expect([answer.statusCode, socket.readable]).toEqual([101, true]);
  socket.destroy();
});

test("the fault hang never responds and does not block other requests", async () => {
  cloud.control.addFault({ action: { kind: "hang" }, match: { item: "hang-here" } });
  const url = cloud.controlUrl.replace("/control", "/sink/hang-here");
  await expect(fetch(url, { method: "POST", body: "x", signal: AbortSignal.timeout(50) })).rejects.toThrow("timeout");
  expect((await fetch(url.replace("hang-here", "other"), { method: "POST", body: "x" })).status).toBe(200);
});
