import { execFile } from "node:child_process";
import { TableClient } from "@azure/data-tables";
import { QueueServiceClient } from "@azure/storage-queue";
import { afterAll, beforeAll, expect, test } from "vitest";
import * as z from "zod";
import { EVALUATION_QUEUE } from "../../shared/alerts/delivery.ts";
import { entity } from "../../shared/platform/storage/entity.ts";
import { STORE_FORMAT } from "../../shared/platform/storage/store-format.ts";
import { createTables, type Tables } from "../../shared/platform/storage/tables.ts";
import type { EarlierBuild } from "../../shared/store/rollback-losses.ts";
import { Service } from "../support/service.ts";
import { COMMANDS, COMPILE_CACHE } from "../support/test-app.ts";

// A store that a newer build has used: its row with the format, signed by the service's key, makes this build stop.

const Format = entity("Settings", z.object({ format: z.int() }), { signed: "withKeyVault" });
const Unsigned = entity("Settings", z.object({ format: z.int() }));

/** One of the earlier builds for which a store can be prepared. Each of them would do. */
const EARLIER_BUILD: EarlierBuild = "6da79ba2";

let service: Service;
const connection = () => ({ connectionString: service.azurite.connectionString() });
const storedFormat = async () => (await createTables(connection()).get(Unsigned, "store", "format"))?.format;

/** Opens the tables with the service's own key of signed rows, whose name is in each signature. */
async function openSignedTables(): Promise<Tables> {
  const client = TableClient.fromConnectionString(connection().connectionString, "Settings", {
    allowInsecureConnection: true,
  });
  const [name = ""] = String((await client.getEntity("store", "format"))._signature).split(".");
  const key = Buffer.from(service.cloud.control.secretValue("kv-lifecycle-service", "row-signing")!, "base64");
  return createTables(connection(), { keys: { current: async () => ({ name, key }), named: async () => key } });
}

beforeAll(async () => {
  service = await Service.start();
});
afterAll(() => service?.stop());

const runCommand = (...args: string[]) => run("store", ...args);
const run = (name: keyof typeof COMMANDS, ...args: string[]): Promise<{ code: number; err: string }> =>
  new Promise((resolve) => {
    execFile(
      process.execPath,
      [COMMANDS[name], ...args],
      { env: { ...service.environment, PATH: process.env.PATH, NODE_COMPILE_CACHE: COMPILE_CACHE } },
      (error, _out, err) => resolve({ code: error ? Number(error.code) : 0, err }),
    );
  });

test("a build writes its format, and another instance of the same format works beside it", async () => {
  expect((await service.admin("GET", "/auth/me")).status).toBe(200);
  expect(await storedFormat()).toBe(STORE_FORMAT);
  const host = await service.addHost();
  expect((await service.admin("GET", `${host.url}/auth/me`)).status).toBe(200);
  expect((await service.admin("GET", "/auth/me")).status).toBe(200);
  await host.stop("SIGKILL");
});

test("a planted row without a signature stops nothing, and is replaced", async () => {
  await createTables(connection()).put(Unsigned, "store", "format", { format: 99 });
  const host = await service.addHost();
  expect((await service.admin("GET", `${host.url}/auth/me`)).status).toBe(200);
  expect(await storedFormat()).toBe(STORE_FORMAT);
  await host.stop("SIGKILL");
});

test("requests, timers and messages fail on a store of a newer build, and the errors name the command", async () => {
  await service.hosts[0]!.stop("SIGKILL");
  const tables = await openSignedTables();
  await tables.put(Format, "store", "format", { format: STORE_FORMAT + 1 });
  const host = await service.addHost();
  const command = "npm run store -- prepare-rollback";
  // The requests of a browser that signs in are open to anyone, and write rows.
  const signInRequests = ["/auth/sso/login", "/auth/sso/callback?code=1&state=2", "/auth/sso/logout?SAMLRequest=1"];
  for (const route of ["/alerts/rules", "/health?deep=true", ...signInRequests]) {
    const answer = await service.admin("GET", host.url + route);
    expect([answer.status, answer.body.code, answer.headers.get("Retry-After")]).toEqual([503, "storeIsNewer", "60"]);
    expect(answer.body.detail).toContain(command);
  }
  // Requests that need no storage still succeed, such as the load balancer's check.
  expect((await service.admin("GET", `${host.url}/health`)).status).toBe(200);
  const timer = await fetch(`${host.url}/__host/timers/evaluateAlerts`, { method: "POST" });
  expect(await timer.json()).toMatchObject({ succeeded: false });
  const queues = QueueServiceClient.fromConnectionString(service.azurite.connectionString());
  const queue = queues.getQueueClient(EVALUATION_QUEUE);
  await queue.createIfNotExists();
  await queue.sendMessage(Buffer.from("{}").toString("base64"));
  await host.waitForLine((line) => line.includes("Executed 'Functions.") && line.includes("Failed"));
  expect(host.lines.join("\n")).toContain(command);

  // The commands of this build don't touch the store either.
  for (const args of [["prepare-rollback", "--to", EARLIER_BUILD], ["held"]])
    expect(await runCommand(...args)).toMatchObject({ code: 1, err: expect.stringContaining("newer version") });
  const changed = await run("user", "create", "--username", "late", "--generate");
  expect(changed).toMatchObject({ code: 1, err: expect.stringContaining("newer version") });
  expect(await storedFormat()).toBe(STORE_FORMAT + 1);

  // The newer build's preparation for a rollback removes the row. Instances read the row again after ten seconds.
  await tables.remove(Format, "store", "format");
  await expect
    .poll(async () => (await service.admin("GET", `${host.url}/auth/me`)).status, { timeout: 30_000, interval: 500 })
    .toBe(200);
  expect(await storedFormat()).toBe(STORE_FORMAT);
});

test("the preparation for a rollback removes the format, so that an earlier build can write its own", async () => {
  expect(await runCommand("prepare-rollback", "--to", EARLIER_BUILD, "--dry-run")).toMatchObject({ code: 0 });
  expect(await storedFormat()).toBe(STORE_FORMAT);
  expect(await runCommand("prepare-rollback", "--to", EARLIER_BUILD)).toMatchObject({ code: 0 });
  expect(await storedFormat()).toBeUndefined();
});
