import { itemsOf, mailParts, type Part } from "./delivery.ts";
import { followedIn, type Item } from "./items.ts";
import type { Resolved } from "./owners.ts";
import type { RuleRecord } from "./rule.ts";

/** Characters of a delivery's row for the parts of owners, and for those that replace them where their mails fail. */
const MAX_OWNERS_CHARACTERS = 400_000;

/** The owner a tag names of what an item is about; undefined where the item is about nothing that has one. */
function ownerOf(item: Item): { owner: string | undefined } | undefined {
  // An escalation is for those who look after what its owner did not.
  if (item.kind === "escalated") return undefined;
  const about = followedIn(item) ?? item;
  return about.kind === "asset" || about.kind === "violation" ? { owner: about.owner } : undefined;
}

/**
 * The parts of a delivery by mail: a mail to each owner who can be reached, and the rest to the rule's recipients, with why.
 *
 * @param resolve - Undefined: nothing goes to owners.
 */
export function planOf(
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
      const why = resolved && ("reason" in resolved ? resolved.reason : "one message goes to no more owners");
      if (why) reasons.set(why, (reasons.get(why) ?? 0) + 1);
    }
  }
  const parts = [...owned].flatMap(([address, of]) => mailParts([address], of));
  if (rest.length === 0) return parts;
  const reason = [...reasons].map(([why, count]) => `${count} because ${why}`).join(", ");
  const all = parts.length === 0 ? {} : { items: rest };
  return [...parts, ...mailParts(rule.recipients, { ...all, ...(reason && { reason }) })];
}

/** The parts by which the items of a mail that did not reach its owner go to the rule's recipients. */
export function insteadOf(part: Part, rule: Pick<RuleRecord, "recipients">, items: readonly Item[]): Part[] {
  const count = itemsOf(part, items).length;
  const reason = `${count} because ${part.recipients[0]}, who owns ${count === 1 ? "it" : "them"}, was not reached: ${part.error ?? "the mail failed"}`;
  return mailParts(rule.recipients, { ...(part.items && { items: part.items }), reason });
}
