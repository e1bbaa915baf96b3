import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, expect, test } from "vitest";

const main = fileURLToPath(new URL("../main.ts", import.meta.url));
let data: string;
let child: ChildProcess;
let url: string;
beforeAll(async () => {
  data = await mkdtemp(join(tmpdir(), "cloud-test-"));
  child = spawn(process.execPath, [main, "--data", data, "--company", "small", "--ready-json"], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  const [line] = await once(createInterface({ input: child.stdout! }), "line");
  url = JSON.parse(line).controlUrl;
});
afterAll(async () => {
  if (child.exitCode === null) child.kill("SIGKILL");
  await rm(data, { recursive: true });
});

interface Asked {
  status: number;
  // biome-ignore lint/suspicious/noExplicitAny: a test says what it expects by looking
  body: any;
}

async function ask(method: string, path: string, body?: unknown): Promise<Asked> {
  const answer = await fetch(url + path, { method, ...(body !== undefined && { body: JSON.stringify(body) }) });
  return { status: answer.status, body: await answer.json() };
}

test("all state can be read and changed over HTTP", async () => {
  const { body: subscriptions } = await ask("GET", "/subscriptions");
  await ask("POST", `/subscriptions/${subscriptions[0].id}/vaults`, { name: "kv-http" });
  await ask("POST", "/vaults/kv-http/secrets", { name: "one", expiresInDays: 1 });
  await ask("PATCH", "/vaults/kv-http/secrets/one", { enabled: false });
  await ask("PATCH", "/vaults/kv-http", { reach: "denied" });
  expect((await ask("GET", "/vaults/kv-http/secrets")).body).toMatchObject([{ name: "one", enabled: false }]);
  const { body: vaults } = await ask("GET", "/vaults");
  expect(vaults.at(-1)).toMatchObject({ name: "kv-http", reach: "denied", secrets: 1 });
  expect((await ask("DELETE", "/vaults/kv-http/secrets/one")).status).toBe(200);
  expect((await ask("DELETE", "/vaults/kv-http/secrets/one")).status).toBe(404);
  expect((await ask("GET", "/vaults/kv-none/secrets")).status).toBe(400);
});

test("sinks store the requests that they receive and apply faults", async () => {
  const sink = `${new URL(url).origin}/sink/hook`;
  const { body: fault } = await ask("POST", "/faults", {
    match: { item: "hook" },
    action: { kind: "throttle", retryAfterSeconds: 3 },
    times: 1,
  });
  const refused = await fetch(sink, { method: "POST", body: "first" });
  expect([refused.status, refused.headers.get("retry-after")]).toEqual([429, "3"]);
  await fetch(sink, { method: "POST", body: "second", headers: { "webhook-id": "w1" } });
  expect((await ask("GET", "/sink/hook")).body).toMatchObject([{ body: "second", headers: { "webhook-id": "w1" } }]);
  expect((await ask("GET", "/faults")).body).toMatchObject([{ id: fault.id, happened: 1 }]);
  expect((await ask("DELETE", `/faults/${fault.id}`)).status).toBe(200);
  expect((await ask("GET", "/counts")).body).toMatchObject({ "sink.receive": 2 });
  expect((await ask("DELETE", "/counts")).body).toEqual({ total: 0 });
});

test("SIGTERM stops the process with exit code 0", async () => {
  child.kill("SIGTERM");
  const [code] = child.exitCode === null ? await once(child, "exit") : [child.exitCode];
  expect(code).toBe(0);
});
