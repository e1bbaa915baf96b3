import * as z from "zod";
import { entity, type Row } from "../platform/storage/entity.ts";
import type { Tables } from "../platform/storage/tables.ts";

// Rows of subscriptions that were added through the API.

/** A subscription that was added through the API. */
const SubscriptionRecord = z.object({
  /** ID in lower case. */
  subscriptionId: z.string(),
  name: z.string(),
  /** Time at which the subscription was added, ISO 8601. */
  addedAt: z.string(),
  addedBy: z.string(),
  /**
   * Time at which the removal started, ISO 8601. From then on the row no longer puts the subscription in scope, and the
   * subscription can't be added again until the removal ends.
   */
  removingSince: z.string().optional(),
});
export type SubscriptionRecord = z.infer<typeof SubscriptionRecord>;
/**
 * Signed, so that a row that another program changed is not used. `adopted`: unsigned rows of earlier versions are accepted until
 * this version has signed them.
 */
export const SubscriptionRow = entity("Subscriptions", SubscriptionRecord, { signed: "adopted" });
export const SUBSCRIPTIONS_PARTITION = "subscription";

/** Returns all added subscriptions. Costs one request for each 1,000. */
export async function readAddedSubscriptions(tables: Tables): Promise<Row<SubscriptionRecord>[]> {
  const subscriptions: Row<SubscriptionRecord>[] = [];
  for await (const page of tables.pages(SubscriptionRow, { partitionKey: SUBSCRIPTIONS_PARTITION }))
    subscriptions.push(...page);
  return subscriptions;
}
