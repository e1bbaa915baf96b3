import * as z from "zod";
import { assetId, sourceOf } from "../inventory/asset.ts";
import { decodeCursor, encodeCursor, MAX_OFFSET, type Page, type PageRequest } from "../platform/http/paging.ts";
import { Problem } from "../platform/http/problem.ts";
import type { Tables } from "../platform/storage/tables.ts";
import type { Check, Severity } from "./check.ts";
import { CHECKS } from "./checks/all.ts";
import { type FrameworkId, isOfFramework } from "./controls.ts";
import { ownerText } from "./finding-facts.ts";
import { exemptedPairs, type Overview } from "./overview.ts";
import type { Finding } from "./packed-results.ts";
import { exemptionIdOf, lastSeen, resourceIdOf, type Violation, violationOf } from "./violation.ts";
import { readSlices, type Slice } from "./violation-rows.ts";

export type { Violation } from "./violation.ts";

export interface ViolationFilter {
  severity?: Severity | undefined;
  framework?: FrameworkId | undefined;
  /** ID of a check. */
  check?: string | undefined;
  /** Lower case. */
  vault?: string | undefined;
  /** Lower case. */
  subscription?: string | undefined;
  /** Lower case: an asset's ID, or a vault's name. */
  resource?: string | undefined;
  owner?: string | undefined;
  exempted?: boolean | undefined;
}

/** Numbers of violations without and with an exemption. Null if the total is null. */
export interface ViolationPage extends Page<Violation> {
  open: number | null;
  exempted: number | null;
}

const Place = z.object({
  /** The last returned violation: its check, its vault, its name in lower case, and how many of the vault were returned. */
  c: z.string().max(100),
  v: z.string().max(127),
  n: z.string().max(128),
  i: z.int().min(0),
});
type Place = z.infer<typeof Place>;
const Cursor = Place.extend({
  /** The filters for which the cursor is valid. */
  f: z.string(),
  /** Remaining number of matches to skip for the offset, if the previous call stopped at its limit. */
  s: z.int().min(0).max(MAX_OFFSET).default(0),
});

/** Sorts after every name of an asset. */
const AFTER_ALL = "~";
/** Limits of a search by owner, resource or single exemptions: violations per step, and steps per call. */
const PART = 1000;
const MAX_PARTS = 10;

/**
 * Lists violations by severity, check and resource. The overview has the number per vault and check, so that only the rows of a
 * page are read. An owner is searched in at most 10,000 violations per call. Then the response has the matches so far, with a
 * cursor, and its total is null.
 */
export async function listViolations(
  tables: Tables,
  overview: Overview,
  filter: ViolationFilter,
  request: PageRequest,
): Promise<ViolationPage> {
  const { severity, framework, check, vault, subscription, resource, owner, exempted } = filter;
  // Absent if not filtered, so that cursors of the previous version remain valid.
  const one = resource === undefined ? [] : [resource];
  const identity = JSON.stringify([severity, framework, check, vault, subscription, owner, exempted, ...one]);
  const cursor = request.cursor === undefined ? undefined : decodeCursor(Cursor, request.cursor);
  if (cursor && cursor.f !== identity) {
    throw new Problem(
      "invalidCursor",
      "This cursor belongs to other filters. Send the same filters with it, or start without it.",
    );
  }
  const all = slicesOf(filter, overview);
  const found = await find(tables, overview, all, filter, {
    after: cursor,
    skip: cursor ? cursor.s : request.offset,
    limit: request.limit,
  });
  const seen = await lastSeen(
    tables,
    found.entries.map(({ slice }) => slice.vault),
  );
  const { next, skip } = found;
  return {
    items: found.entries.map(({ slice, item }) => violationOf(slice, item, overview, seen)),
    ...totalsOf(all, overview, filter, found, cursor === undefined),
    limit: request.limit,
    offset: request.offset,
    nextCursor: next ? encodeCursor({ ...next, f: identity, s: skip } satisfies z.input<typeof Cursor>) : null,
  };
}

/** Returns the failures of each check in each vault that the filter includes, in the order of the list. */
function slicesOf(filter: ViolationFilter, overview: Overview): Slice[] {
  const vaults = overview.vaults.filter(
    ({ name, subscriptionId }) =>
      (filter.vault === undefined || name.toLowerCase() === filter.vault) &&
      (filter.subscription === undefined || subscriptionId.toLowerCase() === filter.subscription),
  );
  return CHECKS.filter((check) => passes(filter, check)).flatMap((check) =>
    vaults.flatMap((vault) => {
      const failed = vault.tallies.get(check.code)?.failed ?? 0;
      const slice: Slice = { check, vault, from: 0, count: failed, failed };
      const exempted = exemptedOf(slice, overview);
      if (filter.resource !== undefined && !mayBeOf(slice, filter.resource)) return [];
      const none =
        filter.exempted === undefined ? failed === 0 : filter.exempted ? exempted === 0 : exempted === failed;
      return none ? [] : [slice];
    }),
  );
}

const passes = ({ severity, framework, check: id }: ViolationFilter, check: Check): boolean =>
  (severity === undefined || check.severity === severity) &&
  (framework === undefined || isOfFramework(check.id, framework)) &&
  (id === undefined || check.id === id);

/** Returns whether a resource may belong to a slice. IDs of assets start with their vault's name and their type. */
function mayBeOf({ check, vault: { name: vaultName } }: Slice, resource: string): boolean {
  if (check.resourceType === "vault") return resource === vaultName.toLowerCase();
  const source = sourceOf(check);
  const isVaults = source === "keyVault";
  return resource.startsWith(isVaults ? assetId({ vaultName, type: check.resourceType, name: "" }) : `${source}.`);
}

const exemptedOf = ({ check, vault, failed }: Slice, overview: Overview): number =>
  failed === 0 ? 0 : exemptedPairs(overview, check, vault, failed);

/** A violation of a slice, with its position in the vault and whether it is the vault's last one of the check. */
interface Entry {
  slice: Slice;
  item: Finding;
  position: number;
  last: boolean;
}

interface Found {
  entries: Entry[];
  /** Where to continue. Undefined at the end. */
  next: Place | undefined;
  /** Remaining number of matches to skip. */
  skip: number;
  /** Number of matches since the beginning, including skipped ones, and how many of them are exempted. */
  matches: number;
  exempted: number;
}

async function find(
  tables: Tables,
  overview: Overview,
  all: Slice[],
  filter: ViolationFilter,
  { after, skip, limit }: { after: Place | undefined; skip: number; limit: number },
): Promise<Found> {
  let rest = after ? behind(all, after) : all;
  const matches = testOf(filter, rest, overview);
  if (!matches) {
    const { entries, next } = await readPart(tables, overview, rest, skip, limit);
    return { entries, next, skip: 0, matches: 0, exempted: 0 };
  }
  const found: Found = { entries: [], next: undefined, skip, matches: 0, exempted: 0 };
  for (let part = 0; part < MAX_PARTS; part++) {
    const { entries, next } = await readPart(tables, overview, rest, 0, PART);
    let examined: Entry | undefined;
    for (const entry of entries) {
      if (matches(entry)) {
        if (found.entries.length === limit) return { ...found, next: examined ? placeOf(examined) : found.next };
        found.matches++;
        if (exemptionIdOf(entry.slice, entry.item, overview) !== null) found.exempted++;
        if (found.skip > 0) found.skip--;
        else found.entries.push(entry);
      }
      examined = entry;
    }
    found.next = next;
    if (!next) break;
    rest = behind(all, next);
  }
  return found;
}

/** Returns the predicate to test each violation with. Undefined if its slice is sufficient. */
function testOf(
  { resource, owner, exempted }: ViolationFilter,
  slices: readonly Slice[],
  overview: Overview,
): ((entry: Entry) => boolean) | undefined {
  const isMixed = (slice: Slice) => {
    const count = exemptedOf(slice, overview);
    return count > 0 && count < slice.failed;
  };
  const isOfSlices = resource === undefined && owner === undefined;
  if (isOfSlices && (exempted === undefined || !slices.some(isMixed))) return undefined;
  return ({ slice, item }) =>
    (resource === undefined || resourceIdOf(slice, item) === resource) &&
    (owner === undefined || (item[3]?.owners?.includes(ownerText(owner)) ?? false)) &&
    (exempted === undefined || (exemptionIdOf(slice, item, overview) !== null) === exempted);
}

/** @param isWhole - Whether the search started at the beginning. */
function totalsOf(
  all: readonly Slice[],
  overview: Overview,
  { resource, owner, exempted }: ViolationFilter,
  found: Found,
  isWhole: boolean,
): Pick<ViolationPage, "total" | "totalAtLeast" | "open" | "exempted"> {
  if (resource !== undefined || owner !== undefined) {
    if (found.next || !isWhole) return { total: null, totalAtLeast: found.matches, open: null, exempted: null };
    return { total: found.matches, open: found.matches - found.exempted, exempted: found.exempted };
  }
  const sum = (of: (slice: Slice) => number) => all.reduce((total, slice) => total + of(slice), 0);
  const covered = exempted === false ? 0 : sum((slice) => exemptedOf(slice, overview));
  const open = exempted === true ? 0 : sum((slice) => slice.failed - exemptedOf(slice, overview));
  return { total: open + covered, open, exempted: covered };
}

/** Returns the slices after a position, without the violations of its vault that were returned. */
function behind(slices: Slice[], { c, v, n, i }: Place): Slice[] {
  const order = new Map(CHECKS.map((check, at) => [check.id, at]));
  const place = order.get(c) ?? -1;
  return slices.flatMap((slice) => {
    const at = order.get(slice.check.id)!;
    const name = slice.vault.name.toLowerCase();
    if (at < place || (at === place && name < v)) return [];
    if (at > place || name > v) return [slice];
    // The remaining number is a guess if the vault was evaluated since. The findings after the name decide.
    return n === AFTER_ALL ? [] : [{ ...slice, from: i, count: Math.max(1, slice.failed - i), after: n }];
  });
}

/** Returns `limit` violations after skipping `skip`, and where to continue. Fewer if they are in too many places. */
async function readPart(
  tables: Tables,
  overview: Overview,
  rest: readonly Slice[],
  skip: number,
  limit: number,
): Promise<{ entries: Entry[]; next: Place | undefined }> {
  const picked = pick(rest, skip, limit);
  const { slices, itemsOf } = await readSlices(tables, overview, picked.slices);
  const found = slices.flatMap((slice) => entriesOf(slice, itemsOf(slice)));
  const entries = found.slice(0, limit);
  const more = picked.more || slices.length < picked.slices.length || found.length > entries.length;
  const last = entries.at(-1);
  // If all violations to be read have just disappeared, continue after them.
  return { entries, next: !more ? undefined : last ? placeOf(last) : endOf(slices.at(-1)) };
}

function pick(slices: readonly Slice[], offset: number, limit: number): { slices: Slice[]; more: boolean } {
  const picked: Slice[] = [];
  let [skip, left] = [offset, limit];
  for (const slice of slices) {
    const skipped = Math.min(skip, slice.count);
    skip -= skipped;
    const rest = slice.count - skipped;
    if (rest === 0) continue;
    if (left === 0) return { slices: picked, more: true };
    const count = Math.min(left, rest);
    left -= count;
    picked.push({ ...slice, from: slice.from + skipped, count });
    if (count < rest) return { slices: picked, more: true };
  }
  return { slices: picked, more: false };
}

const entriesOf = (slice: Slice, items: Finding[]): Entry[] =>
  items.map((item, at) => {
    const position = slice.from + at + 1;
    // After a name, all remaining findings were read, whatever their position.
    const last = slice.after === undefined ? position >= slice.failed : at === items.length - 1;
    return { slice, item, position, last };
  });

const placeOf = ({ slice, item, position, last }: Entry): Place => ({
  c: slice.check.id,
  v: slice.vault.name.toLowerCase(),
  n: last ? AFTER_ALL : item[0].toLowerCase(),
  i: position,
});

const endOf = (slice: Slice | undefined): Place | undefined =>
  slice && { c: slice.check.id, v: slice.vault.name.toLowerCase(), n: AFTER_ALL, i: slice.failed };
