import { createHash } from "node:crypto";
import { encodeTime } from "ulid";
import * as z from "zod";
import { MAX_MAIL_RECIPIENTS } from "../azure/mail.ts";
import { entity } from "../storage/entity.ts";
import { unpackBytes, unpacking } from "../storage/packed.ts";
import { type Item, Item as ItemSchema, notificationKey } from "./items.ts";
import { ALERT_TYPES, DELIVERY_METHODS, DELIVERY_MODES, type RuleRecord } from "./rule.ts";

/** `pending →` one of the others. `cancelled`: the rule was deleted or disabled before it was sent. */
export const DELIVERY_STATUSES = ["pending", "delivered", "partial", "failed", "cancelled"] as const;
export type DeliveryStatus = (typeof DELIVERY_STATUSES)[number];

/** Tellings in one message; what a run has beyond that goes into further messages, the most urgent first. */
export const MAX_ITEMS = 1000;

/** The queue of deliveries that wait to be sent or looked after. */
export const DELIVERY_QUEUE = "alert-deliveries";
export const DeliveryMessage = z.object({ deliveryId: z.string() });

/**
 * What goes to the same recipients: some of the items by mail, or all of them by the posts of a webhook.
 * `waiting →  sending → accepted → delivered | failed`, for a mail; a webhook has no `accepted`.
 */
export const Part = z.object({
  /** E-mail addresses, or the webhook's host. */
  recipients: z.array(z.string()),
  /** Which of the delivery's items, by their place; left out, all of them. */
  items: z.array(z.int()).optional(),
  /** Of a mail to an owner: what the tag says. */
  owner: z.string().optional(),
  /** Of items that have an owner and go to the rule's recipients nevertheless: why. */
  reason: z.string().optional(),
  /** Begun by a version before mailboxes: it goes on in a mailbox of its own. */
  alone: z.boolean().optional(),
  /** It failed, and its items went to the rule's recipients instead. */
  replaced: z.boolean().optional(),
  /** How many of the items PagerDuty or ServiceNow has. */
  posted: z.int().optional(),
  /** Of these the items that the receiver will never take, and what it said of the first. */
  refused: z.int().optional(),
  refusal: z.string().optional(),
  /** What a mail waits for that nothing but the pace holds up. */
  waits: z.string().optional(),
  /** The mail's name at the provider. */
  operationId: z.string().optional(),
  status: z.enum(["waiting", "sending", "accepted", "delivered", "failed", "cancelled"]),
  attempts: z.int(),
  /** Of a mail: attempts before something critical joined it, from when on its pauses are those of a new mail. */
  attemptsBefore: z.int().optional(),
  /** Of a mail: the provider is busy, and takes none of anybody until `notBefore`. */
  throttled: z.boolean().optional(),
  /** How often the provider was asked for an accepted mail's outcome. */
  looks: z.int(),
  /** Until then only the worker that wrote `sending` may go on. */
  leasedUntil: z.string().optional(),
  /** Not to be looked at before. */
  notBefore: z.string().optional(),
  error: z.string().optional(),
  answer: z.object({ status: z.int(), body: z.string() }).optional(),
  /** It was sent again after an attempt of which nobody knows whether it was received. */
  mayBeRepeated: z.boolean().optional(),
  finishedAt: z.string().optional(),
});
export type Part = z.infer<typeof Part>;

/** What the history shows of a delivery; everything but the whole of its items. */
const summary = {
  deliveryId: z.string(),
  ruleId: z.string(),
  ruleName: z.string(),
  alertType: z.enum(ALERT_TYPES),
  deliveryMethod: z.enum(DELIVERY_METHODS),
  deliveryMode: z.enum(DELIVERY_MODES),
  test: z.boolean(),
  requestedBy: z.string(),
  createdAt: z.string(),
  status: z.enum(DELIVERY_STATUSES),
  parts: z.array(Part),
  /** Of mails, once the parts are divided among the owners: the rule's recipients, who get what owners do not. */
  fallback: z.array(z.string()).optional(),
  /** The earliest instant at which there is something to do. */
  nextAt: z.string(),
  finishedAt: z.string().optional(),
  /** How often it came back from the poison queue. */
  revivals: z.int(),
  newsTotal: z.int(),
  /** Of an escalation: the rule whose items nobody acknowledged. */
  escalatedFrom: z.string().optional(),
};
export const DeliverySummary = z.object({ ...summary, firstNews: z.array(ItemSchema) });
export type DeliverySummary = z.infer<typeof DeliverySummary>;

/** `news`, `newsTotal` and `firstNews` are what the stored columns of items are called. */
export const DeliveryRecord = z.object({ ...summary, news: z.instanceof(Uint8Array) });
export type DeliveryRecord = z.infer<typeof DeliveryRecord>;

/** A partition per delivery. */
export const Deliveries = entity("AlertDeliveries", DeliveryRecord);
export const DELIVERY_ROW = "0";
/** What it notifies of. @throws StorageCorrupt when its row holds no items. */
export const itemsIn = (delivery: DeliveryRecord): Item[] =>
  unpacking(Deliveries, { partitionKey: delivery.deliveryId, rowKey: DELIVERY_ROW }, "news", () =>
    unpackBytes(delivery.news, z.array(ItemSchema)),
  );

/** How many of its items a delivery shows in lists. */
export const LISTED_ITEMS = 10;

/** A ULID that follows from what it notifies of: its time is the evaluation's, its rest a hash of the rule and the items. */
export function deliveryIdOf(ruleId: string, at: Date, items: readonly Item[]): string {
  const hash = createHash("sha256")
    .update(JSON.stringify([ruleId, items.map(notificationKey)]))
    .digest();
  const digits = [...hash.subarray(0, 16)].map((byte) => "0123456789ABCDEFGHJKMNPQRSTVWXYZ"[byte & 31]);
  return encodeTime(at.getTime()) + digits.join("");
}

/** A GUID that follows from the delivery and the number of the mail. RFC 9562, version 8. */
export function operationIdOf(deliveryId: string, index: number): string {
  const hash = createHash("sha256").update(`${deliveryId}/${index}`).digest().subarray(0, 16);
  hash[6] = (hash[6]! & 0x0f) | 0x80;
  hash[8] = (hash[8]! & 0x3f) | 0x80;
  const hex = hash.toString("hex");
  return [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)].join("-");
}

const fresh = { status: "waiting", attempts: 0, looks: 0 } as const;

/** The parts of a new delivery: a mail per 50 recipients, or the posts to one address. */
export const partsOf = (rule: Pick<RuleRecord, "deliveryMethod" | "recipients" | "webhookHost">): Part[] =>
  rule.deliveryMethod === "email"
    ? mailParts(rule.recipients, {})
    : [{ recipients: [rule.webhookHost ?? "unknown"], ...fresh }];

/** A mail per 50 recipients, all of the same. */
export function mailParts(recipients: readonly string[], of: Pick<Part, "items" | "owner" | "reason">): Part[] {
  const parts: Part[] = [];
  for (let start = 0; start < recipients.length; start += MAX_MAIL_RECIPIENTS)
    parts.push({ recipients: recipients.slice(start, start + MAX_MAIL_RECIPIENTS), ...of, ...fresh });
  return parts;
}

/** The part's items in their order. */
export const itemsOf = <T>({ items }: Part, all: readonly T[]): T[] =>
  items === undefined ? [...all] : items.flatMap((index) => all[index] ?? []);

export const isFinal = ({ status }: Part): boolean =>
  status === "delivered" || status === "failed" || status === "cancelled";

export function statusOf(parts: readonly Part[]): DeliveryStatus {
  if (!parts.every(isFinal)) return "pending";
  // What went elsewhere instead is told by the parts that took it there.
  const counted = parts.some(({ replaced }) => !replaced) ? parts.filter(({ replaced }) => !replaced) : parts;
  return statusOfFinal(counted);
}

function statusOfFinal(parts: readonly Part[]): DeliveryStatus {
  const delivered = parts.filter(({ status }) => status === "delivered").length;
  if (delivered === parts.length) return "delivered";
  if (delivered > 0) return "partial";
  return parts.some(({ status }) => status === "failed") ? "failed" : "cancelled";
}

export const attemptsOf = (parts: readonly Part[]): number =>
  parts.reduce((most, { attempts }) => Math.max(most, attempts), 0);

/** The queue that asks for an evaluation of the rules before the next timer. */
export const EVALUATION_QUEUE = "alert-evaluations";
