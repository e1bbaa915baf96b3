import pMap from "p-map";
import { ASSET_TYPES } from "../inventory/asset.ts";
import { rangeOf } from "../inventory/asset-status.ts";
import { countExpiries } from "../inventory/expiries.ts";
import { BUCKETS, bucketOf, holderSubscription, UNSEEN_AFTER_MS } from "../inventory/holder.ts";
import { expiriesOf, VAULTS, Vaults, vaultInSubscriptionKey } from "../inventory/vault.ts";
import type { HolderDiscoveryDeps } from "../inventory/write-holder.ts";
import { CloudFailure } from "../platform/azure/failure.ts";
import type { Graph, GraphApplication } from "../platform/azure/graph.ts";
import type { LeasedRun } from "../platform/runs/discovery-runs.ts";
import { recordRunEnd } from "../platform/runs/record-run-end.ts";
import { withoutKeys } from "../platform/storage/entity.ts";
import { keyEnd } from "../platform/storage/keys.ts";
import { MINUTE_MS } from "../platform/time.ts";
import {
  APPS,
  AppFences,
  type ApplicationRecord,
  Applications,
  Buckets,
  bucketsRange,
  credentialsOf,
  fenceKey,
  idKey,
  type RunRecord,
  STATE_KEY,
  type StateRecord,
  States,
} from "./application.ts";
import { writeCredentials } from "./credentials.ts";
import { type Listing, merged, type ReadApplication, readAll, readChanges, startOfChanges } from "./read-graph.ts";
import { appIdOf, contentsOf, endBucket, readBucket, writeApplications } from "./write-bucket.ts";

/** Longest time to read everything from Graph: below the longest duration of one invocation (host.json). */
const READING_MS = 8 * MINUTE_MS;
const BUCKETS_AT_ONCE = 4;

/** The functions of the Graph client that discovery needs. */
export type DirectoryReader = Pick<
  Graph,
  | "applications"
  | "servicePrincipals"
  | "federatedApplications"
  | "changes"
  | "owners"
  | "federatedCredentials"
  | "passwordPolicy"
  | "rights"
>;

export interface DiscoverDeps extends HolderDiscoveryDeps {
  graph: DirectoryReader;
  /** Tenant of the Graph client. */
  tenantId: () => Promise<string>;
}

/** The wanted content of a bucket. */
interface Wanted {
  /** True if everything was read, so that the stored applications are not needed. */
  complete?: ReadonlyMap<string, ReadApplication> | undefined;
  of(standing: ReadonlyMap<string, ApplicationRecord>): ReadonlyMap<string, ReadApplication>;
}

/** The result of a reading. */
interface Reading {
  wanted: ReadonlyMap<string, Wanted>;
  state: StateRecord;
  failures: RunRecord["failures"];
}

/**
 * Reads the tenant's applications and updates rows and inventory, bucket by bucket: the applications, then their credentials in
 * the inventory, and last the bucket's own row. If a worker crashes, the bucket's row is older than its writes, and the next
 * worker repeats them. A failure of Graph is the run's outcome. Other errors are thrown, so that the queue redelivers the
 * message.
 */
export async function discover(held: LeasedRun<RunRecord>, deps: DiscoverDeps): Promise<void> {
  const { tables, clock, log } = deps;
  const { run } = held;
  if (run.ending) return await complete(held, run.ending, deps);
  const now = clock.now().toISOString();
  const before = await tables.get(States, APPS, STATE_KEY);
  const reading = await read(held, before && withoutKeys(before), now, deps);
  // Reading takes a while, so another worker may have taken the run over.
  await held.confirm();

  const known = new Map<string, string>();
  for await (const rows of tables.pages(Buckets, { ...bucketsRange, select: ["contents"] }))
    for (const { rowKey, contents } of rows) known.set(rowKey.slice(2), contents);
  const changed = { added: 0, updated: 0, removed: 0 };
  await pMap(
    reading.wanted,
    async ([bucket, wanted]) => {
      const done = await writeBucket(bucket, wanted, known.get(bucket), { held, reading, now, deps });
      changed.added += done.added;
      changed.updated += done.updated;
      changed.removed += done.removed;
    },
    { concurrency: BUCKETS_AT_ONCE },
  );
  await held.confirm();
  if (reading.state.tenantId !== "") await tables.put(States, APPS, STATE_KEY, reading.state);

  const failed = reading.failures.length > 0;
  const ending: NonNullable<RunRecord["ending"]> = {
    status: failed ? (reading.wanted.size > 0 ? "partial" : "failed") : "completed",
    finishedAt: clock.now().toISOString(),
    entryId: deps.randomness.ulid(clock.now()),
    ...changed,
    ...(await totals(deps)),
  };
  await held.change({ failures: reading.failures, ending });
  log.info("Applications were discovered", { runId: run.runId, mode: held.run.mode, ...ending });
  await complete(held, ending, deps);
}

async function read(
  held: LeasedRun<RunRecord>,
  before: StateRecord | undefined,
  now: string,
  deps: DiscoverDeps,
): Promise<Reading> {
  const { graph } = deps;
  const signal = AbortSignal.any([held.signal, AbortSignal.timeout(READING_MS)]);
  const failures: RunRecord["failures"] = [];
  const fail = (list: string, { code, message, remedy }: CloudFailure) =>
    failures.push({ list, code, message, remedy, at: now });
  let state: StateRecord;
  try {
    state = { ...before, tenantId: (await deps.tenantId()).toLowerCase(), rights: await graph.rights() };
  } catch (error) {
    if (!(error instanceof CloudFailure)) throw error;
    fail("applications", error);
    return { wanted: new Map(), state: before ?? { tenantId: "" }, failures };
  }
  if (held.run.mode === "changes" && state.deltaLink !== undefined) {
    try {
      const changes = await readChanges(graph, state.deltaLink, signal);
      const wanted = await wantedOfChanges(changes.applications, signal, deps);
      return { wanted, state: { ...state, deltaLink: changes.deltaLink }, failures };
    } catch (error) {
      if (!(error instanceof CloudFailure)) throw error;
      if (!isLinkLost(error)) {
        fail("changes", error);
        return { wanted: new Map(), state, failures };
      }
      deps.log.warn("Application changes are not available; listing all applications", { code: error.code });
      delete state.deltaLink;
    }
  }
  if (held.run.mode === "changes") await held.change({ mode: "full" });
  // Requested before the lists are read, so that changes during the listing are returned by the next reading of changes.
  const deltaLink = state.deltaLink ?? (await startOfChanges(graph, signal));
  const listing = await readAll(graph, signal);
  const { applications, servicePrincipals } = listing;
  if (applications instanceof CloudFailure) fail("applications", applications);
  else state = { ...state, ...(deltaLink === undefined ? {} : { deltaLink }), applicationsAt: now };
  if (servicePrincipals instanceof CloudFailure) fail("servicePrincipals", servicePrincipals);
  else state = { ...state, servicePrincipalsAt: now };
  return { wanted: wantedOfLists(listing, state, now), state, failures };
}

/** An expired delta link, or a missing permission for changes, is no failure: everything can be listed instead. */
const isLinkLost = ({ code }: CloudFailure): boolean =>
  code === "resyncRequired" || code === "accessDenied" || code === "foreignHost";

function wantedOfLists(
  { applications, servicePrincipals, federated }: Listing,
  { servicePrincipalsAt }: StateRecord,
  now: string,
): Map<string, Wanted> {
  if (applications instanceof CloudFailure && servicePrincipals instanceof CloudFailure) return new Map();
  const byBucket = <T extends { appId: string }>(all: readonly T[] | CloudFailure) => {
    if (all instanceof CloudFailure) return undefined;
    const buckets = new Map(BUCKETS.map((bucket) => [bucket, new Map<string, T>()]));
    for (const one of all) buckets.get(bucketOf(one.appId))?.set(one.appId, one);
    return buckets;
  };
  const listed = byBucket(applications);
  const principals = byBucket(servicePrincipals);
  const unseen =
    servicePrincipalsAt === undefined || Date.parse(now) - Date.parse(servicePrincipalsAt) > UNSEEN_AFTER_MS;
  return new Map(
    BUCKETS.map((bucket): [string, Wanted] => {
      const [apps, own] = [listed?.get(bucket), principals?.get(bucket)];
      const of = (standing: ReadonlyMap<string, ApplicationRecord>) => {
        const wanted = new Map<string, ReadApplication>();
        const ids = new Set([...(apps?.keys() ?? []), ...(own?.keys() ?? []), ...standing.keys()]);
        for (const appId of ids) {
          const known = standing.get(appId);
          const principal = own?.get(appId);
          const application = apps ? apps.get(appId) : known && asListed(known, "application");
          const one = merged(
            application,
            own
              ? principal && { ...principal, credentials: credentialsOf(principal) }
              : known && !unseen
                ? asPrincipal(known)
                : undefined,
            {
              owners: known?.owners,
              federated: application && federated ? federated.has(application.objectId) : known?.federated,
            },
          );
          if (one) wanted.set(appId, one);
        }
        return wanted;
      };
      return [bucket, { of, ...(apps && own && federated ? { complete: of(new Map()) } : {}) }];
    }),
  );
}

/** Returns the wanted content of the buckets with changed applications. Other applications stay. */
async function wantedOfChanges(
  changes: ReadonlyMap<string, GraphApplication | undefined>,
  signal: AbortSignal,
  { tables, graph }: DiscoverDeps,
): Promise<Map<string, Wanted>> {
  const byBucket = new Map<string, Map<string, GraphApplication | undefined>>();
  for (const [objectId, app] of changes) {
    const appId = app?.appId ?? (await appIdOf(tables, objectId));
    if (appId === undefined) continue;
    const bucket = bucketOf(appId);
    byBucket.set(bucket, (byBucket.get(bucket) ?? new Map()).set(appId, app));
  }
  const wanted = new Map<string, Wanted>();
  for (const [bucket, changed] of byBucket) {
    const owners = new Map<string, ApplicationRecord["owners"]>();
    // A list of changes does not contain owners. They are read once if unknown.
    for (const [appId, app] of changed) {
      if (!app || app.owners || (await tables.get(Applications, APPS, idKey(appId)))?.owners) continue;
      owners.set(appId, await graph.owners(app.objectId, signal));
    }
    wanted.set(bucket, {
      of(known) {
        const all = new Map<string, ReadApplication>([...known].map(([appId, app]) => [appId, asRead(app)]));
        for (const [appId, app] of changed) {
          const before = known.get(appId);
          const one =
            app &&
            merged(app, before && asPrincipal(before), {
              owners: before?.owners ?? owners.get(appId),
              federated: before?.federated,
            });
          if (one) all.set(appId, one);
          else all.delete(appId);
        }
        return all;
      },
    });
  }
  return wanted;
}

const asRead = ({ firstSeenAt: _first, details: _details, ...app }: ApplicationRecord): ReadApplication => app;

/** Returns the stored application in Graph's form. Undefined if it belongs to another tenant. */
function asListed(app: ApplicationRecord, kind: "application"): GraphApplication | undefined {
  if (app.kind !== kind) return undefined;
  const { objectId, appId, displayName, signInAudience, createdOn, owners, credentials } = app;
  const own = credentials.filter(({ of }) => of === kind);
  return {
    kind,
    objectId,
    appId,
    displayName,
    ...(signInAudience === undefined ? {} : { signInAudience }),
    ...(createdOn === undefined ? {} : { createdOn }),
    ...(owners === undefined ? {} : { owners }),
    passwords: own.filter((one) => one.kind === "secret").map(({ kind: _, of: __, ...rest }) => rest),
    keys: own
      .filter((one) => one.kind === "certificate")
      .map(({ kind: _, of: __, usage = "", ...rest }) => ({ ...rest, usage, type: "" })),
  };
}

/** Returns the stored service principal of the application. Undefined if it has no credentials. */
function asPrincipal({ objectId, appId, displayName, credentials }: ApplicationRecord) {
  const own = credentials.filter(({ of }) => of === "servicePrincipal");
  return own.length === 0 ? undefined : { objectId, appId, displayName, credentials: own };
}

async function writeBucket(
  bucket: string,
  wanted: Wanted,
  contents: string | undefined,
  { held, reading, now, deps }: { held: LeasedRun<RunRecord>; reading: Reading; now: string; deps: DiscoverDeps },
) {
  const { tables } = deps;
  const { tenantId, applicationsAt } = reading.state;
  const credentials = (apps: ReadonlyMap<string, ReadApplication>) =>
    writeCredentials(
      { tenantId, bucket, apps: apps.values(), now, seenAt: applicationsAt ?? now, owner: held.worker },
      { ...deps.inventory, confirm: held.confirm },
    );
  const { complete: all } = wanted;
  // Late requests of a crashed worker may still arrive. A worker that takes over its run takes the fences too.
  const first = held.run.attempts === 1;
  if (first && all && (contents === contentsOf(all) || (contents === undefined && all.size === 0))) {
    await credentials(all);
    return { added: 0, updated: 0, removed: 0 };
  }
  const fence = tables.fence(AppFences, APPS, fenceKey(bucket), { owner: held.worker, etag: undefined });
  await fence.take();
  // From here on, requests of earlier workers fail, and those of this worker too if it lost the run before.
  await held.confirm();
  const standing = await readBucket(tables, bucket);
  const apps = wanted.of(standing);
  const changes = await writeApplications(fence, standing, apps, now);
  await credentials(apps);
  await endBucket(fence, bucket, apps);
  return changes;
}

/** Returns the total numbers. Two requests. */
async function totals({
  tables,
  moment,
}: DiscoverDeps): Promise<{ apps: number; credentials: number; expiring: number }> {
  const sums = { apps: 0, credentials: 0, expiring: 0 };
  for await (const rows of tables.pages(Buckets, { ...bucketsRange, select: ["apps", "credentials"] })) {
    for (const row of rows) {
      sums.apps += row.apps;
      sums.credentials += row.credentials;
    }
  }
  const at = await moment();
  const ranges = [rangeOf("critical", at), rangeOf("warning", at)];
  const prefix = vaultInSubscriptionKey(holderSubscription("entra"), "");
  const holders = { partitionKey: VAULTS, from: prefix, before: keyEnd(prefix) };
  for await (const rows of tables.pages(Vaults, holders))
    for (const row of rows)
      for (const type of ASSET_TYPES)
        for (const range of ranges) sums.expiring += countExpiries(expiriesOf(row, type), range);
  return sums;
}

/** Records the run's end in the audit log and ends the run. */
async function complete(
  held: LeasedRun<RunRecord>,
  ending: NonNullable<RunRecord["ending"]>,
  deps: DiscoverDeps,
): Promise<void> {
  const { runId, mode, requestId, failures, attempts } = held.run;
  const { entryId, finishedAt, status, ...counts } = ending;
  const { apps, credentials, expiring, added, updated, removed } = counts;
  const keep = (id: string) => held.change({ ending: { ...ending, entryId: id } });
  await recordRunEnd(
    deps.audit,
    {
      id: entryId,
      type: "applications.discovered",
      caller: { actor: "system", requestId },
      outcome: status === "completed" ? "success" : "failure",
      target: { type: "applicationDiscovery", id: runId },
      details: { mode, status, ...counts, failures: failures.map(({ list, code }) => `${list}: ${code}`) },
    },
    { ...deps, keep },
  );
  // The counts do not include writes of an earlier attempt.
  if (mode === "full" || attempts > 1 || added + updated + removed > 0) await deps.ended();
  await held.end({ status, finishedAt, apps, credentials, expiring, ending: undefined });
}
