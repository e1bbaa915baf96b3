import { afterAll, beforeAll, expect, test } from "vitest";
import { createHistory } from "../../shared/alerts/history.ts";
import { RULES, Rules, ruleKey } from "../../shared/alerts/rule.ts";
import { newDelivery } from "../../shared/alerts/rule-notifications.ts";
import { systemRandomness } from "../../shared/platform/runtime.ts";
import { Service } from "../support/service.ts";
import { createUsers, servicesOf } from "../support/users.ts";

// Notifications that a restore of the tables holds: users send or drop each one over HTTP.

const OPERATOR = { username: "olga", password: "quiet-library-window", role: "operator" as const };
const READER = { username: "rita", password: "silent-garden-window", role: "user" as const };

let service: Service;
let ruleId: string;

beforeAll(async () => {
  service = await Service.start();
  await createUsers(service, [OPERATOR, READER]);
  const rule = { name: "Expiring", alertType: "expiration", thresholds: [30], recipients: ["team@acme.example"] };
  ruleId = (await service.admin("POST", "/alerts/rules", rule)).body.id;
});
afterAll(() => service?.stop());

/** Stores a held notification about one secret. Returns the ID of its delivery. */
async function createHeld(): Promise<string> {
  const { tables } = await servicesOf(service);
  const rule = (await tables.get(Rules, RULES, ruleKey(ruleId)))!;
  const now = new Date();
  const deliveryId = systemRandomness().ulid(now);
  const item = {
    kind: "asset" as const,
    id: "kv-one.secret.db",
    type: "secret" as const,
    name: "db",
    vaultName: "kv-one",
    vaultId: "/vaults/kv-one",
    subscriptionId: "one",
    expiresOn: Math.floor(now.getTime() / 1000) + 86_400,
    threshold: 30,
  };
  const delivery = newDelivery(rule, { deliveryId, createdAt: now.toISOString(), items: [item], held: true });
  await createHistory(tables).record(delivery);
  return deliveryId;
}

test("an operator sends or drops a held notification once, and the audit log names the decision and the person", async () => {
  const [operator, reader] = await Promise.all(
    [OPERATOR, READER].map(({ username, password }) => service.signIn({ username, password })),
  );
  const [sent, dropped] = [await createHeld(), await createHeld()];
  const held = await service.admin("GET", "/alerts/history?status=inDoubt");
  expect(held.body.items.map(({ id }: { id: string }) => id).sort()).toEqual([sent, dropped].sort());
  const decide = (id: string, decision: string, token: string) =>
    service.call("POST", `/alerts/history/${id}/${decision}`, { token });
  expect((await decide(sent, "send", reader!)).status).toBe(403);
  expect((await decide("01KB9Z6Q4V3N8S7T5W2X1Y0Z9A", "send", operator!)).status).toBe(404);

  expect(await decide(sent, "send", operator!)).toMatchObject({ status: 200, body: { id: sent } });
  expect(await decide(dropped, "drop", operator!)).toMatchObject({ status: 200, body: { status: "cancelled" } });
  for (const [id, decision] of [
    [sent, "send"],
    [sent, "drop"],
    [dropped, "send"],
  ] as const)
    expect(await decide(id, decision, operator!)).toMatchObject({ status: 409, body: { code: "conflict" } });
  await service.waitUntilIdle();
  expect((await service.admin("GET", `/alerts/history/${dropped}`)).body.status).toBe("cancelled");
  expect(service.cloud.control.mails()).toHaveLength(1);
  expect((await service.admin("GET", "/alerts/history?status=inDoubt")).body.items).toEqual([]);

  for (const [type, id] of [
    ["alert.heldSent", sent],
    ["alert.heldDropped", dropped],
  ] as const) {
    const { items } = (await service.admin("GET", `/audit/entries?event_type=${type}&actor=olga`)).body;
    const ofDelivery = items.filter(({ target }: { target: { id: string } }) => target.id === id);
    expect(ofDelivery.map(({ outcome }: { outcome: string }) => outcome).sort()).toEqual(["intent", "success"]);
  }
});
