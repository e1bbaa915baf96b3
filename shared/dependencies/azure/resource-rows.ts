import * as z from "zod";
import type { CloudFailure } from "../../platform/azure/failure.ts";
import { parseResourceId } from "../../platform/azure/resource-id.ts";
import type { Resource } from "../edge.ts";
import type { NotSeen } from "../edge-source.ts";
import type { ResourceRow } from "./finder.ts";
import { readTags } from "./tags.ts";

const id = z
  .string()
  .max(1024)
  .refine((text) => parseResourceId(text) !== undefined);
const text = z.string().max(512).nullish();
const row = z.object({
  id,
  type: z.string().max(256),
  kind: text,
  tags: z.record(z.string(), z.unknown()).nullish(),
  sku: text,
  properties: z.unknown().optional(),
});

/** Parses a row of Resource Graph. Returns undefined if the row has an unexpected form. */
export function readRow(given: unknown): ResourceRow | undefined {
  const { data } = row.safeParse(given);
  if (!data) return undefined;
  const { type, kind, tags, sku, properties } = data;
  return {
    id: data.id,
    type: type.toLowerCase(),
    // For child resources some services return only the child's name.
    name: parseResourceId(data.id)!.names.join("/"),
    kind: kind ?? "",
    tags: Object.fromEntries(
      Object.entries(tags ?? {}).filter((tag): tag is [string, string] => typeof tag[1] === "string"),
    ),
    sku: sku ?? "",
    properties,
  };
}

/** Returns the ID of a row, if it can be read. */
const idOf = (given: unknown): string | undefined => z.object({ id }).safeParse(given).data?.id;

/**
 * Returns the coverage item for a row that can't be read. A row without an ID may be any resource of the subscription. The item
 * then covers the whole subscription, so that no stored dependency of the subscription is deleted.
 */
export const unreadableRow = (row: unknown, subscriptionId: string): NotSeen => ({
  scope: idOf(row) ?? `/subscriptions/${subscriptionId}`,
  code: "badResponse",
  message: "Could not read a row of Azure Resource Graph: it is not what the service documents.",
  remedy: "No action needed: the next run retries.",
});

/** Returns the coverage item for a scope that could not be read. */
export const notSeenOf = (scope: string, { code, message, remedy }: CloudFailure): NotSeen => ({
  scope,
  code,
  message,
  remedy,
});

/** Returns the consumer that a row describes, without its kind. */
export const resourceOf = ({ id, name, tags }: ResourceRow): Omit<Resource, "kind"> => ({
  id,
  name,
  subscriptionId: id.split("/")[2]!.toLowerCase(),
  ...readTags(tags),
});
