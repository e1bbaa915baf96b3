import * as z from "zod";
import { DEFAULT_OVERLAP_DAYS, MAX_EXPIRY_DAYS, MAX_OVERLAP_DAYS, MAX_TARGETS, PolicyAttention } from "./policy.ts";

/** API schemas of rotation policies. */

const instant = z.iso.datetime();

export const PolicyChange = z
  .strictObject({
    automatic: z.boolean().default(false).meta({
      description: "Whether a secret that expires within `rotationTriggerDays` is rotated automatically.",
    }),
    expiryDays: z
      .int()
      .min(1)
      .max(MAX_EXPIRY_DAYS)
      .nullable()
      .default(null)
      .meta({ description: "Days that a new secret is valid. Null: the setting `defaultValidityDays`." }),
    overlapDays: z
      .int()
      .min(1)
      .max(MAX_OVERLAP_DAYS)
      .default(DEFAULT_OVERLAP_DAYS)
      .meta({ description: "Minimum number of days that the old secret stays valid beside the new one." }),
    updateKeyVaults: z.boolean().default(true).meta({ description: "Whether to write vault secrets." }),
    targets: z.array(z.string().min(1).max(300)).max(MAX_TARGETS).default([]).meta({
      description:
        "Asset IDs of the only vault secrets to write. Empty: the places that a user confirmed or an earlier rotation wrote.",
    }),
  })
  .meta({ id: "RotationPolicyChange" });
export type PolicyChange = z.infer<typeof PolicyChange>;

export const Policy = z
  .object({
    appId: z.string(),
    automatic: z.boolean().meta({ description: "Whether expiring secrets are rotated automatically." }),
    expiryDays: z.int().nullable(),
    overlapDays: z.int(),
    updateKeyVaults: z.boolean(),
    targets: z.array(z.string()).meta({
      description:
        "Asset IDs of the only vault secrets to write. Empty: the places that a user confirmed or an earlier rotation wrote.",
    }),
    state: z.enum(["active", "needsAttention"]).meta({
      description:
        "`needsAttention`: automatic rotation is not possible now. `attention` has the reason and the remedy.",
    }),
    attention: PolicyAttention.meta({ id: "RotationPolicyAttention" })
      .nullable()
      .meta({ description: "Why a user must act. Null if nothing is needed." }),
    updatedAt: instant,
    updatedBy: z.string(),
    etag: z.string(),
  })
  .meta({ id: "RotationPolicy" });
