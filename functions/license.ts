import * as z from "zod";
import { ok } from "../shared/http/reply.ts";
import { LICENSE_REASONS } from "../shared/licensing/license.ts";
import { FEATURES, GRACE_DAYS } from "../shared/licensing/licensing.ts";
import { endpoint } from "./kit.ts";

const LicenseStatus = z
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
    graceEndsAt: z.iso.datetime().nullable(),
    features: z.array(z.enum(FEATURES)).meta({ description: "The areas of the API that are open." }),
  })
  .meta({ id: "LicenseStatus" });

const getLicenseStatus = endpoint({
  name: "getLicenseStatus",
  method: "GET",
  route: "system/license/status",
  summary: "What is licensed",
  description: "The licence is verified offline. Without one the tier is core.",
  tag: "System",
  access: "open",
  tier: "core",
  responds: { 200: LicenseStatus },
  handle: async ({ services }) => {
    const status = await services.licensing.status();
    // Not the customer's name: anybody may ask.
    return ok({
      tier: status.tier,
      valid: status.valid,
      reason: status.reason ?? null,
      expiresAt: status.expiresAt?.toISOString() ?? null,
      daysLeft: status.daysLeft ?? null,
      inGrace: status.inGrace,
      graceEndsAt: status.graceEndsAt?.toISOString() ?? null,
      features: status.features,
    });
  },
});

export const endpoints = [getLicenseStatus];
