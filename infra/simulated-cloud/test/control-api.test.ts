import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, expect, test } from "vitest";

// Tests the HTTP API that changes and reads the state of the simulated cloud. The cloud runs as the command of main.ts.

const mainPath = fileURLToPath(new URL("../main.ts", import.meta.url));
let data: string;
let child: ChildProcess;
let url: string;
beforeAll(async () => {
  data = await mkdtemp(join(tmpdir(), "cloud-test-"));
  child = spawn(process.execPath, [mainPath, "--data", data, "--company", "small", "--ready-json"], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  const [line] = await once(createInterface({ input: child.stdout! }), "line");
  url = JSON.parse(line).controlUrl;
});
afterAll(async () => {
  if (child.exitCode === null) child.kill("SIGKILL");
  await rm(data, { recursive: true });
});

interface ControlResponse {
  status: number;
  // biome-ignore lint/suspicious/noExplicitAny: each test checks the fields that it expects
  body: any;
}

async function callControlApi(method: string, path: string, body?: unknown): Promise<ControlResponse> {
  const answer = await fetch(url + path, { method, ...(body !== undefined && { body: JSON.stringify(body) }) });
  return { status: answer.status, body: await answer.json() };
}

test("a copy in another cloud can be changed over HTTP, to see drift", async () => {
  const path = "/providers/hashicorp/kv-a/one";
  for (const value of ["changed", "changed again"])
    expect(await callControlApi("PUT", path, { value })).toEqual({ status: 200, body: { value } });
  expect((await callControlApi("PUT", "/providers/aws/kv-a/one", { value: "x" })).status).toBe(404);
});

test("vaults and secrets can be created, changed, read and deleted over HTTP", async () => {
  const { body: subscriptions } = await callControlApi("GET", "/subscriptions");
  await callControlApi("POST", `/subscriptions/${subscriptions[0].id}/vaults`, { name: "kv-http" });
  await callControlApi("POST", "/vaults/kv-http/secrets", { name: "one", expiresInDays: 1 });
  await callControlApi("PATCH", "/vaults/kv-http/secrets/one", { enabled: false });
  await callControlApi("PATCH", "/vaults/kv-http", { reach: "denied" });
  expect((await callControlApi("GET", "/vaults/kv-http/secrets")).body).toMatchObject([
    { name: "one", enabled: false },
  ]);
  const { body: vaults } = await callControlApi("GET", "/vaults");
  expect(vaults.at(-1)).toMatchObject({ name: "kv-http", reach: "denied", secrets: 1 });
  expect((await callControlApi("DELETE", "/vaults/kv-http/secrets/one")).status).toBe(200);
  expect((await callControlApi("DELETE", "/vaults/kv-http/secrets/one")).status).toBe(404);
  expect((await callControlApi("GET", "/vaults/kv-none/secrets")).status).toBe(400);
});

test("a webhook sink stores the requests that it receives, and applies faults", async () => {
  const sinkUrl = `${new URL(url).origin}/sink/hook`;
  // The fault affects only the first request to the sink `hook`.
  const { body: fault } = await callControlApi("POST", "/faults", {
    match: { item: "hook" },
    action: { kind: "throttle", retryAfterSeconds: 3 },
    times: 1,
  });
  const throttled = await fetch(sinkUrl, { method: "POST", body: "first" });
  expect([throttled.status, throttled.headers.get("retry-after")]).toEqual([429, "3"]);
  await fetch(sinkUrl, { method: "POST", body: "second", headers: { "webhook-id": "w1" } });
  expect((await callControlApi("GET", "/sink/hook")).body).toMatchObject([
    { body: "second", headers: { "webhook-id": "w1" } },
  ]);
  expect((await callControlApi("GET", "/faults")).body).toMatchObject([{ id: fault.id, happened: 1 }]);
  expect((await callControlApi("DELETE", `/faults/${fault.id}`)).status).toBe(200);
  expect((await callControlApi("GET", "/counts")).body).toMatchObject({ "sink.receive": 2 });
  expect((await callControlApi("DELETE", "/counts")).body).toEqual({ total: 0 });
});

test("SIGTERM stops the process with exit code 0", async () => {
  child.kill("SIGTERM");
  const [code] = child.exitCode === null ? await once(child, "exit") : [child.exitCode];
  expect(code).toBe(0);
});
