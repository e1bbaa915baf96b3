import { itemsOf, mailParts, type Part } from "./delivery.ts";
import { type Item, trackedItemOf } from "./items.ts";
import type { Resolved } from "./owners.ts";
import type { RuleRecord } from "./rule.ts";

/** Maximum size of the parts for owners and their replacements in a delivery's row, in characters. */
const MAX_OWNERS_CHARACTERS = 400_000;

/** Returns the owner tag of an item. Undefined for items without an owner. */
function ownerOf(item: Item): { owner: string | undefined } | undefined {
  // The owner did not react, so an escalation goes to the escalation's recipients.
  if (item.kind === "escalated") return undefined;
  const about = trackedItemOf(item) ?? item;
  return about.kind === "asset" || about.kind === "violation" ? { owner: about.owner } : undefined;
}

/** Returns the parts of a mail delivery: one per owner with an address, and one with the other items for the rule's recipients, with
 * the reason.
 *
 * @param resolve - Undefined: all items go to the rule's recipients.
 */
export function partsByOwner(
  rule: Pick<RuleRecord, "recipients">,
  items: readonly Item[],
  resolve: ((owner: string | undefined) => Resolved) | undefined,
): Part[] {
  if (!resolve) return mailParts(rule.recipients, {});
  const owned = new Map<string, { owner: string; items: number[] }>();
  const rest: number[] = [];
  const { recipients } = rule;
  const each = 1500 + JSON.stringify(recipients).length + 16 * recipients.length;
  const reasons = new Map<string, number>();
  for (const [index, item] of items.entries()) {
    const named = ownerOf(item);
    const resolved = named && resolve(named.owner);
    const isFull = (owned.size + 1) * each > MAX_OWNERS_CHARACTERS;
    if (resolved && "address" in resolved && (!isFull || owned.has(resolved.address))) {
      const of = owned.get(resolved.address) ?? { owner: named!.owner!, items: [] };
      of.items.push(index);
      owned.set(resolved.address, of);
    } else {
      rest.push(index);
      const why =
        resolved && ("reason" in resolved ? resolved.reason : "one message can be sent to only so many owners");
      if (why) reasons.set(why, (reasons.get(why) ?? 0) + 1);
    }
  }
  const parts = [...owned].flatMap(([address, of]) => mailParts([address], of));
  if (rest.length === 0) return parts;
  const reason = [...reasons].map(([why, count]) => `${count} because ${why}`).join(", ");
  const all = parts.length === 0 ? {} : { items: rest };
  return [...parts, ...mailParts(rule.recipients, { ...all, ...(reason && { reason }) })];
}

/** Returns parts that send the items of a failed owner mail to the rule's recipients. */
export function replacementsOf(part: Part, rule: Pick<RuleRecord, "recipients">, items: readonly Item[]): Part[] {
  const count = itemsOf(part, items).length;
  const reason = `${count} because the mail to the owner ${part.recipients[0]} failed: ${part.error ?? "unknown error"}`;
  return mailParts(rule.recipients, { ...(part.items && { items: part.items }), reason });
}
