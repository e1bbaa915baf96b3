import * as z from "zod";
import { entity } from "../platform/storage/entity.ts";
import { RuleFilters } from "./rule.ts";

/** Filters of a snooze. They also match assets that appear while the snooze is active. */
export const SnoozeFilters = z
  .strictObject(
    RuleFilters.pick({ vault: true, type: true, subscription: true, source: true, tag: true, owner: true }).shape,
  )
  .refine((filters) => Object.values(filters).some((value) => value !== undefined), "must have at least one filter")
  .meta({
    id: "AlertSnoozeFilters",
    description: "An asset must match all given filters. Assets that appear later can match too.",
  });
export type SnoozeFilters = z.infer<typeof SnoozeFilters>;

/** A stored snooze, which suppresses notifications about one asset, or about all assets that match filters, until a time. */
export const SnoozeRecord = z.object({
  /** Undefined for all rules, which only a snooze with filters can have. */
  ruleId: z.string().optional(),
  /** Undefined for a snooze with filters. */
  assetId: z.string().optional(),
  /** The id of a snooze with filters. */
  snoozeId: z.string().optional(),
  filters: RuleFilters.optional(),
  reason: z.string(),
  until: z.string(),
  createdAt: z.string(),
  createdBy: z.string(),
});
export type SnoozeRecord = z.infer<typeof SnoozeRecord>;

/**
 * One partition, because each evaluation reads all snoozes. Signed, because a snooze silences alerts. `adopted`: unsigned rows
 * of earlier versions are accepted until they are signed.
 */
export const SnoozeRows = entity("AlertSnoozes", SnoozeRecord, { signed: "adopted" });
export const SNOOZES = "snoozes";
type Named = Pick<SnoozeRecord, "ruleId" | "assetId" | "snoozeId">;

/**
 * Returns the row key of a snooze. `!` stands for all rules, or precedes the id of a snooze with filters; ids don't contain it.
 */
export const snoozeKey = ({ ruleId = "!", assetId: asset = "", snoozeId: id }: Named): string =>
  id === undefined ? `${ruleId}|${asset}` : `${ruleId}|!${id}`;
export const snoozeIdOf = ({ ruleId = "", assetId: asset = "", snoozeId: id }: Named): string =>
  id ?? `${ruleId}.${asset}`;
