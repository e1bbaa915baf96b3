/**
 * Lists violations, filtered and page by page. The overview has the number of failing assets for each check and vault, so only
 * the rows of the requested page are read. A "slice" is the failing assets of one check in one vault; the list is a sequence of
 * slices.
 */
import * as z from "zod";
import { assetId, sourceOf } from "../inventory/asset.ts";
import { decodeCursor, encodeCursor, MAX_OFFSET, type Page, type PageRequest } from "../platform/http/paging.ts";
import { Problem } from "../platform/http/problem.ts";
import type { Tables } from "../platform/storage/tables.ts";
import type { Check, Severity } from "./check.ts";
import { CHECKS } from "./checks/all.ts";
import { type FrameworkId, isOfFramework } from "./controls.ts";
import { storedOwnerText } from "./finding-facts.ts";
import { countExempted, type Overview } from "./overview.ts";
import type { Finding } from "./packed-results.ts";
import { exemptionIdOf, readListingTimes, resourceIdOf, type Violation, violationOf } from "./violation.ts";
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
  /** True: only violations of resources with an owner. False: only those without one. */
  hasOwner?: boolean | undefined;
  exempted?: boolean | undefined;
}

/** `open` and `exempted` count the violations without and with an exemption. Null if the total is null. */
export interface ViolationPage extends Page<Violation> {
  open: number | null;
  exempted: number | null;
}

/** A position in the list, from which the next page continues. */
const Position = z.object({
  /** ID of the check of the last returned violation. */
  c: z.string().max(100),
  /** Name of its vault, in lower case. */
  v: z.string().max(127),
  /** Name of its asset, in lower case. `AFTER_ALL` if it was the last of its slice. */
  n: z.string().max(128),
  /** Its number in its slice, from 1. */
  i: z.int().min(0),
});
type Position = z.infer<typeof Position>;
const Cursor = Position.extend({
  /** The filters of the request, as JSON. The cursor is valid only with the same filters. */
  f: z.string(),
  /** Number of matches still to skip for the offset, if the previous request could not skip all of them. */
  s: z.int().min(0).max(MAX_OFFSET).default(0),
});

/** In place of a name: the position after all violations of the slice. `~` sorts after every character of a name. */
const AFTER_ALL = "~";
/** Limits of a search in violations that no index supports: violations per step, and steps per request. */
export const VIOLATIONS_PER_STEP = 1000;
export const MAX_STEPS = 10;

/**
 * Lists violations in the order of severity, check, vault and resource. The filters `owner`, `hasOwner`, `resource` and, for
 * partly exempted slices, `exempted` are searched for: a request examines at most 10,000 violations and returns the matches, with
 * a cursor to continue. The total is then null, except for `exempted`.
 */
export async function listViolations(
  tables: Tables,
  overview: Overview,
  filter: ViolationFilter,
  request: PageRequest,
): Promise<ViolationPage> {
  const { severity, framework, check, vault, subscription, resource, owner, hasOwner, exempted } = filter;
  // Absent without these filters, so that cursors of the previous version stay valid.
  const laterFilters = [
    ...(resource === undefined ? [] : [resource]),
    ...(hasOwner === undefined ? [] : [{ hasOwner }]),
  ];
  const identity = JSON.stringify([severity, framework, check, vault, subscription, owner, exempted, ...laterFilters]);
  const cursor = request.cursor === undefined ? undefined : decodeCursor(Cursor, request.cursor);
  if (cursor && cursor.f !== identity) {
    throw new Problem(
      "invalidCursor",
      "This cursor belongs to other filters. Send the same filters with it, or start without it.",
    );
  }
  const slices = slicesOf(filter, overview);
  const result = await searchViolations(tables, overview, slices, filter, {
    after: cursor,
    skip: cursor ? cursor.s : request.offset,
    limit: request.limit,
  });
  const listingTimes = await readListingTimes(
    tables,
    result.entries.map(({ slice }) => slice.vault),
  );
  const { next, skip } = result;
  return {
    items: result.entries.map(({ slice, finding }) => violationOf(slice, finding, overview, listingTimes)),
    ...totalsOf(slices, overview, filter, result, cursor === undefined),
    limit: request.limit,
    offset: request.offset,
    nextCursor: next ? encodeCursor({ ...next, f: identity, s: skip } satisfies z.input<typeof Cursor>) : null,
  };
}

/**
 * Returns the slices that can contain matches, in the order of the list: checks as in `CHECKS`, and vaults by lower-case name,
 * as in the overview. `slicesAfter` relies on this order.
 */
export function slicesOf(filter: ViolationFilter, overview: Overview): Slice[] {
  const vaults = overview.vaults.filter(
    ({ name, subscriptionId }) =>
      (filter.vault === undefined || name.toLowerCase() === filter.vault) &&
      (filter.subscription === undefined || subscriptionId.toLowerCase() === filter.subscription),
  );
  return CHECKS.filter((check) => includesCheck(filter, check)).flatMap((check) =>
    vaults.flatMap((vault) => {
      // A check has a `code` in stored rows and an `id` in the API.
      const failed = vault.tallies.get(check.code)?.failed ?? 0;
      // The whole slice: all `failed` violations, from position 0.
      const slice: Slice = { check, vault, from: 0, count: failed, failed };
      const exempted = countExemptedIn(slice, overview);
      if (filter.resource !== undefined && !mayContainResource(slice, filter.resource)) return [];
      const isEmpty =
        filter.exempted === undefined ? failed === 0 : filter.exempted ? exempted === 0 : exempted === failed;
      return isEmpty ? [] : [slice];
    }),
  );
}

const includesCheck = ({ severity, framework, check: id }: ViolationFilter, check: Check): boolean =>
  (severity === undefined || check.severity === severity) &&
  (framework === undefined || isOfFramework(check.id, framework)) &&
  (id === undefined || check.id === id);

/** Returns whether the slice can contain the resource. An asset's ID starts with its vault's name and its type. */
function mayContainResource({ check, vault: { name: vaultName } }: Slice, resource: string): boolean {
  if (check.resourceType === "vault") return resource === vaultName.toLowerCase();
  const source = sourceOf(check);
  const isOfKeyVault = source === "keyVault";
  return resource.startsWith(isOfKeyVault ? assetId({ vaultName, type: check.resourceType, name: "" }) : `${source}.`);
}

const countExemptedIn = ({ check, vault, failed }: Slice, overview: Overview): number =>
  failed === 0 ? 0 : countExempted(overview, check, vault, failed);

/**
 * A violation of a slice. `finding`: the tuple `[name, since, evidence, facts]`. `position`: its number in the slice, from 1.
 */
interface Entry {
  slice: Slice;
  finding: Finding;
  position: number;
  isLast: boolean;
}

interface SearchResult {
  entries: Entry[];
  /** Position from which the next page continues. Undefined at the end of the list. */
  next: Position | undefined;
  /** Number of matches still to skip. */
  skip: number;
  /** Number of matches in this request, including skipped ones, and how many of them are exempted. */
  matches: number;
  exempted: number;
}

/** Reads violations from a position on, until `limit` matches are found or the request has examined its maximum. */
async function searchViolations(
  tables: Tables,
  overview: Overview,
  slices: Slice[],
  filter: ViolationFilter,
  { after, skip, limit }: { after: Position | undefined; skip: number; limit: number },
): Promise<SearchResult> {
  let remaining = after ? slicesAfter(slices, after) : slices;
  const matches = createMatcher(filter, remaining, overview);
  if (!matches) {
    const { entries, next } = await readNextEntries(tables, overview, remaining, skip, limit);
    return { entries, next, skip: 0, matches: 0, exempted: 0 };
  }
  const result: SearchResult = { entries: [], next: undefined, skip, matches: 0, exempted: 0 };
  for (let step = 0; step < MAX_STEPS; step++) {
    const { entries, next } = await readNextEntries(tables, overview, remaining, 0, VIOLATIONS_PER_STEP);
    let lastExamined: Entry | undefined;
    for (const entry of entries) {
      if (matches(entry)) {
        // The page is full and there is a further match: the next page starts after the entry before it. Before the first entry
        // of this step, that is where the previous step ended.
        if (result.entries.length === limit)
          return { ...result, next: lastExamined ? positionOf(lastExamined) : result.next };
        result.matches++;
        if (exemptionIdOf(entry.slice, entry.finding, overview) !== null) result.exempted++;
        if (result.skip > 0) result.skip--;
        else result.entries.push(entry);
      }
      lastExamined = entry;
    }
    result.next = next;
    if (!next) break;
    remaining = slicesAfter(slices, next);
  }
  return result;
}

/** Returns whether a filter depends on the resources of violations or their owners, which the overview does not count. */
const isAboutResources = ({ resource, owner, hasOwner }: ViolationFilter): boolean =>
  resource !== undefined || owner !== undefined || hasOwner !== undefined;

/** Returns a predicate that each violation must match. Undefined if all violations of these slices match. */
function createMatcher(
  filter: ViolationFilter,
  slices: readonly Slice[],
  overview: Overview,
): ((entry: Entry) => boolean) | undefined {
  const { resource, owner, hasOwner, exempted } = filter;
  /** Some violations of the slice are exempted, some are not. */
  const isMixed = (slice: Slice) => {
    const count = countExemptedIn(slice, overview);
    return count > 0 && count < slice.failed;
  };
  if (!isAboutResources(filter) && (exempted === undefined || !slices.some(isMixed))) return undefined;
  // `finding[3]` are the facts, such as the owners.
  return ({ slice, finding }) =>
    (resource === undefined || resourceIdOf(slice, finding) === resource) &&
    (owner === undefined || (finding[3]?.owners?.includes(storedOwnerText(owner)) ?? false)) &&
    (hasOwner === undefined || (finding[3]?.owners ?? []).length > 0 === hasOwner) &&
    (exempted === undefined || (exemptionIdOf(slice, finding, overview) !== null) === exempted);
}

/**
 * Returns the numbers of all matches, or a lower bound if a search did not examine all violations.
 *
 * @param isWhole - Whether the search started at the beginning of the list.
 */
function totalsOf(
  slices: readonly Slice[],
  overview: Overview,
  filter: ViolationFilter,
  result: SearchResult,
  isWhole: boolean,
): Pick<ViolationPage, "total" | "totalAtLeast" | "open" | "exempted"> {
  if (isAboutResources(filter)) {
    if (result.next || !isWhole) return { total: null, totalAtLeast: result.matches, open: null, exempted: null };
    return { total: result.matches, open: result.matches - result.exempted, exempted: result.exempted };
  }
  const sum = (count: (slice: Slice) => number) => slices.reduce((total, slice) => total + count(slice), 0);
  const { exempted } = filter;
  const exemptedCount = exempted === false ? 0 : sum((slice) => countExemptedIn(slice, overview));
  const open = exempted === true ? 0 : sum((slice) => slice.failed - countExemptedIn(slice, overview));
  return { total: open + exemptedCount, open, exempted: exemptedCount };
}

/** Returns the slices after a position. The slice of the position itself is reduced to the violations after it. */
export function slicesAfter(slices: Slice[], { c, v, n, i }: Position): Slice[] {
  const orderOfChecks = new Map(CHECKS.map((check, index) => [check.id, index]));
  const positionCheck = orderOfChecks.get(c) ?? -1;
  return slices.flatMap((slice) => {
    const check = orderOfChecks.get(slice.check.id)!;
    const name = slice.vault.name.toLowerCase();
    if (check < positionCheck || (check === positionCheck && name < v)) return [];
    if (check > positionCheck || name > v) return [slice];
    // `from` and `count` are estimates, because the vault may have been evaluated since the last page. `readSlices` ignores them
    // with `after`, the name of the last returned violation, and reads all violations after it. `from` only numbers these, and
    // `count` counts for `selectSlices`, which would skip a slice with 0.
    return n === AFTER_ALL ? [] : [{ ...slice, from: i, count: Math.max(1, slice.failed - i), after: n }];
  });
}

/**
 * Returns `limit` violations after skipping `skip`, and the next position. Returns fewer if they are in too many ranges of
 * rows.
 */
export async function readNextEntries(
  tables: Tables,
  overview: Overview,
  remaining: readonly Slice[],
  skip: number,
  limit: number,
): Promise<{ entries: Entry[]; next: Position | undefined }> {
  const selected = selectSlices(remaining, skip, limit);
  const { slices, itemsOf } = await readSlices(tables, overview, selected.slices);
  const foundEntries = slices.flatMap((slice) => entriesOf(slice, itemsOf(slice)));
  const entries = foundEntries.slice(0, limit);
  const hasMore = selected.more || slices.length < selected.slices.length || foundEntries.length > entries.length;
  const lastEntry = entries.at(-1);
  // Without entries, all violations of these slices have just disappeared. Continue after the slices.
  return {
    entries,
    next: !hasMore ? undefined : lastEntry ? positionOf(lastEntry) : positionAfterSlice(slices.at(-1)),
  };
}

/** Returns the slices, or parts of slices, with `limit` violations after an offset. */
function selectSlices(slices: readonly Slice[], offset: number, limit: number): { slices: Slice[]; more: boolean } {
  const selected: Slice[] = [];
  let [skip, left] = [offset, limit];
  for (const slice of slices) {
    const skipped = Math.min(skip, slice.count);
    skip -= skipped;
    const remaining = slice.count - skipped;
    if (remaining === 0) continue;
    if (left === 0) return { slices: selected, more: true };
    const count = Math.min(left, remaining);
    left -= count;
    selected.push({ ...slice, from: slice.from + skipped, count });
    if (count < remaining) return { slices: selected, more: true };
  }
  return { slices: selected, more: false };
}

const entriesOf = (slice: Slice, findings: Finding[]): Entry[] =>
  findings.map((finding, index) => {
    const position = slice.from + index + 1;
    // With `after`, all findings after the name were read, so the last one read is the last of the slice.
    const isLast = slice.after === undefined ? position >= slice.failed : index === findings.length - 1;
    return { slice, finding, position, isLast };
  });

const positionOf = ({ slice, finding, position, isLast }: Entry): Position => ({
  c: slice.check.id,
  v: slice.vault.name.toLowerCase(),
  n: isLast ? AFTER_ALL : finding[0].toLowerCase(),
  i: position,
});

const positionAfterSlice = (slice: Slice | undefined): Position | undefined =>
  slice && { c: slice.check.id, v: slice.vault.name.toLowerCase(), n: AFTER_ALL, i: slice.failed };
