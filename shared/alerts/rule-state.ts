import * as z from "zod";
import { entity } from "../platform/storage/entity.ts";
import { packedMember } from "../platform/storage/packed-members.ts";
import { Item as ItemSchema } from "./items.ts";
import { RuleRecord } from "./rule.ts";

/**
 * The evaluation progress of a rule, and its pending delivery. Both are in one row, so that they change together. All rows are
 * in one partition, which one request reads.
 */
const StateRecord = z.object({
  /** The evaluated generation of the rule, which counts the changes of its scope. */
  generation: z.int(),
  /** Time up to which the rule is evaluated, ISO 8601. */
  at: z.string(),
  /** The evaluated revision of the vault snapshot, which counts the evaluations that found changed vaults. */
  revision: z.int(),
  /** Cursor after the last evaluated violation. */
  violationCursor: z.string().optional(),
  /** Cursor of the first evaluation of violations, while it is in progress. */
  standingCursor: z.string().optional(),
  /** Number of vaults with compliance results at the last check for resolved violations. */
  violationVaults: z.int().optional(),
  /**
   * Evaluated scans that the next evaluation may read again. Undefined: none, or written by a version that reported each scan.
   */
  scansSeen: z.array(z.string()).optional(),
  /** Whether the rule has ever opened a tracked alert. */
  followed: z.boolean().optional(),
  /** Time of the next reminder or escalation. */
  followUpAt: z.string().optional(),
  /** A committed delivery whose remaining steps must be completed first. */
  pending: z
    .object({
      deliveryId: z.string(),
      createdAt: z.string(),
      /** The rule at the time of the commit. */
      rule: RuleRecord,
      /** For an escalation: the rule whose channel sends it. */
      channel: RuleRecord.optional(),
      /** The rule that opened incidents for escalated alerts, which gets their resolutions. */
      secondStep: RuleRecord.optional(),
      /** Whether the delivery is held, because it may have been sent before a restore. */
      held: z.boolean().optional(),
    })
    .optional(),
  /** The items of the pending delivery, packed. */
  pendingNews: packedMember(z.array(ItemSchema)).optional(),
});
export type StateRecord = z.infer<typeof StateRecord>;
export const RuleStates = entity("AlertStates", StateRecord);
export const STATES = "states";
