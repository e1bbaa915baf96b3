import { createHash } from "node:crypto";
import { encodeTime } from "ulid";
import * as z from "zod";
import { MAX_MAIL_RECIPIENTS } from "../platform/azure/mail.ts";
import { entity } from "../platform/storage/entity.ts";
import { packedMember, unpackBytes } from "../platform/storage/packed-members.ts";
import { type Item, Item as ItemSchema, notificationKey } from "./items.ts";
import { ALERT_TYPES, DELIVERY_METHODS, DELIVERY_MODES, type RuleRecord } from "./rule.ts";

/**
 * The stored record of a delivery: one message of an alert rule about some items, in parts for groups of recipients. Workers
 * send it from a queue, with retries.
 */

/**
 * `pending` changes to one of the others. `partial`: some parts were delivered, and others were not. `cancelled`: the rule was
 * deleted or disabled before sending. `inDoubt`: the store was restored and the message may have been sent before, so a person
 * must send it (then `pending` again) or drop it (`cancelled`): held-deliveries.ts.
 */
export const DELIVERY_STATUSES = ["pending", "delivered", "partial", "failed", "cancelled", "inDoubt"] as const;
export type DeliveryStatus = (typeof DELIVERY_STATUSES)[number];

/** Maximum number of items in one message. Further items go into further messages, most urgent first. */
export const MAX_ITEMS = 1000;

/** The queue of deliveries with a next step. */
export const DELIVERY_QUEUE = "alert-deliveries";
export const DeliveryMessage = z.object({ deliveryId: z.string() });

/**
 * The part of a delivery for one group of recipients: some items by mail, or all items by webhook. The status changes
 * `waiting → sending → accepted → delivered | failed` for a mail; a webhook has no `accepted`. Before a retry it is `waiting`
 * again. `cancelled`: the rule was deleted or disabled before sending, or a person dropped the delivery after a restore.
 */
export const Part = z.object({
  /** Email addresses, or the webhook's host. */
  recipients: z.array(z.string()),
  /** Indexes of the delivery's items. Undefined: all items. */
  items: z.array(z.int()).optional(),
  /** For a mail to an owner: the value of the owner tag. */
  owner: z.string().optional(),
  /** Why items with an owner go to the rule's recipients. */
  reason: z.string().optional(),
  /**
   * Started by a version without mailboxes: rows that combine the alerts for the same recipients into one mail (mailbox.ts).
   * The part gets a mailbox of its own.
   */
  alone: z.boolean().optional(),
  /** The mail failed and its items went to the rule's recipients. */
  replaced: z.boolean().optional(),
  /** Number of items that were sent to PagerDuty or ServiceNow. */
  posted: z.int().optional(),
  /** Number of items that the receiver rejected permanently, and its response to the first of them. */
  refused: z.int().optional(),
  refusal: z.string().optional(),
  /** Why a mail that only waits for the rate limit is not sent yet. */
  waits: z.string().optional(),
  /** The mail's id at the provider. */
  operationId: z.string().optional(),
  status: z.enum(["waiting", "sending", "accepted", "delivered", "failed", "cancelled"]),
  attempts: z.int(),
  /** Attempts before a critical item was added to the mail. The retry schedule then starts again. */
  attemptsBefore: z.int().optional(),
  /** The mail provider throttles all requests until `notBefore`. */
  throttled: z.boolean().optional(),
  /**
   * Number of requests to the provider for the status of a mail that was accepted, or whose attempt has no known outcome. The
   * stored name is unrelated to the queue `looks`.
   */
  looks: z.int(),
  /** End of the lease of the worker that wrote `sending`. */
  leasedUntil: z.string().optional(),
  /** Earliest time of the next step. */
  notBefore: z.string().optional(),
  error: z.string().optional(),
  /** The webhook receiver's response. */
  answer: z.object({ status: z.int(), body: z.string() }).optional(),
  /** The message was resent after an attempt with an unknown outcome. */
  mayBeRepeated: z.boolean().optional(),
  finishedAt: z.string().optional(),
});
export type Part = z.infer<typeof Part>;

/** The members of a delivery without its items. */
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
  /** For mails: the rule's recipients, who get the items that don't go to owners. Set once owners are assigned. */
  fallback: z.array(z.string()).optional(),
  /** Time of the next step. */
  nextAt: z.string(),
  finishedAt: z.string().optional(),
  /** Number of retries from the poison queue. */
  revivals: z.int(),
  /** Number of items, which stored names call `news`. */
  newsTotal: z.int(),
  /** For an escalation: the rule whose alerts were not acknowledged. */
  escalatedFrom: z.string().optional(),
  /** When the delivery became `inDoubt`. Kept afterwards. */
  heldAt: z.string().optional(),
};
/** A delivery with its first items, as lists show it. */
export const DeliverySummary = z.object({ ...summary, firstNews: z.array(ItemSchema) });
export type DeliverySummary = z.infer<typeof DeliverySummary>;

/** A delivery with all its items in `news`, packed. */
export const DeliveryRecord = z.object({ ...summary, news: packedMember(z.array(ItemSchema)) });
export type DeliveryRecord = z.infer<typeof DeliveryRecord>;

/** A partition per delivery. */
export const Deliveries = entity("AlertDeliveries", DeliveryRecord);
/** Row key of the only row in a delivery's partition. */
export const DELIVERY_ROW = "0";
/** Returns all items of a delivery. */
export const itemsIn = ({ news }: DeliveryRecord): Item[] => unpackBytes(news, z.array(ItemSchema));

/** Number of items that lists include. */
export const LISTED_ITEMS = 10;

/** Returns a deterministic ULID: the time of the evaluation, and a hash of the rule and the items. */
export function deliveryIdOf(ruleId: string, evaluatedAt: Date, items: readonly Item[]): string {
  const hash = createHash("sha256")
    .update(JSON.stringify([ruleId, items.map(notificationKey)]))
    .digest();
  const digits = [...hash.subarray(0, 16)].map((byte) => "0123456789ABCDEFGHJKMNPQRSTVWXYZ"[byte & 31]);
  return encodeTime(evaluatedAt.getTime()) + digits.join("");
}

/** Returns a deterministic GUID from the delivery and the index of the mail. RFC 9562, version 8. */
export function operationIdOf(deliveryId: string, index: number): string {
  const hash = createHash("sha256").update(`${deliveryId}/${index}`).digest().subarray(0, 16);
  hash[6] = (hash[6]! & 0x0f) | 0x80;
  hash[8] = (hash[8]! & 0x3f) | 0x80;
  const hex = hash.toString("hex");
  return [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)].join("-");
}

/** The state of a new part. */
const NOT_STARTED = { status: "waiting", attempts: 0, looks: 0 } as const;

/** Returns the parts of a new delivery: one mail per 50 recipients, or one webhook. */
export const partsOf = (rule: Pick<RuleRecord, "deliveryMethod" | "recipients" | "webhookHost">): Part[] =>
  rule.deliveryMethod === "email"
    ? mailParts(rule.recipients, {})
    : [{ recipients: [rule.webhookHost ?? "unknown"], ...NOT_STARTED }];

/** Returns one mail per 50 recipients, all with the same items. */
export function mailParts(recipients: readonly string[], members: Pick<Part, "items" | "owner" | "reason">): Part[] {
  const parts: Part[] = [];
  for (let start = 0; start < recipients.length; start += MAX_MAIL_RECIPIENTS)
    parts.push({ recipients: recipients.slice(start, start + MAX_MAIL_RECIPIENTS), ...members, ...NOT_STARTED });
  return parts;
}

/** Returns the part's items in order. */
export const itemsOf = <T>({ items }: Part, all: readonly T[]): T[] =>
  items === undefined ? [...all] : items.flatMap((index) => all[index] ?? []);

/** Returns whether a part has no next step. */
export const isFinal = ({ status }: Part): boolean =>
  status === "delivered" || status === "failed" || status === "cancelled";

/** Returns the status of a delivery from the statuses of its parts. */
export function statusOf(parts: readonly Part[]): DeliveryStatus {
  if (!parts.every(isFinal)) return "pending";
  // A failed part that was replaced does not count. The parts that replaced it do.
  const counted = parts.some(({ replaced }) => !replaced) ? parts.filter(({ replaced }) => !replaced) : parts;
  return statusOfFinal(counted);
}

function statusOfFinal(parts: readonly Part[]): DeliveryStatus {
  const delivered = parts.filter(({ status }) => status === "delivered").length;
  if (delivered === parts.length) return "delivered";
  if (delivered > 0) return "partial";
  return parts.some(({ status }) => status === "failed") ? "failed" : "cancelled";
}

/** Returns the number of attempts of the part that had the most. */
export const attemptsOf = (parts: readonly Part[]): number =>
  parts.reduce((most, { attempts }) => Math.max(most, attempts), 0);

/** The queue of requests for an evaluation before the next timer. */
export const EVALUATION_QUEUE = "alert-evaluations";
