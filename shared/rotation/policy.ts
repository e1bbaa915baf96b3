import * as z from "zod";
import { entity } from "../platform/storage/entity.ts";

/** Why an application with a policy is not rotated by itself, in words for people. */
export const PolicyAttention = z.object({
  code: z.string(),
  message: z.string(),
  /** What to do about it. */
  remedy: z.string(),
  since: z.string(),
});
export type PolicyAttention = z.infer<typeof PolicyAttention>;

/** How the client secrets of one application are rotated. */
export const PolicyRecord = z.object({
  /** The client id. */
  appId: z.string(),
  appName: z.string(),
  /** Whether secrets that end soon are rotated without anybody asking. */
  automatic: z.boolean(),
  /** Absent: the setting `defaultValidityDays`. */
  expiryDays: z.int().optional(),
  overlapDays: z.int(),
  updateKeyVaults: z.boolean(),
  /** Asset ids of the only secrets that are written; empty for those that a person confirmed or a rotation wrote. */
  targets: z.array(z.string()),
  /**
   * The resource id of each vault of `targets`, by its name in lower case, when the policy was set. Absent where an earlier
   * version set it: then a target is in any vault of the name.
   */
  vaultIds: z.record(z.string(), z.string()).optional(),
  updatedAt: z.string(),
  updatedBy: z.string(),
  attention: PolicyAttention.optional(),
  /** Not to be looked at by itself before: once a day is enough, whatever came of it. */
  nextCheckAt: z.string().optional(),
});
export type PolicyRecord = z.infer<typeof PolicyRecord>;

/** All in one partition: the timer reads them with a request per 1,000. */
export const Policies = entity("RotationPolicies", PolicyRecord, { signed: true });
export const POLICIES = "policies";
export const policyKey = (appId: string): string => appId.toLowerCase();

export const DEFAULT_OVERLAP_DAYS = 7;
export const MAX_OVERLAP_DAYS = 90;
export const MAX_EXPIRY_DAYS = 730;
/** Of one policy; more would be no secret any more. */
export const MAX_TARGETS = 50;

/**
 * Days that a new secret must live for longer than, where it is rotated by itself: until it is due again its predecessor's
 * overlap must be over, with a day to spare. A shorter one would be due as soon as it is made.
 */
export const leastLife = (triggerDays: number, overlapDays: number): number => triggerDays + overlapDays + 1;
