import { itemsOf, mailParts, type Part } from "./delivery.ts";
import { type Item, trackedItemOf } from "./items.ts";
import type { Resolved } from "./owners.ts";
import type { RuleRecord } from "./rule.ts";

/**
 * Splits the items of a mail delivery between the owners of the assets and the rule's recipients. A tag of an asset names its
 * owner.
 */

/** Maximum size of the parts for owners and their replacements in a delivery's row, in characters. */
const MAX_OWNERS_CHARACTERS = 400_000;

/**
 * Returns the owner tag of an item: `{ owner: undefined }` if its asset has no such tag. Returns undefined for items that never
 * go to an owner.
 */
function ownerTagOf(item: Item): { owner: string | undefined } | undefined {
  // An escalation goes to the escalation's recipients, because the owner did not acknowledge the alert.
  if (item.kind === "escalated") return undefined;
  const subject = trackedItemOf(item) ?? item;
  return subject.kind === "asset" || subject.kind === "violation" ? { owner: subject.owner } : undefined;
}

/**
 * Returns the parts of a mail delivery: one per owner with an address, and one with the other items for the rule's recipients,
 * with the reason.
 *
 * @param resolve - Undefined: all items go to the rule's recipients.
 */
export function partsByOwner(
  rule: Pick<RuleRecord, "recipients">,
  items: readonly Item[],
  resolve: ((owner: string | undefined) => Resolved) | undefined,
): Part[] {
  if (!resolve) return mailParts(rule.recipients, {});
  const byAddress = new Map<string, { owner: string; items: number[] }>();
  const withoutOwner: number[] = [];
  const { recipients } = rule;
  // Approximate number of characters that an owner adds: a part, and a part for the rule's recipients in case the mail fails.
  const charactersPerOwner = 1500 + JSON.stringify(recipients).length + 16 * recipients.length;
  const reasons = new Map<string, number>();
  for (const [index, item] of items.entries()) {
    const ownerTag = ownerTagOf(item);
    const resolved = ownerTag && resolve(ownerTag.owner);
    const isFull = (byAddress.size + 1) * charactersPerOwner > MAX_OWNERS_CHARACTERS;
    if (resolved && "address" in resolved && (!isFull || byAddress.has(resolved.address))) {
      const ownerPart = byAddress.get(resolved.address) ?? { owner: ownerTag!.owner!, items: [] };
      ownerPart.items.push(index);
      byAddress.set(resolved.address, ownerPart);
    } else {
      withoutOwner.push(index);
      // An item that never goes to an owner needs no reason.
      const reason =
        resolved && ("reason" in resolved ? resolved.reason : "one message can be sent to only so many owners");
      if (reason) reasons.set(reason, (reasons.get(reason) ?? 0) + 1);
    }
  }
  const parts = [...byAddress].flatMap(([address, ownerPart]) => mailParts([address], ownerPart));
  if (withoutOwner.length === 0) return parts;
  const reasonText = [...reasons].map(([reason, count]) => `${count} because ${reason}`).join(", ");
  const itemsMember = parts.length === 0 ? {} : { items: withoutOwner };
  return [...parts, ...mailParts(rule.recipients, { ...itemsMember, ...(reasonText && { reason: reasonText }) })];
}

/** Returns parts that send the items of a failed owner mail to the rule's recipients. */
export function replacementsOf(part: Part, rule: Pick<RuleRecord, "recipients">, items: readonly Item[]): Part[] {
  const count = itemsOf(part, items).length;
  const reason = `${count} because the mail to the owner ${part.recipients[0]} failed: ${part.error ?? "unknown error"}`;
  return mailParts(rule.recipients, { ...(part.items && { items: part.items }), reason });
}
