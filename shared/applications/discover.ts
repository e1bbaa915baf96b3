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
import type { Fence } from "../platform/storage/fence.ts";
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
  joinSigningCertificates,
  type RunRecord,
  STATE_KEY,
  type StateRecord,
  States,
  serviceIdentities,
} from "./application.ts";
import { writeCredentials } from "./credentials.ts";
import {
  joinApplication,
  type Listing,
  type ReadApplication,
  readAll,
  readChanges,
  startOfChanges,
} from "./read-graph.ts";
import { countUnnamedOwners } from "./unnamed-owners.ts";
import {
  appIdOf,
  type BucketChanges,
  contentsOf,
  readBucket,
  writeApplications,
  writeBucketRow,
} from "./write-bucket.ts";

/** Time limit for reading all lists from Graph, below the maximum duration of an invocation (host.json). */
const READING_TIMEOUT_MS = 8 * MINUTE_MS;
/** Maximum number of buckets that are written concurrently. */
const MAX_CONCURRENT_BUCKETS = 4;

/** The functions of the Graph client that discovery needs. */
export type DirectoryReader = Pick<
  Graph,
  | "applications"
  | "findApplication"
  | "servicePrincipals"
  | "federatedApplications"
  | "changes"
  | "owners"
  | "federatedCredentials"
  | "passwordPolicy"
  | "grantedPermissions"
>;

/** The services that a discovery of applications needs. */
export interface DiscoverDeps extends HolderDiscoveryDeps {
  graph: DirectoryReader;
  /** Tenant of the Graph client. */
  tenantId: () => Promise<string>;
}

/** The content that a bucket must have after the run. */
interface BucketContent {
  /** The content, if all lists were read, so that the stored applications are not needed. */
  complete?: ReadonlyMap<string, ReadApplication> | undefined;
  /** Computes the content from the stored applications and the new responses. */
  basedOn(stored: ReadonlyMap<string, ApplicationRecord>): ReadonlyMap<string, ReadApplication>;
}

/** The result of reading Graph. */
interface Reading {
  /** New content of buckets. Buckets that are absent stay unchanged. */
  contents: ReadonlyMap<string, BucketContent>;
  state: StateRecord;
  failures: RunRecord["failures"];
}

/**
 * Executes a discovery run: reads the tenant's applications from Microsoft Graph and writes them bucket by bucket (a bucket is
 * a sixteenth of the applications). The applications are written first, then their credentials in the inventory, and last the
 * bucket's own row with a hash of its content. If a worker crashes in between, the hash is that of the old content, so the next
 * worker repeats the writes. A failure of Graph becomes the run's outcome. Other errors are thrown, so that the queue
 * redelivers the message.
 */
export async function discover(leasedRun: LeasedRun<RunRecord>, deps: DiscoverDeps): Promise<void> {
  const { tables, clock, log } = deps;
  const { run } = leasedRun;
  // An earlier worker has decided the outcome and crashed before the end of the run was written.
  if (run.ending) return await finishRun(leasedRun, run.ending, deps);
  const now = clock.now().toISOString();
  const storedState = await tables.get(States, APPS, STATE_KEY);
  const reading = await readDirectory(leasedRun, storedState && withoutKeys(storedState), now, deps);
  // Reading can take minutes, so another worker may have taken the run over.
  await leasedRun.confirm();

  const storedHashes = new Map<string, string>();
  // The row key is `b!` and the bucket.
  for await (const rows of tables.pages(Buckets, { ...bucketsRange, select: ["contents"] }))
    for (const { rowKey, contents } of rows) storedHashes.set(rowKey.slice(2), contents);
  const changed = { added: 0, updated: 0, removed: 0 };
  await pMap(
    reading.contents,
    async ([bucket, content]) => {
      const changes = await writeBucket(bucket, content, storedHashes.get(bucket), { leasedRun, reading, now, deps });
      changed.added += changes.added;
      changed.updated += changes.updated;
      changed.removed += changes.removed;
    },
    { concurrency: MAX_CONCURRENT_BUCKETS },
  );
  await leasedRun.confirm();
  // Empty if no run could read the tenant yet.
  if (reading.state.tenantId !== "") await tables.put(States, APPS, STATE_KEY, reading.state);

  const failed = reading.failures.length > 0;
  const ending: NonNullable<RunRecord["ending"]> = {
    status: failed ? (reading.contents.size > 0 ? "partial" : "failed") : "completed",
    finishedAt: clock.now().toISOString(),
    entryId: deps.randomness.ulid(clock.now()),
    ...changed,
    ...(await totals(deps)),
    ...(reading.state.unnamedOwners !== undefined && { unnamedOwners: reading.state.unnamedOwners }),
  };
  await leasedRun.change({ failures: reading.failures, ending });
  log.info("Applications were discovered", { runId: run.runId, mode: leasedRun.run.mode, ...ending });
  await finishRun(leasedRun, ending, deps);
}

/** Maximum number of earlier identities that are stored. */
const MAX_EARLIER_IDENTITIES = 20;

/**
 * Returns the identities that the service used before the current one, newest first. Leaves out an identity without application
 * permissions: it may be a user who tried the service, and who must still count as an owner.
 */
const earlierIdentitiesOf = (before: StateRecord | undefined, current: string | undefined): string[] => {
  const { rights, earlierIdentities } = before ?? {};
  const isApplication = (rights?.permissions.length ?? 0) > 0;
  const ids = serviceIdentities({ ...(isApplication && { rights }), earlierIdentities });
  return [...ids].filter((id) => id !== current?.toLowerCase()).slice(0, MAX_EARLIER_IDENTITIES);
};

async function readDirectory(
  leasedRun: LeasedRun<RunRecord>,
  before: StateRecord | undefined,
  now: string,
  deps: DiscoverDeps,
): Promise<Reading> {
  const { graph } = deps;
  const signal = AbortSignal.any([leasedRun.signal, AbortSignal.timeout(READING_TIMEOUT_MS)]);
  const failures: RunRecord["failures"] = [];
  const fail = (list: string, { code, message, remedy }: CloudFailure) =>
    failures.push({ list, code, message, remedy, at: now });
  let state: StateRecord;
  try {
    const tenantId = (await deps.tenantId()).toLowerCase();
    const rights = await graph.grantedPermissions();
    state = { ...before, tenantId, rights, earlierIdentities: earlierIdentitiesOf(before, rights.objectId) };
  } catch (error) {
    if (!(error instanceof CloudFailure)) throw error;
    fail("applications", error);
    return { contents: new Map(), state: before ?? { tenantId: "" }, failures };
  }
  if (leasedRun.run.mode === "changes" && state.deltaLink !== undefined) {
    try {
      const changes = await readChanges(graph, state.deltaLink, signal);
      const contents = await contentsFromChanges(changes.applications, signal, deps);
      return { contents, state: { ...state, deltaLink: changes.deltaLink }, failures };
    } catch (error) {
      if (!(error instanceof CloudFailure)) throw error;
      if (!isLinkLost(error)) {
        fail("changes", error);
        return { contents: new Map(), state, failures };
      }
      deps.log.warn("Application changes are not available; listing all applications", { code: error.code });
      delete state.deltaLink;
    }
  }
  if (leasedRun.run.mode === "changes") await leasedRun.change({ mode: "full" });
  // The delta link is requested before the lists are read, so that the next run of changes returns what changes during the
  // listing.
  const deltaLink = state.deltaLink ?? (await startOfChanges(graph, signal));
  const listing = await readAll(graph, signal);
  const { applications, servicePrincipals } = listing;
  if (applications instanceof CloudFailure) fail("applications", applications);
  else {
    const unnamedOwners = countUnnamedOwners(applications);
    state = { ...state, ...(deltaLink === undefined ? {} : { deltaLink }), applicationsAt: now, unnamedOwners };
  }
  if (servicePrincipals instanceof CloudFailure) fail("servicePrincipals", servicePrincipals);
  else state = { ...state, servicePrincipalsAt: now };
  return { contents: contentsFromLists(listing, state, now), state, failures };
}

/**
 * Returns true if changes can't be read because the delta link expired, a permission is missing, or the stored link does not
 * lead to Graph (`foreignHost`). Then all applications are listed.
 */
const isLinkLost = ({ code }: CloudFailure): boolean =>
  code === "resyncRequired" || code === "accessDenied" || code === "foreignHost";

function contentsFromLists(
  { applications, servicePrincipals, federated }: Listing,
  { servicePrincipalsAt }: StateRecord,
  now: string,
): Map<string, BucketContent> {
  if (applications instanceof CloudFailure && servicePrincipals instanceof CloudFailure) return new Map();
  const byBucket = <T extends { appId: string }>(all: readonly T[] | CloudFailure) => {
    if (all instanceof CloudFailure) return undefined;
    const buckets = new Map(BUCKETS.map((bucket) => [bucket, new Map<string, T>()]));
    for (const item of all) buckets.get(bucketOf(item.appId))?.set(item.appId, item);
    return buckets;
  };
  const applicationsByBucket = byBucket(applications);
  const principalsByBucket = byBucket(servicePrincipals);
  // Service principals that could not be listed keep their stored credentials for a week.
  const areStoredPrincipalsTooOld =
    servicePrincipalsAt === undefined || Date.parse(now) - Date.parse(servicePrincipalsAt) > UNSEEN_AFTER_MS;
  return new Map(
    BUCKETS.map((bucket): [string, BucketContent] => {
      const [bucketApplications, bucketPrincipals] = [
        applicationsByBucket?.get(bucket),
        principalsByBucket?.get(bucket),
      ];
      // The content of an application comes from the lists of applications and of service principals. If a list could not be
      // read, the stored part of the application replaces it.
      const basedOn = (stored: ReadonlyMap<string, ApplicationRecord>) => {
        const content = new Map<string, ReadApplication>();
        const ids = new Set([
          ...(bucketApplications?.keys() ?? []),
          ...(bucketPrincipals?.keys() ?? []),
          ...stored.keys(),
        ]);
        for (const appId of ids) {
          const storedApplication = stored.get(appId);
          const principal = bucketPrincipals?.get(appId);
          const application = bucketApplications
            ? bucketApplications.get(appId)
            : storedApplication && asListed(storedApplication);
          const joined = joinApplication(
            application,
            bucketPrincipals
              ? principal && { ...principal, credentials: credentialsOf(principal) }
              : storedApplication && !areStoredPrincipalsTooOld
                ? asPrincipal(storedApplication)
                : undefined,
            {
              owners: storedApplication?.owners,
              federated: application && federated ? federated.has(application.objectId) : storedApplication?.federated,
            },
          );
          if (joined) content.set(appId, joined);
        }
        return content;
      };
      return [
        bucket,
        { basedOn, ...(bucketApplications && bucketPrincipals && federated ? { complete: basedOn(new Map()) } : {}) },
      ];
    }),
  );
}

/** Returns the new content of the buckets with changed applications. Their other applications stay unchanged. */
export async function contentsFromChanges(
  changes: ReadonlyMap<string, GraphApplication | undefined>,
  signal: AbortSignal,
  { tables, graph }: Pick<DiscoverDeps, "tables" | "graph">,
): Promise<Map<string, BucketContent>> {
  const byBucket = new Map<string, Map<string, GraphApplication | undefined>>();
  for (const [objectId, app] of changes) {
    const appId = app?.appId ?? (await appIdOf(tables, objectId));
    if (appId === undefined) continue;
    const bucket = bucketOf(appId);
    byBucket.set(bucket, (byBucket.get(bucket) ?? new Map()).set(appId, app));
  }
  const contents = new Map<string, BucketContent>();
  for (const [bucket, changed] of byBucket) {
    const owners = new Map<string, ApplicationRecord["owners"]>();
    // Graph's list of changes does not contain owners, so the owners of new applications are read.
    for (const [appId, app] of changed) {
      if (!app || app.owners || (await tables.get(Applications, APPS, idKey(appId)))?.owners) continue;
      owners.set(appId, await graph.owners(app.objectId, signal));
    }
    contents.set(bucket, {
      basedOn(stored) {
        const content = new Map<string, ReadApplication>([...stored].map(([appId, app]) => [appId, asRead(app)]));
        for (const [appId, app] of changed) {
          const storedApp = stored.get(appId);
          const joined =
            app &&
            joinApplication(app, storedApp && asPrincipal(storedApp), {
              owners: storedApp?.owners ?? owners.get(appId),
              federated: storedApp?.federated,
            });
          if (joined) content.set(appId, joined);
          else content.delete(appId);
        }
        return content;
      },
    });
  }
  return contents;
}

/** Returns a stored application in the form in which it was read. Earlier versions stored each entry of a certificate. */
const asRead = ({ firstSeenAt: _first, details: _details, ...app }: ApplicationRecord): ReadApplication => ({
  ...app,
  credentials: joinSigningCertificates(app.credentials),
});

/**
 * Returns the stored application in Graph's form, without the credentials of its service principal. Undefined if the
 * application belongs to another tenant.
 */
function asListed(app: ApplicationRecord): GraphApplication | undefined {
  const kind = "application";
  if (app.kind !== kind) return undefined;
  const { objectId, appId, displayName, signInAudience, createdOn, owners, credentials } = app;
  const ownCredentials = credentials.filter(({ of }) => of === kind);
  return {
    kind,
    objectId,
    appId,
    displayName,
    ...(signInAudience === undefined ? {} : { signInAudience }),
    ...(createdOn === undefined ? {} : { createdOn }),
    ...(owners === undefined ? {} : { owners }),
    passwords: ownCredentials
      .filter((credential) => credential.kind === "secret")
      .map(({ kind: _, of: __, ...rest }) => rest),
    keys: ownCredentials
      .filter((credential) => credential.kind === "certificate")
      // Graph's type of the certificate is not stored. `credentialsOf` ignores it.
      .map(({ kind: _, of: __, usage = "", ...rest }) => ({ ...rest, usage, type: "" })),
  };
}

/** Returns the stored service principal of the application. Undefined if it has no credentials. */
function asPrincipal({ objectId, appId, displayName, credentials }: ApplicationRecord) {
  const principalCredentials = credentials.filter(({ of }) => of === "servicePrincipal");
  return principalCredentials.length === 0
    ? undefined
    : { objectId, appId, displayName, credentials: principalCredentials };
}

async function writeBucket(
  bucket: string,
  content: BucketContent,
  storedHash: string | undefined,
  {
    leasedRun,
    reading,
    now,
    deps,
  }: { leasedRun: LeasedRun<RunRecord>; reading: Reading; now: string; deps: DiscoverDeps },
) {
  const { tables } = deps;
  const { state } = reading;
  const { worker, confirm } = leasedRun;
  const { complete } = content;
  // A second worker of the run always writes. It first takes the bucket's fence (a row whose ETag each write
  // requires), because requests of the crashed worker may still arrive at storage.
  const isFirstWorker = leasedRun.run.attempts === 1;
  const isUnchanged =
    complete && (storedHash === contentsOf(complete) || (storedHash === undefined && complete.size === 0));
  if (isFirstWorker && complete && isUnchanged) {
    // Also stores that the credentials were seen now. Credentials that were not seen for a week no longer count.
    await writeBucketCredentials(bucket, complete, { state, now, worker, confirm, deps });
    return { added: 0, updated: 0, removed: 0 };
  }
  const fence = tables.fence(AppFences, APPS, fenceKey(bucket), { owner: worker, etag: undefined });
  await fence.take();
  // From here on, writes of earlier workers fail. `confirm` throws if another worker has taken the run over from this one.
  await confirm();
  return await writeContent(bucket, content, fence, { state, now, worker, confirm, deps });
}

/** The write of one bucket. `confirm` throws if the data of this worker may be older than the stored data. */
interface BucketWriting {
  state: StateRecord;
  now: string;
  worker: string;
  confirm: () => Promise<void>;
  deps: Pick<DiscoverDeps, "tables" | "inventory">;
}

const writeBucketCredentials = (
  bucket: string,
  apps: ReadonlyMap<string, ReadApplication>,
  { state: { tenantId, applicationsAt }, now, worker, confirm, deps }: BucketWriting,
) =>
  writeCredentials(
    { tenantId, bucket, apps: apps.values(), now, seenAt: applicationsAt ?? now, workerId: worker },
    { ...deps.inventory, confirm },
  );

/** Writes the content of a bucket whose fence this worker has taken. Returns the numbers of changed applications. */
export async function writeContent(
  bucket: string,
  content: BucketContent,
  fence: Fence,
  writing: BucketWriting,
): Promise<BucketChanges> {
  const { tables } = writing.deps;
  const stored = await readBucket(tables, bucket);
  const apps = content.basedOn(stored);
  const changes = await writeApplications(fence, stored, apps, writing.now);
  await writeBucketCredentials(bucket, apps, writing);
  await writeBucketRow(fence, bucket, apps);
  return changes;
}

/** Returns the total numbers of applications and credentials. Costs two requests. */
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
  const statusTime = await moment();
  const ranges = [rangeOf("critical", statusTime), rangeOf("warning", statusTime)];
  const prefix = vaultInSubscriptionKey(holderSubscription("entra"), "");
  const holders = { partitionKey: VAULTS, from: prefix, before: keyEnd(prefix) };
  for await (const rows of tables.pages(Vaults, holders))
    for (const row of rows)
      for (const type of ASSET_TYPES)
        for (const range of ranges) sums.expiring += countExpiries(expiriesOf(row, type), range);
  return sums;
}

/** Records the run's end in the audit log and ends the run. */
async function finishRun(
  leasedRun: LeasedRun<RunRecord>,
  ending: NonNullable<RunRecord["ending"]>,
  deps: DiscoverDeps,
): Promise<void> {
  const { runId, mode, requestId, failures, attempts } = leasedRun.run;
  const { entryId, finishedAt, status, ...counts } = ending;
  const { apps, credentials, expiring, unnamedOwners, added, updated, removed } = counts;
  const storeEntryId = (id: string) => leasedRun.change({ ending: { ...ending, entryId: id } });
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
    { ...deps, storeEntryId },
  );
  // Requests an evaluation of alerts. After a full run always, because credentials that were not seen for a week can count again.
  // The counts do not include writes of an earlier worker, so a second worker always requests it too.
  if (mode === "full" || attempts > 1 || added + updated + removed > 0) await deps.ended();
  await leasedRun.end({ status, finishedAt, apps, credentials, expiring, unnamedOwners, ending: undefined });
}
