import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { VaultEvent } from "../../shared/discovery/vault-event.ts";

const fixture = new URL("../fixtures/events/messages.json", import.meta.url);
const examples: { from: string; hint: string | null; message: Record<string, unknown> }[] = JSON.parse(
  readFileSync(fixture, "utf8"),
);
const [secret, , , written] = examples.map(({ message }) => message);

test.each(examples)("a documented event leaves only a hint: $from", ({ hint, message }) => {
  const subscriptionId = "11111111-1111-4111-8111-111111111111";
  const vaultId = `/subscriptions/${subscriptionId}/resourceGroups/sample-rg/providers/Microsoft.KeyVault/vaults/sample-kv`;
  expect(VaultEvent.parse(message)).toEqual({
    hint: hint === null ? undefined : { vaultId, vaultName: "sample-kv", subscriptionId, about: hint },
  });
});

test.each([
  ["an id that leads elsewhere", { ...secret, topic: "https://evil.example/vaults/sample-kv" }],
  ["a path in a name", { ...secret, topic: `${secret!.topic}%2F..%2Fother` }],
  ["dots in a group", { ...secret, topic: String(secret!.topic).replace("sample-rg", "..") }],
  ["a part of a vault as its source", { ...secret, topic: `${secret!.topic}/secrets/newsecret` }],
  ["no vault", { ...secret, topic: String(secret!.topic).replace("vaults", "managedHSMs") }],
  ["a type that only begins so", { ...secret, eventType: "Microsoft.KeyVault.SecretNewVersionCreatedX" }],
  ["a topic of another subscription", { ...written, topic: "/subscriptions/22222222-2222-4222-8222-222222222222" }],
  ["a topic that is none", { ...written, topic: "" }],
])("%s leaves no hint", (_, message) => {
  expect(VaultEvent.parse(message)).toEqual({ hint: undefined });
});

test.each([
  ["text", "text"],
  ["a list of events", [secret]],
  ["no id", { ...secret, id: undefined }],
  ["another version of CloudEvents", { id: "1", source: "/", type: "t", specversion: "0.3" }],
  ["a very long topic", { ...secret, topic: "/".repeat(5000) }],
  ["nothing", null],
])("%s is not a valid event", (_, message) => {
  expect(VaultEvent.safeParse(message).success).toBe(false);
});
