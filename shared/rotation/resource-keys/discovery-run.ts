import * as z from "zod";
import { DiscoveryRunFields } from "../../platform/runs/discovery-runs.ts";
import { entity } from "../../platform/storage/entity.ts";

/** The record of a discovery run of links: which vault secrets store which keys of resources. It contains counts, no value. */

export const RunRecord = DiscoveryRunFields.extend({
  /**
   * How far the run is. A pass compares the secrets with the keys of the resources whose ID is after `after` and not after
   * `until`. `secret`: row key of the last secret that the pass compared. Absent before the first pass.
   */
  position: z.object({ after: z.string(), until: z.string().optional(), secret: z.string().optional() }).optional(),
  /** Resources whose keys were listed. */
  resources: z.int(),
  /** Resources whose keys the identity may not list. */
  resourcesDenied: z.int(),
  /** Secrets that were read in the first pass, and those that the identity may not read. */
  secrets: z.int(),
  secretsDenied: z.int(),
  /** Secrets that store a key, and links that were removed because their secret stores another value now. */
  links: z.int(),
  removed: z.int(),
  /** Outcome of the run, from the decision until the end of the run is completely written. */
  ending: z
    .object({
      status: z.enum(["completed", "partial", "failed"]),
      finishedAt: z.string(),
      /** ID of the audit entry of the run's end. */
      entryId: z.string(),
    })
    .optional(),
});
export type RunRecord = z.infer<typeof RunRecord>;

export const RUNS = "keyLinkRuns";
export const Runs = entity("RotationMatches", RunRecord);
