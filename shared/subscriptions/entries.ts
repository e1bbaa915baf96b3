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
  /** When its removal began, ISO 8601: from then on it is not watched for its own sake, and adding it again has to wait. */
  removingSince: z.string().optional(),
});
export type SubscriptionRecord = z.infer<typeof SubscriptionRecord>;
export const SubscriptionRow = entity("Subscriptions", SubscriptionRecord);
export const SUBSCRIPTIONS_PARTITION = "subscription";

/** One request per 1,000. */
export async function readEntries(tables: Tables): Promise<Row<SubscriptionRecord>[]> {
  const found: Row<SubscriptionRecord>[] = [];
  for await (const page of tables.pages(SubscriptionRow, { partitionKey: SUBSCRIPTIONS_PARTITION }))
    found.push(...page);
  return found;
}
