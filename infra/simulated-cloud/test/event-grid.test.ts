import { QueueClient } from "@azure/storage-queue";
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import { VaultEvent } from "../../../shared/discovery/vault-event.ts";
import { openStorage, type TestStorage } from "../../../test/support/storage.ts";
import { type Cloud, startCloud } from "../cloud.ts";
import type { EventDelivery } from "../event-grid.ts";

const HERE = "11111111-1111-4111-8111-111111111111";
const id = (vault: string) =>
  `/subscriptions/${HERE}/resourceGroups/rg-security/providers/Microsoft.KeyVault/vaults/${vault}`;

let storage: TestStorage;
let cloud: Cloud;
let queue: QueueClient;
beforeAll(async () => {
  storage = await openStorage(["events"]);
  cloud = await startCloud({
    company: {
      subscriptions: [
        { name: "Here", id: HERE, vaults: [{ name: "kv-one", secrets: [{ name: "password" }] }, { name: "kv-two" }] },
      ],
    },
  });
  queue = new QueueClient(storage.connectionString(), "events");
});
afterAll(async () => {
  await cloud?.stop();
  await storage?.stop();
});

const deliver = (delivery: Partial<EventDelivery> = {}) =>
  cloud.control.deliverEvents({ connectionString: storage.connectionString(), queue: "events", ...delivery });
beforeEach(async () => {
  await deliver();
  await queue.clearMessages();
});

/** Returns the visible messages as the platform's queue trigger decodes them. */
async function messages(): Promise<Record<string, unknown>[]> {
  await cloud.control.eventCounts();
  const { receivedMessageItems } = await queue.receiveMessages({ numberOfMessages: 32 });
  return receivedMessageItems.map(({ messageText }) => JSON.parse(Buffer.from(messageText, "base64").toString()));
}

test("each new version sends one event in Event Grid's schema, which the service can read", async () => {
  cloud.control.putSecret("kv-one", { name: "password", expiresInDays: 10 });
  cloud.control.putKey("kv-one", { name: "signing" });
  cloud.control.putCertificate("kv-one", { name: "www" });
  const found = await messages();
  expect(found.map(({ eventType }) => eventType).sort()).toEqual([
    "Microsoft.KeyVault.CertificateNewVersionCreated",
    "Microsoft.KeyVault.KeyNewVersionCreated",
    "Microsoft.KeyVault.SecretNewVersionCreated",
  ]);
  const [secret] = found.filter(({ subject }) => subject === "password");
  expect(secret).toEqual({
    id: expect.stringMatching(/^[0-9a-f-]{36}$/),
    topic: id("kv-one"),
    subject: "password",
    eventType: "Microsoft.KeyVault.SecretNewVersionCreated",
    eventTime: expect.stringMatching(/Z$/),
    data: {
      Id: expect.stringMatching(/^https:\/\/kv-one\.vault\.localhost:\d+\/secrets\/password\/[0-9a-f]{32}$/),
      VaultName: "kv-one",
      ObjectType: "Secret",
      ObjectName: "password",
      Version: expect.stringMatching(/^[0-9a-f]{32}$/),
      NBF: null,
      EXP: expect.any(Number),
    },
    dataVersion: "1",
    metadataVersion: "1",
  });
  for (const message of found) expect(VaultEvent.parse(message).hint?.about).toBe("assets");
});

test("written and deleted vaults send events of Azure Resource Manager, also as CloudEvents", async () => {
  await deliver({ schema: "CloudEventSchemaV1_0" });
  cloud.control.putVault(HERE, { name: "kv-new" });
  cloud.control.changeVault("kv-two", { rbac: false });
  cloud.control.removeVault("kv-new");
  const found = await messages();
  expect(found.map(({ type, subject }) => `${String(type).split(".").at(-1)} ${subject}`).sort()).toEqual([
    `ResourceDeleteSuccess ${id("kv-new")}`,
    `ResourceWriteSuccess ${id("kv-new")}`,
    `ResourceWriteSuccess ${id("kv-two")}`,
    "VaultAccessPolicyChanged kv-two",
  ]);
  for (const message of found) {
    expect(message.specversion).toBe("1.0");
    expect(VaultEvent.parse(message).hint?.vaultId).toMatch(/vaults\/kv-(new|two)$/);
  }
});

test("a change without a new version, a deletion and a vault without a topic send no event", async () => {
  cloud.control.change("kv-one", "secrets", "password", { enabled: false });
  cloud.control.remove("kv-one", "certificates", "www");
  await deliver({ vaults: ["kv-two"], subscriptions: [] });
  cloud.control.putSecret("kv-one", { name: "password" });
  cloud.control.changeVault("kv-one", { tags: { a: "b" } });
  await cloud.control.deliverEvents(undefined);
  cloud.control.putSecret("kv-two", { name: "other" });
  expect(await messages()).toEqual([]);
});

test("events can be delivered late and more than once, and expiry events on request", async () => {
  await deliver({ copies: 3 });
  cloud.control.sendExpiry("kv-one", "secrets", "password", "NearExpiry");
  const copies = await messages();
  expect(copies.map(({ id, eventType }) => ({ id, eventType }))).toEqual(
    Array(3).fill({ id: copies[0]!.id, eventType: "Microsoft.KeyVault.SecretNearExpiry" }),
  );
  await queue.clearMessages();
  await deliver({ delaySeconds: [60, 90] });
  cloud.control.putSecret("kv-one", { name: "late" });
  expect(await messages()).toEqual([]);
  expect((await queue.getProperties()).approximateMessagesCount).toBe(1);
});
