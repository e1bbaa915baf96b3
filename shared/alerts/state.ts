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
  /** While the first evaluation goes through the violations that stand: behind those it has looked at. */
  standingCursor: z.string().optional(),
  /** How many vaults had results of compliance. */
  violationVaults: z.int().optional(),
  /** Scans that were looked at and may be seen again. Absent: none, or by an earlier version, which told of scans. */
  scansSeen: z.array(z.string()).optional(),
  /** Whether it has told of anything that is followed to its end. */
  followed: z.boolean().optional(),
  /** When an alert that was told is to be looked at again, to say that it lasts or to escalate it. */
  followUpAt: z.string().optional(),
  /** Committed, but perhaps not yet marked, recorded and enqueued: to be settled before anything else. */
  pending: z
    .object({
      deliveryId: z.string(),
      createdAt: z.string(),
      /** The rule as it was then. */
      rule: RuleRecord,
      /** Of an escalation: by what it goes out, and to whom. */
      channel: RuleRecord.optional(),
      /** The rule whose channel has an incident of each alert that was escalated to it: it is told of their ends. */
      secondStep: RuleRecord.optional(),
    })
    .optional(),
  pendingNews: z.instanceof(Uint8Array).optional(),
});
export type StateRecord = z.infer<typeof StateRecord>;
export const RuleStates = entity("AlertStates", StateRecord);
export const STATES = "states";
