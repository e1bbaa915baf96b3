import { fingerprint } from "../inventory/asset.ts";
import { type Moment, type Status, statusOf } from "../inventory/asset-status.ts";
import { filteredPage } from "../platform/http/filtered-page.ts";
import type { Page, PageRequest } from "../platform/http/paging.ts";
import { type Row, withoutKeys } from "../platform/storage/entity.ts";
import { undefinedIfLeftOut } from "../platform/storage/left-out-rows.ts";
import type { Tables } from "../platform/storage/tables.ts";
import {
  APPS,
  type ApplicationCredential,
  type ApplicationRecord,
  Applications,
  Buckets,
  bucketsRange,
  byNameRange,
  STATE_KEY,
  type StateRecord,
  States,
  serviceIdentities,
} from "./application.ts";
import { type CredentialUsage, isClientSecret, type SignInEvidence, usageOf } from "./credential-usage.ts";
import { type Reason, reasonsAgainst } from "./rotatable.ts";

// Lists stored applications by name, with filters.

export interface ApplicationFilter {
  /** Only applications with a credential of this status. */
  status?: Status | undefined;
  /** Part of the display name or of the client ID, ignoring case. */
  search?: string | undefined;
  /** ID or a name of an owner, ignoring case. */
  owner?: string | undefined;
  rotatable?: boolean | undefined;
  /** Only applications with a credential that expires before this time. */
  expiresBefore?: Date | undefined;
  /** Only applications with a client secret that, as complete logs prove, was not used for this number of days. */
  idle?: number | undefined;
}

/** An application with data from other rows. */
export interface FoundApplication {
  app: ApplicationRecord;
  reasons: Reason[];
  /** Rotation policy of the application. Null if none is set. */
  policy: Record<string, unknown> | null;
  tenantId: string;
  /** Object IDs of the service's own identities. Empty before the first discovery. */
  serviceObjectIds: ReadonlySet<string>;
  /** Time when all applications were last listed completely. */
  lastSeenAt: string | undefined;
  /** Returns the use of a client secret, from logs. */
  usageOf(credential: ApplicationCredential): CredentialUsage;
}

/** Returns the sign-ins of one application, or of all applications. */
export type SignInsOf = (appId?: string) => Promise<SignInEvidence>;

/** Returns the rotation policies of applications by client ID. Applications without a policy are absent. */
export type PoliciesOf = (appIds: readonly string[]) => Promise<ReadonlyMap<string, Record<string, unknown>>>;

/**
 * Lists applications by name. Costs one request for each 1,000 applications read, one each for the discovery's state, the total
 * and the policies, and for each log workspace two and one more for each 1,000 credentials that signed in.
 */
export async function listApplications(
  filter: ApplicationFilter,
  request: PageRequest,
  moment: Moment,
  { tables, policiesOf, signInsOf }: { tables: Tables; policiesOf: PoliciesOf; signInsOf: SignInsOf },
): Promise<Page<FoundApplication>> {
  const [state, signIns] = await Promise.all([undefinedIfLeftOut(tables.get(States, APPS, STATE_KEY)), signInsOf()]);
  const matches = matcher(filter, { rights: state?.rights, signIns }, moment);
  const page = await filteredPage<Row<ApplicationRecord>>(request, {
    filters: fingerprint(Object.entries(filter).filter(([, value]) => value !== undefined)),
    matches,
    pages: (range) => tables.pages(Applications, { ...byNameRange, ...range }),
    total: matches ? undefined : await numberOfApplications(tables),
  });
  const policies = await policiesOf(page.items.map(({ appId }) => appId));
  const items = page.items.map((row) => foundApplication(withoutKeys(row), { state, policies, signIns }, moment));
  return { ...page, items };
}

/** Combines an application with its policy, the use of its secrets, and the reasons that prevent its rotation. */
export const foundApplication = (
  app: ApplicationRecord,
  {
    state,
    policies,
    signIns,
  }: {
    state: StateRecord | undefined;
    policies: ReadonlyMap<string, Record<string, unknown>>;
    signIns: SignInEvidence;
  },
  { now }: Pick<Moment, "now">,
): FoundApplication => ({
  app,
  reasons: reasonsAgainst(app, state?.rights, now),
  policy: policies.get(app.appId) ?? null,
  tenantId: state?.tenantId ?? "",
  serviceObjectIds: serviceIdentities(state),
  lastSeenAt: state?.applicationsAt,
  usageOf: (credential) => usageOf(app, credential, signIns),
});

/** Returns the number of known applications. One request. */
export async function numberOfApplications(tables: Tables): Promise<number> {
  let count = 0;
  for await (const rows of tables.pages(Buckets, { ...bucketsRange, select: ["apps"] }))
    for (const { apps } of rows) count += apps;
  return count;
}

/** Returns a function that tests an application against the filter. Undefined if the filter is empty. */
function matcher(
  { status, search, owner, rotatable, expiresBefore, idle }: ApplicationFilter,
  { rights, signIns }: { rights: StateRecord["rights"]; signIns: SignInEvidence },
  moment: Moment,
): ((app: ApplicationRecord) => boolean) | undefined {
  const conditions: ((app: ApplicationRecord) => boolean)[] = [];
  if (status !== undefined)
    conditions.push(({ credentials }) => credentials.some(({ expiresOn }) => statusOf(expiresOn, moment) === status));
  if (expiresBefore !== undefined) {
    const expiresBeforeMs = expiresBefore.getTime();
    conditions.push(({ credentials }) =>
      credentials.some(({ expiresOn }) => expiresOn !== undefined && expiresOn * 1000 < expiresBeforeMs),
    );
  }
  if (search !== undefined) {
    const text = search.toLowerCase();
    conditions.push(({ displayName, appId }) => displayName.toLowerCase().includes(text) || appId.includes(text));
  }
  if (owner !== undefined) {
    const ownerName = owner.toLowerCase();
    conditions.push(({ owners = [] }) =>
      owners.some(({ id, displayName, userPrincipalName, mail }) =>
        [id, displayName, userPrincipalName, mail].some((name) => name?.toLowerCase() === ownerName),
      ),
    );
  }
  if (rotatable !== undefined)
    conditions.push((app) => (reasonsAgainst(app, rights, moment.now).length === 0) === rotatable);
  if (idle !== undefined)
    conditions.push((app) =>
      app.credentials.some((one) => isClientSecret(one) && (usageOf(app, one, signIns).idleDays ?? -1) >= idle),
    );
  return conditions.length === 0 ? undefined : (app) => conditions.every((test) => test(app));
}
