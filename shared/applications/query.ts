import * as z from "zod";
import { decodeCursor, encodeCursor, MAX_OFFSET, type Page, type PageRequest } from "../http/paging.ts";
import { Problem } from "../http/problem.ts";
import { fingerprint } from "../inventory/asset.ts";
import { type Moment, type Status, statusOf } from "../inventory/health.ts";
import { withoutKeys } from "../storage/entity.ts";
import type { Tables } from "../storage/tables.ts";
import {
  APPS,
  type ApplicationRecord,
  Applications,
  Buckets,
  bucketsRange,
  byNameRange,
  STATE_KEY,
  type StateRecord,
  States,
} from "./application.ts";
import { type Reason, reasonsAgainst } from "./rotatable.ts";

/** Pages of 1,000 applications that one call looks through, and so what a filter costs at most. */
const MAX_SCANNED_PAGES = 10;
const PAGE_ROWS = 1000;

export interface ApplicationFilter {
  /** With a credential of this status. */
  status?: Status | undefined;
  /** Part of the display name or of the client id, in any case. */
  search?: string | undefined;
  owner?: string | undefined;
  rotatable?: boolean | undefined;
  /** With a credential that expires before it. */
  expiresBefore?: Date | undefined;
}

/** An application with what follows from other rows. */
export interface FoundApplication {
  app: ApplicationRecord;
  reasons: Reason[];
  /** What the room of rotations keeps of it; null where nobody has set one. */
  policy: Record<string, unknown> | null;
  tenantId: string;
  /** When all applications were last listed to the end. */
  lastSeenAt: string | undefined;
}

/** The policies of these applications, by client id; of those that have none nothing. */
export type PoliciesOf = (appIds: readonly string[]) => Promise<ReadonlyMap<string, Record<string, unknown>>>;

const Cursor = z.object({
  /** Hash of the filters it belongs to. */
  f: z.string(),
  /** The last row that was looked at. */
  k: z.string().max(1024),
  /** How many matches of the offset are still to be skipped, where a call ended before. */
  s: z.int().min(0).max(MAX_OFFSET).default(0),
});

/** By name. One request per 1,000 applications looked through, and one each for the state, the number and the policies. */
export async function listApplications(
  filter: ApplicationFilter,
  request: PageRequest,
  moment: Moment,
  { tables, policiesOf }: { tables: Tables; policiesOf: PoliciesOf },
): Promise<Page<FoundApplication>> {
  const cursor = request.cursor === undefined ? undefined : decodeCursor(Cursor, request.cursor);
  const identity = fingerprint(Object.entries(filter).filter(([, value]) => value !== undefined));
  if (cursor && cursor.f !== identity) {
    throw new Problem(
      "invalidCursor",
      "This cursor belongs to other filters. Send the same filters with it, or start without it.",
    );
  }
  const state = await tables.get(States, APPS, STATE_KEY);
  const matches = matcher(filter, state?.rights, moment);
  const skip = cursor ? cursor.s : request.offset;
  const items: ApplicationRecord[] = [];
  let [matched, pages, last] = [0, 0, cursor?.k];
  let [more, cut] = [false, false];
  const pageSize = matches ? PAGE_ROWS : Math.min(PAGE_ROWS, skip + request.limit + 1);
  walk: for await (const rows of tables.pages(Applications, {
    ...byNameRange,
    pageSize,
    ...(cursor ? { after: cursor.k } : {}),
  })) {
    for (const row of rows) {
      if (!matches || matches(row)) {
        if (items.length === request.limit) {
          more = true;
          // All that match are counted where they are looked through anyway.
          if (!matches || cursor) break walk;
        } else if (matched >= skip) items.push(withoutKeys(row));
        matched++;
      }
      if (!more) last = row.rowKey;
    }
    pages++;
    cut = matches !== undefined && pages === MAX_SCANNED_PAGES && rows.length > 0;
    if (cut) break;
  }
  const policies = await policiesOf(items.map(({ appId }) => appId));
  return {
    items: items.map((app) => foundApplication(app, state, policies, moment)),
    ...(!matches
      ? { total: await numberOfApplications(tables) }
      : cursor || cut
        ? { total: null, totalAtLeast: matched }
        : { total: matched }),
    limit: request.limit,
    offset: request.offset,
    nextCursor:
      (more || cut) && last !== undefined
        ? encodeCursor({ f: identity, k: last, s: Math.max(0, skip - matched) } satisfies z.infer<typeof Cursor>)
        : null,
  };
}

export const foundApplication = (
  app: ApplicationRecord,
  state: StateRecord | undefined,
  policies: ReadonlyMap<string, Record<string, unknown>>,
  { now }: Pick<Moment, "now">,
): FoundApplication => ({
  app,
  reasons: reasonsAgainst(app, state?.rights, now),
  policy: policies.get(app.appId) ?? null,
  tenantId: state?.tenantId ?? "",
  lastSeenAt: state?.applicationsAt,
});

async function numberOfApplications(tables: Tables): Promise<number> {
  let count = 0;
  for await (const rows of tables.pages(Buckets, { ...bucketsRange, select: ["apps"] }))
    for (const { apps } of rows) count += apps;
  return count;
}

/** Undefined when no filter is given. */
function matcher(
  { status, search, owner, rotatable, expiresBefore }: ApplicationFilter,
  rights: StateRecord["rights"],
  moment: Moment,
): ((app: ApplicationRecord) => boolean) | undefined {
  const tests: ((app: ApplicationRecord) => boolean)[] = [];
  if (status !== undefined)
    tests.push(({ credentials }) => credentials.some(({ expiresOn }) => statusOf(expiresOn, moment) === status));
  if (expiresBefore !== undefined) {
    const before = expiresBefore.getTime();
    tests.push(({ credentials }) =>
      credentials.some(({ expiresOn }) => expiresOn !== undefined && expiresOn * 1000 < before),
    );
  }
  if (search !== undefined) {
    const text = search.toLowerCase();
    tests.push(({ displayName, appId }) => displayName.toLowerCase().includes(text) || appId.includes(text));
  }
  if (owner !== undefined) {
    const wanted = owner.toLowerCase();
    tests.push(({ owners = [] }) =>
      owners.some(({ id, displayName, userPrincipalName, mail }) =>
        [id, displayName, userPrincipalName, mail].some((name) => name?.toLowerCase() === wanted),
      ),
    );
  }
  if (rotatable !== undefined)
    tests.push((app) => (reasonsAgainst(app, rights, moment.now).length === 0) === rotatable);
  return tests.length === 0 ? undefined : (app) => tests.every((test) => test(app));
}
