import { ASSIGN_OWNER, type MessageLine, type MessageLink, NO_OWNER, type Place } from "./message-line.ts";

/** Groups the lines of a message by owner, and by what holds the asset: its vault, application or tenant. */

/** Lines of one place, most urgent first. */
interface PlaceGroup {
  place: Place | undefined;
  lines: MessageLine[];
}

/** Places of one owner, in the order of their most urgent line. */
export interface OwnerGroup {
  /** Empty: the asset has no owner tag. Undefined: the items have no owner, such as a failed scan. */
  owner: string | undefined;
  places: PlaceGroup[];
}

/** Returns the text that identifies a place among those of an owner. */
export const placeKey = (place: Place | undefined): string | undefined => place?.vault ?? place?.directory;

/** Returns the lines by owner, then by place, both in the order of their most urgent line. */
export function groupLines(lines: readonly MessageLine[]): OwnerGroup[] {
  const owners = Map.groupBy(lines, ({ place }) => place?.owner);
  return [...owners].map(([owner, ofOwner]) => ({
    owner,
    places: [...Map.groupBy(ofOwner, ({ place }) => placeKey(place)).values()].map((ofPlace) => ({
      place: ofPlace[0]!.place,
      lines: ofPlace,
    })),
  }));
}

/** Returns the heading of an owner's lines. */
export function ownerText(owner: string | undefined): string {
  if (owner === undefined) return "Other alerts";
  return owner === "" ? NO_OWNER : `Owner: ${owner}`;
}

/** Returns the link to the page on which users assign an owner to the assets of a place, as a list. */
export const assignOwnerLinks = (place: Place | undefined): MessageLink[] =>
  place?.assignOwner === undefined ? [] : [{ text: ASSIGN_OWNER, url: place.assignOwner }];

/** Returns the heading of a place's lines. Empty for items without a place. */
export function placeText(place: Place | undefined): string {
  if (place?.directory !== undefined) return place.directory;
  return place?.vault === undefined ? "" : `Vault ${place.vault}, subscription ${place.subscription ?? "unknown"}`;
}

/** Minimum length of a detail that gets a line of its own, such as the reason and the next step of a failure. */
const LONG_FACT = 80;

/** Returns details as lines: short details are joined, and each long one has a line of its own. */
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

/** Returns the details of a line, without those that the headings of its owner and place already contain. */
export const factsUnderHeadings = ({ facts, place }: MessageLine): [string, string][] =>
  facts.filter(
    ([label]) => !(place && (label === "Owner" || (place.vault && (label === "Vault" || label === "Subscription")))),
  );
