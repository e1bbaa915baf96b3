import * as z from "zod";
import { entity } from "../platform/storage/entity.ts";
import { MaintenanceWindow } from "./maintenance-window.ts";

/** Why an application with a policy can't be rotated automatically. Texts are for users. */
export const PolicyAttention = z.object({
  code: z.string(),
  message: z.string(),
  /** How to fix the cause. */
  remedy: z.string(),
  since: z.string(),
});
export type PolicyAttention = z.infer<typeof PolicyAttention>;

/** Rotation policy of one application: how its client secrets are rotated, and whether automatically when they expire soon. */
export const PolicyRecord = z.object({
  /** Client ID of the application. */
  appId: z.string(),
  appName: z.string(),
  /** Whether expiring secrets are rotated automatically. */
  automatic: z.boolean(),
  /** Absent: the setting `defaultValidityDays` applies. */
  expiryDays: z.int().optional(),
  overlapDays: z.int(),
  updateKeyVaults: z.boolean(),
  /** Asset IDs of the only secrets that are written. Empty: the secrets that a user confirmed or a rotation wrote. */
  targets: z.array(z.string()),
  /**
   * Resource IDs of the vaults of `targets` when the policy was set, by vault name in lower case. Absent in rows of earlier
   * releases: a target then applies to any vault of the name.
   */
  vaultIds: z.record(z.string(), z.string()).optional(),
  /** Absent: automatic rotations start and continue at any time. */
  maintenanceWindow: MaintenanceWindow.optional(),
  updatedAt: z.string(),
  updatedBy: z.string(),
  attention: PolicyAttention.optional(),
  /** The timer skips the policy until this time, because one automatic check a day is enough, or the maintenance window is closed. */
  nextCheckAt: z.string().optional(),
});
export type PolicyRecord = z.infer<typeof PolicyRecord>;

/** Stored in one partition, so that the timer reads all policies with one request per 1,000. */
export const Policies = entity("RotationPolicies", PolicyRecord, { signed: true });
export const POLICIES = "policies";
export const policyKey = (appId: string): string => appId.toLowerCase();

export const DEFAULT_OVERLAP_DAYS = 7;
export const MAX_OVERLAP_DAYS = 90;
export const MAX_EXPIRY_DAYS = 730;
/** Maximum number of targets of one policy. */
export const MAX_TARGETS = 50;

/**
 * Returns the days that the lifetime of an automatically created secret must exceed. Before the secret is due again, the
 * overlap period of its predecessor must be over, with one day of margin. A secret with a shorter lifetime would be due
 * immediately.
 */
export const minLifetimeDays = (triggerDays: number, overlapDays: number): number => triggerDays + overlapDays + 1;
