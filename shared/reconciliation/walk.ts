import * as z from "zod";
import { entity } from "../platform/storage/entity.ts";

/** What a walk looks at, in this order. */
export const STAGES = ["vaults", "partitions", "subscriptions", "all"] as const;
export type Stage = (typeof STAGES)[number];

/** Vaults named in a walk's record that could not be mended; `leftTotal` counts all. */
export const MAX_NAMED_LEFT = 100;

export const FaultCounts = z.object({
  missing: z.int(),
  extra: z.int(),
  stale: z.int(),
  unreadable: z.int(),
  /** Lists of one type of a vault that are to be read again, since the vault's row did not agree with its assets. */
  listings: z.int(),
  /** Vaults whose compliance results did not agree. */
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

/** One walk over everything. Its row says where it goes on, so any worker may; a step that died is done again. */
export const WalkRecord = z.object({
  walkId: z.string(),
  startedAt: z.string(),
  finishedAt: z.string().optional(),
  stage: z.enum(STAGES),
  /** Where it goes on: behind this vault, partition or subscription, and in it behind this row key. */
  at: z.string(),
  after: z.string(),
  vaults: z.int(),
  /** Index rows compared. */
  rows: z.int(),
  /** What was wrong at the second look too, and is mended. */
  mended: FaultCounts,
  /** Rows whose vault is to be listed again first; the next walk sees them. */
  awaiting: z.int(),
  /** Vaults that could not be mended, or that a scan was writing at each look. */
  left: z.array(z.object({ vault: z.string(), reason: z.string() })),
  leftTotal: z.int(),
  /** The record of the walk before could not be read, so that this one began at the beginning. */
  startedOver: z.boolean().optional(),
});
export type WalkRecord = z.infer<typeof WalkRecord>;

export const Walks = entity("Reconciliation", WalkRecord);
/** Its messages say nothing but that it is time. */
export const QUEUE = "reconciliation";
export const WALKS = "walks";
/** The newest walk, and the one before it. */
export const NEWEST = "newest";
export const BEFORE = "before";
