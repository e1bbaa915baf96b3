import * as z from "zod";
import { isTimeZone, MIN_WINDOW_MINUTES, WEEKDAYS, windowMinutes } from "./maintenance-window.ts";
import { DEFAULT_OVERLAP_DAYS, MAX_EXPIRY_DAYS, MAX_OVERLAP_DAYS, MAX_TARGETS, PolicyAttention } from "./policy.ts";

/** API schemas of rotation policies. */

const instant = z.iso.datetime();

const timeOfDay = z.string().regex(/^([01]\d|2[0-3]):[0-5]\d$/, "must be a time of day, such as 22:00");

const MaintenanceWindowView = z
  .strictObject({
    days: z
      .array(z.enum(WEEKDAYS))
      .min(1)
      .max(WEEKDAYS.length)
      .meta({ description: "Days of the week on which the window opens.", example: ["saturday", "sunday"] }),
    from: timeOfDay.meta({ description: "Time of day at which the window opens.", example: "22:00" }),
    to: timeOfDay.meta({
      description: "Time of day at which the window closes. If it is not after `from`, it is on the following day.",
      example: "04:00",
    }),
    timeZone: z
      .string()
      .min(1)
      .max(64)
      .refine(isTimeZone, "must be the name of a time zone, such as Europe/Berlin")
      .meta({
        description: "IANA name of the time zone of both times.",
        example: "Europe/Berlin",
      }),
  })
  .refine((window) => windowMinutes(window) >= MIN_WINDOW_MINUTES, {
    path: ["to"],
    message: `must be at least ${MIN_WINDOW_MINUTES} minutes after from`,
  })
  .meta({ id: "MaintenanceWindow" });

const maintenanceWindow = MaintenanceWindowView.nullable().meta({
  description:
    "When automatic rotations may start, publish a new value and retire the old one. A rotation that has published somewhere publishes and verifies the rest at any time, and a rollback never waits. Null: at any time.",
});

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
    maintenanceWindow: maintenanceWindow.default(null),
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
    maintenanceWindow,
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
