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
    itemId: z.string().meta({ description: "Of what the alert is about, such as the asset." }),
    since: instant.meta({ description: "Since when the alert was told." }),
    note: z.string().nullable().meta({ description: "What was said; null where nothing was." }),
    acknowledgedAt: instant.meta({ description: "When it was acknowledged." }),
    acknowledgedBy: z.string().meta({ description: "Who acknowledged it." }),
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
      .meta({ description: "The id of one item, such as `<vault>.<type>.<name>`. Either this or historyId." }),
    historyId: ulid.optional().meta({
      description: "An entry of the history: all that it told and that has not ended.",
    }),
    note: singleLine(500)
      .optional()
      .meta({ description: "What the others should know, such as who is at work on it." }),
  })
  .refine(({ itemId, historyId }) => (itemId === undefined) !== (historyId === undefined), {
    message: "must be given, or historyId instead of it",
    path: ["itemId"],
  })
  .meta({ id: "NewAlertAcknowledgement" });
export const Acknowledged = z
  .object({
    acknowledged: z.int().meta({ description: "How many alerts this call acknowledged." }),
    items: z.array(Acknowledgement).meta({ description: "The first hundred of them." }),
  })
  .meta({ id: "AlertsAcknowledged" });
const SHOWN_ACKNOWLEDGEMENTS = 100;
export const acknowledgedView = (made: readonly AcknowledgementRecord[]): z.infer<typeof Acknowledged> => ({
  acknowledged: made.length,
  items: made.slice(0, SHOWN_ACKNOWLEDGEMENTS).map(acknowledgementView),
});

export const OpenAlertEntry = z
  .object({
    item: AlertItem.meta({ description: "What it is about." }),
    since: instant.meta({ description: "When the rule first told of it." }),
    toldAt: instant.meta({ description: "When it told of it the last time." }),
    historyId: z.string().nullable().meta({ description: "The entry of the history that told of it the last time." }),
    acknowledgement: Acknowledgement.nullable().meta({
      description: "Who has acknowledged it; null where nobody has.",
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
    total: z.int().nullable().meta({ description: "How many things it would tell now; null beside totalAtLeast." }),
    totalAtLeast: z.int().optional().meta({ description: "Where one message does not hold them all." }),
    items: z.array(AlertItem).meta({ description: "The first hundred, the most urgent first." }),
    isFirst: z.boolean().meta({ description: "It has told nothing yet, so it tells what stands." }),
    evaluatedAt: instant.nullable().meta({ description: "When it is evaluated next; null while it is disabled." }),
    next: z
      .object({
        at: instant.meta({ description: "When the asset crosses the threshold." }),
        item: AlertItem.meta({ description: "What it will tell." }),
      })
      .nullable()
      .meta({
        description:
          "Of a rule about expiry: the asset that crosses a threshold next, where one is among the next 1,000 of each. Null otherwise.",
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
