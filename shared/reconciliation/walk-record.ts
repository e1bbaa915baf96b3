import * as z from "zod";
import { entity } from "../platform/storage/entity.ts";

/** The stages of a walk, in this order. */
export const STAGES = ["vaults", "partitions", "subscriptions", "all"] as const;
export type Stage = (typeof STAGES)[number];

/** Maximum number of unrepaired vaults named in a walk's record. `leftTotal` counts all. */
export const MAX_NAMED_LEFT = 100;

export const FaultCounts = z.object({
  missing: z.int(),
  extra: z.int(),
  stale: z.int(),
  unreadable: z.int(),
  /** Lists of one type of a vault to be read again, because the vault's row did not match its assets. */
  listings: z.int(),
  /** Vaults whose compliance results did not match. */
  compliance: z.int(),
});
export type FaultCounts = z.infer<typeof FaultCounts>;
export const noFaults = (): FaultCounts => ({
  missing: 0,
  extra: 0,
  stale: 0,
  unreadable: 0,
  listings: 0,
  compliance: 0,
});

/**
 * The record of one walk over everything. It has the position, so that any worker can continue. The step of a crashed worker is
 * repeated.
 */
export const WalkRecord = z.object({
  walkId: z.string(),
  startedAt: z.string(),
  finishedAt: z.string().optional(),
  stage: z.enum(STAGES),
  /** Where it continues: after this vault, partition or subscription, and in it after this row key. */
  at: z.string(),
  after: z.string(),
  vaults: z.int(),
  /** Number of compared index rows. */
  rows: z.int(),
  /** Differences confirmed by the second check and repaired. */
  mended: FaultCounts,
  /** Rows whose vault must be listed again first. The next walk checks them. */
  awaiting: z.int(),
  /** Vaults that could not be repaired, or that a scan was writing at each attempt. */
  left: z.array(z.object({ vault: z.string(), reason: z.string() })),
  leftTotal: z.int(),
  /** True if the previous walk's record could not be read, so that this one started at the beginning. */
  startedOver: z.boolean().optional(),
});
export type WalkRecord = z.infer<typeof WalkRecord>;

export const Walks = entity("Reconciliation", WalkRecord);
/** The queue whose messages start a run. They have no content. */
export const QUEUE = "reconciliation";
export const WALKS = "walks";
/** Partition of the newest walk and the one before it. */
export const NEWEST = "newest";
export const BEFORE = "before";
