import * as z from "zod";
import { entity, type Row } from "../platform/storage/entity.ts";
import type { Tables } from "../platform/storage/tables.ts";

/** A subscription that was added through the API. */
const SubscriptionRecord = z.object({
  /** Lower case. */
  subscriptionId: z.string(),
  name: z.string(),
  /** ISO 8601. */
  addedAt: z.string(),
  addedBy: z.string(),
  /**
   * When its removal started, ISO 8601. From then on this entry no longer puts it in scope, and it can't be added again until
   * the removal ends.
   */
  removingSince: z.string().optional(),
});
export type SubscriptionRecord = z.infer<typeof SubscriptionRecord>;
export const SubscriptionRow = entity("Subscriptions", SubscriptionRecord);
export const SUBSCRIPTIONS_PARTITION = "subscription";

/** Returns all entries. One request per 1,000. */
export async function readEntries(tables: Tables): Promise<Row<SubscriptionRecord>[]> {
  const found: Row<SubscriptionRecord>[] = [];
  for await (const page of tables.pages(SubscriptionRow, { partitionKey: SUBSCRIPTIONS_PARTITION }))
    found.push(...page);
  return found;
}
