import { QueueClient } from "@azure/storage-queue";
import { afterAll, beforeAll, expect, test } from "vitest";
import { AREAS } from "../../functions/functions.ts";
import { Service } from "../support/service.ts";

// Tests of the queues that only PRO features use. A message is no license: without one it starts nothing. Work that started under
// a license ends without one; the tests of each module check both with work that is due.

const ID = "11111111-2222-4333-8444-555555555555";
/** Messages that start work under a license, by queue. Empty: the queue's messages only continue work. */
const STARTING_MESSAGES: Record<string, object[]> = {
  "applications-discover": [{ mode: "full" }, { mode: "changes" }],
  "b2c-tenants": [{ tenantId: ID }],
  "credentials-discover": [],
  "dependencies-discover": [{ mode: "full" }, { mode: "changes" }],
  "certificate-renewals": [{ runId: "01M83W0CN6SDG6BGCAGDABN0C3" }],
  "endpoint-checks": [{ keys: ["e|kv-one|www|p0"] }],
  "key-rotations": [],
  "rotation-due": [{ appId: ID }],
  rotations: [],
  "secretless-runs": [],
  "sync-configured": [{ provider: "aws" }],
  "sync-runs": [{ recordId: "01J00000000000000000000000" }],
};

let service: Service;
beforeAll(async () => {
  service = await Service.start({ company: "small", env: { LICENSE_KEY: "" } });
}, 600_000);
afterAll(() => service?.stop());

test("each queue of an area with PRO endpoints is covered here", async () => {
  const areas = await Promise.all(Object.values(AREAS).map((load) => load()));
  const proAreas = areas.filter(({ endpoints = [] }) => endpoints.some(({ tier }) => tier === "pro"));
  const names = proAreas.flatMap(({ queues = [] }) => queues.map(({ queue }) => queue));
  const workQueues = names.filter((name) => !name.endsWith("-poison"));
  expect(workQueues.sort()).toEqual(Object.keys(STARTING_MESSAGES).sort());
});

test("without a license no message starts work of a PRO feature", async () => {
  await service.admin("GET", "/auth/me");
  service.cloud.control.resetCounts();
  const queues = Object.entries(STARTING_MESSAGES).map(([name, messages]) => ({
    messages,
    client: new QueueClient(service.azurite.connectionString(), name),
  }));
  for (const { client, messages } of queues) {
    await client.createIfNotExists();
    for (const message of messages) await client.sendMessage(Buffer.from(JSON.stringify(message)).toString("base64"));
  }
  const countMessages = async () => {
    const properties = await Promise.all(queues.map(({ client }) => client.getProperties()));
    return properties.reduce((sum, { approximateMessagesCount = 0 }) => sum + approximateMessagesCount, 0);
  };
  await expect.poll(countMessages, { timeout: 60_000, interval: 200 }).toBe(0);

  expect((await service.listAll("/system/failed-messages")).map(({ queue }) => queue)).toEqual([]);
  const entries = await service.listAll("/audit/entries");
  const started = /^(applications|dependencies|b2cTenant)\.discoveryRequested$|^rotation\.|^syncTarget\./;
  expect(entries.map(({ eventType }) => String(eventType)).filter((type) => started.test(type))).toEqual([]);
  const refused = entries.filter(
    ({ eventType, outcome }) => /\.discovered$/.test(String(eventType)) && outcome === "refused",
  );
  expect([...new Set(refused.map(({ eventType }) => eventType))].sort()).toEqual([
    "applications.discovered",
    "dependencies.discovered",
  ]);
  const calls = service.cloud.control.requests().map(({ operation }) => operation);
  expect(calls.filter((operation) => operation.startsWith("graph."))).toEqual([]);
});
