import pMap from "p-map";
import { ASSET_TYPES } from "../inventory/asset.ts";
import { rangeOf } from "../inventory/asset-status.ts";
import { countExpiries } from "../inventory/expiries.ts";
import { b2cHolderName, holderSubscription } from "../inventory/holder.ts";
import { expiriesOf, VAULTS, Vaults, vaultInSubscriptionKey } from "../inventory/vault.ts";
import { type HolderDiscoveryDeps, writeHolder } from "../inventory/write-holder.ts";
import { CloudFailure } from "../platform/azure/failure.ts";
import type { Registration } from "../platform/azure/token-endpoint.ts";
import type { LeasedRun, ListFailure } from "../platform/runs/discovery-runs.ts";
import { recordRunEnd } from "../platform/runs/record-run-end.ts";
import { withoutKeys } from "../platform/storage/entity.ts";
import { keyEnd } from "../platform/storage/keys.ts";
import { MINUTE_MS } from "../platform/time.ts";
import type { StoredSecrets } from "../secrets/stored-secrets.ts";
import {
  canHaveList,
  isAbsent,
  mismatchOf,
  type TenantReader,
  tenantTypeOf,
  unlessFailure,
} from "./connection-test.ts";
import { KIND_OF, type ReadHolder, readList } from "./read-tenant.ts";
import {
  type Counts,
  LISTS,
  type List,
  type RunRecord,
  Statuses,
  secretUse,
  statusKey,
  TENANTS,
  type TenantRecord,
  type TenantStatus,
} from "./tenant.ts";
import { type Finding, ownTenant, secretMissing, unreadableList } from "./tenant-problems.ts";

/** Time limit for reading a whole tenant, below the maximum duration of an invocation (host.json). */
const READING_MS = 8 * MINUTE_MS;
/** Maximum number of holders that are written concurrently. */
const MAX_CONCURRENT_WRITES = 4;

/** The services that a discovery needs. */
export interface DiscoverDeps extends HolderDiscoveryDeps {
  /** Creates a Microsoft Graph client for another tenant. */
  graphOf: (registration: Registration) => TenantReader;
  secrets: StoredSecrets;
  /** Returns true for the service's own tenant. */
  isOwnTenant: (tenantId: string) => Promise<boolean>;
}

/** Result of reading a tenant. */
interface Reading {
  holders: ReadHolder[];
  /** Number of kinds of credential that were read, or that do not exist in this type of tenant. */
  kindsRead: number;
  failures: ListFailure[];
  /** Members of the tenant's status that the reading determined. */
  statusChange: Pick<TenantStatus, "tenantType" | "secretEnds">;
}

/**
 * Executes a discovery run: reads a tenant's credentials through Microsoft Graph and writes them to the inventory. The
 * inventory groups them by holder, an entry that takes the place of a vault. After a crash another worker reads the tenant
 * again. A failure of the tenant becomes the run's outcome. Other errors are thrown, so that the queue redelivers the message.
 */
export async function discoverTenant(
  leasedRun: LeasedRun<RunRecord>,
  tenant: TenantRecord,
  deps: DiscoverDeps,
): Promise<void> {
  const { clock, log } = deps;
  const { run } = leasedRun;
  // An earlier worker has decided the outcome and crashed before the end of the run was written.
  if (run.ending) return await complete(leasedRun, run.ending, deps);
  const now = clock.now().toISOString();
  await changeStatus(run, deps, (status) => ({ ...status, runId: run.runId, attemptedAt: now }));
  const signal = AbortSignal.any([leasedRun.signal, AbortSignal.timeout(READING_MS)]);
  const { holders, kindsRead, failures, statusChange } = await readTenant(tenant, { now, signal, deps });
  // Reading can take minutes. In the meantime another worker may have taken the run over, or the tenant may have been removed.
  await leasedRun.confirm();
  const content = { source: "b2c" as const, tenantId: tenant.tenantId, now, seenAt: now, workerId: leasedRun.worker };
  await pMap(
    holders,
    async (holder) => await writeHolder({ ...content, ...holder }, { ...deps.inventory, confirm: leasedRun.confirm }),
    { concurrency: MAX_CONCURRENT_WRITES },
  );
  await leasedRun.confirm();
  await changeStatus(run, deps, (status) => ({
    ...status,
    ...statusChange,
    ...(kindsRead > 0 ? { lastDiscoveredAt: now } : {}),
  }));
  const ending: NonNullable<RunRecord["ending"]> = {
    status: failures.length === 0 ? "completed" : kindsRead > 0 ? "partial" : "failed",
    finishedAt: clock.now().toISOString(),
    entryId: deps.randomness.ulid(clock.now()),
    counts: await countsOf(tenant.tenantId, deps),
  };
  await leasedRun.change({ failures, ending });
  log.info("A B2C tenant was discovered", { runId: run.runId, tenantId: run.tenantId, ...ending });
  await complete(leasedRun, ending, deps);
}

async function readTenant(
  tenant: TenantRecord,
  { now, signal, deps }: { now: string; signal: AbortSignal; deps: DiscoverDeps },
): Promise<Reading> {
  const reading: Reading = { holders: [], kindsRead: 0, failures: [], statusChange: {} };
  const fail = (list: string, { code, message, remedy }: Finding) =>
    reading.failures.push({ list, code, message, remedy, at: now });
  /** Ends the reading with a failure that prevents all further requests. */
  const stop = (list: string, finding: Finding) => {
    fail(list, finding);
    return reading;
  };

  const secret = await unlessFailure(deps.secrets.read(tenant.clientSecret, secretUse(tenant)));
  if (secret instanceof CloudFailure) return stop("signIn", secret);
  if (secret === undefined) return stop("signIn", secretMissing);
  if (await deps.isOwnTenant(tenant.tenantId)) return stop("organization", ownTenant);
  const { tenantId, clientId } = tenant;
  const graph = deps.graphOf({ tenantId, clientId, clientSecret: secret });
  const organization = await unlessFailure(graph.organization(signal));
  if (organization instanceof CloudFailure) {
    // This is the first request, so the client signs in for it. If only the permission is missing, credentials may still be
    // readable. Any other failure ends the reading and counts as one of the sign-in.
    if (organization.code !== "accessDenied") return stop("signIn", organization);
    fail("organization", unreadableList("organization", tenant, organization));
  } else if (organization) {
    const type = tenantTypeOf(organization);
    if (type) reading.statusChange.tenantType = type;
    // Credentials of a different tenant must not be stored under this tenant's name.
    const mismatch = mismatchOf(tenant, organization);
    if (mismatch) return stop("organization", mismatch);
  }

  for (const list of LISTS) {
    const type = reading.statusChange.tenantType;
    const holders = canHaveList(list, type)
      ? await unlessFailure(readList[list](graph, { ...tenant, now }, signal))
      : [];
    if (!(holders instanceof CloudFailure)) reading.holders.push(...holders);
    else if (!isAbsent(list, type, holders)) {
      fail(list, unreadableList(list, tenant, holders));
      continue;
    }
    reading.kindsRead++;
  }
  reading.statusChange = { ...reading.statusChange, ...expiryOfUsedSecret(tenant, secret, reading.holders) };
  return reading;
}

/**
 * Returns the expiry date of the client secret that the service uses. Graph returns only the first characters of secrets, so
 * the secret is found by them. Returns nothing if several secrets start with the same characters.
 */
function expiryOfUsedSecret(
  { clientId, clientSecret }: TenantRecord,
  secret: string,
  holders: readonly ReadHolder[],
): Pick<TenantStatus, "secretEnds"> {
  const candidates = holders
    .flatMap(({ assets }) => assets)
    // `credential.of` is set only for credentials of applications.
    .filter(({ type, credential }) => type === "secret" && credential?.of && credential.appId === clientId)
    .filter(({ credential }) => credential?.hint !== undefined && secret.startsWith(credential.hint));
  const [secretInUse, furtherCandidate] = candidates;
  if (secretInUse?.expiresOn === undefined || furtherCandidate) return {};
  // Names the stored secret, so that the date does not apply to a later one.
  return { secretEnds: { of: clientSecret.id, at: new Date(secretInUse.expiresOn * 1000).toISOString() } };
}

/** Counts the tenant's credentials in the inventory. Costs one request. */
async function countsOf(tenantId: string, { tables, moment }: DiscoverDeps): Promise<Counts> {
  const byKind = { applications: 0, policyKeys: 0, identityProviders: 0 };
  const byStatus = { expired: 0, critical: 0, warning: 0 };
  const statusTime = await moment();
  const kinds = LISTS.map((list): [List, string] => [list, b2cHolderName(tenantId, KIND_OF[list])]);
  const prefix = vaultInSubscriptionKey(holderSubscription("b2c"), `b2c-${tenantId}-`);
  const range = { partitionKey: VAULTS, from: prefix, before: keyEnd(prefix) };
  for await (const rows of tables.pages(Vaults, range)) {
    for (const row of rows) {
      const list = kinds.find(([, start]) => row.name.startsWith(start))?.[0];
      if (list === undefined) continue;
      for (const type of ASSET_TYPES) {
        byKind[list] += countExpiries(expiriesOf(row, type));
        for (const status of ["expired", "critical", "warning"] as const)
          byStatus[status] += countExpiries(expiriesOf(row, type), rangeOf(status, statusTime));
      }
    }
  }
  const { expired, critical, warning } = byStatus;
  return { ...byKind, expiring: critical + warning, critical, expired };
}

/**
 * Updates the tenant's status. Does nothing while a newer run is in progress: it writes its ID at its start and removes it at
 * its end. Run IDs are ULIDs, which sort by time.
 */
export async function changeStatus(
  { tenantId, runId }: Pick<RunRecord, "tenantId" | "runId">,
  { tables }: Pick<DiscoverDeps, "tables">,
  change: (status: TenantStatus) => TenantStatus,
): Promise<void> {
  await tables.modify(Statuses, TENANTS, statusKey(tenantId), (stored) =>
    stored?.runId !== undefined && stored.runId > runId ? undefined : change(stored ? withoutKeys(stored) : {}),
  );
}

/** Records the run's end in the audit log and ends it. */
async function complete(
  leasedRun: LeasedRun<RunRecord>,
  ending: NonNullable<RunRecord["ending"]>,
  deps: DiscoverDeps,
): Promise<void> {
  const { runId, tenantId, requestId, failures } = leasedRun.run;
  const { entryId, finishedAt, status, counts } = ending;
  const storeEntryId = (id: string) => leasedRun.change({ ending: { ...ending, entryId: id } });
  await recordRunEnd(
    deps.audit,
    {
      id: entryId,
      type: "b2cTenant.discovered",
      caller: { actor: "system", requestId },
      outcome: status === "completed" ? "success" : "failure",
      target: { type: "b2cTenant", id: tenantId },
      details: { runId, status, ...counts, failures: failures.map(({ list, code }) => `${list}: ${code}`) },
    },
    { ...deps, storeEntryId },
  );
  // Requests an evaluation of alerts. Before the run's end, so that it is repeated after a crash.
  await deps.ended();
  await leasedRun.confirm();
  await changeStatus(leasedRun.run, deps, ({ runId: _, ...others }) => ({
    ...others,
    ended: status,
    counts,
    failures,
  }));
  await leasedRun.end({ status, finishedAt, counts, ending: undefined });
}
