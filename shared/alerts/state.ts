import * as z from "zod";
import { entity } from "../storage/entity.ts";
import { RuleRecord } from "./rule.ts";

/**
 * How far a rule was evaluated, and the delivery that came of it until that is settled: one row, so that both change
 * together. All are in one partition, which one request reads.
 */
const StateRecord = z.object({
  /** The rule's generation that was evaluated. */
  generation: z.int(),
  at: z.string(),
  /** The vault snapshot's revision that was evaluated. */
  revision: z.int(),
  violationCursor: z.string().optional(),
  /** Committed, but perhaps not yet marked, recorded and enqueued: to be settled before anything else. */
  pending: z
    .object({
      deliveryId: z.string(),
      createdAt: z.string(),
      /** The rule as it was then. */
      rule: RuleRecord,
    })
    .optional(),
  pendingNews: z.instanceof(Uint8Array).optional(),
});
export type StateRecord = z.infer<typeof StateRecord>;
export const RuleStates = entity("AlertStates", StateRecord);
export const STATES = "states";
