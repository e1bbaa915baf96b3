import * as z from "zod";
import { LICENSE_REASONS } from "./license.ts";
import { FEATURES, GRACE_DAYS, type LicenseStatus } from "./licensing.ts";

// Schema of the license in the API.

export const LicenseView = z
  .object({
    tier: z.enum(["core", "pro"]).meta({ description: "Current tier." }),
    valid: z.boolean().meta({ description: "Whether the license is valid, including its grace period." }),
    reason: z.enum(LICENSE_REASONS).nullable().meta({
      description:
        "Why no license is valid, or `expired` during the grace period. `malformed`: LICENSE_KEY is not exactly one license, or its license is not valid yet. `wrongTenant`: AZURE_TENANT_ID is not the tenant that the license was issued for.",
    }),
    expiresAt: z.iso.datetime().nullable(),
    daysLeft: z.int().nullable().meta({ description: "Whole days until the license expires. Negative once expired." }),
    inGrace: z
      .boolean()
      .meta({ description: `The license has expired but stays valid for a grace period of ${GRACE_DAYS} days.` }),
    graceEndsAt: z.iso.datetime().nullable().meta({
      description: "End of the grace period after the expiry date. Null without a license that can be verified.",
    }),
    features: z.array(z.enum(FEATURES)).meta({ description: "Areas of the API that are available." }),
  })
  .meta({ id: "LicenseStatus" });

/**
 * Converts the license status to the form in API responses. It omits the customer's name, because anyone can request the
 * status.
 */
export const licenseView = (status: LicenseStatus): z.infer<typeof LicenseView> => ({
  tier: status.tier,
  valid: status.valid,
  reason: status.reason ?? null,
  expiresAt: status.expiresAt?.toISOString() ?? null,
  daysLeft: status.daysLeft ?? null,
  inGrace: status.inGrace,
  graceEndsAt: status.graceEndsAt?.toISOString() ?? null,
  features: [...status.features],
});
