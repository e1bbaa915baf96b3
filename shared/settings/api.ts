import * as z from "zod";
import { CATEGORIES, type Category, changesOf, SETTING_KEYS } from "./definitions.ts";
import { SOURCES } from "./effective-values.ts";
import { HISTORY_TYPES } from "./retention.ts";

// Schemas of settings and of the retention of histories in the API. The endpoints validate requests with them and generate the
// API description from them.

const settingValue = z.union([z.int(), z.boolean(), z.string()]);
export const Setting = z
  .object({
    key: z.enum(SETTING_KEYS).meta({ description: "Name of the setting." }),
    value: settingValue.meta({ description: "Effective value." }),
    source: z.enum(SOURCES).meta({ description: "Source of the value. Sources are listed by precedence." }),
    default: settingValue.meta({ description: "Default value." }),
    environmentVariable: z.string().meta({ description: "Environment variable of the setting." }),
    type: z.enum(["integer", "boolean", "string"]).meta({ description: "Type of the value." }),
    minimum: z.int().nullable().meta({ description: "Minimum value. Null if there is none." }),
    maximum: z.int().nullable().meta({ description: "Maximum value. Null if there is none." }),
    allowed: z.array(z.string()).nullable().meta({ description: "Allowed values. Null if any value is allowed." }),
    description: z.string().meta({ description: "Description with unit." }),
    updatedAt: z.iso.datetime().nullable().meta({ description: "Time of the override. Null without one." }),
    updatedBy: z.string().nullable(),
    ignored: z
      .array(z.object({ source: z.enum(SOURCES).meta({ description: "Source." }), reason: z.string() }))
      .meta({ description: "Sources with invalid values, and the reason. The next source takes effect instead." }),
  })
  .meta({ id: "Setting" });
export const SettingList = z.array(Setting);

export const AllSettings = z
  .object({
    licenseTier: z.enum(["core", "pro"]).meta({ description: "Current tier." }),
    performance: SettingList.meta({ description: "Concurrency and duration of scans." }),
    features: SettingList.meta({ description: "Enabled features." }),
    logging: SettingList.meta({ description: "Logging." }),
    alertDefaults: SettingList.meta({ description: "Defaults for alert rules." }),
    retention: SettingList.meta({ description: "Retention of histories." }),
    compliancePolicy: SettingList.meta({ description: "Thresholds for the status warning and critical." }),
    automation: SettingList.meta({ description: "Rotation of secrets." }),
  })
  .meta({ id: "AllSettings" });

/** Returns the name of a category in operation and schema IDs, for example `AlertDefaults`. */
export const categoryIdOf = (category: Category): string =>
  CATEGORIES[category].replace(/^./, (letter) => letter.toUpperCase());

/** Returns the schema of a change of a category's settings. */
export const categoryChanges = (category: Category) =>
  changesOf(category).meta({ id: `${categoryIdOf(category)}Changes` });

export const HistoryStatistics = z
  .object({
    histories: z
      .array(
        z.object({
          historyType: z.enum(HISTORY_TYPES).meta({ description: "Name of the history." }),
          retentionDays: z.int().meta({ description: "Configured retention in days." }),
          total: z
            .int()
            .nullable()
            .meta({ description: "Number of entries. Null when only a lower bound is known; see `totalAtLeast`." }),
          totalAtLeast: z.int().optional(),
          oldest: z.iso
            .datetime()
            .nullable()
            .meta({ description: "Time before which there are no entries. Null without entries." }),
        }),
      )
      .meta({ description: "Histories." }),
    auditMinimumRetentionDays: z.int().meta({ description: "Minimum retention of audit entries in days." }),
  })
  .meta({ id: "HistoryStatistics" });

export const PurgeRequest = z
  .strictObject({
    retentionDays: z
      .int({ error: "must be a whole number from 1 to 3650" })
      .min(1, { error: "must be at least 1" })
      .max(3650, { error: "must be at most 3650" })
      .optional()
      .meta({ description: "Days to keep. Default: the retention settings." }),
  })
  .meta({ id: "PurgeRequest" });
export const HistoryPurge = z
  .object({
    historyType: z.enum(HISTORY_TYPES).meta({ description: "Name of the history." }),
    removed: z.int().meta({ description: "Number of entries that this call removed." }),
    retentionDays: z.int().meta({ description: "Days that were kept: as requested, or the minimum retention." }),
    more: z.boolean().meta({ description: "True when more entries are due: call again, or wait for the daily run." }),
    problem: z.string().nullable().meta({ description: "Why nothing could be removed." }),
  })
  .meta({ id: "HistoryPurge" });
export const PurgeResult = z
  .object({
    removed: z.int().meta({ description: "Number of entries that this call removed." }),
    histories: z.array(HistoryPurge).meta({ description: "Removed entries by history." }),
  })
  .meta({ id: "PurgeResult" });
