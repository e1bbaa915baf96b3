import * as z from "zod";
import { LICENSE_REASONS } from "./license.ts";
import { FEATURES, GRACE_DAYS, type LicenseStatus } from "./licensing.ts";

/** The licence as the API shows it. */

export const LicenseView = z
  .object({
    tier: z.enum(["core", "pro"]).meta({ description: "The tier that is open now." }),
    valid: z.boolean().meta({ description: "Whether a licence holds now, in its days of grace too." }),
    reason: z.enum(LICENSE_REASONS).nullable().meta({
      description:
        "Why there is no licence that holds, or `expired` in its days of grace. `wrongTenant`: AZURE_TENANT_ID is not the tenant it was issued for.",
    }),
    expiresAt: z.iso.datetime().nullable(),
    daysLeft: z.int().nullable().meta({ description: "Whole days until it expires, negative once it has." }),
    inGrace: z.boolean().meta({ description: `Expired, but still open for ${GRACE_DAYS} days.` }),
    graceEndsAt: z.iso
      .datetime()
      .nullable()
      .meta({ description: "When the days of grace end; null without a licence that has expired." }),
    features: z.array(z.enum(FEATURES)).meta({ description: "The areas of the API that are open." }),
  })
  .meta({ id: "LicenseStatus" });

/** Without the customer's name: anybody may ask. */
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
