import * as z from "zod";
import { entity } from "../storage/entity.ts";

export const SnoozeRecord = z.object({
  ruleId: z.string(),
  assetId: z.string(),
  reason: z.string(),
  until: z.string(),
  createdAt: z.string(),
  createdBy: z.string(),
});
export type SnoozeRecord = z.infer<typeof SnoozeRecord>;

/** One partition: a run of the rules reads all of them. */
export const SnoozeRows = entity("AlertSnoozes", SnoozeRecord);
export const SNOOZES = "snoozes";
export const snoozeKey = (ruleId: string, asset: string): string => `${ruleId}|${asset}`;
export const snoozeId = ({ ruleId, assetId: asset }: Pick<SnoozeRecord, "ruleId" | "assetId">): string =>
  `${ruleId}.${asset}`;
