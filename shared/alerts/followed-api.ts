import * as z from "zod";
import { singleLine } from "../http/text.ts";
import { type AcknowledgementRecord, acknowledgementId, type OpenAlert } from "./acknowledgements.ts";
import { AlertItem, itemView, ulid } from "./api.ts";
import type { Preview } from "./preview.ts";

/** Alerts that have not ended, acknowledgements and previews as the API takes and shows them. */

const instant = z.iso.datetime();

export const Acknowledgement = z
  .object({
    id: z.string(),
    ruleId: z.string(),
    itemId: z.string().meta({ description: "ID of the subject of the alert, such as the asset ID." }),
    since: instant.meta({ description: "Time when the alert was first sent." }),
    note: z.string().nullable().meta({ description: "Note. Null when none was given." }),
    acknowledgedAt: instant.meta({ description: "Time of the acknowledgement." }),
    acknowledgedBy: z.string().meta({ description: "Person who acknowledged the alert." }),
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
      .meta({ description: "ID of one item, such as `<vault>.<type>.<name>`. Specify either itemId or historyId." }),
    historyId: ulid.optional().meta({
      description: "ID of a history entry. Acknowledges all its unresolved items.",
    }),
    note: singleLine(500).optional().meta({ description: "Note for others, such as who works on the problem." }),
  })
  .refine(({ itemId, historyId }) => (itemId === undefined) !== (historyId === undefined), {
    message: "must be given, or historyId instead of it",
    path: ["itemId"],
  })
  .meta({ id: "NewAlertAcknowledgement" });
export const Acknowledged = z
  .object({
    acknowledged: z.int().meta({ description: "Number of alerts that this call acknowledged." }),
    items: z.array(Acknowledgement).meta({ description: "The first 100 acknowledged alerts." }),
  })
  .meta({ id: "AlertsAcknowledged" });
const SHOWN_ACKNOWLEDGEMENTS = 100;
export const acknowledgedView = (made: readonly AcknowledgementRecord[]): z.infer<typeof Acknowledged> => ({
  acknowledged: made.length,
  items: made.slice(0, SHOWN_ACKNOWLEDGEMENTS).map(acknowledgementView),
});

export const OpenAlertEntry = z
  .object({
    item: AlertItem.meta({ description: "Subject of the alert." }),
    since: instant.meta({ description: "Time when the rule first sent the alert." }),
    toldAt: instant.meta({ description: "Time when the rule last sent the alert." }),
    historyId: z.string().nullable().meta({ description: "History entry of the last message about the alert." }),
    acknowledgement: Acknowledgement.nullable().meta({
      description: "Acknowledgement. Null when the alert is not acknowledged.",
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
        "Number of alerts that would be sent now. Null when only a lower bound is known; see `totalAtLeast`.",
    }),
    totalAtLeast: z.int().optional().meta({ description: "True when one message can't hold all alerts." }),
    items: z.array(AlertItem).meta({ description: "The first 100 alerts, most urgent first." }),
    isFirst: z.boolean().meta({
      description:
        "True when the rule has never sent an alert, so its next evaluation reports everything that applies.",
    }),
    evaluatedAt: instant
      .nullable()
      .meta({ description: "Time of the next evaluation. Null while the rule is disabled." }),
    next: z
      .object({
        at: instant.meta({ description: "Time when the asset crosses the threshold." }),
        item: AlertItem.meta({ description: "Item of the alert that will be sent." }),
      })
      .nullable()
      .meta({
        description:
          "For expiry rules: next asset that crosses a threshold, searched among the next 1,000 of each threshold. Null otherwise.",
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
