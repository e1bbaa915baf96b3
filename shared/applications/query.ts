import { fingerprint } from "../inventory/asset.ts";
import { type Moment, type Status, statusOf } from "../inventory/asset-status.ts";
import { filteredPage } from "../platform/http/filtered-page.ts";
import type { Page, PageRequest } from "../platform/http/paging.ts";
import { type Row, withoutKeys } from "../platform/storage/entity.ts";
import type { Tables } from "../platform/storage/tables.ts";
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

export interface ApplicationFilter {
  /** With a credential of this status. */
  status?: Status | undefined;
  /** Part of the display name or of the client ID, ignoring case. */
  search?: string | undefined;
  owner?: string | undefined;
  rotatable?: boolean | undefined;
  /** With a credential that expires before this time. */
  expiresBefore?: Date | undefined;
}

/** An application with data of other rows. */
export interface FoundApplication {
  app: ApplicationRecord;
  reasons: Reason[];
  /** Policy of the module rotation. Null if none is set. */
  policy: Record<string, unknown> | null;
  tenantId: string;
  /** When all applications were last listed completely. */
  lastSeenAt: string | undefined;
}

/** Returns the policies of these applications by client ID, as far as there are any. */
export type PoliciesOf = (appIds: readonly string[]) => Promise<ReadonlyMap<string, Record<string, unknown>>>;

/**
 * Lists applications by name. One request per 1,000 applications read, and one each for the state, the number and the policies.
 */
export async function listApplications(
  filter: ApplicationFilter,
  request: PageRequest,
  moment: Moment,
  { tables, policiesOf }: { tables: Tables; policiesOf: PoliciesOf },
): Promise<Page<FoundApplication>> {
  const state = await tables.get(States, APPS, STATE_KEY);
  const matches = matcher(filter, state?.rights, moment);
  const page = await filteredPage<Row<ApplicationRecord>>(request, {
    filters: fingerprint(Object.entries(filter).filter(([, value]) => value !== undefined)),
    matches,
    pages: (range) => tables.pages(Applications, { ...byNameRange, ...range }),
    total: matches ? undefined : await numberOfApplications(tables),
  });
  const policies = await policiesOf(page.items.map(({ appId }) => appId));
  const items = page.items.map((row) => foundApplication(withoutKeys(row), state, policies, moment));
  return { ...page, items };
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

/** Returns undefined if no filter is given. */
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
