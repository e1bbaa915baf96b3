import { ASSIGN_OWNER, type ItemLocation, type MessageLine, type MessageLink, NO_OWNER } from "./message-line.ts";

/**
 * Groups the lines of a message by owner, and by location: the vault, application or tenant that has the asset. The caller gives the
 * lines most urgent first, and this order stays within each group. Also writes the headings of the groups and the facts of a line.
 */

/** Lines of one location, in the given order. */
interface LocationGroup {
  location: ItemLocation | undefined;
  lines: MessageLine[];
}

/** Locations of one owner, in the order of their most urgent line. */
export interface OwnerGroup {
  /** Empty: the asset has no owner tag. Undefined: the items have no owner, such as a failed scan. */
  owner: string | undefined;
  locations: LocationGroup[];
}

/** Returns the text that identifies a location among those of an owner. */
export const locationKey = (location: ItemLocation | undefined): string | undefined =>
  location?.vault ?? location?.directory;

/** Returns the lines by owner, then by location, both in the order of their most urgent line. */
export function groupLines(lines: readonly MessageLine[]): OwnerGroup[] {
  const owners = Map.groupBy(lines, ({ location }) => location?.owner);
  return [...owners].map(([owner, ofOwner]) => ({
    owner,
    locations: [...Map.groupBy(ofOwner, ({ location }) => locationKey(location)).values()].map((ofLocation) => ({
      location: ofLocation[0]!.location,
      lines: ofLocation,
    })),
  }));
}

/** Returns the heading of an owner's lines. */
export function ownerText(owner: string | undefined): string {
  if (owner === undefined) return "Other alerts";
  return owner === "" ? NO_OWNER : `Owner: ${owner}`;
}

/** Returns the link to the page on which users assign an owner to the assets of a location, as a list. */
export const assignOwnerLinks = (location: ItemLocation | undefined): MessageLink[] =>
  location?.assignOwner === undefined ? [] : [{ text: ASSIGN_OWNER, url: location.assignOwner }];

/** Returns the heading of a location's lines. Empty for items without a location. */
export function locationText(location: ItemLocation | undefined): string {
  if (location?.directory !== undefined) return location.directory;
  return location?.vault === undefined
    ? ""
    : `Vault ${location.vault}, subscription ${location.subscription ?? "unknown"}`;
}

/** Minimum length of a fact that gets a line of its own, such as the reason and the next step of a failure. */
const LONG_FACT = 80;

/** Returns facts as lines: short facts are joined, and each long one has a line of its own. */
export function factLines(facts: readonly [string, string][]): string[] {
  const lines: string[] = [];
  let isJoinable = false;
  for (const [label, value] of facts) {
    const isLong = value.length >= LONG_FACT;
    const text = `${label}: ${value}`;
    if (isJoinable && !isLong) lines.push(`${lines.pop()} · ${text}`);
    else lines.push(text);
    isJoinable = !isLong;
  }
  return lines;
}

/** Returns the facts of a line, without those that the headings of its owner and location already contain. */
export const factsUnderHeadings = ({ facts, location }: MessageLine): [string, string][] =>
  facts.filter(
    ([label]) =>
      !(location && (label === "Owner" || (location.vault && (label === "Vault" || label === "Subscription")))),
  );
