import * as z from "zod";
import { CATEGORIES, type Category, changesOf, SETTING_KEYS } from "./definitions.ts";
import { SOURCES } from "./resolve.ts";
import { HISTORY_TYPES } from "./retention.ts";

/** Settings and the retention of histories as the API takes and shows them. */

const settingValue = z.union([z.int(), z.boolean(), z.string()]);
export const Setting = z
  .object({
    key: z.enum(SETTING_KEYS).meta({ description: "Its name." }),
    value: settingValue.meta({ description: "What is in force." }),
    source: z.enum(SOURCES).meta({ description: "Where the value comes from; the sources are listed by precedence." }),
    default: settingValue.meta({ description: "What is in force where nothing else says otherwise." }),
    environmentVariable: z.string().meta({ description: "The environment variable that sets it." }),
    type: z.enum(["integer", "boolean", "string"]).meta({ description: "What its value is." }),
    minimum: z.int().nullable().meta({ description: "The least that is taken; null where there is none." }),
    maximum: z.int().nullable().meta({ description: "The most that is taken; null where there is none." }),
    allowed: z.array(z.string()).nullable().meta({ description: "The values that are taken; null where any is." }),
    description: z.string().meta({ description: "What it decides, with its unit." }),
    updatedAt: z.iso.datetime().nullable().meta({ description: "When the override was set; null without one." }),
    updatedBy: z.string().nullable(),
    ignored: z
      .array(z.object({ source: z.enum(SOURCES).meta({ description: "Which source." }), reason: z.string() }))
      .meta({ description: "Sources whose value can't be used, and why; the next source is in force instead." }),
  })
  .meta({ id: "Setting" });
export const SettingList = z.array(Setting);

export const AllSettings = z
  .object({
    licenseTier: z.enum(["core", "pro"]).meta({ description: "The tier that is open now." }),
    performance: SettingList.meta({ description: "How many vaults are read at once, and how long a scan may take." }),
    features: SettingList.meta({ description: "What is switched on." }),
    logging: SettingList.meta({ description: "What is logged." }),
    alertDefaults: SettingList.meta({ description: "What alert rules take for what they leave out." }),
    retention: SettingList.meta({ description: "How long histories are kept." }),
    compliancePolicy: SettingList.meta({ description: "When an asset counts as warning or critical." }),
    automation: SettingList.meta({ description: "When and how secrets are rotated." }),
  })
  .meta({ id: "AllSettings" });

/** How operations and schemas call a category: `AlertDefaults`. */
export const titled = (category: Category): string =>
  CATEGORIES[category].replace(/^./, (letter) => letter.toUpperCase());

export const categoryChanges = (category: Category) => changesOf(category).meta({ id: `${titled(category)}Changes` });

export const HistoryStatistics = z
  .object({
    histories: z
      .array(
        z.object({
          historyType: z.enum(HISTORY_TYPES).meta({ description: "Which history." }),
          retentionDays: z.int().meta({ description: "How long entries are kept, by the settings." }),
          total: z
            .int()
            .nullable()
            .meta({ description: "Entries; null beside totalAtLeast where there are very many." }),
          totalAtLeast: z.int().optional(),
          oldest: z.iso
            .datetime()
            .nullable()
            .meta({ description: "No entry is older than this; null without entries." }),
        }),
      )
      .meta({ description: "Each history." }),
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
    historyType: z.enum(HISTORY_TYPES).meta({ description: "Which history." }),
    removed: z.int().meta({ description: "Entries this call removed." }),
    retentionDays: z.int().meta({ description: "Days that were kept: as asked for, or the least that may be kept." }),
    more: z.boolean().meta({ description: "Whether more is due: call again, or leave it to the daily run." }),
    problem: z.string().nullable().meta({ description: "Why nothing could be removed." }),
  })
  .meta({ id: "HistoryPurge" });
export const PurgeResult = z
  .object({
    removed: z.int().meta({ description: "How many entries this call removed." }),
    histories: z.array(HistoryPurge).meta({ description: "What was removed of each history." }),
  })
  .meta({ id: "PurgeResult" });
