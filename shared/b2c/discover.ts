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
import { isAbsent, mayHave, mismatchOf, type TenantReader, tenantTypeOf, unlessFailure } from "./connection-test.ts";
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
const HOLDERS_AT_ONCE = 4;

/** The services that a discovery needs. */
export interface DiscoverDeps extends HolderDiscoveryDeps {
  /** Creates a Microsoft Graph client for another tenant. */
  graphOf: (registration: Registration) => TenantReader;
  secrets: StoredSecrets;
  isOwn: (tenantId: string) => Promise<boolean>;
}

/** Result of reading a tenant. */
interface Reading {
  holders: ReadHolder[];
  /** Kinds that were read, or that do not exist in this type of tenant. */
  read: number;
  failures: ListFailure[];
  found: Pick<TenantStatus, "tenantType" | "secretEnds">;
}

/**
 * Reads a tenant's credentials and updates the inventory, one holder after the other. After a crash another worker reads again.
 * A failure of the tenant becomes the run's outcome. Other errors are thrown, so that the queue redelivers the message.
 */
export async function discoverTenant(
  held: LeasedRun<RunRecord>,
  tenant: TenantRecord,
  deps: DiscoverDeps,
): Promise<void> {
  const { clock, log } = deps;
  const { run } = held;
  if (run.ending) return await complete(held, run.ending, deps);
  const now = clock.now().toISOString();
  await changeStatus(run, deps, (known) => ({ ...known, runId: run.runId, attemptedAt: now }));
  const signal = AbortSignal.any([held.signal, AbortSignal.timeout(READING_MS)]);
  const { holders, read, failures, found } = await readTenant(tenant, { now, signal, deps });
  // Reading takes time: another worker may have taken over the run, or the tenant may have been removed.
  await held.confirm();
  const content = { source: "b2c" as const, tenantId: tenant.tenantId, now, seenAt: now, owner: held.worker };
  await pMap(
    holders,
    async (holder) => await writeHolder({ ...content, ...holder }, { ...deps.inventory, confirm: held.confirm }),
    { concurrency: HOLDERS_AT_ONCE },
  );
  await held.confirm();
  await changeStatus(run, deps, (known) => ({ ...known, ...found, ...(read > 0 ? { lastDiscoveredAt: now } : {}) }));
  const ending: NonNullable<RunRecord["ending"]> = {
    status: failures.length === 0 ? "completed" : read > 0 ? "partial" : "failed",
    finishedAt: clock.now().toISOString(),
    entryId: deps.randomness.ulid(clock.now()),
    counts: await countsOf(tenant.tenantId, deps),
  };
  await held.change({ failures, ending });
  log.info("A B2C tenant was discovered", { runId: run.runId, tenantId: run.tenantId, ...ending });
  await complete(held, ending, deps);
}

async function readTenant(
  tenant: TenantRecord,
  { now, signal, deps }: { now: string; signal: AbortSignal; deps: DiscoverDeps },
): Promise<Reading> {
  const reading: Reading = { holders: [], read: 0, failures: [], found: {} };
  const fail = (list: string, { code, message, remedy }: Finding) =>
    reading.failures.push({ list, code, message, remedy, at: now });
  const stop = (list: string, finding: Finding) => {
    fail(list, finding);
    return reading;
  };

  const secret = await unlessFailure(deps.secrets.read(tenant.clientSecret, secretUse(tenant)));
  if (secret instanceof CloudFailure) return stop("signIn", secret);
  if (secret === undefined) return stop("signIn", secretMissing);
  if (await deps.isOwn(tenant.tenantId)) return stop("organization", ownTenant);
  const { tenantId, clientId } = tenant;
  const graph = deps.graphOf({ tenantId, clientId, clientSecret: secret });
  const organization = await unlessFailure(graph.organization(signal));
  if (organization instanceof CloudFailure) {
    // If this kind can't be read, others may still be readable.
    if (organization.code !== "accessDenied") return stop("signIn", organization);
    fail("organization", unreadableList("organization", tenant, organization));
  } else if (organization) {
    const type = tenantTypeOf(organization);
    if (type) reading.found.tenantType = type;
    // Credentials of a different tenant must not be stored under this tenant's name.
    const mismatch = mismatchOf(tenant, organization);
    if (mismatch) return stop("organization", mismatch);
  }

  for (const list of LISTS) {
    const type = reading.found.tenantType;
    const holders = mayHave(list, type) ? await unlessFailure(readList[list](graph, { ...tenant, now }, signal)) : [];
    if (!(holders instanceof CloudFailure)) reading.holders.push(...holders);
    else if (!isAbsent(list, type, holders)) {
      fail(list, unreadableList(list, tenant, holders));
      continue;
    }
    reading.read++;
  }
  reading.found = { ...reading.found, ...secretEnds(tenant, secret, reading.holders) };
  return reading;
}

/**
 * Returns the expiry date of the client secret that the service uses: the secret of its application with the same first
 * characters, if it is the only one.
 */
function secretEnds(
  { clientId, clientSecret }: TenantRecord,
  secret: string,
  holders: readonly ReadHolder[],
): Pick<TenantStatus, "secretEnds"> {
  const own = holders
    .flatMap(({ assets }) => assets)
    .filter(({ type, credential }) => type === "secret" && credential?.of && credential.appId === clientId)
    .filter(({ credential }) => credential?.hint !== undefined && secret.startsWith(credential.hint));
  const [one, other] = own;
  if (one?.expiresOn === undefined || other) return {};
  return { secretEnds: { of: clientSecret.id, at: new Date(one.expiresOn * 1000).toISOString() } };
}

/** Returns the tenant's holders in the inventory. Costs one request. */
async function countsOf(tenantId: string, { tables, moment }: DiscoverDeps): Promise<Counts> {
  const counts: Counts = { applications: 0, policyKeys: 0, identityProviders: 0, expiring: 0 };
  const at = await moment();
  const ranges = [rangeOf("critical", at), rangeOf("warning", at)];
  const kinds = LISTS.map((list): [List, string] => [list, b2cHolderName(tenantId, KIND_OF[list])]);
  const prefix = vaultInSubscriptionKey(holderSubscription("b2c"), `b2c-${tenantId}-`);
  const range = { partitionKey: VAULTS, from: prefix, before: keyEnd(prefix) };
  for await (const rows of tables.pages(Vaults, range)) {
    for (const row of rows) {
      const list = kinds.find(([, start]) => row.name.startsWith(start))?.[0];
      if (list === undefined) continue;
      for (const type of ASSET_TYPES) {
        counts[list] += countExpiries(expiriesOf(row, type));
        for (const one of ranges) counts.expiring += countExpiries(expiriesOf(row, type), one);
      }
    }
  }
  return counts;
}

/** Updates the tenant's status, only for its newest run. */
export async function changeStatus(
  { tenantId, runId }: Pick<RunRecord, "tenantId" | "runId">,
  { tables }: Pick<DiscoverDeps, "tables">,
  change: (known: TenantStatus) => TenantStatus,
): Promise<void> {
  await tables.modify(Statuses, TENANTS, statusKey(tenantId), (now) =>
    now?.runId !== undefined && now.runId > runId ? undefined : change(now ? withoutKeys(now) : {}),
  );
}

/** Records the run's end in the audit log and ends it. */
async function complete(
  held: LeasedRun<RunRecord>,
  ending: NonNullable<RunRecord["ending"]>,
  deps: DiscoverDeps,
): Promise<void> {
  const { runId, tenantId, requestId, failures } = held.run;
  const { entryId, finishedAt, status, counts } = ending;
  const keep = (id: string) => held.change({ ending: { ...ending, entryId: id } });
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
    { ...deps, keep },
  );
  await deps.ended();
  await held.confirm();
  await changeStatus(held.run, deps, ({ runId: _, ...known }) => ({ ...known, ended: status, counts, failures }));
  await held.end({ status, finishedAt, counts, ending: undefined });
}
