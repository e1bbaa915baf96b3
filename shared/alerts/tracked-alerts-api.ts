import * as z from "zod";
import { singleLine } from "../platform/http/single-line.ts";
import { type AcknowledgementRecord, acknowledgementId, type OpenAlert } from "./acknowledgements.ts";
import { AlertItem, itemView, ulid } from "./api.ts";
import type { Preview } from "./preview.ts";

/** API schemas and views of open alerts, acknowledgments and previews. */

const instant = z.iso.datetime();

export const Acknowledgement = z
  .object({
    id: z.string(),
    ruleId: z.string(),
    itemId: z.string().meta({ description: "Id of the alert's item, such as the asset's id." }),
    since: instant.meta({ description: "Time of the alert's first notification." }),
    note: z.string().nullable().meta({ description: "Note of the user. Null if none was given." }),
    acknowledgedAt: instant.meta({ description: "Time of the acknowledgment." }),
    acknowledgedBy: z.string().meta({ description: "User who acknowledged the alert." }),
  })
  .meta({ id: "AlertAcknowledgement" });
export const acknowledgementView = (record: AcknowledgementRecord): z.infer<typeof Acknowledgement> => ({
  id: acknowledgementId(record),
  ruleId: record.ruleId,
  itemId: record.itemId,
  since: record.since,
  note: record.note ?? null,
  acknowledgedAt: record.acknowledgedAt,
  acknowledgedBy: record.acknowledgedBy,
});

export const NewAcknowledgement = z
  .strictObject({
    ruleId: ulid,
    itemId: z
      .string()
      .min(1)
      .max(500)
      .optional()
      .meta({ description: "Id of one item, such as `<vault>.<type>.<name>`. Required unless `historyId` is given." }),
    historyId: ulid.optional().meta({
      description: "Id of a history entry. Acknowledges all of its open alerts. Required unless `itemId` is given.",
    }),
    note: singleLine(500)
      .optional()
      .meta({ description: "Note for other users, such as who is working on the alert." }),
  })
  .refine(({ itemId, historyId }) => (itemId === undefined) !== (historyId === undefined), {
    message: "must be given, or historyId instead of it",
    path: ["itemId"],
  })
  .meta({ id: "NewAlertAcknowledgement" });
export const Acknowledged = z
  .object({
    acknowledged: z.int().meta({ description: "Number of alerts that this request acknowledged." }),
    items: z.array(Acknowledgement).meta({ description: "The first 100 acknowledgments." }),
  })
  .meta({ id: "AlertsAcknowledged" });
const SHOWN_ACKNOWLEDGEMENTS = 100;
export const acknowledgedView = (created: readonly AcknowledgementRecord[]): z.infer<typeof Acknowledged> => ({
  acknowledged: created.length,
  items: created.slice(0, SHOWN_ACKNOWLEDGEMENTS).map(acknowledgementView),
});

export const OpenAlertEntry = z
  .object({
    item: AlertItem.meta({ description: "The item of the alert." }),
    since: instant.meta({ description: "Time of the rule's first notification about the item." }),
    toldAt: instant.meta({ description: "Time of the rule's last notification about the item." }),
    historyId: z
      .string()
      .nullable()
      .meta({ description: "Id of the history entry of the last notification. Null for alerts of earlier versions." }),
    acknowledgement: Acknowledgement.nullable().meta({
      description: "The acknowledgment. Null if the alert is not acknowledged.",
    }),
  })
  .meta({ id: "OpenAlert" });
export const openAlertView = (alert: OpenAlert): z.infer<typeof OpenAlertEntry> => ({
  item: itemView(alert.item),
  since: alert.since,
  toldAt: alert.toldAt,
  historyId: alert.deliveryId || null,
  acknowledgement: alert.acknowledgement ? acknowledgementView(alert.acknowledgement) : null,
});

export const AlertPreview = z
  .object({
    total: z.int().nullable().meta({
      description:
        "Number of items that the rule would send now. Null if only a lower bound is known; see `totalAtLeast`.",
    }),
    totalAtLeast: z
      .int()
      .optional()
      .meta({ description: "Lower bound of the number of items, if they exceed one message." }),
    items: z.array(AlertItem).meta({ description: "The first 100 items, most urgent first." }),
    isFirst: z
      .boolean()
      .meta({ description: "Whether this is the rule's first evaluation, which reports all existing matches." }),
    evaluatedAt: instant
      .nullable()
      .meta({ description: "Time of the next evaluation. Null while the rule is disabled." }),
    next: z
      .object({
        at: instant.meta({ description: "Time at which the asset reaches the threshold." }),
        item: AlertItem.meta({ description: "The item of the next notification." }),
      })
      .nullable()
      .meta({
        description:
          "For rules about expiry: the next asset to reach a threshold, searched among the next 1,000 assets per type and threshold. Null if none was found.",
      }),
  })
  .meta({ id: "AlertPreview" });
const SHOWN_ITEMS = 100;
export const previewView = (preview: Preview): z.infer<typeof AlertPreview> => ({
  ...(preview.more ? { total: null, totalAtLeast: preview.items.length } : { total: preview.items.length }),
  items: preview.items.slice(0, SHOWN_ITEMS).map(itemView),
  isFirst: preview.isFirst,
  evaluatedAt: preview.evaluatedAt ?? null,
  next: preview.next ? { at: preview.next.at, item: itemView(preview.next.item) } : null,
});
