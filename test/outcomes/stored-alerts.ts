import { createHistory } from "../../shared/alerts/history.ts";
import type { TrackedItem } from "../../shared/alerts/items.ts";
import { RULES, Rules, ruleKey } from "../../shared/alerts/rule.ts";
import { newDelivery } from "../../shared/alerts/rule-notifications.ts";
import { TrackedRows, trackedKey } from "../../shared/alerts/tracked-alerts.ts";
import { systemRandomness } from "../../shared/platform/runtime.ts";
import { DAY_MS } from "../../shared/platform/time.ts";
import type { EndpointContext } from "./endpoint-context.ts";

// Alert rules and deliveries that the outcome tests prepare, partly by writing rows, because the API can't create them.

/** Returns the body that creates a rule with notifications by mail. */
export const mailRule = (name: string) => ({
  name,
  alertType: "expiration",
  thresholds: [30],
  recipients: ["team@acme.example"],
});

export const storedRule = ({ services }: EndpointContext, id: string) =>
  services().tables.get(Rules, RULES, ruleKey(id));

/** Creates a rule that has sent an alert for a secret. */
export async function createRuleWithAlert({ call, services }: EndpointContext, name: string): Promise<string> {
  const { id } = await call("POST", "/alerts/rules", { ...mailRule(name), enabled: false });
  const item: TrackedItem = {
    kind: "asset",
    id: "kv-one.secret.db",
    type: "secret",
    name: "db",
    vaultName: "kv-one",
    vaultId: "/vaults/kv-one",
    subscriptionId: "one",
    expiresOn: 1,
    threshold: 30,
  };
  const alertedAt = new Date().toISOString();
  // `toldAt`: when the alert was last sent. `times`: how often.
  const alert = { deliveryId: "", since: alertedAt, toldAt: alertedAt, times: 1, item };
  await services().tables.put(TrackedRows, id, trackedKey(item), alert);
  return id;
}

/** Writes a delivery that is two years old. */
export async function createOldDelivery(context: EndpointContext): Promise<string> {
  const { call, services, uniqueName } = context;
  const { tables, randomness } = services();
  const { id } = await call("POST", "/alerts/rules", mailRule(uniqueName("history")));
  const creationTime = new Date(Date.now() - 2 * 365 * DAY_MS);
  const deliveryId = randomness.ulid(creationTime);
  const createdAt = creationTime.toISOString();
  const created = newDelivery((await storedRule(context, id))!, { deliveryId, createdAt, items: [] });
  await createHistory(tables).record({ ...created, status: "delivered", finishedAt: createdAt });
  return deliveryId;
}

/** Writes a delivery that a restore of the tables holds. */
export async function createHeldDelivery(context: EndpointContext): Promise<string> {
  const { call, services, uniqueName } = context;
  const { tables } = services();
  const { id } = await call("POST", "/alerts/rules", { ...mailRule(uniqueName("held")), enabled: false });
  const now = new Date();
  // Uses another source of IDs. The IDs of one source increase, so a later `createOldDelivery` would get an ID that is not old.
  const deliveryId = systemRandomness().ulid(now);
  const fields = { deliveryId, createdAt: now.toISOString(), items: [], held: true };
  await createHistory(tables).record(newDelivery((await storedRule(context, id))!, fields));
  return deliveryId;
}
