import * as z from "zod";
import { entity } from "../platform/storage/entity.ts";

/**
 * The stored record of a walk: one pass of the reconciliation over all stored rows. A walk takes many steps and often several
 * runs, so its record contains the position.
 */

/** The stages of a walk, in this order. Each stage compares different partitions. stages.ts describes them. */
export const STAGES = ["vaults", "partitions", "subscriptions", "all", "records"] as const;
export type Stage = (typeof STAGES)[number];

/** Maximum number of unrepaired vaults named in a walk's record. `leftTotal` counts all. */
export const MAX_NAMED_LEFT = 100;

/**
 * Numbers of repaired faults by kind. The first four kinds are faults of rows that follow from other rows: a row can be
 * `missing`, `extra` (should not exist), `stale` (has other values) or `unreadable`.
 */
export const FaultCounts = z.object({
  missing: z.int(),
  extra: z.int(),
  stale: z.int(),
  unreadable: z.int(),
  /** Vault lists (secrets, keys or certificates of a vault) that the next scan reads again, because they did not match. */
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
 * The record of a walk. With its position, any worker can continue the walk. If a worker crashes, the next one repeats its last
 * step.
 */
export const WalkRecord = z.object({
  walkId: z.string(),
  startedAt: z.string(),
  finishedAt: z.string().optional(),
  stage: z.enum(STAGES),
  /**
   * Position in the stage: after the vault, partition, subscription or check `at`, or within it after the row key `after`. Both
   * are empty at the start of a stage.
   */
  at: z.string(),
  after: z.string(),
  /** Number of inspected vaults. */
  vaults: z.int(),
  /** Number of compared rows. */
  rows: z.int(),
  /** Differences confirmed by the second check and repaired. */
  mended: FaultCounts,
  /** Number of wrong rows that are repaired only when the next scan lists their vault. The next walk checks them again. */
  awaiting: z.int(),
  /**
   * Vaults that were skipped because they could not be repaired, or because a scan was writing them at each attempt. Also checks
   * (record-checks.ts) that could not run.
   */
  left: z.array(z.object({ vault: z.string(), reason: z.string() })),
  leftTotal: z.int(),
  /**
   * Number of signed rows that can't be read, or whose signature is wrong. They are not used, and can't be rebuilt. Absent in
   * records of earlier versions.
   */
  unverified: z.int().optional(),
  /** Number of other rows that can't be read, and that the walk does not rebuild. Absent in records of earlier versions. */
  unreadable: z.int().optional(),
  /** True if the record of the previous walk could not be read, so that this walk started at the beginning. */
  startedOver: z.boolean().optional(),
});
export type WalkRecord = z.infer<typeof WalkRecord>;

export const Walks = entity("Reconciliation", WalkRecord);
/** The queue whose messages start a run. They have no content. */
export const QUEUE = "reconciliation";
/** Partition of the records, and the row keys of the newest walk and of the previous one. */
export const WALKS = "walks";
export const NEWEST = "newest";
export const BEFORE = "before";
