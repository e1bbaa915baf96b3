/*
 * Parsing of Event Grid messages. A message leaves only a "hint": which vault to re-scan, and whether the vault itself or its
 * assets changed. Other content of a message is not trusted.
 */
import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { VaultEvent } from "../../shared/discovery/vault-event.ts";

const fixture = new URL("../fixtures/events/messages.json", import.meta.url);
const examples: { from: string; hint: string | null; message: Record<string, unknown> }[] = JSON.parse(
  readFileSync(fixture, "utf8"),
);
/** The first example, an event of a new secret version, and the fourth one, an event of a written vault. */
const [secretEvent, , , vaultWrittenEvent] = examples.map(({ message }) => message);

test.each(examples)("a documented message is reduced to a hint: $from", ({ hint, message }) => {
  const subscriptionId = "11111111-1111-4111-8111-111111111111";
  const vaultId = `/subscriptions/${subscriptionId}/resourceGroups/sample-rg/providers/Microsoft.KeyVault/vaults/sample-kv`;
  expect(VaultEvent.parse(message)).toEqual({
    hint: hint === null ? undefined : { vaultId, vaultName: "sample-kv", subscriptionId, about: hint },
  });
});

test.each([
  ["a topic that is a URL", { ...secretEvent, topic: "https://evil.example/vaults/sample-kv" }],
  ["a path in a name", { ...secretEvent, topic: `${secretEvent!.topic}%2F..%2Fother` }],
  ["dots as resource group", { ...secretEvent, topic: String(secretEvent!.topic).replace("sample-rg", "..") }],
  ["the topic of a secret", { ...secretEvent, topic: `${secretEvent!.topic}/secrets/newsecret` }],
  [
    "the topic of a managed HSM",
    { ...secretEvent, topic: String(secretEvent!.topic).replace("vaults", "managedHSMs") },
  ],
  ["a longer event type", { ...secretEvent, eventType: "Microsoft.KeyVault.SecretNewVersionCreatedX" }],
  [
    "a topic of another subscription",
    { ...vaultWrittenEvent, topic: "/subscriptions/22222222-2222-4222-8222-222222222222" },
  ],
  ["an empty topic", { ...vaultWrittenEvent, topic: "" }],
])("a message with %s gives no hint", (_, message) => {
  expect(VaultEvent.parse(message)).toEqual({ hint: undefined });
});

test.each([
  ["text", "text"],
  ["a list of events", [secretEvent]],
  ["no id", { ...secretEvent, id: undefined }],
  ["another version of CloudEvents", { id: "1", source: "/", type: "t", specversion: "0.3" }],
  ["a very long topic", { ...secretEvent, topic: "/".repeat(5000) }],
  ["nothing", null],
])("%s is not a valid event", (_, message) => {
  expect(VaultEvent.safeParse(message).success).toBe(false);
});
