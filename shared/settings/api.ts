import * as z from "zod";
import { SETTING_KEYS } from "./definitions.ts";
import { SOURCES } from "./resolve.ts";
import { HISTORY_TYPES } from "./retention.ts";

/** Settings and the retention of histories as the API takes and shows them. */

const settingValue = z.union([z.int(), z.boolean(), z.string()]);
export const Setting = z
  .object({
    key: z.enum(SETTING_KEYS),
    value: settingValue.meta({ description: "What is in force." }),
    source: z.enum(SOURCES).meta({ description: "Where the value comes from; the sources are listed by precedence." }),
    default: settingValue,
    environmentVariable: z.string(),
    type: z.enum(["integer", "boolean", "string"]),
    minimum: z.int().nullable(),
    maximum: z.int().nullable(),
    allowed: z.array(z.string()).nullable(),
    description: z.string(),
    updatedAt: z.iso.datetime().nullable().meta({ description: "When the override was set; null without one." }),
    updatedBy: z.string().nullable(),
    ignored: z
      .array(z.object({ source: z.enum(SOURCES), reason: z.string() }))
      .meta({ description: "Sources whose value can't be used, and why; the next source is in force instead." }),
  })
  .meta({ id: "Setting" });
export const SettingList = z.array(Setting);

export const AllSettings = z
  .object({
    licenseTier: z.enum(["core", "pro"]),
    performance: SettingList,
    features: SettingList,
    logging: SettingList,
    alertDefaults: SettingList,
    retention: SettingList,
    compliancePolicy: SettingList,
    automation: SettingList,
  })
  .meta({ id: "AllSettings" });

export const HistoryStatistics = z
  .object({
    histories: z.array(
      z.object({
        historyType: z.enum(HISTORY_TYPES),
        retentionDays: z.int().meta({ description: "How long entries are kept, by the settings." }),
        total: z.int().nullable().meta({ description: "Entries; null beside totalAtLeast where there are very many." }),
        totalAtLeast: z.int().optional(),
        oldest: z.iso.datetime().nullable().meta({ description: "No entry is older than this; null without entries." }),
      }),
    ),
    auditMinimumRetentionDays: z.int().meta({ description: "Audit entries are never purged younger than this." }),
  })
  .meta({ id: "HistoryStatistics" });

export const PurgeRequest = z
  .strictObject({
    retentionDays: z
      .int({ error: "must be a whole number from 1 to 3650" })
      .min(1, { error: "must be at least 1" })
      .max(3650, { error: "must be at most 3650" })
      .optional()
      .meta({ description: "Days to keep; what the settings say when left out." }),
  })
  .meta({ id: "PurgeRequest" });
export const HistoryPurge = z
  .object({
    historyType: z.enum(HISTORY_TYPES),
    removed: z.int().meta({ description: "Entries this call removed." }),
    retentionDays: z.int().meta({ description: "Days that were kept: as asked for, or the least that may be kept." }),
    more: z.boolean().meta({ description: "Whether more is due: call again, or leave it to the daily run." }),
    problem: z.string().nullable().meta({ description: "Why nothing could be removed." }),
  })
  .meta({ id: "HistoryPurge" });
