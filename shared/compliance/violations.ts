import * as z from "zod";
import { decodeCursor, encodeCursor, type Page, type PageRequest } from "../http/paging.ts";
import { Problem } from "../http/problem.ts";
import { assetId, credentialIds, sourceOf } from "../inventory/asset.ts";
import { VAULTS, Vaults, vaultKey } from "../inventory/vault.ts";
import type { Tables } from "../storage/tables.ts";
import type { Check, Remediation, ResourceType, Severity } from "./check.ts";
import { CHECKS } from "./checks/all.ts";
import { controlsOfCheck, type FrameworkId, isOfFramework } from "./controls.ts";
import { Findings, findingsKey, STATE } from "./layout.ts";
import { isActive, type Overview, type VaultOverview } from "./overview.ts";
import { assetKey, FINDINGS_PER_ROW, type Finding, unpackFindings } from "./pack.ts";
import { findingRows } from "./vault-state.ts";

export interface ViolationFilter {
  severity?: Severity | undefined;
  framework?: FrameworkId | undefined;
}

export interface Violation {
  id: string;
  resourceId: string;
  resourceType: ResourceType;
  resourceName: string;
  /** Null, as the subscription, for what is no key vault's. */
  vaultName: string | null;
  subscriptionId: string | null;
  checkId: string;
  title: string;
  severity: Severity;
  rationale: string;
  frameworks: FrameworkId[];
  controls: { framework: FrameworkId; control: string }[];
  evidence: string;
  remediation: Remediation;
  firstSeenAt: string;
  lastSeenAt: string;
  exempted: boolean;
  exemptionId: string | null;
}

const Cursor = z.object({
  /** The filters it belongs to. */
  f: z.string(),
  /** The last answered: its check, its vault, its name in lower case, and how many of the vault's were answered. */
  c: z.string().max(100),
  v: z.string().max(127),
  n: z.string().max(128),
  i: z.int().min(0),
});
type Cursor = z.infer<typeof Cursor>;

/** Sorts after every name of an asset. */
const AFTER_ALL = "~";

/** A stretch of one check's failing resources in one vault, by position. */
interface Slice {
  check: Check;
  vault: VaultOverview;
  from: number;
  count: number;
  /** All that fail. */
  failed: number;
  /** Only names behind this one; positions before it may have changed. */
  after?: string;
}

/**
 * Violations by severity, check and resource. How many each vault has of each check is known from the overview, so that
 * exactly the rows of a page are read, in few ranges: the rows of a framework's asset checks lie in at most six stretches,
 * whatever lies between, and a vault's own failures came with the overview.
 */
export async function listViolations(
  tables: Tables,
  overview: Overview,
  filter: ViolationFilter,
  request: PageRequest,
): Promise<Page<Violation>> {
  const identity = JSON.stringify([filter.severity ?? null, filter.framework ?? null]);
  const cursor = request.cursor === undefined ? undefined : decodeCursor(Cursor, request.cursor);
  if (cursor && cursor.f !== identity) {
    throw new Problem(
      "invalidCursor",
      "This cursor belongs to other filters. Send the same filters with it, or start without it.",
    );
  }
  const checks = CHECKS.filter(
    ({ id, severity }) =>
      (filter.severity === undefined || severity === filter.severity) &&
      (filter.framework === undefined || isOfFramework(id, filter.framework)),
  );
  const all = checks.flatMap((check) => failingVaults(check, overview));
  const { slices, more } = pick(cursor ? behind(all, cursor) : all, cursor ? 0 : request.offset, request.limit);
  const findings = await readFindings(tables, overview, slices);
  const found = slices.flatMap((slice) => entriesOf(slice, itemsOf(slice, findings)));
  const entries = found.slice(0, request.limit);
  const seen = await lastSeen(
    tables,
    entries.map(({ slice }) => slice.vault),
  );
  const place = more || found.length > entries.length ? placeAfter(slices, entries.at(-1)) : undefined;
  return {
    items: entries.map(({ slice, item }) => violation(slice, item, overview, seen)),
    total: all.reduce((sum, { failed }) => sum + failed, 0),
    limit: request.limit,
    offset: request.offset,
    nextCursor: place ? encodeCursor({ f: identity, ...place } satisfies Cursor) : null,
  };
}

function failingVaults(check: Check, overview: Overview): Slice[] {
  return overview.vaults.flatMap((vault) => {
    const failed = vault.tallies.get(check.code)?.failed ?? 0;
    return failed > 0 ? [{ check, vault, from: 0, count: failed, failed }] : [];
  });
}

/** What lies behind the cursor, where the vault it ended in counts as far as it was answered. */
function behind(slices: Slice[], { c, v, n, i }: Cursor): Slice[] {
  const order = new Map(CHECKS.map((check, at) => [check.id, at]));
  const place = order.get(c) ?? -1;
  return slices.flatMap((slice) => {
    const at = order.get(slice.check.id)!;
    const name = slice.vault.name.toLowerCase();
    if (at < place || (at === place && name < v)) return [];
    if (at > place || name > v) return [slice];
    // How many are left is a guess where the vault was evaluated since; what is found behind the name decides.
    return n === AFTER_ALL ? [] : [{ ...slice, from: i, count: Math.max(1, slice.failed - i), after: n }];
  });
}

function pick(slices: Slice[], offset: number, limit: number): { slices: Slice[]; more: boolean } {
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

/** A violation of a slice, with its position in the vault and whether it is the vault's last of the check. */
interface Entry {
  slice: Slice;
  item: Finding;
  position: number;
  last: boolean;
}

const entriesOf = (slice: Slice, items: Finding[]): Entry[] =>
  items.map((item, at) => {
    const position = slice.from + at + 1;
    // Behind a name all that is left was read, whatever the position.
    const last = slice.after === undefined ? position >= slice.failed : at === items.length - 1;
    return { slice, item, position, last };
  });

function placeAfter(slices: Slice[], entry: Entry | undefined): Omit<Cursor, "f"> | undefined {
  // Where all that was to be read has just gone, the walk goes on behind it.
  const slice = entry?.slice ?? slices.at(-1);
  if (!slice) return undefined;
  const n = entry && !entry.last ? entry.item[0].toLowerCase() : AFTER_ALL;
  return { c: slice.check.id, v: slice.vault.name.toLowerCase(), n, i: entry?.position ?? slice.failed };
}

/** A stretch of row keys, and how many rows it holds. */
interface Stretch {
  from: string;
  to: string;
  rows: number;
  check: Check;
}

const PAGE_ROWS = 1000;
/** Rows nobody asked for that are read along rather than asking once more. */
const MAX_GAP_ROWS = 200;

async function readFindings(tables: Tables, overview: Overview, slices: Slice[]): Promise<Map<string, Finding[]>> {
  const findings = new Map<string, Finding[]>();
  await Promise.all(
    stretchesOf(slices, overview).map(async ({ from, to }) => {
      for await (const rows of tables.pages(Findings, { partitionKey: STATE, from, before: `${to}!` })) {
        for (const row of rows) findings.set(row.rowKey, unpackFindings(row.items));
      }
    }),
  );
  return findings;
}

/** The rows of a vault that a slice needs: those of its positions; behind a name all, since positions may have moved. */
const rowsOf = ({ after, from, count, failed }: Slice): { first: number; last: number } =>
  after === undefined
    ? { first: Math.floor(from / FINDINGS_PER_ROW), last: Math.floor((from + count - 1) / FINDINGS_PER_ROW) }
    : { first: 0, last: findingRows(failed) - 1 };

function stretchesOf(slices: Slice[], overview: Overview): Stretch[] {
  const stretches: Stretch[] = [];
  for (const slice of slices) {
    if (slice.check.resourceType === "vault") continue;
    const { first, last } = rowsOf(slice);
    const [from, to] = [first, last].map((chunk) => findingsKey(slice.check, slice.vault.name, chunk)) as [
      string,
      string,
    ];
    const before = stretches.at(-1);
    const rows = last - first + 1;
    const gap = before ? rowsBetween(before.check, slice.check, overview) : Infinity;
    const together = before ? before.rows + gap + rows : Infinity;
    if (before && (gap === 0 || (gap <= MAX_GAP_ROWS && together <= PAGE_ROWS))) {
      Object.assign(before, { to, rows: together, check: slice.check });
    } else stretches.push({ from, to, rows, check: slice.check });
  }
  return stretches;
}

/** Rows of the checks that stand between two; within one check the rows of a page follow each other. */
function rowsBetween(a: Check, b: Check, overview: Overview): number {
  return CHECKS.slice(CHECKS.indexOf(a) + 1, CHECKS.indexOf(b))
    .filter((check) => check.resourceType !== "vault")
    .reduce(
      (sum, { code }) =>
        sum + overview.vaults.reduce((rows, { tallies }) => rows + findingRows(tallies.get(code)?.failed ?? 0), 0),
      0,
    );
}

function itemsOf(slice: Slice, findings: ReadonlyMap<string, Finding[]>): Finding[] {
  const { check, vault, from, count, after } = slice;
  if (check.resourceType === "vault") {
    const failure = vault.failures.find(({ code }) => code === check.code);
    return failure ? [[vault.name, failure.since, failure.evidence]] : [];
  }
  const { first, last } = rowsOf(slice);
  const items: Finding[] = [];
  for (let chunk = first; chunk <= last; chunk++)
    items.push(...(findings.get(findingsKey(check, vault.name, chunk)) ?? []));
  if (after !== undefined) return items.filter(([name]) => name.toLowerCase() > after);
  return items.slice(from - first * FINDINGS_PER_ROW).slice(0, count);
}

type Seen = Map<string, Partial<Record<ResourceType, string>>>;

/** When the lists of these vaults were last read to their end: an unchanged asset is seen again without a new evaluation. */
async function lastSeen(tables: Tables, vaults: VaultOverview[]): Promise<Seen> {
  const names = vaults.map(({ name }) => vaultKey(name)).sort();
  const [first, last] = [names[0], names.at(-1)];
  const seen: Seen = new Map();
  if (first === undefined || last === undefined) return seen;
  const range = {
    partitionKey: VAULTS,
    from: first,
    before: `${last}!`,
    select: ["name" as const, "listedAt" as const],
  };
  for await (const rows of tables.pages(Vaults, range)) {
    for (const { name, listedAt } of rows) {
      const newest = Object.values(listedAt).sort().at(-1);
      seen.set(name.toLowerCase(), newest === undefined ? listedAt : { ...listedAt, vault: newest });
    }
  }
  return seen;
}

function violation(slice: Slice, [name, since, evidence]: Finding, overview: Overview, seen: Seen): Violation {
  const { check, vault } = slice;
  const { resourceType } = check;
  const resourceId =
    resourceType === "vault" ? vault.name.toLowerCase() : assetId({ vaultName: vault.name, type: resourceType, name });
  const isHolder = check.resourceType !== "vault" && sourceOf(check) !== "keyVault";
  const firstSeenAt = new Date(since * 1000).toISOString();
  const listedAt = seen.get(vault.name.toLowerCase())?.[resourceType] ?? firstSeenAt;
  const controls = controlsOfCheck(check.id);
  const exemption =
    resourceType === "vault" ? undefined : assetExemption(vault, check.id, assetKey(resourceType, name), overview.now);
  const exemptionId = exemption?.id ?? overview.exemptionOf(check.id, vault)?.id ?? null;
  return {
    id: `${check.id}.${resourceId}`,
    resourceId,
    resourceType,
    resourceName: name,
    vaultName: isHolder ? null : vault.name,
    subscriptionId: isHolder ? null : vault.subscriptionId,
    checkId: check.id,
    title: check.title,
    severity: check.severity,
    rationale: check.rationale,
    frameworks: [...new Set(controls.map(({ framework }) => framework))],
    controls: [...controls],
    evidence,
    remediation: remediationFor(check.remediation, vault.name, name),
    firstSeenAt,
    lastSeenAt: [firstSeenAt, listedAt].sort()[1]!,
    exempted: exemptionId !== null,
    exemptionId,
  };
}

const assetExemption = (vault: VaultOverview, checkId: string, asset: string, now: number) =>
  vault.exemptions.find((one) => one.checkId === checkId && one.asset === asset && isActive(one, now));

function remediationFor({ portal, cli, bicep }: Remediation, vault: string, name: string): Remediation {
  const { appId = "", keyId = "" } = credentialIds(name) ?? {};
  const fill = (text: string) =>
    text
      .replaceAll("{vault}", vault)
      .replaceAll("{name}", name)
      .replaceAll("{appId}", appId)
      .replaceAll("{keyId}", keyId);
  return { portal: fill(portal), cli: fill(cli), bicep: bicep === null ? null : fill(bicep) };
}
