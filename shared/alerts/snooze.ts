import * as z from "zod";
import { entity } from "../storage/entity.ts";
import { RuleFilters } from "./rule.ts";

/** Which assets a snooze is about where it names none: also those that come to fit while it lasts. */
export const SnoozeFilters = z
  .strictObject(
    RuleFilters.pick({ vault: true, type: true, subscription: true, source: true, tag: true, owner: true }).shape,
  )
  .refine((filters) => Object.values(filters).some((value) => value !== undefined), "must have at least one filter")
  .meta({ id: "AlertSnoozeFilters", description: "All that are given must fit, also of assets that appear later." });
export type SnoozeFilters = z.infer<typeof SnoozeFilters>;

export const SnoozeRecord = z.object({
  /** Absent where it is about every rule; only one with filters is. */
  ruleId: z.string().optional(),
  /** Absent where it has filters. */
  assetId: z.string().optional(),
  /** Of one with filters. */
  snoozeId: z.string().optional(),
  filters: RuleFilters.optional(),
  reason: z.string(),
  until: z.string(),
  createdAt: z.string(),
  createdBy: z.string(),
});
export type SnoozeRecord = z.infer<typeof SnoozeRecord>;

/** One partition: a run of the rules reads all of them. */
export const SnoozeRows = entity("AlertSnoozes", SnoozeRecord);
export const SNOOZES = "snoozes";
type Named = Pick<SnoozeRecord, "ruleId" | "assetId" | "snoozeId">;

/** `!` stands in no asset's id and in no rule's. */
export const snoozeKey = ({ ruleId = "!", assetId: asset = "", snoozeId: id }: Named): string =>
  id === undefined ? `${ruleId}|${asset}` : `${ruleId}|!${id}`;
export const snoozeIdOf = ({ ruleId = "", assetId: asset = "", snoozeId: id }: Named): string =>
  id ?? `${ruleId}.${asset}`;
