import { QueueClient } from "@azure/storage-queue";
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import { VaultEvent } from "../../../shared/discovery/vault-event.ts";
import { openStorage, type TestStorage } from "../../../test/support/storage.ts";
import { type Cloud, startCloud } from "../cloud.ts";
import type { EventDelivery } from "../event-grid.ts";

// Tests the Event Grid of the simulated cloud: which changes of vaults send events to a storage queue, and in which form.

const SUBSCRIPTION_ID = "11111111-1111-4111-8111-111111111111";
const vaultIdOf = (vault: string) =>
  `/subscriptions/${SUBSCRIPTION_ID}/resourceGroups/rg-security/providers/Microsoft.KeyVault/vaults/${vault}`;

let storage: TestStorage;
let cloud: Cloud;
let queue: QueueClient;
beforeAll(async () => {
  storage = await openStorage(["events"]);
  cloud = await startCloud({
    company: {
      subscriptions: [
        {
          name: "Here",
          id: SUBSCRIPTION_ID,
          vaults: [{ name: "kv-one", secrets: [{ name: "password" }] }, { name: "kv-two" }],
        },
      ],
    },
  });
  queue = new QueueClient(storage.connectionString(), "events");
});
afterAll(async () => {
  await cloud?.stop();
  await storage?.stop();
});

/** Makes the cloud deliver events to the queue. Options override the defaults: at once, one copy, all vaults. */
const configureDelivery = (delivery: Partial<EventDelivery> = {}) =>
  cloud.control.deliverEvents({ connectionString: storage.connectionString(), queue: "events", ...delivery });
beforeEach(async () => {
  await configureDelivery();
  await queue.clearMessages();
});

/** Receives the visible messages and decodes them from base64 JSON, as the queue trigger of Azure Functions does. */
async function receiveMessages(): Promise<Record<string, unknown>[]> {
  // Resolves after all pending events are sent.
  await cloud.control.eventCounts();
  const { receivedMessageItems } = await queue.receiveMessages({ numberOfMessages: 32 });
  return receivedMessageItems.map(({ messageText }) => JSON.parse(Buffer.from(messageText, "base64").toString()));
}

test("a new version of a secret, key or certificate sends one event, which the service can parse", async () => {
  cloud.control.putSecret("kv-one", { name: "password", expiresInDays: 10 });
  cloud.control.putKey("kv-one", { name: "signing" });
  cloud.control.putCertificate("kv-one", { name: "www" });
  const events = await receiveMessages();
  expect(events.map(({ eventType }) => eventType).sort()).toEqual([
    "Microsoft.KeyVault.CertificateNewVersionCreated",
    "Microsoft.KeyVault.KeyNewVersionCreated",
    "Microsoft.KeyVault.SecretNewVersionCreated",
  ]);
  const [secret] = events.filter(({ subject }) => subject === "password");
  expect(secret).toEqual({
    id: expect.stringMatching(/^[0-9a-f-]{36}$/),
    topic: vaultIdOf("kv-one"),
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
  // The service uses an event only as a hint that the vault may have changed.
  for (const message of events) expect(VaultEvent.parse(message).hint?.about).toBe("assets");
});

test("a created, changed or deleted vault sends events of Azure Resource Manager", async () => {
  await configureDelivery({ schema: "CloudEventSchemaV1_0" });
  cloud.control.putVault(SUBSCRIPTION_ID, { name: "kv-new" });
  cloud.control.changeVault("kv-two", { rbac: false });
  cloud.control.removeVault("kv-new");
  const events = await receiveMessages();
  expect(events.map(({ type, subject }) => `${String(type).split(".").at(-1)} ${subject}`).sort()).toEqual([
    `ResourceDeleteSuccess ${vaultIdOf("kv-new")}`,
    `ResourceWriteSuccess ${vaultIdOf("kv-new")}`,
    `ResourceWriteSuccess ${vaultIdOf("kv-two")}`,
    "VaultAccessPolicyChanged kv-two",
  ]);
  for (const message of events) {
    expect(message.specversion).toBe("1.0");
    expect(VaultEvent.parse(message).hint?.vaultId).toMatch(/vaults\/kv-(new|two)$/);
  }
});

test("no event is sent for a change without a new version, a deleted item, or a vault that is not subscribed", async () => {
  cloud.control.change("kv-one", "secrets", "password", { enabled: false });
  cloud.control.remove("kv-one", "certificates", "www");
  await configureDelivery({ vaults: ["kv-two"], subscriptions: [] });
  cloud.control.putSecret("kv-one", { name: "password" });
  cloud.control.changeVault("kv-one", { tags: { a: "b" } });
  await cloud.control.deliverEvents(undefined);
  cloud.control.putSecret("kv-two", { name: "other" });
  expect(await receiveMessages()).toEqual([]);
});

test("a test can deliver events late, several times, or for an expiry date", async () => {
  await configureDelivery({ copies: 3 });
  cloud.control.sendExpiry("kv-one", "secrets", "password", "NearExpiry");
  const copies = await receiveMessages();
  expect(copies.map(({ id, eventType }) => ({ id, eventType }))).toEqual(
    Array(3).fill({ id: copies[0]!.id, eventType: "Microsoft.KeyVault.SecretNearExpiry" }),
  );
  await queue.clearMessages();
  await configureDelivery({ delaySeconds: [60, 90] });
  cloud.control.putSecret("kv-one", { name: "late" });
  expect(await receiveMessages()).toEqual([]);
  expect((await queue.getProperties()).approximateMessagesCount).toBe(1);
});
